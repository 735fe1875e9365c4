//! A collective of one rank: a host function on a stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use retrograph_nccl_sys::ncclResult_t;

use crate::comm::Comm;
use crate::fault::FaultKind;
use crate::request::{Kind, Request};
use crate::wire::Contribution;

/// The time that a collective hangs without an abort.
const PATIENCE: Duration = Duration::from_secs(120);

/// A collective with its buffers.
#[derive(Clone)]
pub(crate) struct Exchange {
    pub(crate) comm: Arc<Comm>,
    pub(crate) request: Request,
    pub(crate) send: u64,
    pub(crate) receive: u64,
}

impl Exchange {
    /// Takes part in the collective, and waits for its result.
    pub(crate) fn run(&self) {
        let Self { comm, request, .. } = self;
        if comm.is_aborted() || comm.error() != ncclResult_t::ncclSuccess {
            return self.leave_undefined();
        }
        let mut request = *request;
        match comm.fault() {
            Some(FaultKind::Late(time)) => self.wait(time),
            Some(FaultKind::OtherCount) => request.count += 1,
            Some(FaultKind::AsyncError(code)) => {
                comm.fail(code, "an injected error");
                return self.hang();
            }
            Some(FaultKind::Hang) => return self.hang(),
            Some(FaultKind::Refuse(_)) | None => {}
        }
        if let Err(text) = self.exchange(request) {
            comm.fail(ncclResult_t::ncclInvalidUsage, &text);
            self.leave_undefined();
        }
    }

    fn exchange(&self, request: Request) -> Result<(), String> {
        let Self { comm, send, receive, .. } = self;
        let memory = &comm.device.memory;
        let [sent, received] = self.bytes();
        let mut bytes = vec![0; sent];
        // Only the root of a broadcast sends.
        if request.kind != Kind::Broadcast || request.root == comm.rank {
            memory.read(*send, &mut bytes).map_err(|error| error.to_string())?;
        }
        let mut stream = comm.stream.lock();
        if (Contribution { request, bytes }).write(&mut stream).is_err() {
            drop(stream);
            self.hang();
            return Ok(());
        }
        let since = Instant::now();
        let answer = comm.answer(&stream, || since.elapsed() > PATIENCE);
        drop(stream);
        match answer {
            Ok(Ok(bytes)) if bytes.len() == received => {
                memory.write(*receive, &bytes).map_err(|error| error.to_string())
            }
            Ok(Ok(bytes)) => Err(format!("{} bytes instead of {received}", bytes.len())),
            Ok(Err(text)) => Err(text),
            // Aborted, or the process of the hub has ended.
            Err(_) => {
                self.hang();
                Ok(())
            }
        }
    }

    /// Waits for an abort.
    fn hang(&self) {
        self.wait(PATIENCE);
        if !self.comm.is_aborted() {
            let text = "a rank is missing, and nothing aborted the communicator";
            self.comm.fail(ncclResult_t::ncclRemoteError, text);
        }
        self.leave_undefined();
    }

    fn wait(&self, time: Duration) {
        let since = Instant::now();
        while !self.comm.is_aborted() && since.elapsed() < time {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn leave_undefined(&self) {
        let [_, received] = self.bytes();
        // Fails only for a buffer that was freed, which the abort allows.
        let _ = self.comm.device.memory.poison(self.receive, received as u64);
    }

    fn bytes(&self) -> [usize; 2] {
        let ranks = self.comm.ranks as usize;
        self.request.bytes(ranks).expect("the call has checked the sizes")
    }
}

/// Operations that were enqueued together.
pub(crate) struct Exchanges(pub(crate) Vec<Exchange>);

impl Exchanges {
    pub(crate) fn run(&self) {
        self.0.iter().for_each(Exchange::run);
    }

    /// Counts the graphs that hold the operations.
    pub(crate) fn captured(&self) {
        for Exchange { comm, .. } in &self.0 {
            comm.in_graphs.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn released(&self) {
        for Exchange { comm, .. } in &self.0 {
            comm.in_graphs.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
