//! A rank of a communicator.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use retrograph_driver::{Context, DeviceBuffer, Error, Owner, Result, Stream};
use retrograph_kernel_abi::Element;
use retrograph_nccl_sys::{
    NCCL_CTA_POLICY_ZERO, NcclTable, ncclComm_t, ncclConfig_v22800, ncclDataType_t, ncclRedOp_t,
    ncclResult_t,
};

use super::{Collective, CollectiveKind};
use super::{Nccl, Ranks, UniqueId, check, failure};
use crate::library::LibraryScope;

/// One device of a communicator. Clones share it.
///
/// Graphs with its collectives keep it alive, and are destroyed before it.
#[derive(Clone)]
pub struct Communicator {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    table: NcclTable,
    comm: ncclComm_t,
    ranks: Ranks,
    /// Whether the communicator was aborted, which frees it. Threads that ask it for errors hold
    /// the lock.
    aborted: Mutex<bool>,
}

impl Communicator {
    /// Joins the communicator `id` on the device of `context`. Waits until all ranks have joined.
    ///
    /// # Errors
    /// [`Error::Library`] if NCCL fails or ranks disagree on their number, [`Error::NotCalled`] if
    /// there is no such rank, [`Error::RefusedDuringCapture`] during a capture.
    pub fn join(nccl: &Nccl, context: &Context, id: UniqueId, ranks: Ranks) -> Result<Self> {
        context.bind_outside_capture("joining a communicator")?;
        let table = *nccl.table();
        let mut comm = ncclComm_t::NULL;
        let (rank, count) = numbers(ranks)?;
        // Does not hold the lock of captures: other ranks of this process join concurrently, and
        // NCCL switches its threads to the relaxed capture mode.
        let with_config = table.ncclCommInitRankConfig;
        let code = match with_config.filter(|_| table.version >= ncclConfig_v22800::VERSION) {
            Some(join) => {
                let policy = NCCL_CTA_POLICY_ZERO;
                let mut config = ncclConfig_v22800 { CTAPolicy: policy, ..Default::default() };
                // SAFETY: the places are valid, and the context is current.
                unsafe { join(&mut comm, count, id.raw(), rank, (&raw mut config).cast()) }
            }
            // SAFETY: as above.
            None => unsafe { (table.ncclCommInitRank)(&mut comm, count, id.raw(), rank) },
        };
        code.ok().map_err(|code| {
            failure("ncclCommInitRank", code, &last_error(&table, ncclComm_t::NULL))
        })?;
        let (context, aborted) = (context.clone(), Mutex::new(false));
        Ok(Self { inner: Arc::new(Inner { context, table, comm, ranks, aborted }) })
    }

    /// The position of this device.
    pub fn ranks(&self) -> Ranks {
        self.inner.ranks
    }

    /// The context of the device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Returns the first error that collectives met while they ran.
    ///
    /// # Errors
    /// [`Error::Library`] with NCCL's message, or [`Error::NotCalled`] after an abort.
    pub fn require_healthy(&self) -> Result<()> {
        let Inner { table, comm, aborted, .. } = &*self.inner;
        let aborted = aborted.lock();
        if *aborted {
            return Err(was_aborted());
        }
        let mut code = ncclResult_t::ncclSuccess;
        // SAFETY: the communicator lives while the lock is held, and the place is valid.
        check("ncclCommGetAsyncError", unsafe { (table.ncclCommGetAsyncError)(*comm, &mut code) })?;
        match code {
            ncclResult_t::ncclSuccess | ncclResult_t::ncclInProgress => Ok(()),
            code => Err(failure("a collective", code, &last_error(table, *comm))),
        }
    }

    /// Whether [`Communicator::abort`] was called.
    pub fn is_aborted(&self) -> bool {
        *self.inner.aborted.lock()
    }

    /// Calls `body` unless the communicator was aborted, and prevents aborting during the call.
    pub(super) fn unless_aborted(&self, body: impl FnOnce()) {
        let aborted = self.inner.aborted.lock();
        if !*aborted {
            body();
        }
    }

