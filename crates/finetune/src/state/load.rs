//! Loading weights from files, from the caller or from a seed.

use retrograph_runtime::Stream;

use super::magnitudes::row_norms;
use super::{ModelState, Placement, UploadProgress};
use crate::adapter::Adapter;
use crate::checkpoint::{Checkpoint, StatePart};
use crate::error::{Error, Result};
use crate::hub::ModelDirectory;
use crate::init;
use crate::parameters::{Chunk, Parameter, normed_weight};

/// The source of the weights.
#[non_exhaustive]
pub enum Source<'a> {
    /// The base model of the plan; weights that it lacks come from the seed of the configuration.
    Seed,
    /// A checkpoint for trained weights, and [`Source::Seed`] for all others.
    Checkpoint(&'a mut Checkpoint),
    /// An adapter for trained weights, and [`Source::Seed`] for all others.
    Adapter(&'a mut Adapter),
    /// The caller.
    Values(&'a mut dyn FnMut(&Parameter) -> Result<Vec<f32>>),
    /// A model that is already on the device.
    State(ModelState),
}

/// The values of parameters at the start of training. Without a base model, they come from the
/// seed.
#[derive(Clone, Copy)]
pub(crate) struct InitialValues<'a> {
    pub(crate) base: Option<&'a ModelDirectory>,
    pub(crate) seed: u64,
}

/// The values of one parameter, which are uploaded in chunks.
#[derive(Default)]
struct WholeTensor(Vec<f32>);

impl WholeTensor {
    /// Fills a chunk from the element `first` on. The first chunk of a parameter gets its `values`.
    fn fill(
        &mut self,
        first: usize,
        chunk: Chunk<'_>,
        values: impl FnOnce() -> Result<Vec<f32>>,
    ) -> Result<()> {
        if first == 0 {
            self.0 = values()?;
        }
        chunk.fill(|values| values.copy_from_slice(&self.0[first..][..values.len()]));
        Ok(())
    }
}

/// Uploads `parameters`. Returns the losses so far, and the state on the device. Values that
/// `source` lacks are the initial ones. A checkpoint must have been checked with
/// [`Checkpoint::require`].
pub(crate) fn load_state(
    stream: &Stream,
    parameters: &[Parameter],
    placement: Placement<'_>,
    initial: InitialValues<'_>,
    source: Source<'_>,
    progress: UploadProgress<'_>,
) -> Result<(Vec<f32>, ModelState)> {
    let InitialValues { base, seed } = initial;
    let mut norms = WholeTensor::default();
    let mut initial = |parameter: &Parameter, first: usize, chunk: Chunk<'_>| {
        let weight = normed_weight(&parameter.name);
        if let Some(weight) = parameters.iter().find(|one| Some(&one.name) == weight.as_ref()) {
            let values = || row_norms(weight, frozen_values(base, seed, weight)?);
            return norms.fill(first, chunk, values);
        }
        match base.filter(|base| base.has(parameter)) {
            Some(base) => return base.fill(parameter, first, chunk),
            None => chunk.fill(|values| init::fill(values, first, parameter, seed)),
        }
        Ok(())
    };
    match source {
        Source::Seed => {
            let state = ModelState::sharded(stream, parameters, placement, initial, progress)?;
            Ok((Vec::new(), state))
        }
        Source::Checkpoint(checkpoint) => {
            let mut whole = WholeTensor::default();
            let fill = |parameter: &Parameter, first: usize, chunk: Chunk<'_>| {
                let name = StatePart::Parameter.tensor_name(&parameter.name);
                if !checkpoint.has(&name) {
                    return initial(parameter, first, chunk);
                }
                whole.fill(first, chunk, || checkpoint.tensor(&name))
            };
            let state = ModelState::sharded(stream, parameters, placement, fill, progress)?;
            state.load_moments(stream, checkpoint)?;
            Ok((checkpoint.header().losses.clone(), state))
        }
        Source::Adapter(adapter) => {
            adapter.require(parameters)?;
            let mut whole = WholeTensor::default();
            let fill = |parameter: &Parameter, first: usize, chunk: Chunk<'_>| {
                if !parameter.trainable {
                    return initial(parameter, first, chunk);
                }
                whole.fill(first, chunk, || Ok(adapter.values(parameter)?))
            };
            let state = ModelState::sharded(stream, parameters, placement, fill, progress)?;
            Ok((Vec::new(), state))
        }
        Source::Values(values) => {
            let mut whole = WholeTensor::default();
            let fill = |parameter: &Parameter, first: usize, chunk: Chunk<'_>| {
                whole.fill(first, chunk, || {
                    let values = values(parameter)?;
                    require_length(parameter, values.len())?;
                    Ok(values)
                })
            };
            let state = ModelState::sharded(stream, parameters, placement, fill, progress)?;
            Ok((Vec::new(), state))
        }
        Source::State(state) => Ok((Vec::new(), state)),
    }
}

/// Returns the parameters that are trained.
pub(crate) fn trained(parameters: &[Parameter]) -> Vec<&Parameter> {
    parameters.iter().filter(|parameter| parameter.trainable).collect()
}

/// Checks the number of values of the caller for a parameter.
fn require_length(parameter: &Parameter, found: usize) -> Result<()> {
    let expected = parameter.len();
    if found == expected {
        return Ok(());
    }
    let what = "the values of a parameter";
    Err(Error::Device(retrograph_runtime::Error::LengthMismatch { what, expected, found }))
}

/// Returns the values of a parameter that is not trained: from the model `base`, or from the seed
/// if it lacks the parameter.
///
/// # Errors
/// If the files of `base` cannot be read.
pub fn frozen_values(
    base: Option<&ModelDirectory>,
    seed: u64,
    parameter: &Parameter,
) -> Result<Vec<f32>> {
    let mut values = vec![0.0; parameter.len()];
    match base {
        Some(base) if base.read(parameter, &mut values)? => Ok(values),
        _ => Ok(init::initial_values(parameter, seed)),
    }
}
