//! Parameters of a launch: a list of pointers (`kernelParams`), or one block (`extra`).

use std::ffi::c_void;

use super::launch::LaunchRequest;
use crate::argument::{Admit, In, Out};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::State;
use crate::work::Parameters;
use retrograph_driver_sys::CUresult;
use retrograph_ptx_exec::Program;
use retrograph_ptx_exec::memory::POISON;

/// Keys of the `extra` list: end, address of the parameter block, address of its size.
const EXTRA_END: usize = 0;
const EXTRA_BLOCK: usize = 1;
const EXTRA_SIZE: usize = 2;

impl State {
    /// Copies the parameter values of a launch.
    pub(super) fn parameters_of(
        &mut self,
        request: &LaunchRequest,
        program: &Program,
    ) -> Result<Parameters, Refusal> {
        let layout = program.parameters();
        let size = program.parameter_bytes() as usize;
        let block = match (request.parameters.is_null(), request.extra.is_null()) {
            (false, false) => return Err(invalid(Rule::LaunchBoth)),
            (false, true) => block_of_list(request.parameters, layout, size)?,
            (true, false) => self.block_of_extra(request.extra, size)?,
            (true, true) if layout.is_empty() => Vec::new(),
            (true, true) => return Err(invalid(Rule::LaunchParameters)),
        };
        let offsets = layout.iter().map(|(offset, _)| *offset as usize).collect();
        Ok(Parameters { block: block.into(), offsets })
    }

    /// The parameter block of an `extra` list. A short block is accepted; missing bytes are
    /// poisoned.
    fn block_of_extra(&mut self, extra: Out<*mut c_void>, size: usize) -> Result<Vec<u8>, Refusal> {
        let (mut block, mut given) = (None, 0);
        for index in (0..).step_by(2) {
            match extra.values().get_at(index)?.addr() {
                EXTRA_END => break,
                EXTRA_BLOCK => block = Some(input(extra.values().get_at(index + 1)?)),
                EXTRA_SIZE => {
                    let place = input(extra.values().get_at(index + 1)?);
                    if place.is_null() {
                        return Err(self.undefined("the size of the parameters has no address"));
                    }
                    let bytes = place.bytes(size_of::<usize>())?;
                    given = bytes.iter().rev().fold(0, |size, byte| size << 8 | usize::from(*byte));
                }
                _ => return Err(invalid(Rule::LaunchExtra)),
            }
        }
        if given > size {
            let code = CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
            return Err(refuse(code, Rule::LaunchExtraSize));
        }
        if size == 0 {
            return Ok(Vec::new());
        }
        let block = block.filter(|block| !block.is_null() && given > 0);
        let bytes = block.ok_or(invalid(Rule::LaunchExtraBlock))?.bytes(given)?;
        let lacking = POISON.to_le_bytes().into_iter().cycle();
        Ok(bytes.into_iter().chain(lacking).take(size).collect())
    }
}

/// The parameter block of a list of pointers to values.
fn block_of_list(
    list: Out<*mut c_void>,
    layout: &[(u32, u32)],
    size: usize,
) -> Result<Vec<u8>, Refusal> {
    let mut block = vec![0; size];
    for (index, (offset, bytes)) in layout.iter().enumerate() {
        let (start, bytes) = (*offset as usize, *bytes as usize);
        let value = list.values().get_at(index)?;
        block[start..start + bytes].copy_from_slice(&input(value).bytes(bytes)?);
    }
    Ok(block)
}

/// A pointer inside the parameters of a launch, as an input.
fn input(pointer: *mut c_void) -> In<c_void> {
    // SAFETY: like the parameter list, its values are valid during the call.
    unsafe { pointer.cast_const().admit() }
}
