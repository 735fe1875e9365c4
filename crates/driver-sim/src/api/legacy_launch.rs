//! Launches from before `cuLaunchKernel`: calls set the block shape, the dynamic shared memory and
//! the parameters of a function, which then launches with a grid.

use std::ffi::c_void;

use retrograph_driver_sys::*;

use super::launch::{LaunchRequest, check_block, check_geometry};
use crate::argument::{Admit, Call, Out};
use crate::refusal::{Refusal, Rule, invalid};
use crate::state::State;
use retrograph_ptx_exec::memory::POISON;

/// The maximum size of the parameters of any kernel, in bytes.
const PARAMETER_BYTES: usize = 32764;

/// What legacy calls have set for the launches of a function.
#[derive(Default)]
pub(crate) struct LegacyLaunch {
    block: Option<[u32; 3]>,
    shared_bytes: Option<u32>,
    /// The size of the parameters.
    size: Option<usize>,
    /// The values of the parameters; bytes that no call has set are `None`.
    values: Vec<Option<u8>>,
    /// Whether `cuLaunchKernel` has invalidated what was set before.
    is_invalidated: bool,
}

impl LegacyLaunch {
    /// The first part that no call has set again after `cuLaunchKernel`.
    fn missing(&self, has_parameters: bool) -> Option<&'static str> {
        match self {
            Self { is_invalidated: false, .. } => None,
            Self { block: None, .. } => Some("the block shape"),
            Self { size: None, .. } if has_parameters => Some("the size of the parameters"),
            Self { shared_bytes: None, .. } => Some("the size of the shared memory"),
            _ => None,
        }
    }

    /// The parameters up to their size, and poison up to the `needed` bytes.
    fn parameters(&self, needed: usize) -> Vec<u8> {
        let size = self.size.unwrap_or(0);
        let poison = POISON.to_le_bytes().into_iter().cycle();
        let values = self.values.iter().copied().take(size).chain(std::iter::repeat(None));
        let bytes = values.zip(poison).map(|(value, poison)| value.unwrap_or(poison));
        bytes.take(size.max(needed)).collect()
    }
}

impl State {
    fn legacy(&mut self, function: CUfunction) -> Result<&mut LegacyLaunch, Refusal> {
        let function = self.resolved(function)?;
        Ok(&mut self.functions.get_mut(function)?.legacy)
    }

    /// Forgets what legacy calls have set, after a launch with `cuLaunchKernel`.
    pub(super) fn invalidate_legacy(&mut self, function: CUfunction) {
        // The launch may have lost the context.
        if let Ok(legacy) = self.legacy(function) {
            *legacy = LegacyLaunch { is_invalidated: true, ..LegacyLaunch::default() };
        }
    }

    pub(crate) fn cuFuncSetBlockShape(
        &mut self,
        function: CUfunction,
        x: i32,
        y: i32,
        z: i32,
    ) -> Call {
        let legacy = self.legacy(function)?;
        let block = [x, y, z].map(|size| u32::try_from(size).unwrap_or(0));
        check_block(block).map_err(|_| invalid(Rule::LegacyBlock))?;
        legacy.block = Some(block);
        Ok(())
    }

    pub(crate) fn cuFuncSetSharedSize(&mut self, function: CUfunction, bytes: u32) -> Call {
        let function = self.resolved(function)?;
        let found = self.functions.get_mut(function)?;
        if bytes > found.dynamic_shared_limit {
            return Err(invalid(Rule::LegacyShared));
        }
        found.legacy.shared_bytes = Some(bytes);
        Ok(())
    }

    pub(crate) fn cuParamSetSize(&mut self, function: CUfunction, bytes: u32) -> Call {
        let legacy = self.legacy(function)?;
        let size = bytes as usize;
        if size > PARAMETER_BYTES {
            return Err(invalid(Rule::LegacyParameter));
        }
        legacy.size = Some(size);
        Ok(())
    }

    pub(crate) fn cuParamSeti(&mut self, function: CUfunction, offset: i32, value: u32) -> Call {
        self.set_parameter(function, offset, &value.to_ne_bytes())
    }

    pub(crate) fn cuParamSetf(&mut self, function: CUfunction, offset: i32, value: f32) -> Call {
        self.set_parameter(function, offset, &value.to_ne_bytes())
    }

    pub(crate) fn cuParamSetv(
        &mut self,
        function: CUfunction,
        offset: i32,
        value: Out<c_void>,
        bytes: u32,
    ) -> Call {
        self.legacy(function)?;
        let bytes = bytes as usize;
        if value.is_null() || bytes > PARAMETER_BYTES {
            return Err(invalid(Rule::LegacyParameter));
        }
        self.set_parameter(function, offset, &value.input_bytes(bytes)?)
    }

    fn set_parameter(&mut self, function: CUfunction, offset: i32, bytes: &[u8]) -> Call {
        let legacy = self.legacy(function)?;
        let range = usize::try_from(offset).ok().map(|start| start..start + bytes.len());
        let range = range.filter(|range| range.end <= PARAMETER_BYTES);
        let range = range.ok_or(invalid(Rule::LegacyParameter))?;
        let length = legacy.values.len().max(range.end);
        legacy.values.resize(length, None);
        for (place, byte) in legacy.values[range].iter_mut().zip(bytes) {
            *place = Some(*byte);
        }
        Ok(())
    }

    pub(crate) fn cuLaunch(&mut self, function: CUfunction) -> Call {
        self.legacy_launch(function, [1, 1], CUstream::NULL)
    }

    pub(crate) fn cuLaunchGrid(&mut self, function: CUfunction, width: i32, height: i32) -> Call {
        self.legacy_launch(function, [width, height], CUstream::NULL)
    }

    pub(crate) fn cuLaunchGridAsync(
        &mut self,
        function: CUfunction,
        width: i32,
        height: i32,
        stream: CUstream,
    ) -> Call {
        self.legacy_launch(function, [width, height], stream)
    }

    /// Launches with what was set before.
    fn legacy_launch(&mut self, function: CUfunction, grid: [i32; 2], stream: CUstream) -> Call {
        let resolved = self.resolved(function)?;
        let found = self.functions.get(resolved)?;
        let (legacy, needed) = (&found.legacy, found.program.parameter_bytes());
        if let Some(missing) = legacy.missing(needed > 0) {
            return Err(self.undefined(format!(
                "a legacy launch after cuLaunchKernel without setting {missing} again"
            )));
        }
        let block = legacy.block.unwrap_or([1; 3]);
        let shared_bytes = legacy.shared_bytes.unwrap_or(0);
        let mut parameters = legacy.parameters(needed as usize);
        let mut size = parameters.len();
        let mut extra = [
            std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT),
            parameters.as_mut_ptr().cast(),
            std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT),
            (&raw mut size).cast::<c_void>(),
            std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_END_AS_INT),
        ];
        let [width, height] = grid.map(|size| u32::try_from(size).unwrap_or(0));
        let request = LaunchRequest::new(function, [width, height, 1], block, shared_bytes);
        // SAFETY: the list, the block and its size live until the call has copied them.
        let request = LaunchRequest { extra: unsafe { extra.as_mut_ptr().admit() }, ..request };
        // Other launches with such a grid invalidate a capture.
        check_geometry(&request).map_err(|_| invalid(Rule::LegacyGrid))?;
        self.launch_request(stream, &request)
    }
}
