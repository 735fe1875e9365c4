//! Traces of passes in the Trace Event Format, for Perfetto and `chrome://tracing`.
//!
//! The format: a JSON object whose `traceEvents` are complete events (`ph` is `X`) with start and
//! duration in microseconds, and metadata events (`ph` is `M`) that name processes and threads
//! (Trace Event Format, Google, 2016).

use retrograph_driver::Profile;
use retrograph_driver::profile::scope_of;
use serde_json::{Value, json};

use super::layout::Layout;
use super::{remarks, shown};
use crate::pass::{Edges, Pass};

/// The process of the device.
const DEVICE: u32 = 1;

impl Pass {
    /// Returns the schedule of the pass as a trace, with the times of `profile`, which must come
    /// from a program of this pass.
    ///
    /// Each track is a stream that the graph could use: an operation starts when all its
    /// dependencies have ended, and takes the time that it takes alone. The first track is the
    /// critical path. Concurrent operations of a real step slow each other down, so a step takes
    /// longer than this schedule; its time is in `otherData`.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// # use retrograph_runtime::{Bindings, Context, DeviceBuffer, DeviceIndex, Driver};
    /// # use retrograph_runtime::{ModuleCache, Pass, Policy, Program, Stream};
    /// let mut pass = Pass::new("shift");
    /// let (input, output) = (pass.external::<f32>("input", 8), pass.external::<f32>("output", 8));
    /// pass.copy(input, output)?;
    /// # let context = Context::new(&Driver::simulated(Default::default())?, DeviceIndex(0))?;
    /// # let modules = ModuleCache::new(&context).prewarm(&pass.requirements(), |_| ())?;
    /// # let stream = Stream::new(&context)?;
    /// # let from = DeviceBuffer::from_slice(&stream, &[1.0_f32; 8])?;
    /// # let to = DeviceBuffer::zeroed(&context, 8)?;
    /// # let mut bindings = Bindings::new();
    /// # bindings.bind(input, &from).bind(output, &to);
    /// # let mut program = Program::build(&stream, &modules, &pass, &bindings, Policy::Auto)?;
    /// let profile = program.profile(&stream, &pass.controls(), 5)?;
    /// assert!(pass.to_trace(&profile).contains("traceEvents"));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_trace(&self, profile: &Profile) -> String {
        let operations = self.operations();
        let times = profile.times(operations.len());
        let lengths: Vec<f32> = times.iter().map(|ms| ms.unwrap_or(0.0)).collect();
        let edges: Edges = self.edges();
        let pairs: Vec<_> = edges.iter().map(|edge| (edge.from.index(), edge.to.index())).collect();
        let layout = Layout::new(&lengths, &pairs);
        let named = |id: u32, what: &str, name: String| {
            json!({
                "ph": "M", "pid": DEVICE, "tid": id, "name": what, "args": { "name": name }
            })
        };
        let device =
            format!("{}{}", if profile.simulated { "SIMULATED " } else { "" }, profile.device);
        let mut events = vec![named(0, "process_name", device)];
        for lane in 0..layout.lane_count {
            let path = if lane == 0 { " (critical path)" } else { "" };
            events.push(named(lane as u32, "thread_name", format!("stream {lane}{path}")));
        }
        for (at, operation) in operations.iter().enumerate() {
            let Some(ms) = times[at] else { continue };
            let (start, lane) = (layout.starts[at], layout.lanes[at]);
            events.push(event(&shown(operation), start, ms, lane));
        }
        let about = json!({
            "pass": self.name(), "step_ms": profile.step_ms, "strategy": profile.strategy,
            "schedule_ms": layout.length, "remarks": remarks(Some(profile)),
        });
        let trace = json!({ "displayTimeUnit": "ms", "otherData": about, "traceEvents": events });
        format!("{trace}\n")
    }
}

fn event(operation: &super::Shown, start: f32, ms: f32, lane: usize) -> Value {
    let micros = |ms: f32| f64::from(ms) * 1e3;
    let name = operation.name.strip_prefix(scope_of(&operation.name)).unwrap_or(&operation.name);
    let [read, written] = operation.bytes.unwrap_or_default();
    json!({
        "ph": "X", "pid": DEVICE, "tid": lane, "ts": micros(start), "dur": micros(ms),
        "name": name.trim_start_matches('/'), "cat": operation.scope,
        "args": {
            "operation": operation.name, "kernel": operation.kernel,
            "bytes read": read, "bytes written": written,
        },
    })
}
