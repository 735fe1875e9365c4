//! Addresses of driver functions (`cuGetProcAddress`).

use std::ffi::{c_char, c_void};

use retrograph_driver_sys::*;

use crate::argument::{Call, In, Out};
use crate::refusal::{Rule, invalid};
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
        if symbol.is_null() || address.is_null() {
            return Err(
                self.undefined("the symbol or the result pointer of cuGetProcAddress is null")
            );
        }
        let name = symbol.text()?;
        if flags & !KNOWN_FLAGS != 0 {
            return Err(invalid(Rule::SymbolsFlags));
        }
        if version > self.config.driver_version {
            return Err(invalid(Rule::SymbolsVersion));
        }
        // The driver accepts a version of -1.
        let version = if version < 0 { self.config.driver_version } else { version };
        let symbol = match meaning(&name, version) {
            Meaning::Symbol(symbol) => symbol,
            nothing => {
                status.write_unless_null(match nothing {
                    Meaning::Later => Status::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
                    _ => Status::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
                });
                return address.write(std::ptr::null_mut());
            }
        };
        let Some((table, lacking)) = &self.table else {
            return Err(self.undefined("the machine ended"));
        };
        // The table has no functions for the per-thread default stream (`_ptsz`).
        let legacy = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM == 0;
        let found = trampoline::address(table, symbol).filter(|_| legacy);
        status.write_unless_null(Status::CU_GET_PROC_ADDRESS_SUCCESS);
        address.write(found.unwrap_or(*lacking as *const c_void).cast_mut())
    }
}
