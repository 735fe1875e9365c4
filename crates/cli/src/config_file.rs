//! `--config FILE`: flags from a TOML file, and `run.toml` with all values of a run.
//!
//! A key is a flag without its dashes. The flags of the file are inserted before the flags of the
//! command line, so that both are parsed and checked alike. A flag of the command line replaces its
//! key and all keys that conflict with it.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory};
use toml::{Table, Value};

use crate::args::Arguments;
use crate::error::CliError;

/// The command that takes configuration files.
const COMMAND: &str = "finetune";
/// The flag that names a file.
const FLAG: &str = "config";
/// The name of a run's configuration file in its checkpoint directory.
pub(crate) const RUN_FILE: &str = "run.toml";
/// Flags that are not part of a run's configuration.
const NOT_OF_A_RUN: [&str; 4] = [FLAG, "resume", "help", "version"];
/// Minimum Jaro-Winkler similarity of a key and the flag suggested for it.
const MIN_SIMILARITY: f64 = 0.75;

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// It is not TOML.
    #[error("the configuration `{}` is not TOML: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Why, with the line.
        reason: String,
    },
    /// No flag has this name.
    #[error(
        "the configuration `{}` has the unknown key `{key}`{}",
        path.display(), suggestion.as_ref().map_or(
            "; keys are the flags of the command without dashes".to_owned(),
            |name| format!("; did you mean `{name}`?")
        )
    )]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// A flag with a similar name.
        suggestion: Option<String>,
    },
    /// The flag belongs to the command line.
    #[error(
        "the configuration `{}` has the key `{key}`, but --{key} is only for the command line",
        path.display()
    )]
    OnlyFlag {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// The flag cannot have a value of this type.
    #[error("in the configuration `{}`, `{key}` must be {expected}", path.display())]
    WrongType {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The types that it can have.
        expected: &'static str,
    },
}

/// A command line with the flags of its configuration file.
pub(crate) struct Line {
    pub(crate) arguments: Vec<OsString>,
    /// The configuration file.
    pub(crate) file: Option<PathBuf>,
}

/// Returns the arguments of this process and the arguments in its configuration file.
pub(crate) fn arguments() -> Result<Line, CliError> {
    expand(std::env::args_os().collect())
}

fn expand(line: Vec<OsString>) -> Result<Line, CliError> {
    let is_command = line.get(1).is_some_and(|name| name == COMMAND);
    let Some(path) = is_command.then(|| file_of(&line[2..])).flatten() else {
        return Ok(Line { arguments: line, file: None });
    };
    let text = std::fs::read_to_string(&path).map_err(|reason| CliError::Read {
        what: "the configuration",
        path: path.clone(),
        reason,
    })?;
    let flags = Flags::new();
    let added = flags.read(&path, &text, &flags.given(&line[2..]))?;
    let (head, tail) = line.split_at(2);
    Ok(Line { arguments: [head, &added, tail].concat(), file: Some(path) })
}

/// Returns the file that the last `--config` names.
fn file_of(line: &[OsString]) -> Option<PathBuf> {
    let named = |at: usize| {
        let flag = line[at].to_str()?.strip_prefix("--config")?;
        match flag.strip_prefix('=') {
            Some(path) => Some(PathBuf::from(path)),
            None if flag.is_empty() => line.get(at + 1).map(PathBuf::from),
            None => None,
        }
    };
    (0..line.len()).rev().find_map(named)
}

/// The flag of the adapter from which a run starts.
const ADAPTER: &str = "adapter";

/// The flags of the command.
struct Flags(Command);

impl Flags {
    fn new() -> Self {
        let mut all = Arguments::command();
        all.build();
        let command = all.find_subcommand(COMMAND).expect("the program has this command");
        Self(command.clone())
    }

    fn named(&self, name: &str) -> Option<&Arg> {
        self.0.get_arguments().find(|flag| flag.get_long() == Some(name))
    }

    /// Returns the flags on a command line.
    fn given(&self, line: &[OsString]) -> BTreeSet<String> {
        let name = |argument: &OsString| {
            let name = argument.to_str()?.strip_prefix("--")?;
            let name = name.split_once('=').map_or(name, |(name, _)| name);
            self.named(name).map(|_| name.to_owned())
        };
        line.iter().filter_map(name).collect()
    }

    /// Returns whether two flags conflict.
    fn conflict(&self, one: &str, other: &str) -> bool {
        let excludes = |from: &str, name: &str| {
            let Some(from) = self.named(from) else { return false };
            let excluded = self.0.get_arg_conflicts_with(from);
            excluded.into_iter().any(|flag| flag.get_long() == Some(name))
        };
        one != other && (excludes(one, other) || excludes(other, one))
    }

