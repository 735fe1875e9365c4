//! Execution of one scenario on a table.

use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use retrograph_driver_sys::{CUresult, DriverTable};

use crate::arena::{ArenaAddress, UNWRITTEN, word};
use crate::encode::{Memory, Written};
use crate::error::{Problem, ScenarioError};
use crate::functions::Function;
use crate::names::Names;
use crate::reflect::DRIVER;
use crate::scenario::{Action, Scenario, Step, Value};
use crate::show;
use crate::threads::{Answer, Threads};
use crate::types::Type;
use crate::variables::Variable;

/// The outcome of a step, as in traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome(pub String);

/// How a scenario ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All steps ran.
    Complete,
    /// A step did not return in time, or ended its thread.
    Stuck,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The outcomes of the steps that ran.
    pub outcomes: Vec<Outcome>,
    /// How it ended.
    pub ending: Ending,
}

/// An upper bound of list lengths. A larger count is unwritten memory.
const MAX_LISTED: usize = 1 << 16;

/// A running scenario.
struct Session {
    memory: Memory,
    names: Names,
    threads: Threads,
}

/// Runs the steps of a scenario in order. Calls `observe` with each outcome immediately, so the
/// outcomes before a crash are known.
pub fn run(
    scenario: &Scenario,
    table: &DriverTable,
    images: &Path,
    observe: &mut dyn FnMut(&Step, &Outcome),
) -> Result<Run, ScenarioError> {
    let steps = scenario.steps.clone()?;
    let limit = Duration::from_secs(20);
    let mut session = Session {
        memory: Memory::new(images.to_owned()),
        names: Names::default(),
        threads: Threads::new(table, limit),
    };
    let mut outcomes = Vec::new();
    for step in &steps {
        let text = session.step(step).map_err(|problem| problem.at(&step.place))?;
        let is_stuck = matches!(text.as_str(), "hang" | "crash");
        let outcome = Outcome(text);
        observe(step, &outcome);
        outcomes.push(outcome);
        if is_stuck {
            // The hung thread may still use the arguments.
            std::mem::forget(session);
            return Ok(Run { outcomes, ending: Ending::Stuck });
        }
    }
    Ok(Run { outcomes, ending: Ending::Complete })
}

/// A code as traces write it.
fn code_text(code: u32) -> String {
    format!("{code} {}", CUresult(code).name().unwrap_or("?"))
}

impl Session {
    fn step(&mut self, step: &Step) -> Result<String, Problem> {
        match &step.action {
            Action::Call { function, arguments } => self.call(&step.thread, function, arguments),
            Action::Show(name) => {
                let variable = self.memory.variables.follow(name)?;
                let shown = show::variable(&variable, &mut self.names, None);
                Ok(format!("{name}={shown}"))
            }
            // The table has one function per name.
            Action::NoDevices | Action::TwoDevices => Ok("done".to_owned()),
            Action::Log => {
                let log = self.memory.log.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(format!("log=[{}]", log.join(", ")))
            }
            Action::Sleep(milliseconds) => {
                std::thread::sleep(Duration::from_millis(*milliseconds));
                Ok("done".to_owned())
            }
            Action::Read { address, of, count } => self.read(&step.thread, address, of, *count),
        }
    }

    fn call(
        &mut self,
        thread: &str,
        function: &'static Function,
        arguments: &[Value],
    ) -> Result<String, Problem> {
        let mut words = Vec::new();
        for (value, parameter) in arguments.iter().zip(&function.parameters) {
            words.push(self.memory.argument(value, parameter)?);
        }
        let written = std::mem::take(&mut self.memory.written);
        match self.threads.call(thread, function.invoke, words.clone()) {
            Answer::Code(code) => {
                if code == 0 {
                    self.forget(function, &words);
                }
                Ok(code_text(code) + &self.results(function, code, &words, written))
            }
            Answer::Absent => Ok("absent".to_owned()),
            Answer::Hang => Ok("hang".to_owned()),
            Answer::Dead => Ok("crash".to_owned()),
        }
    }

    /// Removes the names of objects that the call destroyed.
    fn forget(&mut self, function: &Function, words: &[u64]) {
        let destroys = ["Destroy", "Unload", "Free", "Release"];
        if !destroys.iter().any(|part| function.name.contains(part)) {
            return;
        }
        for (parameter, word) in function.parameters.iter().zip(words) {
            match &parameter.of {
                Type::Handle(kind) => self.names.forget_handle(kind, *word),
                Type::Address | Type::Pointer(_) => self.names.forget_address(*word),
                _ => continue,
            }
            return;
        }
    }

    /// Formats the outputs and names their handles and addresses.
    fn results(
        &mut self,
        function: &Function,
        code: u32,
        words: &[u64],
        written: Vec<Written>,
    ) -> String {
        let size_type = Type::Integer { size: 8, signed: false };
        let counts = written.iter().rev().find(|one| one.variable.of == size_type);
        let listed = counts.map(|one| one.variable.word() as usize);
        let listed = listed.filter(|count| code == 0 && *count <= MAX_LISTED);
        let extent = extent(function, words, &written);
        let mut text = String::new();
        for one in written {
            if code == 0 && creates(function.name) {
                self.forget_before_creation(&one.variable);
            }
            if one.is_recorded {
                let shown = show::variable(&one.variable, &mut self.names, listed);
                text.push_str(&format!(" {}={shown}", one.name));
            }
            let one = if code == 0 { self.copied(one, listed) } else { one };
            self.bind(one, extent);
        }
        text
    }

