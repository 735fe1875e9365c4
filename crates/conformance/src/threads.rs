//! Named threads that run one call at a time.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use retrograph_driver_sys::DriverTable;

use crate::functions::Invoke;

/// A call for a thread.
type Request = (Invoke, Vec<u64>);

/// A worker, which ends when its sender is dropped.
struct Worker {
    requests: Sender<Request>,
    codes: Receiver<Option<u32>>,
}

/// The threads of a scenario by name.
pub(crate) struct Threads {
    table: DriverTable,
    limit: Duration,
    workers: HashMap<String, Worker>,
}

/// The result of a call.
pub(crate) enum Answer {
    /// The call returned this code.
    Code(u32),
    /// The driver lacks the function.
    Absent,
    /// The call did not return in time.
    Hang,
    /// The thread died.
    Dead,
}

impl Threads {
    pub(crate) fn new(table: &DriverTable, limit: Duration) -> Self {
        Self { table: *table, limit, workers: HashMap::new() }
    }

    /// Runs a call on a thread, which is created on first use.
    pub(crate) fn call(&mut self, thread: &str, invoke: Invoke, words: Vec<u64>) -> Answer {
        let table = self.table;
        let worker = self.workers.entry(thread.to_owned()).or_insert_with(|| start(table));
        if worker.requests.send((invoke, words)).is_err() {
            return Answer::Dead;
        }
        match worker.codes.recv_timeout(self.limit) {
            Ok(Some(code)) => Answer::Code(code),
            Ok(None) => Answer::Absent,
            Err(RecvTimeoutError::Timeout) => Answer::Hang,
            Err(RecvTimeoutError::Disconnected) => Answer::Dead,
        }
    }
}

fn start(table: DriverTable) -> Worker {
    let (requests, incoming) = channel::<Request>();
    let (outgoing, codes) = channel();
    thread::spawn(move || {
        for (invoke, words) in incoming {
            // SAFETY: the words are encoded for this function's parameters: pointers lead to blocks
            // of the scenario as large as their types. Invalid addresses and stale handles occur
            // only where a scenario tests them.
            let code = unsafe { invoke(&table, &words) };
            if outgoing.send(code.map(|code| code.0)).is_err() {
                return;
            }
        }
    });
    Worker { requests, codes }
}
