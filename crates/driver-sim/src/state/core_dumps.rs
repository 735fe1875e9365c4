//! Settings of core dumps.

use retrograph_driver_sys::{
    CU_COREDUMP_LIGHTWEIGHT_FLAGS, CU_COREDUMP_SKIP_ABORT, CUcoredumpSettings,
};

/// The settings of a context, or the defaults of the process. The simulator writes no core dumps,
/// so only queries read them.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoreDumps {
    /// Flags `CU_COREDUMP_SKIP_…`.
    pub(crate) flags: Option<u32>,
    /// The file name of core dumps.
    pub(crate) file: Option<Vec<u8>>,
    /// The path of the user trigger pipe.
    pub(crate) pipe: Option<Vec<u8>>,
}

impl CoreDumps {
    /// Returns these settings, with unset ones taken from the process.
    pub(crate) fn or(self, process: &Self) -> Self {
        Self {
            flags: self.flags.or(process.flags),
            file: self.file.or_else(|| process.file.clone()),
            pipe: self.pipe.or_else(|| process.pipe.clone()),
        }
    }

    /// The value of a boolean setting; `None` if the setting is not boolean.
    pub(crate) fn flag(&self, setting: CUcoredumpSettings) -> Option<bool> {
        let flags = self.flags.unwrap_or_default();
        Some(match setting {
            CUcoredumpSettings::CU_COREDUMP_TRIGGER_HOST => flags & CU_COREDUMP_SKIP_ABORT == 0,
            CUcoredumpSettings::CU_COREDUMP_LIGHTWEIGHT => {
                flags & CU_COREDUMP_LIGHTWEIGHT_FLAGS == CU_COREDUMP_LIGHTWEIGHT_FLAGS
            }
            CUcoredumpSettings::CU_COREDUMP_ENABLE_ON_EXCEPTION
            | CUcoredumpSettings::CU_COREDUMP_ENABLE_USER_TRIGGER => false,
            _ => return None,
        })
    }

    /// Changes the flags that represent a boolean setting.
    pub(crate) fn set_flag(&mut self, setting: CUcoredumpSettings, value: bool) {
        let (bits, value) = match setting {
            CUcoredumpSettings::CU_COREDUMP_TRIGGER_HOST => (CU_COREDUMP_SKIP_ABORT, !value),
            CUcoredumpSettings::CU_COREDUMP_LIGHTWEIGHT => (CU_COREDUMP_LIGHTWEIGHT_FLAGS, value),
            _ => return,
        };
        let flags = self.flags.unwrap_or_default();
        self.flags = Some(if value { flags | bits } else { flags & !bits });
    }
}