    /// Ends running collectives, whose results are then undefined, and makes later ones fail. Any
    /// thread may call it; it can wait until graphs with collectives are dropped.
    ///
    /// The abort frees the communicator, and a call in progress may still use it: no other thread
    /// may be inside of [`Communicator::all_gather`] before its wait, of a build, or of an eager
    /// step with collectives. Waits for a stream, and steps that are graphs, may be in progress.
    ///
    /// It does not stop copy engines that wait for another rank ([`Communicator::allocate`]). If
    /// that rank has ended, such a stream never completes, and calls that synchronize with it do
    /// not return. Then end the process by `_exit`.
    pub fn abort(&self) {
        let Inner { table, comm, aborted, .. } = &*self.inner;
        // Not locked during the abort, which can wait.
        if std::mem::replace(&mut *aborted.lock(), true) {
            return;
        }
        // SAFETY: the communicator lives, and this is the only call that ends it: the flag is set.
        let code = unsafe { (table.ncclCommAbort)(*comm) };
        if let Err(error) = check("ncclCommAbort", code) {
            tracing::warn!(%error, "a communicator was not aborted");
        }
    }

    /// Exchanges the blocks of `buffer` and waits for completion: each rank gives its block
    /// ([`Ranks::block`]) and gets all others. All ranks must call it with equal buffers, in the
    /// same order relative to all other collectives.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] if the buffer has no equal blocks, [`Error::Library`],
    /// [`Error::NotCalled`] after an abort, or if the device fails.
    pub fn all_gather<T: Element>(&self, stream: &Stream, buffer: &DeviceBuffer<T>) -> Result<()> {
        let stream = stream.outside_capture("a collective")?;
        self.inner.context.same(stream.context(), "the stream")?;
        self.inner.context.same(buffer.context(), "the buffer")?;
        self.require_not_aborted()?;
        let Inner { table, comm, ranks, .. } = &*self.inner;
        let (len, found) = (buffer.len(), ranks.world_size * (buffer.len() / ranks.world_size));
        if len != found {
            let what = "a collective of equal blocks";
            return Err(Error::LengthMismatch { what, expected: len, found });
        }
        let bytes = ncclDataType_t::ncclUint8;
        let (block, size) = (ranks.block(len), size_of::<T>());
        let all = buffer.address();
        let own = all + (block.start * size) as u64;
        let stream_handle = stream.raw();
        // SAFETY: the buffer has this many bytes, and lives until the stream is done below.
        let code = unsafe {
            (table.ncclAllGather)(
                own as *const c_void,
                all as *mut c_void,
                block.len() * size,
                bytes,
                *comm,
                stream_handle,
            )
        };
        self.check("ncclAllGather", code)?;
        stream.synchronize()
    }

    pub(super) fn require_not_aborted(&self) -> Result<()> {
        if self.is_aborted() { Err(was_aborted()) } else { Ok(()) }
    }

    /// Keeps the communicator alive.
    pub(crate) fn owner(&self) -> Owner {
        self.inner.clone()
    }

    /// Enqueues collectives over the ranges of `scope`.
    pub(crate) fn enqueue(
        &self,
        collectives: &[Collective],
        scope: &LibraryScope<'_>,
    ) -> Result<()> {
        self.require_not_aborted()?;
        let table = &self.inner.table;
        // SAFETY: groups belong to threads, and this one is ended below.
        self.check("ncclGroupStart", unsafe { (table.ncclGroupStart)() })?;
        let mut outcome = Ok(());
        for collective in collectives {
            outcome = outcome.and_then(|()| self.add(collective, scope));
        }
        // SAFETY: the group was started above.
        let ended = self.check("ncclGroupEnd", unsafe { (table.ncclGroupEnd)() });
        outcome.and(ended)
    }

