//! The threads of a process that watch the connection to the coordinator and the communicator.

use std::collections::VecDeque;
use std::io::BufReader;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use retrograph_runtime::Communicator;

use super::coordinator::is_silence;
use super::message::{Message, receive, send};
use super::{GroupError, GroupOptions};

/// Interval between checks of the communicator for errors.
const POLL: Duration = Duration::from_millis(100);

/// How long a rank whose collective has failed waits to learn which rank caused it. The coordinator
/// needs part of this time to find out why a connection was lost.
const CAUSE: Duration = Duration::from_secs(1);

/// What a rank knows about the other ranks.
#[derive(Debug)]
pub(super) struct Watch {
    options: GroupOptions,
    stream: TcpStream,
    communicator: OnceLock<Communicator>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    failure: Option<GroupError>,
    asked_to_stop: bool,
    left: bool,
    ended: bool,
    /// Texts of rank 0 that were not read yet.
    shared: VecDeque<String>,
    sent: u64,
    /// What this rank waits for, and since when.
    waiting: Option<(&'static str, Instant)>,
}

impl Watch {
    /// Starts the threads. They end with the connection, or at [`Watch::end`].
    pub(super) fn start(
        stream: TcpStream,
        reader: BufReader<TcpStream>,
        options: GroupOptions,
    ) -> std::io::Result<(Arc<Self>, [JoinHandle<()>; 2])> {
        reader.get_ref().set_read_timeout(Some(options.heartbeat_timeout))?;
        let watch = Arc::new(Self {
            options,
            stream,
            communicator: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let (listens, beats) = (Arc::clone(&watch), Arc::clone(&watch));
        let listens = std::thread::spawn(move || listens.listen(reader));
        let beats = std::thread::spawn(move || beats.beat());
        Ok((watch, [listens, beats]))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state stays valid if a thread panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_communicator(&self, communicator: Communicator) {
        let communicator = self.communicator.get_or_init(|| communicator);
        if self.check().is_err() {
            communicator.abort();
        }
    }

    pub(super) fn communicator(&self) -> Option<&Communicator> {
        self.communicator.get()
    }

    pub(super) fn check(&self) -> Result<(), GroupError> {
        self.state().failure.clone().map_or(Ok(()), Err)
    }

    pub(super) fn is_asked_to_stop(&self) -> bool {
        self.state().asked_to_stop
    }

    pub(super) fn share(&self, text: &str) {
        let number = {
            let mut state = self.state();
            state.sent += 1;
            state.sent
        };
        self.say(&Message::Shared { number, text: text.to_owned() });
    }

    /// Waits for the next text of rank 0.
    pub(super) fn shared(&self) -> Result<String, GroupError> {
        let mut state = self.state();
        loop {
            if let Some(text) = state.shared.pop_front() {
                return Ok(text);
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Fails if a collective has met an error. Its result then means nothing, and this rank tells
    /// the others.
    pub(super) fn require_healthy(&self) -> Result<(), GroupError> {
        self.check()?;
        let Some(Err(error)) = self.communicator.get().map(Communicator::require_healthy) else {
            return Ok(());
        };
        self.fail_without_cause(&error.to_string());
        // The answer of the coordinator names the rank that failed first.
        let mut state = self.state();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn fail(&self, reason: &str) {
        if self.state().failure.is_none() {
            self.say(&Message::Failed { reason: reason.to_owned() });
        }
    }

    /// Fails unless another failure is known soon: of the rank that ended, and not of the one whose
    /// collective it broke.
    fn fail_without_cause(&self, reason: &str) {
        let unknown = |state: &mut State| state.failure.is_none() && !state.ended;
        let waited = self.changed.wait_timeout_while(self.state(), CAUSE, unknown);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.fail(reason);
    }

    pub(super) fn leave(&self) {
        self.state().left = true;
        self.say(&Message::Leave);
    }

    pub(super) fn waiting<T>(&self, what: &'static str, body: impl FnOnce() -> T) -> T {
        self.state().waiting = Some((what, Instant::now()));
        let done = body();
        self.state().waiting = None;
        done
    }

    /// Closes the connection, which this rank then finds lost.
    pub(super) fn disconnect(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Closes the connection.
    pub(super) fn end(&self) {
        self.state().ended = true;
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Sends a message. A lost connection is detected by the reading thread.
    fn say(&self, message: &Message) {
        // The lock keeps messages from interleaving.
        let _state = self.state();
        let _ = send(&self.stream, message);
    }

    /// Records the first failure and aborts all collectives.
    fn note(&self, failure: GroupError) {
        {
            let mut state = self.state();
            if state.failure.is_some() || state.left || state.ended {
                return;
            }
            tracing::error!(error = %failure, "the group stops");
            state.failure = Some(failure);
            self.changed.notify_all();
        }
        if let Some(communicator) = self.communicator.get() {
            // Waits until graphs are dropped, so this must be the last action of this thread.
            communicator.abort();
        }
    }

    fn listen(&self, mut reader: BufReader<TcpStream>) {
        loop {
            match receive(&mut reader) {
                Ok(Some(Message::RankFailed { rank, reason })) => {
                    return self.note(GroupError::RankFailed { rank, reason });
                }
                Ok(Some(Message::Shared { text, .. })) => {
                    self.state().shared.push_back(text);
                    self.changed.notify_all();
                }
                Ok(Some(Message::Stop)) => self.state().asked_to_stop = true,
                Ok(Some(_)) => {}
                Ok(None) => {
                    let reason = "the connection was closed".to_owned();
                    return self.note(GroupError::CoordinatorGone { reason });
                }
                Err(error) => {
                    let seconds = self.options.heartbeat_timeout.as_secs_f32();
                    let reason = match is_silence(error.kind()) {
                        true => format!("nothing was heard for {seconds} s"),
                        false => error.to_string(),
                    };
                    return self.note(GroupError::CoordinatorGone { reason });
                }
            }
        }
    }

    /// Says that this rank lives, and looks for errors of collectives and for waits that last too
    /// long.
    fn beat(&self) {
        let mut said = Instant::now();
        loop {
            std::thread::sleep(POLL);
            let late = {
                let state = self.state();
                if state.ended || state.failure.is_some() {
                    return;
                }
                let waiting = state.waiting.as_ref();
                let late =
                    waiting.filter(|(_, since)| since.elapsed() > self.options.collective_timeout);
                late.map(|(what, since)| {
                    format!("{what} waits for other ranks since {} s", since.elapsed().as_secs())
                })
            };
            let unhealthy = self.communicator.get().and_then(|one| one.require_healthy().err());
            if let Some(reason) = late.or(unhealthy.map(|error| error.to_string())) {
                self.fail_without_cause(&reason);
                // The coordinator tells all ranks, including this one.
            }
            if said.elapsed() > self.options.beat() {
                self.say(&Message::Alive);
                said = Instant::now();
            }
        }
    }
}
