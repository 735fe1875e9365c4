//! A process of a group.

use std::io::BufReader;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use retrograph_runtime::{Communicator, Context, Nccl, Ranks, UniqueId};

use super::message::{Join, Message, VERSION, receive, send};
use super::watch::Watch;
use super::{GroupError, GroupOptions, shown};
use crate::digest::hex;
use crate::error::{Error, Result};

/// Time between attempts to reach the coordinator.
const RETRY: Duration = Duration::from_millis(100);

/// How long dropping a group waits for an abort, which waits for graphs that the caller may still
/// hold.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between checks whether an abort has ended.
const ABORT_POLL: Duration = Duration::from_millis(5);

/// A process of a group. Clones share it. If the last clone is dropped without [leaving], the rank
/// counts as failed. After a failure, drop graphs with collectives first: dropping the group waits
/// up to 5 s until they are dropped.
///
/// [leaving]: ProcessGroup::leave
#[derive(Clone, Debug)]
pub struct ProcessGroup {
    inner: Arc<Inner>,
}

/// A reference that does not keep the process in its group.
#[derive(Clone, Debug)]
pub struct WeakGroup(Weak<Inner>);

impl WeakGroup {
    /// Returns the group, if it still exists.
    pub fn upgrade(&self) -> Option<ProcessGroup> {
        self.0.upgrade().map(|inner| ProcessGroup { inner })
    }
}

#[derive(Debug)]
struct Inner {
    ranks: Ranks,
    watch: Arc<Watch>,
    threads: Vec<JoinHandle<()>>,
}

impl ProcessGroup {
    /// Joins the group whose coordinator is at `address`, as rank `ranks.rank`. Waits until all
    /// ranks have joined. `run` describes the run in lines, which must be the same on all ranks.
    ///
    /// # Errors
    /// [`GroupError::Unresolved`], [`GroupError::Unreachable`], [`GroupError::Refused`], or
    /// [`GroupError::RankFailed`] if another rank fails meanwhile.
    pub fn join(
        address: impl ToSocketAddrs + std::fmt::Debug,
        ranks: Ranks,
        run: &str,
        options: GroupOptions,
    ) -> Result<Self, GroupError> {
        let stream = connect(&address, ranks, options)?;
        let Ranks { rank, world_size: count } = ranks;
        let gone =
            |error: std::io::Error| GroupError::CoordinatorGone { reason: error.to_string() };
        stream.set_nodelay(true).map_err(gone)?;
        let reader = stream.try_clone().map_err(gone)?;
        let (version, process, run) = (VERSION, std::process::id(), run.to_owned());
        let join = Join { version, rank, count, process, run };
        send(&stream, &Message::Join(join)).map_err(gone)?;
        let mut reader = BufReader::new(reader);
        loop {
            match receive(&mut reader).map_err(gone)? {
                Some(Message::Start) => break,
                // To the coordinator, a silent rank is dead.
                Some(Message::Alive) => send(&stream, &Message::Alive).map_err(gone)?,
                Some(Message::Refused { reason }) => {
                    return Err(GroupError::Refused { rank, reason });
                }
                Some(Message::RankFailed { rank, reason }) => {
                    return Err(GroupError::RankFailed { rank, reason });
                }
                Some(_) => {}
                None => {
                    let reason = "the connection was closed".to_owned();
                    return Err(GroupError::CoordinatorGone { reason });
                }
            }
        }
        let (watch, threads) = Watch::start(stream, reader, options).map_err(gone)?;
        Ok(Self { inner: Arc::new(Inner { ranks, watch, threads: threads.into() }) })
    }

    /// A reference that does not keep the process in the group.
    pub fn downgrade(&self) -> WeakGroup {
        WeakGroup(Arc::downgrade(&self.inner))
    }

    /// The position of this process.
    pub fn ranks(&self) -> Ranks {
        self.inner.ranks
    }

    /// Joins the communicator of the group on the device of `context`. All ranks must call it.
    ///
    /// # Errors
    /// If NCCL fails, or another rank does.
    pub fn connect(&self, nccl: &Nccl, context: &Context) -> Result<()> {
        let (held, context) = (*nccl, context.clone());
        let join = move |ranks, id| Communicator::join(&held, &context, id, ranks);
        self.connect_by(nccl, join)
    }

