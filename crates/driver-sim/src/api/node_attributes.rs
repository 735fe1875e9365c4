//! Attributes of kernel nodes.

use retrograph_driver_sys::*;

use crate::argument::{Call, In, Out};
use crate::refusal::{Refusal, invalid};
use crate::state::{NodeKind, State};
use crate::work::Operation;

/// The attributes that are kept, and what they are where nobody set them.
const KEPT: [CUlaunchAttributeID; 2] = [
    CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY,
];

impl State {
    fn kernel_node(&mut self, node: CUgraphNode) -> Result<CUgraphNode, Refusal> {
        let node = self.given_node(node)?;
        match &self.nodes.get(node)?.kind {
            NodeKind::Operation(Operation::Launch(_)) => Ok(node),
            _ => Err(invalid("graph.another_kind")),
        }
    }

    fn kept_attribute(&mut self, attribute: CUlaunchAttributeID) -> Call {
        match KEPT.contains(&attribute) {
            true => Ok(()),
            false => Err(self.unsupported(format!("{attribute:?} of kernel nodes"))),
        }
    }

    pub(crate) fn cuGraphKernelNodeGetAttribute(
        &mut self,
        node: CUgraphNode,
        attribute: CUlaunchAttributeID,
        value: Out<CUlaunchAttributeValue>,
    ) -> Call {
        let node = self.kernel_node(node)?;
        value.demand()?;
        self.kept_attribute(attribute)?;
        let found = self.nodes.get(node)?.attributes.get(&attribute.0);
        value.put(CUlaunchAttributeValue { pad: found.copied().unwrap_or([0; 64]) })
    }

    pub(crate) fn cuGraphKernelNodeSetAttribute(
        &mut self,
        node: CUgraphNode,
        attribute: CUlaunchAttributeID,
        value: In<CUlaunchAttributeValue>,
    ) -> Call {
        let node = self.kernel_node(node)?;
        let given = value.get()?;
        self.kept_attribute(attribute)?;
        // SAFETY: the value is 64 bytes, whatever they mean.
        let bytes = unsafe { given.pad };
        self.nodes.get_mut(node)?.attributes.insert(attribute.0, bytes);
        Ok(())
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
