//! Attributes of kernel nodes.

use std::ptr::null_mut;

use retrograph_driver_sys::*;

use super::launch::LaunchRequest;
use super::streams::GREATEST_PRIORITY;
use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, Rule, invalid};
use crate::state::{NodeKind, State};
use crate::work::Operation;

/// The attributes that kernel nodes keep, and the sizes of their values. Unset values are zero.
const KEPT: [(CUlaunchAttributeID, usize); 6] = [
    (CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, 32),
    (CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 4),
    (CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 12),
    (CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY, 4),
    (CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, 4),
    (CARVEOUT, 4),
];

/// The preferred shared-memory carve-out in percent.
const CARVEOUT: CUlaunchAttributeID =
    CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;

/// The last launch attribute of the driver.
const LAST: CUlaunchAttributeID =
    CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING;

impl State {
    fn kernel_node(&mut self, node: CUgraphNode) -> Result<CUgraphNode, Refusal> {
        let node = self.known_node(node)?;
        match &self.nodes.get(node)?.kind {
            NodeKind::Operation(Operation::Launch(_)) => Ok(node),
            _ => Err(invalid(Rule::GraphAnotherKind)),
        }
    }

    /// The size of an attribute of kernel nodes.
    fn kept_attribute(&mut self, attribute: CUlaunchAttributeID) -> Result<usize, Refusal> {
        use CUlaunchAttributeID as A;
        if let Some((_, size)) = KEPT.iter().find(|(kept, _)| *kept == attribute) {
            return Ok(*size);
        }
        let of_streams = A::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
        if attribute == A::CU_LAUNCH_ATTRIBUTE_IGNORE
            || attribute == of_streams
            || attribute.0 > LAST.0
        {
            return Err(invalid(Rule::GraphAttribute));
        }
        Err(self.unsupported(format!("{attribute:?} of kernel nodes")))
    }

    pub(crate) fn cuGraphKernelNodeGetAttribute(
        &mut self,
        node: CUgraphNode,
        attribute: CUlaunchAttributeID,
        value: Out<CUlaunchAttributeValue>,
    ) -> Call {
        let node = self.kernel_node(node)?;
        let size = self.kept_attribute(attribute)?;
        if value.is_null() {
            return Err(self.undefined("the value of an attribute is written through null"));
        }
        let found = self.nodes.get(node)?.attributes.get(&attribute.0);
        let bytes = found.copied().unwrap_or([0; 64]);
        let place = value.cast::<u8>();
        bytes[..size].iter().enumerate().try_for_each(|(at, byte)| place.write_at(at, *byte))
    }

    pub(crate) fn cuGraphKernelNodeSetAttribute(
        &mut self,
        node: CUgraphNode,
        attribute: CUlaunchAttributeID,
        value: In<CUlaunchAttributeValue>,
    ) -> Call {
        let node = self.kernel_node(node)?;
        self.kept_attribute(attribute)?;
        if value.is_null() {
            return Err(self.undefined("the value of an attribute is read through null"));
        }
        // SAFETY: the union is 64 bytes that are valid for any contents.
        let mut bytes = unsafe { value.get()?.pad };
        let number = i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if attribute == CARVEOUT && !(-1..=100).contains(&number) {
            return Err(invalid(Rule::FunctionCarveout));
        }
        if attribute == CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY {
            // The driver clamps the priority to the range of streams.
            let priority = number.clamp(GREATEST_PRIORITY, 0);
            bytes[..4].copy_from_slice(&priority.to_ne_bytes());
        }
        let old = self.nodes.get_mut(node)?.attributes.insert(attribute.0, bytes);
        let found = self.nodes.get(node)?;
        let (cluster, kind) = (found.cluster(), found.kind.clone());
        if let Err(refusal) = self.check_cluster_of(cluster, &kind) {
            let attributes = &mut self.nodes.get_mut(node)?.attributes;
            match old {
                Some(old) => attributes.insert(attribute.0, old),
                None => attributes.remove(&attribute.0),
            };
            return Err(refusal);
        }
        Ok(())
    }

    /// Checks the cluster size of a node, if it has one, against its launch.
    pub(super) fn check_cluster_of(&mut self, cluster: Option<[u32; 3]>, kind: &NodeKind) -> Call {
        let NodeKind::Operation(Operation::Launch(launch)) = kind else { return Ok(()) };
        let Some(cluster) = cluster else { return Ok(()) };
        let (function, parameters) = (launch.function, launch.node_parameters(null_mut()));
        let request =
            LaunchRequest { cluster: Some(cluster), ..LaunchRequest::of_node(&parameters) };
        self.check_cluster(function, &request).map(|_| ())
    }

    pub(crate) fn cuGraphKernelNodeCopyAttributes(
        &mut self,
        target: CUgraphNode,
        source: CUgraphNode,
    ) -> Call {
        let source = self.kernel_node(source)?;
        let target = self.kernel_node(target)?;
        let attributes = self.nodes.get(source)?.attributes.clone();
        self.nodes.get_mut(target)?.attributes = attributes;
        Ok(())
    }
}
