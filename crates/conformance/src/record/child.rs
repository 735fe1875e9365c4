//! The process that runs one scenario on a driver and prints each outcome immediately.

use std::io::{self, Write};
use std::path::Path;

use retrograph_driver_sys::{DriverTable, LoadError};

use super::devices::{self, VISIBLE};
use crate::runner;
use crate::scenario::Library;
use crate::{Folders, record};

/// The last line of a child that finished.
pub(super) const END: &str = "end";

/// Runs a request of the recording process: `describe`, `count`, `one FILE NAME` or `vectors
/// OPCODE`. Prints the results to standard output.
pub fn child(
    driver: Option<&Path>,
    folders: &Folders,
    arguments: &[String],
) -> Result<(), LoadError> {
    let table = match driver {
        // SAFETY: the caller names a driver library.
        Some(path) => unsafe { DriverTable::load_from(path) }?,
        None => DriverTable::load()?,
    };
    let mut lines = io::stdout().lock();
    let mut say = |line: &str| {
        // Fails if the parent has exited.
        let _ = writeln!(lines, "{line}");
        let _ = lines.flush();
    };
    match arguments {
        [verb] if verb == "describe" => {
            record::describe(&table).iter().for_each(|line| say(line));
        }
        [verb] if verb == "count" => say(&devices::count(&table).to_string()),
        [verb, file, name] if verb == "one" => one(&table, folders, file, name, &mut say),
        [verb, opcode] if verb == "vectors" => super::vectors::child(&table, opcode, &mut say),
        _ => say("mistake\tunknown request to a child"),
    }
    say(END);
    Ok(())
}

fn one(table: &DriverTable, folders: &Folders, file: &str, name: &str, say: &mut dyn FnMut(&str)) {
    let library = Library::load_one(&folders.scenarios, file);
    let Some(scenario) = library.scenarios.iter().find(|scenario| scenario.name == *name) else {
        return say("mistake\tthere is no such scenario");
    };
    // SAFETY: this process has no other thread yet.
    unsafe { std::env::set_var(VISIBLE, devices::visible(scenario.devices())) };
    let run = runner::run(scenario, table, &folders.images, &mut |_, outcome| {
        say(&format!("outcome\t{}", outcome.0));
    });
    if let Err(mistake) = run {
        say(&format!("mistake\t{mistake}"));
    }
}
