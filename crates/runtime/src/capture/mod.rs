//! Stream capture: work enqueued on a stream becomes a graph instead of running.
//!
//! ```
//! # #[cfg(feature = "sim")] {
//! use retrograph_runtime::{CaptureMode, Context, DeviceBuffer, DeviceIndex, Driver, Stream};
//!
//! let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
//! let stream = Stream::new(&context)?;
//! let buffer = DeviceBuffer::<f32>::zeroed(&context, 1024)?;
//! let graph = stream.capture(CaptureMode::ThreadLocal, |capturing| {
//!     capturing.at("clear the gradients");
//!     capturing.keep(buffer.owner());
//!     // SAFETY: the range lies in the buffer, which the graph keeps.
//!     unsafe { capturing.stream().fill_u32(buffer.address(), 0, 1024) }
//! })?;
//! let mut exec = graph.instantiate()?;
//! exec.launch(&stream)?;
//! assert_eq!(buffer.download(&stream)?, [0.0; 1024]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is refused
//!
//! A capture is lost when its thread allocates, frees, waits, queries or loads a module meanwhile.
//! The safe functions of this crate refuse that with [`Error::RefusedDuringCapture`] before the
//! driver sees it, and what is dropped meanwhile is handed back when the capture has ended.
//! A wait for the whole context breaks the captures of all threads, so that no thread is let wait,
//! and nothing is freed, while any captures, by whichever load of the driver.
//! Library calls can still break a capture; then the recovery below follows. A capture that is lost
//! takes nothing more: what its thread enqueues after the first failure is refused with
//! [`Error::CaptureLost`], on every stream, since the driver might run it at once.
//!
//! # Recovery
//!
//! The first failing call names the cause (900, 902–908); all later ones return 901, and so does
//! the end of the capture, whose code alone would therefore say nothing. When a capture fails, or
//! its body returns an error or panics, the capture is ended on its own stream and thread, and once
//! more if the stream captures on. The graph that came back is destroyed, what was dropped is
//! handed back, the stream is retired unless it has left capturing, and a wait for it shows whether
//! it still works.
//! [`CaptureError`] carries the first failure, the code of the end and the outcome of the probe.

mod error;
mod frontier;
mod guard;
pub(crate) mod window;

use std::marker::PhantomData;

use retrograph_driver_sys::{CUresult, CUstream, CUstreamCaptureMode, DriverTable};

pub use error::CaptureError;
pub use window::{FirstFailure, Loss};

use crate::Owner;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::launch::KernelLaunch;
use crate::stream::Stream;
use guard::{Ended, Guard, Target};

pub(crate) use frontier::CapturedNodes;

/// Which threads a capture forbids the calls that would be unsafe meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureMode {
    /// The thread that captures. Other threads may allocate and wait meanwhile.
    #[default]
    ThreadLocal,
    /// Every thread of the process.
    Global,
    /// None. Safe functions of this crate refuse them all the same.
    Relaxed,
}

impl CaptureMode {
    fn raw(self) -> CUstreamCaptureMode {
        match self {
            Self::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            Self::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            Self::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        }
    }
}

/// A capture in progress. It cannot leave its thread, since only that thread may end it.
pub struct Capturing<'a> {
    stream: &'a Stream,
    owners: Vec<Owner>,
    not_send: PhantomData<*const ()>,
}

impl Capturing<'_> {
    /// The stream that is captured.
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// Names the work that follows, for the error if one of its calls fails.
    pub fn at(&self, place: impl Into<String>) {
        window::set_place(self.stream.context(), place.into());
    }

    /// Makes the graph keep `owner` alive, as it must for everything that the work touches.
    pub fn keep(&mut self, owner: Owner) {
        self.owners.push(owner);
    }

    /// Captures a launch; the graph keeps the module of the function.
    ///
    /// # Safety
    /// As [`Stream::launch`], whenever the graph is launched. Buffers must be given to
    /// [`Capturing::keep`], or outlive the graph.
    ///
    /// # Errors
    /// When the arguments do not fit or the driver fails.
    pub unsafe fn launch(&mut self, launch: &KernelLaunch<'_>) -> Result<()> {
        // SAFETY: the caller promises what a launch needs.
        unsafe { self.stream.launch(launch) }?;
        self.keep(launch.function.owner());
        Ok(())
    }

    /// Captures what `call`, named `name` in errors, enqueues on the stream through the driver.
    ///
    /// # Safety
    /// As for the calls that it makes, whenever the graph is launched. It must not end the capture.
    ///
    /// # Errors
    /// When `call` returns another code than success, or leaves a stream that does not capture.
    pub unsafe fn library_call<F>(&mut self, name: &'static str, call: F) -> Result<()>
    where
        F: FnOnce(&DriverTable, CUstream) -> CUresult,
    {
        let context = self.stream.context();
        self.stream.bind_to_enqueue()?;
        context.check(name, call(context.table(), self.stream.raw()))?;
        // The library may have made another context current, and may hide what went wrong.
        self.stream.bind_to_enqueue()
    }
}

