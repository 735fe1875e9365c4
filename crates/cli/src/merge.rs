//! `retrograph merge`.

use retrograph_finetune::adapter::{Adapter, AdapterError, merge};

use crate::args::MergeArguments;
use crate::error::CliError;
use crate::screen::{self, fact};
use crate::{Outcome, interrupt};

/// Merges an adapter into the weights of its base model.
pub(crate) fn run(arguments: &MergeArguments) -> Result<Outcome, CliError> {
    let MergeArguments { model, adapter, out } = arguments;
    let mut adapter = Adapter::open(adapter).map_err(retrograph_finetune::Error::from)?;
    screen::adapter(&adapter);
    let merged = match merge(model, &mut adapter, out, interrupt::defer()) {
        Err(AdapterError::Stopped) => return Ok(Outcome::Interrupted),
        merged => merged.map_err(retrograph_finetune::Error::from)?,
    };
    let (updated, replaced) = (merged.updated, merged.replaced);
    let (tensors, files) = (merged.tensors, merged.files);
    fact("merged", format!("{updated} of {tensors} tensors updated, {replaced} norms replaced"));
    fact("model", format!("{} ({files} files of weights)", out.display()));
    Ok(Outcome::Done)
}
