//! Launch attributes of kernel nodes.

use retrograph_driver_sys::{CUgraphNode, CUlaunchAttributeID, CUlaunchAttributeValue};

use super::template::{Graph, Node};
use crate::context::Context;
use crate::error::Result;
use crate::launch::LaunchAttributes;

impl Graph {
    /// The launch attributes of a kernel node, without the preferred carve-out: a node without one
    /// reports 0, like a node with 0 percent.
    ///
    /// # Errors
    /// If the node belongs to another graph or is not a kernel node, or the driver fails.
    pub fn launch_attributes(&self, node: Node) -> Result<LaunchAttributes> {
        self.check_nodes(&[node])?;
        self.context.bind()?;
        // SAFETY: the node belongs to this graph, which lives.
        unsafe { attributes_of(&self.context, node) }
    }

    /// Sets the launch attributes of a kernel node that was just added; removes the node if the
    /// driver refuses one.
    pub(super) fn set_launch_attributes(
        &mut self,
        node: Node,
        attributes: &LaunchAttributes,
    ) -> Result<()> {
        let set = attributes.raw().into_iter().try_for_each(|attribute| {
            // SAFETY: the node belongs to this graph, and the value is of the attribute's type.
            unsafe {
                call!(
                    self.context,
                    cuGraphKernelNodeSetAttribute(node.raw(), attribute.id, &attribute.value)
                )
            }
        });
        set.inspect_err(|_| {
            // SAFETY: as above. Only the caller of `add_kernel` would have got the handle.
            let removed = unsafe { call!(self.context, cuGraphDestroyNode(node.raw())) };
            removed
                .unwrap_or_else(|error| tracing::warn!(%error, "the node is still in the graph"));
        })
    }
}

/// Reads the launch attributes of a kernel node, without the preferred carve-out.
///
/// # Safety
/// The graph of the node must live, and the context must be current.
pub(super) unsafe fn attributes_of(context: &Context, node: Node) -> Result<LaunchAttributes> {
    let read = |attribute| -> Result<CUlaunchAttributeValue> {
        let (raw, mut value): (CUgraphNode, _) = (node.raw(), CUlaunchAttributeValue::default());
        // SAFETY: the caller promises that the node lives, and the out pointer is valid.
        unsafe { call!(context, cuGraphKernelNodeGetAttribute(raw, attribute, &mut value)) }?;
        Ok(value)
    };
    // Older devices have no clusters.
    let cluster = match context.compute_capability() >= (9, 0) {
        true => read(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)?,
        false => CUlaunchAttributeValue::default(),
    };
    let cooperative = read(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE)?;
    // SAFETY: the driver wrote these fields, and zeros are valid in each.
    let (cluster, cooperative) = unsafe { (cluster.clusterDim, cooperative.cooperative) };
    let mut attributes = LaunchAttributes::new();
    if [cluster.x, cluster.y, cluster.z] != [0; 3] {
        attributes = attributes.cluster([cluster.x, cluster.y, cluster.z]);
    }
    Ok(if cooperative == 0 { attributes } else { attributes.cooperative() })
}
