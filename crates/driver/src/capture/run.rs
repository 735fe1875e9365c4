//! Capturing the work of a closure.

use super::capturing::Capturing;
use super::error::CaptureError;
use super::guard::{Ended, Guard, Target};
use super::invalidation::{CaptureInvalidation, FirstFailure};
use super::mode::CaptureMode;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::stream::Stream;

impl Stream {
    /// Captures the work that `body` enqueues on this stream, and on streams that wait for its
    /// events and are joined again. Nothing runs.
    ///
    /// # Errors
    /// [`CaptureError`] if a call fails, whether or not `body` returns that error, or if `body`
    /// returns an error. The stream is then recovered if possible; see [`CaptureError::recovered`].
    ///
    /// # Panics
    /// If `body` panics; the capture is ended before the panic continues.
    pub fn capture<F, E>(&self, mode: CaptureMode, body: F) -> Result<Graph, CaptureError>
    where
        F: FnOnce(&mut Capturing<'_>) -> Result<(), E>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.capture_with(mode, None, body)
    }

    /// Captures the work that `body` enqueues into `graph`, after its nodes `after`, and returns
    /// the graph. Nothing runs. Work that was enqueued on the stream before is not part of the
    /// graph.
    ///
    /// `body` may also add nodes manually and change the dependencies of the next captured work
    /// ([`Capturing::graph`], [`Capturing::set_dependencies`]). Capture all work of a library in
    /// one capture: NCCL 2.28 fails in a second capture into the same graph, since both have the
    /// same id.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// use retrograph_driver::{CaptureMode, Context, DeviceBuffer, DeviceIndex, Driver};
    /// use retrograph_driver::{Error, Graph, Stream};
    ///
    /// let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
    /// let stream = Stream::new(&context)?;
    /// let word = DeviceBuffer::<u32>::zeroed(&context, 1)?;
    /// let mut graph = Graph::new(&context)?;
    /// let first = graph.add_empty(&[])?;
    /// let graph = stream.capture_into(graph, &[first], CaptureMode::ThreadLocal, |capturing| {
    ///     capturing.keep(word.owner());
    ///     // SAFETY: the range is in the buffer, which the graph keeps alive.
    ///     unsafe { capturing.stream().memset_d32(word.address(), 7, 1) }
    /// })?;
    /// assert_eq!(graph.edges()?.len(), 1);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Stream::capture`], or if the driver lacks the call (CUDA 12.3 introduced it) or a node
    /// belongs to another graph. The graph is destroyed then. If the context was lost meanwhile,
    /// whether the driver has destroyed it is unknown, and its host memory leaks.
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
        let mut guard = Guard::begin(self, mode, target).map_err(|error| self.not_begun(error))?;
        let mut capturing = Capturing::new(self, guard.given.as_mut());
        let outcome = body(&mut capturing);
        let owners = capturing.into_owners();
        match (outcome, guard.end()) {
            (Ok(()), Ended { loss: None, graph: Some(graph), .. }) => Ok(graph.with(owners)),
            (outcome, mut ended) => {
                drop(ended.graph.take());
                let recovered = self.recover();
                let (first, unseen) = match ended.loss {
                    Some(CaptureInvalidation::Failed(first)) => (Some(first), None),
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
            place: "the beginning of the capture".to_owned(),
        });
        let recovered = !matches!(error, Error::RefusedDuringCapture { .. }) && self.works();
        CaptureError { first, cause: Some(error.into()), end: None, recovered }
    }
}
