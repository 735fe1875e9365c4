//! Settings of core dumps.

use retrograph_driver_sys::{
    CU_COREDUMP_LIGHTWEIGHT_FLAGS, CU_COREDUMP_SKIP_ABORT, CUcoredumpSettings,
};

/// The settings of the process, or of a context, which begins with a copy of them. The simulator
/// writes no core dumps, so only queries read them.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoreDumps {
    /// Flags `CU_COREDUMP_SKIP_…`, and bits without a meaning.
    pub(crate) flags: u32,
    /// The file name of core dumps, if the program set one.
    pub(crate) file: Option<Vec<u8>>,
    /// The path of the user trigger pipe, if the program set one. Only the process has it.
    pub(crate) pipe: Option<Vec<u8>>,
}

impl CoreDumps {
    /// The value of a boolean setting.
    pub(crate) fn flag(&self, setting: CUcoredumpSettings) -> bool {
        let has = |bits| self.flags & bits == bits;
        match setting {
            CUcoredumpSettings::CU_COREDUMP_TRIGGER_HOST => !has(CU_COREDUMP_SKIP_ABORT),
            CUcoredumpSettings::CU_COREDUMP_LIGHTWEIGHT => has(CU_COREDUMP_LIGHTWEIGHT_FLAGS),
            // Nothing enables core dumps.
            _ => false,
        }
    }

    /// Changes the flags that represent a boolean setting.
    pub(crate) fn set_flag(&mut self, setting: CUcoredumpSettings, value: bool) {
        let (bits, value) = match setting {
            CUcoredumpSettings::CU_COREDUMP_TRIGGER_HOST => (CU_COREDUMP_SKIP_ABORT, !value),
            CUcoredumpSettings::CU_COREDUMP_LIGHTWEIGHT => (CU_COREDUMP_LIGHTWEIGHT_FLAGS, value),
            _ => return,
        };
        self.flags = if value { self.flags | bits } else { self.flags & !bits };
    }
}
