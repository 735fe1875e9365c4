//! The default of `--seq` for a model directory: the model's context, if memory allows.

use retrograph_finetune::{Device, Error, ModelDirectory, Plan, TrainingConfig};

use crate::args::{FinetuneArguments, MIN_DEFAULT_SEQ, default_seq};
use crate::error::CliError;
use crate::screen::fact;

/// Returns the [`default_seq`] of `base`, halved until the run of `config` fits in the free
/// memory of `device`.
///
/// Returns the shortest length even if it does not fit: starting the run then fails and reports
/// what to reduce.
pub(crate) fn fitting(
    arguments: &FinetuneArguments,
    device: &Device,
    base: &ModelDirectory,
    config: &TrainingConfig,
) -> Result<usize, CliError> {
    let (free, _) = device.context.mem_get_info().map_err(Error::from)?;
    let mut seq = default_seq(base);
    while seq / 2 >= MIN_DEFAULT_SEQ && need(arguments, &TrainingConfig { seq, ..*config })? > free
    {
        seq /= 2;
    }
    let reason = if base.max_position_embeddings() == Some(seq) {
        "the context of the model"
    } else {
        "the default"
    };
    fact("sequences", format!("{seq} tokens, {reason}"));
    Ok(seq)
}

/// Returns the minimum device memory of a run in bytes, including the driver's.
fn need(arguments: &FinetuneArguments, config: &TrainingConfig) -> Result<usize, CliError> {
    let precision = config.precision.without_two_term_copies();
    let plan = match Plan::new(&TrainingConfig { precision, ..*config }, arguments.options()) {
        // The activations have too many elements.
        Err(Error::InvalidConfig { .. }) => return Ok(usize::MAX),
        plan => plan?,
    };
    let plan = if arguments.data_use.holds_out() { plan.with_held_out()? } else { plan };
    Ok(plan.memory().least() + plan.memory().driver.total())
}
