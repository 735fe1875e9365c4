//! Printing: facts before the first step, then a progress bar on a terminal, or a line every few
//! steps elsewhere.

mod startup;
mod steps;
mod writing;

use std::fmt::Display;
use std::io::{Error, ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, ProgressDrawTarget, ProgressStyle};
use retrograph_finetune::model::MicroBatching;
use retrograph_finetune::parameters::Parameter;
use retrograph_finetune::trainer::{MemoryNeed, MemoryUse};
use retrograph_finetune::{
    Adapter, Device, LoraConfig, LoraLayers, LoraPatterns, Mode, TrainingConfig,
};
use retrograph_runtime::Ranks;

pub(crate) use self::startup::Startup;
pub(crate) use self::steps::Steps;
pub(crate) use self::writing::Writing;
use crate::error::CliError;

/// Whether nothing is printed, because another process prints for the run.
static QUIET: AtomicBool = AtomicBool::new(false);

/// The first error of printing.
static FAILED: OnceLock<Error> = OnceLock::new();

/// Whether standard output still has a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Everything was printed.
    There,
    /// A pipe was closed, for example by `head`.
    Gone,
}

/// Prints a line. A failure does not end the run; [`finish`] returns it.
pub(crate) fn line(text: impl Display) {
    put(&(printable(&text.to_string()) + "\n"));
}

/// Prints a piece of generated text. Removes control characters if the output is a terminal, which
/// would execute them. Returns whether printing works.
pub(crate) fn piece(text: &str) -> bool {
    let obeyed = |character: char| character.is_control() && !"\n\t".contains(character);
    match std::io::stdout().is_terminal() {
        true => put(&text.replace(obeyed, "")),
        false => put(text),
    }
    works()
}

/// Whether printing has worked so far.
pub(crate) fn works() -> bool {
    FAILED.get().is_none()
}

/// Flushes the output and returns whether it still has a reader.
///
/// # Errors
/// [`CliError::Output`] if output was lost for a reason other than a closed pipe.
pub(crate) fn finish() -> Result<Readers, CliError> {
    put("");
    match FAILED.get() {
        None => Ok(Readers::There),
        Some(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Readers::Gone),
        Some(error) => Err(CliError::Output(Error::new(error.kind(), error.to_string()))),
    }
}

/// Prints nothing from now on, except errors.
pub(crate) fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Returns the target for progress bars.
fn bars() -> ProgressDrawTarget {
    match QUIET.load(Ordering::Relaxed) {
        true => ProgressDrawTarget::hidden(),
        false => ProgressDrawTarget::stderr(),
    }
}

fn put(text: &str) {
    if QUIET.load(Ordering::Relaxed) {
        return;
    }
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The first failure is the cause of the others.
        let _ = FAILED.set(error);
    }
}

/// Escapes control characters, except line feeds and tabs: a terminal would execute control
/// characters in names from files.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            _ if character.is_control() => shown.extend(character.escape_default()),
            _ => shown.push(character),
        }
    }
    shown
}

/// Prints a name and a fact.
pub(crate) fn fact(name: &str, text: impl Display) {
    line(format_args!("{name:<11} {text}"));
}

pub(crate) fn device(device: &Device) {
    let info = &device.info;
    let (major, minor) = info.compute_capability;
    // The output must contain this word, whatever the device is called.
    let simulated = device.simulated && !info.name.contains("SIMULATED");
    let label = if simulated { "SIMULATED " } else { "" };
    let capability = format!("compute capability {major}.{minor}");
    let named = if info.name.contains(&capability) {
        info.name.clone()
    } else {
        format!("{}, {capability}", info.name)
    };
    fact("device", format!("{label}{named}, {}", HumanBytes(info.total_bytes as u64)));
    if let Some(reason) = &device.fallback_reason {
        fact("", format!("simulated, because {reason}"));
    }
    if device.simulated {
        fact("", "kernels run on the CPU: results are exact, times are meaningless");
    }
}

/// Prints a model and its trained parameters.
pub(crate) fn run(config: &TrainingConfig) {
    let parameters = config.parameters();
    let trained = parameters.iter().filter(|parameter| parameter.trainable);
    let trained = HumanCount(trained.map(|one| one.len() as u64).sum());
    let mode = match config.mode {
        Mode::Full => "full".to_owned(),
        Mode::Frozen => "frozen".to_owned(),
        Mode::Lora(lora) => described(&lora),
    };
    sizes(config, &parameters, &format!(", {trained} trained ({mode})"));
}

