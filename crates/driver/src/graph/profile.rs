//! Profiling a graph node by node.

use super::template::Graph;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::profile::{MAX_REPLAYS, OperationTime, Profile, Timed, median};
use crate::stream::Stream;

impl Graph {
    /// Runs copies of the graph on `stream` and measures the whole graph and each node. The graph's
    /// work really runs: `replays` times unchanged, `replays` times node by node, and twice for
    /// warm-up. At least one replay and at most [`MAX_REPLAYS`] are measured.
    ///
    /// Nodes are named by [`Graph::label`] and listed in a topological order.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// use retrograph_driver::{
    ///     CaptureMode, Context, DeviceBuffer, DeviceIndex, Driver, Stream,
    /// };
    ///
    /// let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
    /// let stream = Stream::new(&context)?;
    /// let buffer = DeviceBuffer::<u32>::zeroed(&context, 64)?;
    /// let graph = stream.capture(CaptureMode::ThreadLocal, |capturing| {
    ///     capturing.keep(buffer.owner());
    ///     // SAFETY: the range is in the buffer, which the graph keeps alive.
    ///     unsafe { capturing.stream().memset_d32(buffer.address(), 1, 64) }
    /// })?;
    /// let profile = graph.profile(&stream, 5)?;
    /// assert_eq!(profile.operations[0].kernel, "fill");
    /// assert!(profile.to_string().contains("SIMULATED"));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::MemoryNodes`] for graphs with memory nodes, which the driver does not copy;
    /// [`Error::RefusedDuringCapture`]; or a failed driver call.
    pub fn profile(&self, stream: &Stream, replays: usize) -> Result<Profile> {
        self.context.same(stream.context(), "the stream")?;
        stream.require_outside_capture("profiling a graph")?;
        let nodes = self.memory_nodes()?;
        if nodes > 0 {
            return Err(Error::MemoryNodes { nodes });
        }
        let replays = replays.clamp(1, MAX_REPLAYS);
        let mut profile = Profile::of("graph", &self.context, replays)?;
        profile.strategy = "captured or built by hand".to_owned();
        profile.step_ms = self.time_whole(stream, profile.replays)?;
        self.time_nodes(stream, &mut profile)?;
        Ok(profile)
    }

    fn time_whole(&self, stream: &Stream, replays: usize) -> Result<f32> {
        let (start, end) = (Event::new(&self.context)?, Event::new(&self.context)?);
        let mut exec = self.instantiate()?;
        exec.launch(stream)?;
        let mut times = Vec::new();
        for _ in 0..replays {
            start.record(stream)?;
            exec.launch(stream)?;
            end.record(stream)?;
            stream.synchronize()?;
            times.push(end.elapsed_ms(&start)?);
        }
        Ok(median(times))
    }

    fn time_nodes(&self, stream: &Stream, profile: &mut Profile) -> Result<()> {
        let ordered = self.ordered()?.nodes;
        let (copy, nodes) = self.duplicate(&ordered)?;
        let groups: Vec<_> = nodes.into_iter().map(|node| vec![node]).collect();
        let mut timed = Timed::new(copy, &groups)?;
        let (idle, laps) = timed.measure(stream, profile.replays)?;
        profile.record_ms = idle;
        for (at, (node, ms)) in ordered.into_iter().zip(laps).enumerate() {
            let kernel = self.label(node)?;
            profile.operations.push(OperationTime {
                operation: at,
                name: kernel.clone(),
                kernel,
                ms,
            });
        }
        Ok(())
    }
}