    /// Copies a list that the driver returned, which the next call may invalidate.
    fn copied(&mut self, one: Written, listed: Option<usize>) -> Written {
        let (Type::Pointer(target), Some(count)) = (&one.variable.of, listed) else { return one };
        let address = one.variable.word();
        let is_list = address != 0 && address != u64::from_le_bytes([UNWRITTEN; 8]);
        let Some(size) = DRIVER.size(target).filter(|size| *size > 1 && is_list) else {
            return one;
        };
        let place = self.memory.block(size * count);
        place.write(&ArenaAddress::of_address(address).read(size * count));
        let of = (**target).clone();
        let variable = Variable { of, count: Some(count), place, is_buffer: false };
        Written { variable, ..one }
    }

    /// Removes the old name of a number that a new object has.
    fn forget_before_creation(&mut self, variable: &Variable) {
        match &variable.of {
            Type::Handle(kind) => self.names.forget_handle(kind, variable.word()),
            Type::Address => self.names.forget_address(variable.word()),
            _ => {}
        }
    }

    fn bind(&mut self, one: Written, extent: u64) {
        let Written { name, variable, .. } = one;
        let size = DRIVER.size(&variable.of).unwrap_or(8);
        let is_unwritten = variable.place.read(size).iter().all(|byte| *byte == UNWRITTEN);
        match &variable.of {
            _ if variable.is_buffer => {
                let bytes = (size * variable.count.unwrap_or(1)) as u64;
                self.names.bind_address(variable.place.address(), bytes, &name);
            }
            _ if is_unwritten && variable.count.is_none() => {
                // Later steps pass null instead of unwritten memory.
                variable.place.write(&vec![0; size]);
            }
            Type::Handle(kind) if variable.count.is_none() => {
                self.names.bind_handle(kind, variable.word(), &name);
            }
            Type::Address => self.names.bind_address(variable.word(), extent, &name),
            Type::Pointer(target) if **target == Type::Void => {
                self.names.bind_address(variable.word(), extent, &name);
            }
            Type::Record(_) => self.bind_allocation(&name, &variable),
            _ => {}
        }
        self.memory.variables.set(&name, variable);
    }

    /// Names the memory of an allocation node by the address in its parameters.
    fn bind_allocation(&mut self, name: &str, variable: &Variable) {
        let Type::Record(record) = &variable.of else { return };
        let fields = DRIVER.record(record).map(|record| record.fields).unwrap_or_default();
        let place = |field: &str| {
            let found = fields.iter().find(|one| one.name == field)?;
            Some(word(&variable.place.offset(found.offset).read(8)))
        };
        if let (Some(base), Some(bytes)) = (place("dptr"), place("bytesize")) {
            self.names.bind_address(base, bytes, &format!("{name}.dptr"));
        }
    }

    fn read(
        &mut self,
        thread: &str,
        address: &Value,
        of: &str,
        count: usize,
    ) -> Result<String, Problem> {
        let element = DRIVER.resolve(of);
        let Some(size) = DRIVER.size(&element) else {
            return Problem::unknown("type", of);
        };
        let Some(function) = crate::functions::find("cuMemcpyDtoH_v2") else {
            return Problem::unknown("function", "cuMemcpyDtoH_v2");
        };
        let place = self.memory.block(size * count);
        let address = self.memory.argument(address, &function.parameters[1])?;
        let words = vec![place.address(), address, (size * count) as u64];
        match self.threads.call(thread, function.invoke, words) {
            Answer::Code(0) => {
                let bytes = place.read(size * count);
                let values = bytes.chunks(size.max(1));
                let shown = values.map(|one| show::one(one, &element, &mut self.names)).collect();
                Ok(format!("{} read={}", code_text(0), show::runs(shown)))
            }
            Answer::Code(code) => Ok(code_text(code)),
            Answer::Absent => Ok("absent".to_owned()),
            Answer::Hang => Ok("hang".to_owned()),
            Answer::Dead => Ok("crash".to_owned()),
        }
    }
}

/// Whether a function creates an object.
fn creates(name: &str) -> bool {
    let parts = [
        "Create",
        "Clone",
        "Instantiate",
        "LoadData",
        "MemAlloc",
        "HostAlloc",
        "AddNode",
        "GraphAdd",
        "AddressReserve",
    ];
    parts.iter().any(|part| name.contains(part))
}

/// Bytes at an address that the call wrote.
fn extent(function: &Function, words: &[u64], written: &[Written]) -> u64 {
    let is_size = |name: &str| matches!(name, "bytes" | "bytesize" | "size" | "length");
    let by_value = function.parameters.iter().zip(words);
    let mut by_value = by_value.filter(|(one, _)| is_size(one.name) && one.of.pointee().is_none());
    if let Some((_, bytes)) = by_value.next() {
        return *bytes;
    }
    let by_place = written.iter().find(|one| one.parameter.is_some_and(is_size));
    by_place.map_or(1, |one| one.variable.word())
}