    fn add(&self, collective: &Collective, scope: &LibraryScope<'_>) -> Result<()> {
        let Inner { table, comm, .. } = &*self.inner;
        let (comm, stream, sum) = (*comm, scope.stream().raw(), ncclRedOp_t::ncclSum);
        let &Collective { kind, data_type, count, first_range } = collective;
        let at = |range: usize| scope.range(first_range + range).address as *mut c_void;
        // SAFETY: the ranges are buffers of the pass, which the program keeps, with as many
        // elements as the description checked; the communicator and the stream live.
        unsafe {
            match kind {
                CollectiveKind::AllReduce => {
                    let (place, all_reduce) = (at(0), table.ncclAllReduce);
                    let code = all_reduce(place, place, count, data_type, sum, comm, stream);
                    self.check("ncclAllReduce", code)
                }
                CollectiveKind::ReduceScatter => {
                    let scatter = table.ncclReduceScatter;
                    let code = scatter(at(0), at(1), count, data_type, sum, comm, stream);
                    self.check("ncclReduceScatter", code)
                }
                CollectiveKind::AllGather => {
                    let code = (table.ncclAllGather)(at(1), at(0), count, data_type, comm, stream);
                    self.check("ncclAllGather", code)
                }
                CollectiveKind::Broadcast { root } => {
                    let (place, broadcast) = (at(0), table.ncclBroadcast);
                    let code = broadcast(place, place, count, data_type, root as i32, comm, stream);
                    self.check("ncclBroadcast", code)
                }
            }
        }
    }

    /// The functions of NCCL, and the communicator.
    pub(super) fn raw(&self) -> (&NcclTable, ncclComm_t) {
        (&self.inner.table, self.inner.comm)
    }

    /// Like [`check`], with NCCL's message. In a capture, the first failure is the cause.
    pub(super) fn check(&self, call: &'static str, code: ncclResult_t) -> Result<()> {
        let Err(code) = code.ok() else { return Ok(()) };
        let mut text = String::new();
        self.unless_aborted(|| text = last_error(&self.inner.table, self.inner.comm));
        Err(failure(call, code, &text))
    }
}

fn was_aborted() -> Error {
    let reason = "the communicator was aborted; join another one".into();
    Error::NotCalled { call: "NCCL", reason }
}

/// Returns NCCL's message about its last error.
fn last_error(table: &NcclTable, comm: ncclComm_t) -> String {
    // SAFETY: the communicator lives or is null.
    let text = unsafe { (table.ncclGetLastError)(comm) };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: NCCL returns a C string that is valid until its next error.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ranks { rank, world_size: count } = self.ranks();
        write!(f, "Communicator(rank {rank} of {count} in {:?})", self.inner.context)
    }
}

impl Drop for Inner {
    /// Destroying waits for the device, so it must not happen during a capture.
    fn drop(&mut self) {
        if *self.aborted.get_mut() {
            return;
        }
        let (table, comm, context) = (self.table, self.comm, self.context.clone());
        self.context.release(move |_| {
            // An abort also ends work that hangs, and does not wait for other ranks. The context
            // can be lost while a capture defers this release.
            let lost = context.lost().is_some();
            let end = if lost { table.ncclCommAbort } else { table.ncclCommDestroy };
            // SAFETY: this is the last use of the communicator.
            let code = unsafe { end(comm) };
            if let Err(error) = code.ok() {
                tracing::warn!(%error, text = last_error(&table, comm), "not destroyed");
            }
            Ok(())
        });
    }
}

/// Returns the rank and the number of ranks for NCCL.
fn numbers(ranks: Ranks) -> Result<(i32, i32)> {
    match (i32::try_from(ranks.rank), i32::try_from(ranks.world_size)) {
        (Ok(rank), Ok(count)) if ranks.is_valid() => Ok((rank, count)),
        _ => {
            let Ranks { rank, world_size } = ranks;
            let reason = format!(
                "there is no rank {rank} among {world_size}; ranks count from 0, up to 2^31 - 1"
            );
            Err(Error::NotCalled { call: "ncclCommInitRank", reason: reason.into() })
        }
    }
}
