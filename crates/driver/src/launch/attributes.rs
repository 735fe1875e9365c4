//! Launch attributes.

use retrograph_driver_sys::{
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchAttributeValue_clusterDim,
};

use crate::context::Context;

/// How blocks are scheduled, beyond grid and block. Without attributes, blocks run independently.
///
/// ```
/// use retrograph_driver::LaunchAttributes;
///
/// // Pairs of blocks that share their shared memory, of which a multiprocessor gets the most.
/// let attributes = LaunchAttributes::new().cluster([2, 1, 1]).shared_carveout(100);
/// assert_ne!(attributes, LaunchAttributes::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchAttributes {
    cluster: Option<[u32; 3]>,
    is_cooperative: bool,
    shared_carveout: Option<u32>,
    is_programmatic: bool,
}

impl LaunchAttributes {
    /// No attributes.
    pub const fn new() -> Self {
        Self { cluster: None, is_cooperative: false, shared_carveout: None, is_programmatic: false }
    }

    /// Sets the size of a thread block cluster in x, y, z. It must divide the grid. Devices of
    /// compute capability 9.0 and newer have clusters. Every such device accepts up to 8 blocks;
    /// [`Function::allow_non_portable_clusters`](crate::Function::allow_non_portable_clusters)
    /// permits more.
    pub const fn cluster(mut self, blocks: [u32; 3]) -> Self {
        self.cluster = Some(blocks);
        self
    }

    /// Makes the launch cooperative: all blocks are resident at once, so that they can wait for
    /// each other. The driver refuses a grid that does not fit on the device.
    pub const fn cooperative(mut self) -> Self {
        self.is_cooperative = true;
        self
    }

    /// Sets the preferred part of the L1 cache that serves as shared memory, in percent of the most
    /// shared memory of a multiprocessor. This is a hint.
    ///
    /// CUDA 12.5 introduced the attribute; older drivers refuse the launch. CUDA documents it for
    /// launches but not for graph nodes; driver 580 accepts it in
    /// [`Graph::add_kernel`](crate::Graph::add_kernel), too. Drivers refuse more than 100.
    /// [`Function::set_shared_carveout`](crate::Function::set_shared_carveout) works with every
    /// driver.
    pub const fn shared_carveout(mut self, percent: u32) -> Self {
        self.shared_carveout = Some(percent);
        self
    }

    /// Allows the kernel to start before the kernel before it on the stream has ended
    /// (programmatic dependent launch, PDL): once every block of that kernel has exited or has
    /// executed `griddepcontrol.launch_dependents`. After other work, the kernel waits as usual.
    ///
    /// Devices of compute capability 9.0 and newer have it. A capture makes the edge from the
    /// kernel before programmatic. [`Graph::add_kernel`](crate::Graph::add_kernel) ignores the
    /// attribute; use [`Graph::add_programmatic_edge`](crate::Graph::add_programmatic_edge).
    ///
    /// # Safety
    /// Every thread of the kernel must execute `griddepcontrol.wait` before it exits, before it
    /// reads memory that earlier work on the stream writes, and before it writes memory that
    /// earlier work accesses.
    ///
    /// ```compile_fail,E0133
    /// let early = retrograph_driver::LaunchAttributes::new().programmatic_stream_serialization();
    /// ```
    pub const unsafe fn programmatic_stream_serialization(mut self) -> Self {
        self.is_programmatic = true;
        self
    }

    /// Makes the launch wait for all earlier work on the stream, as without
    /// [`LaunchAttributes::programmatic_stream_serialization`].
    pub const fn full_stream_serialization(mut self) -> Self {
        self.is_programmatic = false;
        self
    }

    /// Whether the launch has [`LaunchAttributes::programmatic_stream_serialization`].
    pub const fn is_programmatic(&self) -> bool {
        self.is_programmatic
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::new()
    }

    /// The attributes that a graph node reports
    /// ([`Graph::launch_attributes`](crate::Graph::launch_attributes)): not the preferred
    /// carve-out, and a programmatic edge is no attribute of its node.
    pub const fn of_nodes(self) -> Self {
        Self { shared_carveout: None, ..self.full_stream_serialization() }
    }

    /// The first attribute that the device of `context` does not have, and the first compute
    /// capability that has it.
    pub(super) fn missing_on(&self, context: &Context) -> Option<(&'static str, (u32, u32))> {
        let capability = context.compute_capability();
        let needs = [
            (self.cluster.is_some(), "a cluster size", (9, 0)),
            (self.is_programmatic, "programmatic stream serialization", (9, 0)),
            (self.is_cooperative, "the cooperative attribute", (6, 0)),
        ];
        let missing = |&(is_set, _, required): &(bool, _, _)| is_set && capability < required;
        needs.into_iter().find(missing).map(|(_, attribute, required)| (attribute, required))
    }

    /// The attributes as the driver expects them.
    pub(crate) fn raw(&self) -> Vec<CUlaunchAttribute> {
        use CUlaunchAttributeID as Id;
        let [x, y, z] = self.cluster.unwrap_or_default();
        let cluster = CUlaunchAttributeValue_clusterDim { x, y, z };
        let carveout = self.shared_carveout.unwrap_or_default();
        let all = [
            (
                self.cluster.is_some(),
                Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                CUlaunchAttributeValue { clusterDim: cluster },
            ),
            (
                self.is_cooperative,
                Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                CUlaunchAttributeValue { cooperative: 1 },
            ),
            (
                self.shared_carveout.is_some(),
                Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                CUlaunchAttributeValue { sharedMemCarveout: carveout },
            ),
            (
                self.is_programmatic,
                Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
            ),
        ];
        let given = all.into_iter().filter(|(is_set, ..)| *is_set);
        given.map(|(_, id, value)| CUlaunchAttribute { id, value, ..Default::default() }).collect()
    }
}
