//! Traces: the outcomes of scenarios on hardware, as text.

use std::fmt::Write;

use crate::scenario::Scenario;

/// Machine and date of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Lines of text, without the comment mark.
    pub lines: Vec<String>,
}

/// The trace of one scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The name of the scenario.
    pub name: String,
    /// Steps and their outcomes. A crash or hang is the last one.
    pub steps: Vec<(String, String)>,
}

/// All traces of one scenario file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFile {
    /// Driver, GPU and date.
    pub head: Head,
    /// The traces in the order of the scenarios.
    pub traces: Vec<Trace>,
}

const ARROW: &str = " -> ";

impl TraceFile {
    /// Reads a trace file.
    pub fn parse(text: &str) -> Self {
        let mut file = Self::default();
        for line in text.lines() {
            if let Some(head) = line.strip_prefix("# ") {
                file.head.lines.push(head.to_owned());
            } else if let Some(name) = line.strip_prefix("scenario ") {
                file.traces.push(Trace { name: name.to_owned(), steps: Vec::new() });
            } else if let (Some((step, outcome)), Some(trace)) =
                (line.trim().split_once(ARROW), file.traces.last_mut())
            {
                trace.steps.push((step.to_owned(), outcome.to_owned()));
            }
        }
        file
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.head.lines {
            let _ = writeln!(text, "# {line}");
        }
        for trace in &self.traces {
            let _ = writeln!(text, "\nscenario {}", trace.name);
            for (step, outcome) in &trace.steps {
                let _ = writeln!(text, "  {step}{ARROW}{outcome}");
            }
            text.push_str("end\n");
        }
        text
    }

    /// The trace of a scenario.
    pub fn find(&self, name: &str) -> Option<&Trace> {
        self.traces.iter().find(|trace| trace.name == name)
    }
}

impl Trace {
    /// Whether the process or the call ended in the last step.
    pub fn is_cut_short(&self) -> bool {
        let last = self.steps.last().map_or("", |(_, outcome)| outcome.as_str());
        last.starts_with("crash") || last.starts_with("hang")
    }

    /// Whether the trace has the current steps of the scenario.
    pub fn matches(&self, scenario: &Scenario) -> bool {
        let Ok(steps) = &scenario.steps else { return false };
        let is_long_enough = self.is_cut_short() || steps.len() == self.steps.len();
        let same = |(step, (text, _)): (&crate::Step, &(String, String))| step.text == *text;
        is_long_enough && self.steps.len() <= steps.len() && steps.iter().zip(&self.steps).all(same)
    }
}
