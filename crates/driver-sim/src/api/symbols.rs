//! Asking the driver for its own functions.

use std::ffi::{c_char, c_void};

use retrograph_driver_sys::*;

use crate::argument::{Call, In, Out};
use crate::refusal::{invalid, refuse};
use crate::state::State;
use crate::symbols::{Meaning, meaning};
use crate::trampoline;

type Status = CUdriverProcAddressQueryResult;

const KNOWN_FLAGS: u64 =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

impl State {
    pub(crate) fn cuGetProcAddress_v2(
        &mut self,
        symbol: In<c_char>,
        address: Out<*mut c_void>,
        version: i32,
        flags: u64,
        status: Out<CUdriverProcAddressQueryResult>,
    ) -> Call {
        let name = symbol.text()?;
        address.demand()?;
        if flags & !KNOWN_FLAGS != 0 {
            return Err(invalid("symbols.flags"));
        }
        if flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM != 0 {
            return Err(self.unsupported("functions of the default stream of each thread"));
        }
        let symbol = match meaning(&name, version.min(self.config.driver_version)) {
            Meaning::Symbol(symbol) => symbol,
            nothing => {
                let later = nothing == Meaning::Later;
                address.put(std::ptr::null_mut())?;
                status.offer(match later {
                    true => Status::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
                    false => Status::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
                });
                let rule = if later { "symbols.later" } else { "symbols.unknown" };
                return Err(refuse(CUresult::CUDA_ERROR_NOT_FOUND, rule));
            }
        };
        let found = self.table.as_ref().and_then(|table| trampoline::address(table, symbol));
        let Some(found) = found else {
            return Err(self.unsupported(format!("{symbol} is not in the table of driver-sys")));
        };
        status.offer(Status::CU_GET_PROC_ADDRESS_SUCCESS);
        address.put(found.cast_mut())
    }
}