impl Stream {
    /// Captures what `body` enqueues on this stream, and on streams that wait for its events and
    /// are joined again. Nothing of it runs.
    ///
    /// # Errors
    /// [`CaptureError`] when a call fails, whether or not `body` passes that on, or when `body`
    /// returns an error. The stream has then been recovered as far as the error says.
    ///
    /// # Panics
    /// When `body` does; the capture is ended before the panic goes on.
    pub fn capture<F, E>(&self, mode: CaptureMode, body: F) -> Result<Graph, CaptureError>
    where
        F: FnOnce(&mut Capturing<'_>) -> Result<(), E>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.capture_with(mode, None, body)
    }

    /// Captures what `body` enqueues into `graph`, behind its nodes `after`, and gives it back.
    /// Nothing of it runs. Work that the stream was given before is not part of it.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// use retrograph_runtime::{CaptureMode, Context, DeviceBuffer, DeviceIndex, Driver};
    /// use retrograph_runtime::{Error, Graph, Stream};
    ///
    /// let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
    /// let stream = Stream::new(&context)?;
    /// let word = DeviceBuffer::<u32>::zeroed(&context, 1)?;
    /// let mut graph = Graph::new(&context)?;
    /// let first = graph.add_empty(&[])?;
    /// let graph = stream.capture_into(graph, &[first], CaptureMode::ThreadLocal, |capturing| {
    ///     capturing.keep(word.owner());
    ///     // SAFETY: the range is that of the buffer, which the graph keeps.
    ///     unsafe { capturing.stream().fill_u32(word.address(), 7, 1) }
    /// })?;
    /// assert_eq!(graph.edges()?.len(), 1);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Stream::capture`], and when the driver has no such call (CUDA 12.3 brought it) or a
    /// node is of another graph. The graph is gone then: a lost capture takes it along. Where the
    /// context was lost meanwhile, nobody can say whether it has, and the graph's memory on the
    /// host is not handed back before the process ends.
    ///
    /// # Panics
    /// As [`Stream::capture`].
    pub fn capture_into<F, E>(
        &self,
        graph: Graph,
        after: &[Node],
        mode: CaptureMode,
        body: F,
    ) -> Result<Graph, CaptureError>
    where
        F: FnOnce(&mut Capturing<'_>) -> Result<(), E>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.capture_with(mode, Some(Target { graph, after }), body)
    }

    fn capture_with<F, E>(
        &self,
        mode: CaptureMode,
        target: Option<Target<'_>>,
        body: F,
    ) -> Result<Graph, CaptureError>
    where
        F: FnOnce(&mut Capturing<'_>) -> Result<(), E>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let guard = Guard::begin(self, mode, target).map_err(|error| self.not_begun(error))?;
        let mut capturing = Capturing { stream: self, owners: Vec::new(), not_send: PhantomData };
        let outcome = body(&mut capturing);
        let owners = std::mem::take(&mut capturing.owners);
        match (outcome, guard.end()) {
            (Ok(()), Ended { loss: None, graph: Some(graph), .. }) => Ok(graph.with(owners)),
            (outcome, mut ended) => {
                drop(ended.graph.take());
                let recovered = self.recover();
                let (first, unseen) = match ended.loss {
                    Some(Loss::Failed(first)) => (Some(first), None),
                    Some(loss) => (None, Some(Error::CaptureLost { loss: Box::new(loss) })),
                    None => (None, None),
                };
                let cause = outcome.err().map(Into::into).or(unseen.map(Into::into));
                Err(CaptureError { first, cause, end: Some(ended.code), recovered })
            }
        }
    }

    fn not_begun(&self, error: Error) -> CaptureError {
        let first = error.call().map(|call| FirstFailure {
            error: call.clone(),
            place: "the begin of the capture".to_owned(),
        });
        let recovered = !matches!(error, Error::RefusedDuringCapture { .. }) && self.works();
        CaptureError { first, cause: Some(error.into()), end: None, recovered }
    }
}
