//! Conversion of node parameters to checked node kinds.

use retrograph_driver_sys::*;

use super::launch::LaunchRequest;
use crate::argument::Call;
use crate::refusal::{Refusal, Rule, invalid};
use crate::state::{NodeKind, State};
use crate::work::{Fill, HostCall, HostTarget, Operation, Strides};

/// Refuses copies without bytes, and with overlapping rows. An array determines its own pitch.
fn check_box(given: &CUDA_MEMCPY3D) -> Call {
    if given.WidthInBytes == 0 {
        return Err(invalid(Rule::GraphNoWidth));
    }
    let ends = [
        (given.srcMemoryType, Strides::of_source(given), given.srcXInBytes),
        (given.dstMemoryType, Strides::of_target(given), given.dstXInBytes),
    ];
    let overlaps = |(kind, strides, x): (CUmemorytype, Strides, usize)| {
        kind != CUmemorytype::CU_MEMORYTYPE_ARRAY
            && strides.pitch < x.saturating_add(given.WidthInBytes)
    };
    match ends.into_iter().any(overlaps) {
        true => Err(invalid(Rule::GraphPitch)),
        false => Ok(()),
    }
}

/// Refuses fills that are empty, misaligned or have overlapping rows.
fn check_rows(given: &CUDA_MEMSET_NODE_PARAMS) -> Call {
    if given.width == 0 || given.height == 0 {
        return Err(invalid(Rule::GraphNoWidth));
    }
    let row = given.width.saturating_mul(given.elementSize as usize);
    let is_aligned = given.pitch.is_multiple_of(given.elementSize.max(1) as usize);
    match given.height > 1 && (given.pitch < row || !is_aligned) {
        true => Err(invalid(Rule::GraphPitch)),
        false => Ok(()),
    }
}

impl State {
    /// The kind of a kernel node.
    pub(super) fn kernel_kind(
        &mut self,
        given: &CUDA_KERNEL_NODE_PARAMS,
    ) -> Result<NodeKind, Refusal> {
        if self.current_context().is_null() {
            return Err(self.undefined("a kernel node without a current context"));
        }
        if !given.kernelParams.is_null() && !given.extra.is_null() {
            return Err(invalid(Rule::GraphTwoParameterLists));
        }
        let mut given = *given;
        if given.func.is_null() && !given.kern.is_null() {
            given.func = self.function_of_kernel(given.kern)?;
        }
        let launch = self.launch_of(&LaunchRequest::of_node(&given)).map_err(|refusal| {
            // For blocks above the kernel's maximum, the driver returns the code of other invalid
            // geometries here.
            match refusal.code {
                CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES => invalid(Rule::GraphBlock),
                _ => refusal,
            }
        })?;
        Ok(NodeKind::Operation(Operation::Launch(launch)))
    }

    /// The kind of a copy node, in a checked context.
    pub(super) fn copy_kind(
        &mut self,
        given: &CUDA_MEMCPY3D,
        context: CUcontext,
    ) -> Result<NodeKind, Refusal> {
        self.check_node_context(context)?;
        self.copy_node(given)
    }

    /// The kind of a copy node, in any context.
    pub(super) fn copy_node(&mut self, given: &CUDA_MEMCPY3D) -> Result<NodeKind, Refusal> {
        check_box(given)?;
        let copy = self.lasting_copy(given)?;
        Ok(NodeKind::Operation(Operation::Copy(copy)))
    }

    /// The kind of a fill node, in a checked context.
    pub(super) fn fill_kind(
        &mut self,
        given: &CUDA_MEMSET_NODE_PARAMS,
        context: CUcontext,
    ) -> Result<NodeKind, Refusal> {
        let device = self.check_node_context(context)?;
        self.fill_node(given, device)
    }

    /// The kind of a fill node in the context of this index; `None` for the current one.
    pub(super) fn fill_node(
        &mut self,
        given: &CUDA_MEMSET_NODE_PARAMS,
        device: Option<usize>,
    ) -> Result<NodeKind, Refusal> {
        check_rows(given)?;
        let device = device.map_or_else(|| self.usable_device(), Ok)?;
        let fill = Fill { given: *given, device };
        if fill.extent().is_none() {
            return Err(self.undefined("a fill of more bytes than can be counted"));
        }
        self.check_fill(&fill)?;
        Ok(NodeKind::Operation(Operation::Fill(fill)))
    }

    /// The kind of a host node.
    pub(super) fn host_kind(&mut self, given: &CUDA_HOST_NODE_PARAMS) -> Result<NodeKind, Refusal> {
        let function = given.r#fn.ok_or(invalid(Rule::HostNull))?;
        let call = HostCall { target: HostTarget::Function(function), data: given.userData };
        Ok(NodeKind::Operation(Operation::Host(call)))
    }

    /// The kind of an event record node.
    pub(super) fn record_kind(&mut self, event: CUevent) -> Result<NodeKind, Refusal> {
        self.given_event(event).map(NodeKind::Record)
    }

    /// The kind of an event wait node.
    pub(super) fn wait_kind(&mut self, event: CUevent) -> Result<NodeKind, Refusal> {
        self.given_event(event).map(NodeKind::Wait)
    }

    fn given_event(&mut self, event: CUevent) -> Result<CUevent, Refusal> {
        match self.events.contains(event) {
            true => Ok(event),
            false if event.is_null() => Err(invalid(Rule::GraphNullEvent)),
            false => Err(self.undefined("the event does not exist or was destroyed")),
        }
    }

    /// The index of the context of a copy or fill node. Null is not checked.
    fn check_node_context(&mut self, context: CUcontext) -> Result<Option<usize>, Refusal> {
        if context.is_null() {
            return Ok(None);
        }
        match self.devices.iter().position(|device| device.context == Some(context)) {
            Some(device) => self.check_alive().map(|()| Some(device)),
            None => Err(self.undefined("the context of the node does not exist")),
        }
    }
}
