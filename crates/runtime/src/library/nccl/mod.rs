//! Collectives by NCCL, which is loaded at run time.
//!
//! A pass describes collectives without a device ([`CollectiveGroup`](crate::CollectiveGroup)). A
//! program needs a [`Communicator`], which
//! [`Bindings::communicator`](crate::Bindings::communicator) provides.
//!
//! All ranks must run the same collectives in the same order. Within a pass, each collective waits
//! for the previous one, so a graph has one order. Between programs, the order of steps determines
//! it.

mod collective;
mod communicator;
mod window;

use std::fmt;
use std::path::Path;

use retrograph_driver::{Error, Result};
use retrograph_nccl_sys::{LoadError, NcclTable, ncclResult_t, ncclUniqueId};

pub(crate) use collective::Collective;
pub use collective::CollectiveKind;
pub use communicator::Communicator;

/// The rank of a device in a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ranks {
    /// The rank of this device, counted from 0.
    pub rank: usize,
    /// The number of devices, at least 1.
    pub world_size: usize,
}

impl Default for Ranks {
    /// One device.
    fn default() -> Self {
        Self::ONE
    }
}

impl Ranks {
    /// One device.
    pub const ONE: Self = Self { rank: 0, world_size: 1 };

    /// Whether the rank is less than the number of ranks.
    pub fn is_valid(self) -> bool {
        self.rank < self.world_size
    }

    /// Returns the block of this rank among `len` elements. The number of ranks must divide `len`.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn block(self, len: usize) -> std::ops::Range<usize> {
        assert!(self.is_valid(), "there is no rank {} among {}", self.rank, self.world_size);
        let block = len / self.world_size;
        self.rank * block..(self.rank + 1) * block
    }
}

/// The functions of NCCL. Clones are copies.
#[derive(Clone, Copy, Debug)]
pub struct Nccl {
    table: NcclTable,
}

impl Nccl {
    /// Loads NCCL by its usual names.
    ///
    /// # Errors
    /// [`Error::NoLibrary`], which describes how to install it, or [`Error::UnusableLibrary`].
    pub fn load() -> Result<Self> {
        NcclTable::load().map(|table| Self { table }).map_err(unusable)
    }

    /// Loads NCCL from `path`.
    ///
    /// # Safety
    /// The library must be NCCL: its initializers run, and its functions are called with NCCL's
    /// signatures.
    ///
    /// # Errors
    /// The errors of [`Nccl::load`].
    pub unsafe fn load_from(path: &Path) -> Result<Self> {
        // SAFETY: passed on from the caller.
        unsafe { NcclTable::load_from(path) }.map(|table| Self { table }).map_err(unusable)
    }

    /// Uses the functions of `table`.
    ///
    /// # Safety
    /// Each function behaves like the NCCL function of its name, and stays callable.
    pub unsafe fn from_table(table: NcclTable) -> Self {
        Self { table }
    }

    /// The simulated NCCL, for simulated devices.
    #[cfg(feature = "sim")]
    pub fn simulated() -> Self {
        Self { table: retrograph_nccl_sim::table() }
    }

    /// The version, as 10000 × major + 100 × minor + patch.
    pub fn version(&self) -> i32 {
        self.table.version
    }

    /// Returns the unique id of a new communicator. One rank creates it and sends it to all. The
    /// process must live until all ranks have joined.
    ///
    /// # Errors
    /// [`Error::Library`].
    pub fn unique_id(&self) -> Result<UniqueId> {
        let mut id = ncclUniqueId::default();
        // SAFETY: the place is valid.
        check("ncclGetUniqueId", unsafe { (self.table.ncclGetUniqueId)(&mut id) })?;
        Ok(UniqueId { bytes: id.internal.map(|byte| byte as u8) })
    }

    pub(super) fn table(&self) -> &NcclTable {
        &self.table
    }
}

fn unusable(error: LoadError) -> Error {
    match &error {
        LoadError::NotFound { .. } => Error::NoLibrary {
            library: "NCCL",
            tried: error.tried(),
            advice: "install it, for example with `pip install nvidia-nccl-cu13`, and name the \
                     folder of libnccl.so.2 in LD_LIBRARY_PATH",
        },
        _ => Error::UnusableLibrary { reason: error.to_string() },
    }
}

/// Converts the code of the function `call` into a result.
fn check(call: &'static str, code: ncclResult_t) -> Result<()> {
    code.ok().map_err(|code| failure(call, code, ""))
}

/// Returns the error of a failed call, with NCCL's message.
fn failure(call: &'static str, code: ncclResult_t, text: &str) -> Error {
    let name = code.name().unwrap_or("a result of another version");
    let meaning = code.meaning().unwrap_or_default().trim();
    let name = match text.trim() {
        "" => format!("{name}: {meaning}"),
        text => format!("{name}: {meaning} NCCL says: {text}"),
    };
    Error::Library { call, status: code.0 as i32, message: name.into() }
}

/// The unique id of a new communicator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId {
    bytes: [u8; Self::BYTES],
}

impl UniqueId {
    /// Size in bytes.
    pub const BYTES: usize = retrograph_nccl_sys::NCCL_UNIQUE_ID_BYTES;

    /// Returns the opaque bytes, to send to other ranks.
    pub fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.bytes
    }

    /// Returns the id with bytes that another rank has sent.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self { bytes }
    }

    fn raw(&self) -> ncclUniqueId {
        ncclUniqueId { internal: self.bytes.map(|byte| byte as _) }
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId(…)")
    }
}
