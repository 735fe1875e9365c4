//! Communicators: the connection of a rank, its abort flag and its first error.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use retrograph_driver_sim::CurrentDevice;
use retrograph_nccl_sys::{ncclComm_t, ncclResult_t, ncclUniqueId};

use crate::fault::{self, Fault, FaultKind};
use crate::forks::Forks;
use crate::wire::{self, Address, Hello, POLL, Watched};

/// A rank of a communicator.
pub(crate) struct Comm {
    address: Address,
    pub(crate) rank: i32,
    pub(crate) ranks: i32,
    cta_policy: Option<i32>,
    pub(crate) device: CurrentDevice,
    pub(crate) stream: Mutex<TcpStream>,
    /// The same connection, for an abort while an operation holds `stream`.
    connection: TcpStream,
    aborted: AtomicBool,
    /// Captured operations that graphs still hold.
    pub(crate) in_graphs: AtomicUsize,
    /// Windows that were not deregistered.
    pub(crate) windows: AtomicUsize,
    pub(crate) forks: Forks,
    faults: Vec<Fault>,
    calls: AtomicU64,
    runs: AtomicU64,
    error: Mutex<Option<ncclResult_t>>,
    text: Mutex<CString>,
}

static COMMS: LazyLock<Mutex<BTreeMap<usize, Arc<Comm>>>> = LazyLock::new(Mutex::default);

/// A rank of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankState {
    /// Its number.
    pub rank: i32,
    /// `CTAPolicy` of its configuration; `None` if it joined without one.
    pub cta_policy: Option<i32>,
    /// Its registered windows.
    pub windows: usize,
}

/// Returns the ranks of this process in the communicator of `id`, in order, without destroyed and
/// aborted ones.
pub fn ranks(id: &ncclUniqueId) -> Vec<RankState> {
    let Some(address) = Address::of(id) else { return Vec::new() };
    let comms = COMMS.lock();
    let of_id = comms.values().filter(|comm| comm.address == address);
    let mut ranks: Vec<RankState> = of_id.map(|comm| comm.state()).collect();
    ranks.sort_by_key(|state| state.rank);
    ranks
}

impl Comm {
    /// Joins a communicator. Waits for all ranks.
    pub(crate) fn join(
        device: CurrentDevice,
        ranks: i32,
        rank: i32,
        id: &ncclUniqueId,
        cta_policy: Option<i32>,
    ) -> Result<Self, ncclResult_t> {
        if ranks < 1 || !(0..ranks).contains(&rank) {
            return Err(ncclResult_t::ncclInvalidArgument);
        }
        let address = Address::of(id).ok_or(ncclResult_t::ncclInvalidArgument)?;
        let failed = |_| ncclResult_t::ncclSystemError;
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, address.port)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Hello { nonce: address.nonce, ranks, rank }.write(&mut stream).map_err(failed)?;
        match wire::read_answer(&mut stream) {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return Err(ncclResult_t::ncclInvalidUsage),
            Err(_) => return Err(ncclResult_t::ncclRemoteError),
        }
        stream.set_read_timeout(Some(POLL)).map_err(failed)?;
        let connection = stream.try_clone().map_err(failed)?;
        Ok(Self {
            address,
            rank,
            ranks,
            cta_policy,
            device,
            stream: Mutex::new(stream),
            connection,
            aborted: AtomicBool::new(false),
            in_graphs: AtomicUsize::new(0),
            windows: AtomicUsize::new(0),
            forks: Forks::default(),
            faults: fault::of(address, rank),
            calls: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            error: Mutex::new(None),
            text: Mutex::default(),
        })
    }

    fn state(&self) -> RankState {
        let windows = self.windows.load(Ordering::Acquire);
        RankState { rank: self.rank, cta_policy: self.cta_policy, windows }
    }

    /// Creates a handle of the communicator.
    pub(crate) fn register(self) -> ncclComm_t {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        // Never reused, and not a plausible address.
        let number = NEXT.fetch_add(1, Ordering::Relaxed) * 0x100 + 0x6e63_0000;
        COMMS.lock().insert(number, Arc::new(self));
        ncclComm_t(number as *mut _)
    }

    /// The communicator of a handle.
    pub(crate) fn of(handle: ncclComm_t) -> Result<Arc<Self>, ncclResult_t> {
        let found = COMMS.lock().get(&(handle.0 as usize)).cloned();
        found.ok_or(ncclResult_t::ncclInvalidArgument)
    }

    /// Removes a handle.
    pub(crate) fn forget(handle: ncclComm_t) {
        let found = COMMS.lock().remove(&(handle.0 as usize));
        if let Some(comm) = found {
            comm.forks.destroy(&comm.device.table);
        }
    }

    /// Ends running operations, also one that is blocked in a write because the hub does not read.
    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        // Fails if the hub has ended; then nothing blocks.
        let _ = self.connection.shutdown(Shutdown::Both);
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Counts a call; returns the injected error code, if any.
    pub(crate) fn refusal(&self) -> Option<ncclResult_t> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        self.faults.iter().find_map(|fault| match fault.kind {
            FaultKind::Refuse(code) if fault.at == number => Some(code),
            _ => None,
        })
    }

    /// Counts a running operation; returns the injected fault, if any.
    pub(crate) fn fault(&self) -> Option<FaultKind> {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let kinds = self.faults.iter().filter(|fault| fault.at == number).map(|fault| fault.kind);
        kinds.into_iter().find(|kind| !matches!(kind, FaultKind::Refuse(_)))
    }

    /// Keeps the first asynchronous error.
    pub(crate) fn fail(&self, code: ncclResult_t, text: &str) {
        let mut error = self.error.lock();
        if error.is_none() {
            *error = Some(code);
            self.set_error(text);
        }
    }

    pub(crate) fn error(&self) -> ncclResult_t {
        self.error.lock().unwrap_or(ncclResult_t::ncclSuccess)
    }

    /// Sets the text about the last error.
    pub(crate) fn set_error(&self, text: &str) {
        *self.text.lock() = CString::new(text.replace('\0', " ")).unwrap_or_default();
    }

    /// The text about the last error, valid until the next one.
    pub(crate) fn text(&self) -> *const c_char {
        self.text.lock().as_ptr()
    }

    /// Reads an answer of the hub. `give_up` or an abort ends the wait.
    pub(crate) fn answer(
        &self,
        stream: &TcpStream,
        give_up: impl Fn() -> bool,
    ) -> std::io::Result<wire::Answer> {
        let stop = || self.is_aborted() || give_up();
        wire::read_answer(&mut Watched { stream, stop })
    }
}
