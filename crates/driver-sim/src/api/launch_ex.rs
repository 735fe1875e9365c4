//! Launches with attributes.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use super::launch::Request;
use crate::argument::{Admit, Call, In, Out};
use crate::refusal::{Refusal, invalid, refuse};
use crate::state::State;

/// Blocks of the largest cluster of every device, and of this one.
pub(super) const PORTABLE_CLUSTER: u32 = 8;
const LARGEST_CLUSTER: u32 = 16;
/// How threads wait for a stream: automatically, or in one of three other ways.
const POLICIES: std::ops::RangeInclusive<u32> = 1..=4;

/// What the attributes of a launch say.
#[derive(Default)]
struct Attributes {
    cluster: Option<[u32; 3]>,
    is_cooperative: bool,
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
        self.resolve(config.hStream)?;
        let attributes = self.attributes(&config)?;
        let request = Request {
            function,
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            block: [config.blockDimX, config.blockDimY, config.blockDimZ],
            shared_bytes: config.sharedMemBytes,
            parameters,
            extra,
            cluster: attributes.cluster,
        };
        self.resolved(function)?;
        if let Some(cluster) = attributes.cluster {
            self.check_cluster(&request, cluster)?;
        }
        if attributes.is_cooperative {
            self.check_cooperative(&request)?;
        }
        self.launch_request(config.hStream, &request)
    }

    fn attributes(&mut self, config: &CUlaunchConfig) -> Result<Attributes, Refusal> {
        // SAFETY: the list of attributes is valid for as many as the configuration says.
        let list: Out<CUlaunchAttribute> = unsafe { config.attrs.admit() };
        let mut found = Attributes::default();
        for attribute in list.input().list(config.numAttrs as usize)? {
            self.attribute(&attribute, &mut found)?;
        }
        Ok(found)
    }

    /// Reads one attribute; the last of a kind counts.
    fn attribute(&mut self, attribute: &CUlaunchAttribute, into: &mut Attributes) -> Call {
        use CUlaunchAttributeID as Id;
        let value = &attribute.value;
        // SAFETY: every field of the union is plain data of the same 64 bytes, which the caller
        // wrote; all of their values are valid for the types that are read here.
        let (number, words) = unsafe { (value.cooperative, value.clusterDim) };
        match attribute.id {
            Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE => into.is_cooperative = number != 0,
            Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                into.cluster = Some([words.x, words.y, words.z]);
            }
            Id::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY => {
                if !POLICIES.contains(&number.cast_unsigned()) {
                    return Err(invalid("launch.policy"));
                }
            }
            Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
            | Id::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
                if words.x == 0 && words.y == 0 {
                    let code = CUresult::CUDA_ERROR_INVALID_HANDLE;
                    return Err(refuse(code, "launch.no_event"));
                }
                return Err(self.unsupported("events inside of launches are not simulated"));
            }
            Id::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE => {
                let code = CUresult::CUDA_ERROR_NOT_SUPPORTED;
                return Err(refuse(code, "launch.updatable"));
            }
            Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION if words.x != 0 => {
                return Err(self.unsupported("preferred clusters are not simulated"));
            }
            // These change when a kernel runs and where its data lies, but not what it computes.
            Id::CU_LAUNCH_ATTRIBUTE_IGNORE
            | Id::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
            | Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
            | Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            | Id::CU_LAUNCH_ATTRIBUTE_PRIORITY
            | Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
            | Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
            | Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION
            | Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
            | Id::CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING => {}
            _ => return Err(invalid("launch.attribute")),
        }
        Ok(())
    }

    /// Refuses clusters that the device cannot have, or that do not divide the grid.
    fn check_cluster(&mut self, request: &Request, cluster: [u32; 3]) -> Call {
        let function = self.resolved(request.function)?;
        let is_large = self.functions.get(function)?.large_clusters != 0;
        let most = if is_large { LARGEST_CLUSTER } else { PORTABLE_CLUSTER };
        let blocks: u64 = cluster.iter().map(|&size| u64::from(size)).product();
        let divides = |(size, part): (&u32, &u32)| *part > 0 && size.is_multiple_of(*part);
        let fits = request.grid.iter().zip(&cluster).all(divides);
        if !fits || blocks > u64::from(most) {
            let code = CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE;
            return Err(refuse(code, "launch.cluster"));
        }
        Ok(())
    }
}