    /// Returns the arguments of a file, without those that `given` flags replace.
    fn read(
        &self,
        path: &Path,
        text: &str,
        given: &BTreeSet<String>,
    ) -> Result<Vec<OsString>, ConfigError> {
        let table: Table = text.parse().map_err(|reason: toml::de::Error| ConfigError::Syntax {
            path: path.to_owned(),
            reason: reason.to_string(),
        })?;
        let mut arguments = Vec::new();
        for (key, value) in &table {
            if NOT_OF_A_RUN.contains(&key.as_str()) {
                return Err(ConfigError::OnlyFlag { path: path.to_owned(), key: key.clone() });
            }
            let Some(flag) = self.named(key) else {
                let (path, key) = (path.to_owned(), key.clone());
                let suggestion = self.suggest(&key);
                return Err(ConfigError::UnknownKey { path, key, suggestion });
            };
            let written = written(flag, value).map_err(|expected| ConfigError::WrongType {
                path: path.to_owned(),
                key: key.clone(),
                expected,
            })?;
            let is_replaced =
                |key: &str| given.iter().any(|name| name == key || self.conflict(name, key));
            // A file has both the adapter, from which the run starts, and its options, with which
            // the run is resumed.
            let starts = table.contains_key(ADAPTER) && !is_replaced(ADAPTER);
            let replaced = is_replaced(key) || starts && self.conflict(ADAPTER, key);
            arguments.extend(written.filter(|_| !replaced).map(OsString::from));
        }
        Ok(arguments)
    }

    /// Returns the flag whose name is most similar to `key`, if it is similar enough.
    fn suggest(&self, key: &str) -> Option<String> {
        let key = key.replace('_', "-").to_lowercase();
        let names = self.0.get_arguments().filter_map(Arg::get_long);
        let names = names.filter(|name| !NOT_OF_A_RUN.contains(name));
        let scored = names.map(|name| (strsim::jaro_winkler(&key, name), name));
        let best = scored.max_by(|left, right| left.0.total_cmp(&right.0));
        best.filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
            .map(|(_, name)| name.to_owned())
    }
}

/// Returns the argument of a key and its value; `None` for a switch that is off.
fn written(flag: &Arg, value: &Value) -> Result<Option<String>, &'static str> {
    let name = flag.get_long().unwrap_or_default();
    if matches!(flag.get_action(), ArgAction::SetTrue) {
        return match value {
            Value::Boolean(on) => Ok(on.then(|| format!("--{name}"))),
            _ => Err("true or false"),
        };
    }
    let one = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(on) => Some(on.to_string()),
        _ => None,
    };
    let text = match value {
        Value::Array(values) => {
            values.iter().map(one).collect::<Option<Vec<_>>>().map(|all| all.join(","))
        }
        value => one(value),
    };
    let expected = "a string, a number, true, false, or a list of them";
    text.map(|text| Some(format!("--{name}={text}"))).ok_or(expected)
}

/// The flags that a run was started with, from the command line and from its file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    table: Table,
    /// Flags whose values are not Unicode, which TOML cannot represent.
    not_unicode: Vec<String>,
}

impl Given {
    /// Returns the flags of the parsed arguments.
    pub(crate) fn of(matches: &ArgMatches) -> Self {
        let Some((COMMAND, matches)) = matches.subcommand() else { return Self::default() };
        let flags = Flags::new();
        let mut given = Self::default();
        for flag in flags.0.get_arguments() {
            let Some(name) = flag.get_long().filter(|name| !NOT_OF_A_RUN.contains(name)) else {
                continue;
            };
            let id = flag.get_id().as_str();
            if matches.value_source(id) != Some(clap::parser::ValueSource::CommandLine) {
                continue;
            }
            let value = match flag.get_action() {
                ArgAction::SetTrue => Some(Value::Boolean(true)),
                _ => {
                    let raw = matches.get_raw(id).into_iter().flatten().last();
                    raw.and_then(|raw| value_of(flag, raw))
                }
            };
            match value {
                Some(value) => drop(given.table.insert(name.to_owned(), value)),
                None => given.not_unicode.push(format!("--{name}")),
            }
        }
        given
    }

    /// Returns the text of `run.toml`: the flags of the run, and its `resolved` values, which
    /// replace flags of the same name. A resolved value that conflicts with another flag is left
    /// out, unless that flag is `--adapter`.
    pub(crate) fn file(&self, resolved: &[(&str, Value)]) -> String {
        /// Flags whose effect is part of the resolved values.
        const REPLACED: [&str; 1] = ["epochs"];
        let flags = Flags::new();
        let mut table = self.table.clone();
        REPLACED.iter().for_each(|name| drop(table.remove(*name)));
        for (name, value) in resolved {
            let others = table.keys().filter(|given| *given != ADAPTER);
            let excluded = others.into_iter().any(|given| flags.conflict(given, name));
            if !excluded {
                table.insert((*name).to_owned(), value.clone());
            }
        }
        let left_out = match self.not_unicode.as_slice() {
            [] => String::new(),
            names => format!("# Without {}: the value is not Unicode.\n", names.join(" and ")),
        };
        format!(
            "# The values of this run. `retrograph finetune --config FILE --resume` continues it;\n\
             # `--config FILE --checkpoint OTHER` repeats it.\n{left_out}{table}"
        )
    }
}

