//! Launch attributes (`cuLaunchKernelEx`).

use std::ffi::c_void;

use retrograph_driver_sys::*;

use super::launch::LaunchRequest;
use crate::argument::{Admit, Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Route, State};

/// The portable maximum of a cluster's blocks, and the maximum for functions that allow more.
pub(super) const PORTABLE_CLUSTER: u64 = 8;
const MAX_CLUSTER: u64 = 16;

/// The effect of a launch's attributes.
#[derive(Default)]
pub(super) struct Attributes {
    /// The cluster size.
    pub(super) cluster: Option<[u32; 3]>,
    /// Whether the launch is cooperative.
    is_cooperative: bool,
    /// Whether the launch may start before the kernel before it has ended.
    is_programmatic: bool,
    /// Whether a captured launch with one of the attributes is not simulated.
    only_eager: bool,
}

impl State {
    pub(crate) fn cuLaunchKernelEx(
        &mut self,
        config: In<CUlaunchConfig>,
        function: CUfunction,
        parameters: Out<*mut c_void>,
        extra: Out<*mut c_void>,
    ) -> Call {
        let config = config.get()?;
        self.check_legacy_stream(config.hStream)?;
        self.resolved(function)?;
        let attributes = self.launch_attributes(&config)?;
        let Attributes { cluster, is_cooperative, is_programmatic, only_eager } = attributes;
        let base = LaunchRequest::of_config(&config);
        let request =
            LaunchRequest { function, parameters, extra, cluster, is_cooperative, ..base };
        if only_eager {
            self.refuse_captured_attributes(config.hStream)?;
        }
        self.launch_request(config.hStream, &request)?;
        if is_programmatic { self.keep_programmatic_edges(config.hStream) } else { Ok(()) }
    }

    /// Reads the attributes of a launch. The last one of a kind wins.
    pub(super) fn launch_attributes(
        &mut self,
        config: &CUlaunchConfig,
    ) -> Result<Attributes, Refusal> {
        // SAFETY: like arguments, the list is valid for `numAttrs` elements.
        let list: In<CUlaunchAttribute> = unsafe { config.attrs.cast_const().admit() };
        let mut found = Attributes::default();
        for attribute in list.list(config.numAttrs as usize)? {
            self.take_attribute(&mut found, &attribute)?;
        }
        Ok(found)
    }

    fn take_attribute(&mut self, found: &mut Attributes, given: &CUlaunchAttribute) -> Call {
        use CUlaunchAttributeID as A;
        // SAFETY: the union is 64 bytes that are valid for any contents.
        let bytes = unsafe { given.value.pad };
        let word = |index: usize| {
            let part: [u8; 4] = std::array::from_fn(|byte| bytes[4 * index + byte]);
            u32::from_ne_bytes(part)
        };
        let is_zero = bytes == [0; 64];
        found.only_eager |= !matches!(
            given.id,
            A::CU_LAUNCH_ATTRIBUTE_IGNORE
                | A::CU_LAUNCH_ATTRIBUTE_COOPERATIVE
                | A::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
                | A::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
                | A::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        );
        match given.id {
            A::CU_LAUNCH_ATTRIBUTE_COOPERATIVE => found.is_cooperative = word(0) != 0,
            A::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                found.cluster = Some([word(0), word(1), word(2)]);
            }
            // Permits early starts, which the simulator does not use.
            A::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION => {
                found.is_programmatic = word(0) != 0;
            }
            // These change only speed.
            A::CU_LAUNCH_ATTRIBUTE_IGNORE
            | A::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
            | A::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
            | A::CU_LAUNCH_ATTRIBUTE_PRIORITY
            | A::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
            | A::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
            | A::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
            | A::CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING => {}
            A::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION if is_zero => {}
            A::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY if is_zero => {
                return Err(invalid(Rule::LaunchAttributeValue));
            }
            A::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
            | A::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT
                if is_zero =>
            {
                let code = CUresult::CUDA_ERROR_INVALID_HANDLE;
                return Err(refuse(code, Rule::LaunchAttributeEvent));
            }
            A::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE if is_zero => {
                let code = CUresult::CUDA_ERROR_NOT_SUPPORTED;
                return Err(refuse(code, Rule::LaunchAttributeOfNodes));
            }
            other if other.0 <= A::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT.0 => {
                return Err(self.unsupported(format!("{other:?} of launches")));
            }
            _ => return Err(invalid(Rule::LaunchAttribute)),
        }
        Ok(())
    }

    /// Checks the cluster size that the launch requests, or else its function declares, and returns
    /// it. Without one each block is a cluster.
    pub(super) fn check_cluster(
        &mut self,
        function: CUfunction,
        request: &LaunchRequest,
    ) -> Result<[u32; 3], Refusal> {
        let found = self.functions.get(function)?;
        let limits = found.program.entry().limits;
        let set = found.cluster.map(i32::cast_unsigned);
        let most = if found.large_clusters { MAX_CLUSTER } else { PORTABLE_CLUSTER };
        let bad = |rule| Err(refuse(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE, rule));
        let required = match set {
            [0, 0, 0] => None,
            set if set.contains(&0) => {
                return Err(self.unsupported("a cluster with only some dimensions set"));
            }
            set => Some(set),
        };
        let Some(cluster) = request.cluster.or(required) else {
            return if limits.explicit_cluster { bad(Rule::ClusterExplicit) } else { Ok([1; 3]) };
        };
        if required.is_some_and(|required| required != cluster) {
            return bad(Rule::ClusterRequired);
        }
        let blocks: u64 = cluster.iter().map(|&size| u64::from(size)).product();
        if blocks == 0 || blocks > most {
            return bad(Rule::ClusterSize);
        }
        if limits.max_cluster_rank.is_some_and(|rank| blocks > u64::from(rank)) {
            return bad(Rule::ClusterRank);
        }
        if request.grid.iter().zip(cluster).any(|(blocks, cluster)| !blocks.is_multiple_of(cluster))
        {
            return bad(Rule::ClusterGrid);
        }
        Ok(cluster)
    }

    /// Reports attributes of captured launches as unsupported.
    fn refuse_captured_attributes(&mut self, stream: CUstream) -> Call {
        match self.route(stream)? {
            Route::Queue(_) => Ok(()),
            Route::Capture(..) => Err(self.unsupported("attributes of launches in a capture")),
        }
    }
}