/// Prints a model that is not trained.
pub(crate) fn model(config: &TrainingConfig) {
    let lora = config.mode.lora().map(|lora| format!(", with {}", described(&lora)));
    sizes(config, &config.parameters(), &lora.unwrap_or_default());
}

fn sizes(config: &TrainingConfig, parameters: &[Parameter], rest: &str) {
    let all = HumanCount(parameters.iter().map(|parameter| parameter.len() as u64).sum());
    let (layers, hidden) = (config.model.layers, config.model.hidden);
    fact("model", format!("{layers} layers of width {hidden}, {all} parameters{rest}"));
    fact("precision", format!("{}: {}", config.precision, by_type(parameters)));
}

/// Prints the batch of a step, the share of each device, and the micro-batches.
pub(crate) fn batch(config: &TrainingConfig, ranks: Ranks, micro_batching: MicroBatching) {
    let TrainingConfig { batch, seq, .. } = config;
    let share = match ranks.world_size {
        1 => String::new(),
        devices => format!(", {} on each of {devices} devices", batch / devices),
    };
    fact("batch", format!("{batch} sequences of {seq} tokens{share}, {micro_batching}"));
}

/// Returns the bytes of the parameters on the device, by dtype.
fn by_type(parameters: &[Parameter]) -> String {
    let mut types: Vec<(&str, usize)> = Vec::new();
    for parameter in parameters {
        let (name, bytes) = (parameter.storage.name(), parameter.bytes());
        match types.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += bytes,
            None => types.push((name, bytes)),
        }
    }
    let line = |(name, bytes): &(&str, usize)| format!("{} as {name}", HumanBytes(*bytes as u64));
    types.iter().map(line).collect::<Vec<_>>().join(", ")
}

fn described(lora: &LoraConfig) -> String {
    let whole =
        [("norms", lora.norms), ("embeddings", lora.embeddings), ("output projection", lora.head)];
    let whole: String =
        whole.iter().filter(|part| part.1).map(|part| format!(", and {}", part.0)).collect();
    let (rank, scale) = (lora.rank, lora.scale());
    let own = match lora.patterns == LoraPatterns::NONE {
        true => "",
        false => " (some modules have their own)",
    };
    let layers = match lora.layers {
        LoraLayers::ALL => String::new(),
        layers => format!(" of layers {layers}"),
    };
    let kind = if lora.dora { "dora" } else { "lora" };
    format!("{kind} of rank {rank} on {}{layers}, scale {scale}{own}{whole}", lora.targets)
}

/// Prints an adapter.
pub(crate) fn adapter(adapter: &Adapter) {
    let base = adapter.base().unwrap_or("an unnamed base model");
    fact("adapter", format!("{}, for {base}", described(&adapter.lora())));
}

/// Prints the planned device memory of a run.
pub(crate) fn need(need: &MemoryNeed) {
    fact("memory", planned(need));
}

fn planned(need: &MemoryNeed) -> String {
    let bytes = |bytes: usize| HumanBytes(bytes as u64);
    let (planned, parameters) = (bytes(need.least()), bytes(need.parameters));
    let (moments, step) = (bytes(need.optimizer), bytes(need.min_step));
    let driver = bytes(need.driver.total());
    format!(
        "{planned} planned ({parameters} parameters, {moments} moments, {step} for a step), and \
         {driver} for the driver"
    )
}

/// Prints the used device memory of a run.
pub(crate) fn memory_use(found: &MemoryUse, simulated: bool) {
    let label = if simulated { "SIMULATED, without memory of the driver: " } else { "" };
    fact("memory", format!("{label}{}", taken(found)));
}

/// Describes planned and measured bytes.
pub(crate) fn taken(found: &MemoryUse) -> String {
    let bytes = |bytes: usize| HumanBytes(bytes as u64);
    let (measured, planned) = (bytes(found.measured_bytes), bytes(found.planned_bytes));
    format!("{measured} used, {planned} planned ({:+.1} %)", found.difference_percent)
}

/// Formats a number of bytes.
pub(crate) fn bytes(bytes: u64) -> impl Display {
    HumanBytes(bytes)
}

pub(crate) fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn milliseconds(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\u{1b}[31mb\r\u{9b}c\td\n"), "a\\u{1b}[31mb\\r\\u{9b}c\td\n");
        assert_eq!(printable("naïve \u{65e5}\u{672c}"), "naïve \u{65e5}\u{672c}");
    }
}
