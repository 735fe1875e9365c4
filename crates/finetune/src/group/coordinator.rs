//! The coordinator: accepts ranks, and reports the failure of one rank to all others.

use std::io::{BufReader, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::message::{Join, Message, VERSION, receive, send};
use super::{GroupError, GroupOptions, shown};

/// After a connection is lost, time in which the process that started the rank may report a more
/// specific reason.
const BETTER_REASON: Duration = Duration::from_millis(400);
/// Interval between checks for new connections.
const POLL: Duration = Duration::from_millis(20);

/// The coordinator of a group. It serves on its own threads until it is dropped.
#[derive(Debug)]
pub struct Coordinator {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    count: usize,
    options: GroupOptions,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The connections by rank.
    members: Vec<Option<Member>>,
    /// The text about the run that the first rank gave.
    run: Option<String>,
    started: bool,
    /// The first rank that failed, and why.
    failure: Option<(usize, String)>,
    /// Whether the coordinator was dropped.
    ended: bool,
}

#[derive(Debug)]
struct Member {
    stream: TcpStream,
    process: u32,
    left: bool,
    /// Whether it sent nothing for too long.
    silent: bool,
}

impl Coordinator {
    /// Listens on `address` for `count` ranks. Port 0 takes a free port.
    ///
    /// # Errors
    /// [`GroupError::Listen`].
    pub fn listen(
        address: impl ToSocketAddrs + std::fmt::Debug,
        count: usize,
        options: GroupOptions,
    ) -> Result<Self, GroupError> {
        let failed = |error| GroupError::listen(shown(&address), &error);
        let listener = TcpListener::bind(&address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let members = (0..count).map(|_| None).collect();
        let state = Mutex::new(State { members, ..State::default() });
        let shared = Arc::new(Shared { count, options, state });
        let serve = Arc::clone(&shared);
        std::thread::spawn(move || serve.accept(&listener));
        Ok(Self { address: bound, shared })
    }

    /// Returns the address on which the coordinator listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The first rank that failed, and why.
    pub fn failure(&self) -> Option<(usize, String)> {
        self.shared.state().failure.clone()
    }

    /// The ranks that have not joined.
    pub fn missing(&self) -> Vec<usize> {
        let state = self.shared.state();
        (0..self.shared.count).filter(|rank| state.members[*rank].is_none()).collect()
    }

    /// The ranks that failed because they sent nothing for too long.
    pub fn silent(&self) -> Vec<usize> {
        let state = self.shared.state();
        let silent = |rank: &usize| state.members[*rank].as_ref().is_some_and(|one| one.silent);
        (0..self.shared.count).filter(silent).collect()
    }

    /// Reports to all ranks that `rank` has failed, unless a rank has failed before.
    pub fn fail(&self, rank: usize, reason: &str) {
        self.shared.fail(rank, reason);
    }

    /// Waits until all ranks have left, or `limit` has passed.
    pub fn finish(self, timeout: Duration) {
        let since = Instant::now();
        let all_left = || {
            let state = self.shared.state();
            state.failure.is_some() || state.members.iter().flatten().all(|member| member.left)
        };
        while !all_left() && since.elapsed() < timeout {
            std::thread::sleep(POLL);
        }
    }

    /// Asks all ranks to stop after a step.
    pub fn stop(&self) {
        self.shared.state().tell(&Message::Stop);
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.ended = true;
        for member in state.members.iter().flatten() {
            let _ = member.stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl State {
    /// Records the first failure and reports it to all ranks.
    fn fail(&mut self, rank: usize, reason: &str) {
        if self.failure.is_some() || self.ended {
            return;
        }
        self.failure = Some((rank, reason.to_owned()));
        self.tell(&Message::RankFailed { rank, reason: reason.to_owned() });
    }

    /// Sends a message to all connected ranks. Lost connections are detected when they are read.
    fn tell(&self, message: &Message) {
        for member in self.members.iter().flatten().filter(|member| !member.left) {
            let _ = send(&member.stream, message);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state stays valid if a thread panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections until all ranks have joined, and then sends a heartbeat every second.
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        let (since, mut beat) = (Instant::now(), Instant::now());
        loop {
            let (ended, started) = {
                let state = self.state();
                (state.ended, state.started)
            };
            if ended {
                return;
            }
            if let Ok((stream, _)) = listener.accept() {
                let shared = Arc::clone(&self);
                std::thread::spawn(move || shared.serve(stream));
                continue;
            }
            if !started && since.elapsed() > self.options.join_timeout {
                self.give_up();
            }
            if beat.elapsed() > self.options.beat() {
                self.state().tell(&Message::Alive);
                beat = Instant::now();
            }
            std::thread::sleep(POLL);
        }
    }

    /// Fails the first rank that has not joined.
    fn give_up(&self) {
        let missing = self.state().members.iter().position(Option::is_none);
        if let Some(rank) = missing {
            let seconds = self.options.join_timeout.as_secs();
            self.fail(rank, &format!("it did not join within {seconds} s"));
        }
    }

    /// Serves one connection until it ends.
    fn serve(&self, stream: TcpStream) {
        // The listener is non-blocking, and accepted sockets inherit that on some systems.
        let prepared = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_nodelay(true))
            .and_then(|()| stream.set_read_timeout(Some(self.options.heartbeat_timeout)))
            .and_then(|()| stream.try_clone());
        let Ok(reader) = prepared else { return };
        let mut reader = BufReader::new(reader);
        let Ok(Some(Message::Join(join))) = receive(&mut reader) else { return };
        let rank = join.rank;
        if let Err(reason) = self.admit(join, &stream) {
            let _ = send(&stream, &Message::Refused { reason });
            return;
        }
        loop {
            match receive(&mut reader) {
                Ok(Some(Message::Alive)) => {}
                Ok(Some(Message::Failed { reason })) => self.fail(rank, &reason),
                Ok(Some(Message::Leave)) => return self.leave(rank),
                Ok(Some(shared @ Message::Shared { .. })) if rank == 0 => {
                    self.state().tell(&shared);
                }
                Ok(Some(_)) => {}
                Ok(None) => return self.lost(rank, "its process ended"),
                Err(error) if is_silence(error.kind()) => {
                    let seconds = self.options.heartbeat_timeout.as_secs_f32();
                    self.lost(rank, &format!("it sent nothing for {seconds} s"));
                    return self.fell_silent(rank);
                }
                Err(_) => return self.lost(rank, "its process ended"),
            }
        }
    }

    /// Admits a rank.
    fn admit(&self, join: Join, stream: &TcpStream) -> Result<(), String> {
        let Join { version, rank, count, process, run } = join;
        let mut state = self.state();
        if version != VERSION {
            return Err(format!(
                "its protocol has version {version}, but the coordinator's has {VERSION}; start \
                 the same program on all ranks"
            ));
        }
        if count != self.count || rank >= count {
            return Err(format!(
                "it is rank {rank} of {count}, but the coordinator waits for {} ranks; start all \
                 with the same number",
                self.count
            ));
        }
        if state.members[rank].is_some() {
            return Err(format!("there is a rank {rank} already; give each process its own rank"));
        }
        match &state.run {
            Some(known) if *known != run => {
                let reason = format!(
                    "its run differs from the run of the other ranks: {}; start all ranks with the \
                     same options and files",
                    difference(known, &run)
                );
                // The other ranks would wait forever.
                state.fail(rank, &reason);
                return Err(reason);
            }
            _ => state.run = Some(run),
        }
        let stream = stream.try_clone().map_err(|error| error.to_string())?;
        if let Some((rank, reason)) = state.failure.clone() {
            let _ = send(&stream, &Message::RankFailed { rank, reason });
        }
        state.members[rank] = Some(Member { stream, process, left: false, silent: false });
        if state.members.iter().all(Option::is_some) {
            state.started = true;
            state.tell(&Message::Start);
        }
        Ok(())
    }

    fn leave(&self, rank: usize) {
        if let Some(member) = &mut self.state().members[rank] {
            member.left = true;
        }
    }

    fn fell_silent(&self, rank: usize) {
        if let Some(member) = &mut self.state().members[rank] {
            member.silent = true;
        }
    }

    /// Handles a rank whose connection was lost without a message.
    fn lost(&self, rank: usize, what: &str) {
        std::thread::sleep(BETTER_REASON);
        let process = self.state().members[rank].as_ref().map_or(0, |member| member.process);
        self.fail(rank, &format!("{what} (process {process})"));
    }

    fn fail(&self, rank: usize, reason: &str) {
        self.state().fail(rank, reason);
    }
}

/// Whether a read ended by its timeout.
pub(super) fn is_silence(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The first lines that differ.
fn difference(known: &str, given: &str) -> String {
    let mut pairs = known.lines().zip(given.lines());
    match pairs.find(|(known, given)| known != given) {
        Some((known, given)) => format!("`{given}` instead of `{known}`"),
        None => "one has more options".to_owned(),
    }
}