    /// Like [`ProcessGroup::connect`], but joins with the caller's function.
    ///
    /// # Errors
    /// As [`ProcessGroup::connect`].
    pub fn connect_by(
        &self,
        nccl: &Nccl,
        join: impl FnOnce(Ranks, UniqueId) -> retrograph_runtime::error::Result<Communicator>
        + Send
        + 'static,
    ) -> Result<()> {
        let text = self.broadcast(|| Ok(hex(nccl.unique_id()?.bytes())))?;
        let id = unique_id(&text).ok_or_else(|| {
            let reason = "rank 0 sent an id that is none".to_owned();
            GroupError::Refused { rank: self.ranks().rank, reason }
        })?;
        let (sender, receiver) = mpsc::channel();
        let ranks = self.ranks();
        // On another thread, because joining waits forever for a rank that has died.
        std::thread::spawn(move || sender.send(join(ranks, id)));
        loop {
            match receiver.recv_timeout(RETRY) {
                Ok(joined) => {
                    self.inner.watch.set_communicator(joined?);
                    return Ok(());
                }
                Err(mpsc::RecvTimeoutError::Timeout) => self.check()?,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let reason = "the thread that joins has ended".to_owned();
                    return Err(GroupError::CoordinatorGone { reason }.into());
                }
            }
        }
    }

    /// The communicator.
    ///
    /// # Errors
    /// [`GroupError::NotConnected`].
    pub fn communicator(&self) -> Result<&Communicator, GroupError> {
        let count = self.ranks().world_size;
        self.inner.watch.communicator().ok_or(GroupError::NotConnected { count })
    }

    /// Returns the text of rank 0, which makes it, on all ranks. All ranks must call it, as often
    /// as the others.
    ///
    /// # Errors
    /// The error of `make`, or of a rank that failed meanwhile.
    pub fn broadcast(&self, make: impl FnOnce() -> Result<String>) -> Result<String> {
        if self.ranks().rank == 0 {
            let text = make()?;
            self.inner.watch.share(&text);
        }
        Ok(self.inner.watch.shared()?)
    }

    /// Fails if a rank has failed.
    ///
    /// # Errors
    /// [`GroupError::RankFailed`] or [`GroupError::CoordinatorGone`].
    pub fn check(&self) -> Result<(), GroupError> {
        self.inner.watch.check()
    }

    /// Like [`ProcessGroup::check`], and also fails if a collective has met an error.
    ///
    /// # Errors
    /// [`GroupError::RankFailed`] or [`GroupError::CoordinatorGone`].
    pub fn require_healthy(&self) -> Result<(), GroupError> {
        self.inner.watch.require_healthy()
    }

    /// Reports to all ranks that this rank has failed, unless another one has.
    pub fn fail(&self, reason: &str) {
        self.inner.watch.fail(reason);
    }

    /// Tells the other ranks that this rank ends normally.
    pub fn leave(&self) {
        self.inner.watch.leave();
    }

    /// Closes the connection without a message, like a killed process.
    pub fn disconnect(&self) {
        self.inner.watch.disconnect();
    }

    /// Whether the coordinator has asked to stop.
    pub fn is_asked_to_stop(&self) -> bool {
        self.inner.watch.is_asked_to_stop()
    }

    /// Calls `body`, which waits for collectives of `what`. If that takes longer than the limit,
    /// this rank fails.
    pub(crate) fn waiting<T>(&self, what: &'static str, body: impl FnOnce() -> T) -> T {
        self.inner.watch.waiting(what, body)
    }
}

impl Drop for Inner {
    /// Waits for the threads: they hold the communicator, and the driver can crash if they abort or
    /// destroy it while the process exits.
    fn drop(&mut self) {
        self.watch.end();
        let until = Instant::now() + ABORT_TIMEOUT;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(ABORT_POLL);
            }
            if thread.is_finished() {
                drop(thread.join());
            }
        }
    }
}

/// Connects to the coordinator, which may not listen yet. A name server may fail for a moment.
fn connect(
    address: &(impl ToSocketAddrs + std::fmt::Debug),
    ranks: Ranks,
    options: GroupOptions,
) -> Result<TcpStream, GroupError> {
    let (rank, since) = (ranks.rank, Instant::now());
    let mut resolved = since;
    loop {
        let reason = match resolve(address) {
            Ok(addresses) => {
                resolved = Instant::now();
                match try_connect(&addresses) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => {
                let (address, reason, waited) =
                    (shown(address), error.to_string(), resolved.elapsed());
                if waited > options.resolve_timeout {
                    return Err(GroupError::Unresolved { rank, address, reason, waited });
                }
                reason
            }
        };
        let waited = since.elapsed();
        if waited > options.join_timeout {
            let address = shown(address);
            return Err(GroupError::Unreachable { rank, address, reason, waited });
        }
        std::thread::sleep(RETRY);
    }
}

fn resolve(address: &impl ToSocketAddrs) -> std::io::Result<Vec<SocketAddr>> {
    let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    match addresses.is_empty() {
        true => Err(std::io::Error::other("the name has no address")),
        false => Ok(addresses),
    }
}

fn try_connect(addresses: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("there is no address");
    for address in addresses {
        match TcpStream::connect_timeout(address, Duration::from_secs(5)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Parses a hexadecimal unique id.
fn unique_id(text: &str) -> Option<UniqueId> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    Some(UniqueId::from_bytes(bytes?.try_into().ok()?))
}

impl From<GroupError> for Error {
    fn from(error: GroupError) -> Self {
        Self::Group(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unique_id_survives_its_text() {
        let bytes = std::array::from_fn(|at| at as u8);
        let text = hex(&bytes);
        assert_eq!(unique_id(&text).map(|id| *id.bytes()), Some(bytes));
        assert!(unique_id("0g").is_none() && unique_id("00").is_none());
    }
}