/// Returns a value of the command line in the type of its flag: `007` can be a number or a path. An
/// integer that TOML cannot represent becomes a string. `None` for a path that is not Unicode,
/// which TOML cannot represent either.
fn value_of(flag: &Arg, raw: &OsStr) -> Option<Value> {
    let text = raw.to_str()?;
    let kind = flag.get_value_parser().type_id();
    let is_one_of = |kinds: &[TypeId]| kinds.iter().any(|one| kind == *one);
    let value = if is_one_of(&[TypeId::of::<bool>()]) {
        text.parse().ok().map(Value::Boolean)
    } else if is_one_of(&[TypeId::of::<f32>(), TypeId::of::<f64>()]) {
        text.parse().ok().map(Value::Float)
    } else if is_one_of(&[TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()]) {
        text.parse().ok().map(Value::Integer)
    } else {
        None
    };
    Some(value.unwrap_or_else(|| Value::String(text.to_owned())))
}

/// Returns the TOML float with the shortest decimal form of an `f32`, such as 0.1.
pub(crate) fn single(number: f32) -> Value {
    Value::Float(number.to_string().parse().unwrap_or(f64::from(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(text: &str, line: &[&str]) -> Result<Vec<String>, ConfigError> {
        let line: Vec<OsString> = line.iter().map(OsString::from).collect();
        let flags = Flags::new();
        let added = flags.read("run.toml".as_ref(), text, &flags.given(&line))?;
        Ok(added.into_iter().map(|one| one.into_string().unwrap()).collect())
    }

    #[test]
    fn every_type_of_value_becomes_a_flag() {
        let text = "data = 'a b'\nlr = 1e-4\nsteps = 5\nlora-targets = ['q', 'v']\nverify = true\n\
                    recompute = false\npacking = false\n";
        let mut flags = added(text, &[]).unwrap();
        flags.sort_unstable();
        let expected = [
            "--data=a b",
            "--lora-targets=q,v",
            "--lr=0.0001",
            "--packing=false",
            "--steps=5",
            "--verify",
        ];
        assert_eq!(flags, expected);
    }

    #[test]
    fn a_flag_replaces_its_key_and_the_keys_that_it_excludes() {
        let text = "steps = 5\ndata = 'd'\nseq = 8\n";
        assert_eq!(added(text, &["--epochs=2"]).unwrap(), ["--data=d", "--seq=8"]);
        assert_eq!(added(text, &["--text", "t", "--seq", "4"]).unwrap(), ["--steps=5"]);
    }

    #[test]
    fn unknown_keys_have_a_suggestion() {
        let error = |text: &str| added(text, &[]).unwrap_err().to_string();
        assert!(error("lora_targets = 'q'").contains("did you mean `lora-targets`?"));
        assert!(error("warmup-steps = 3").contains("did you mean `warmup`?"));
        assert!(error("zzz = 1").contains("keys are the flags"));
        assert!(error("resume = true").contains("--resume is only for the command line"));
        assert!(error("[model]\nlr = 1").contains("`model` must be a string"));
        assert!(error("verify = 3").contains("`verify` must be true or false"));
        assert!(error("lr = ").contains("is not TOML"));
    }

    #[test]
    fn the_file_of_a_run_gives_the_same_run() {
        let line = ["retrograph", "finetune", "--data", "d", "--epochs", "2", "--lr=1e-5"];
        let given = Given::of(&Arguments::command().get_matches_from(line));
        let resolved = [("steps", Value::Integer(7)), ("eps", single(1e-8)), ("lr", single(1e-5))];
        let text = given.file(&resolved);
        let mut flags = added(&text, &[]).unwrap();
        flags.sort_unstable();
        assert_eq!(flags, ["--data=d", "--eps=0.00000001", "--lr=0.00001", "--steps=7"]);
        // With an adapter, its own options count. A resumed run does not start from it.
        let line = ["retrograph", "finetune", "--text", "t", "--adapter", "a"];
        let given = Given::of(&Arguments::command().get_matches_from(line));
        let text = given.file(&[("rank", Value::Integer(4))]);
        assert_eq!(added(&text, &[]).unwrap(), ["--adapter=a", "--text=t"]);
        assert_eq!(added(&text, &["--resume"]).unwrap(), ["--rank=4", "--text=t"]);
    }
}
