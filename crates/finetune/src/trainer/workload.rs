//! The buffers that training steps read and write.

use retrograph_runtime::program::{Buckets, Described};
use retrograph_runtime::{Bindings, Context, Controls, DeviceBuffer, Stream};

use super::TrainerOptions;
use crate::checkpoint::{StateReader, state_order};
use crate::config::TrainingConfig;
use crate::data::Lengths;
use crate::error::{Error, Result};
use crate::group::ProcessGroup;
use crate::model::{MetricsLayout, StepControls, StepInput, StepOptions, StepPass};
use crate::programs::{NamedTensor, Workload};
use crate::state::{ModelState, RotaryTables};

/// A model in training on a device. There is one pass per sequence length.
#[derive(Debug)]
pub(super) struct TrainingWorkload {
    config: TrainingConfig,
    options: StepOptions,
    lengths: Lengths,
    pub(super) state: ModelState,
    /// The buffers of the gradients, if the caller keeps them.
    pub(super) gradients: Vec<DeviceBuffer<f32>>,
    pub(super) metrics: DeviceBuffer<f32>,
    halt: DeviceBuffer<u32>,
    group: Option<ProcessGroup>,
}

impl TrainingWorkload {
    pub(super) fn new(
        context: &Context,
        config: &TrainingConfig,
        options: &TrainerOptions,
        state: ModelState,
        gradients: Vec<DeviceBuffer<f32>>,
        group: Option<ProcessGroup>,
    ) -> Result<Self> {
        let lengths = Lengths::new(config.seq, options.lengths);
        let options = options.step;
        let metrics = DeviceBuffer::zeroed(context, MetricsLayout::new(&options).len())?;
        let halt = DeviceBuffer::zeroed(context, 1)?;
        Ok(Self { config: *config, options, lengths, state, gradients, metrics, halt, group })
    }

    /// Binds the external buffers of a pass.
    ///
    /// # Errors
    /// If several ranks have no communicator.
    pub(super) fn bindings(&self, pass: &StepPass, rotary: &RotaryTables) -> Result<Bindings> {
        let mut bindings = Bindings::new();
        if let Some(group) = &self.group {
            bindings.communicator(group.communicator()?);
        }
        self.state.bind(&mut bindings, &pass.parameters);
        bindings.bind(pass.metrics, &self.metrics).bind(pass.halt, &self.halt);
        bindings.bind(pass.cos, &rotary.cos).bind(pass.sin, &rotary.sin);
        for (buffer, slice) in self.gradients.iter().zip(&pass.gradients) {
            bindings.bind(*slice, buffer);
        }
        Ok(bindings)
    }

    /// Returns the lengths of sequences.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] if a sequence has no tokens.
    pub(super) fn sizes(lengths: Lengths) -> Result<Buckets> {
        Buckets::list(lengths.all()).map_err(|error| Error::InvalidConfig {
            field: "buckets",
            value: format!("{lengths:?}"),
            rule: error.to_string(),
        })
    }
}

impl Workload<1> for TrainingWorkload {
    type Handles = StepControls;
    type Step<'a> = StepInput<'a>;

    /// A batch that fills none of the shorter lengths belongs to the pass of whole sequences, which
    /// requires its size.
    fn size(&self, StepInput { batch, .. }: StepInput<'_>) -> [usize; 1] {
        let TrainingConfig { batch: sequences, seq, .. } = self.config;
        let length = batch.tokens.len() / sequences;
        let fills = length * sequences == batch.tokens.len() && self.lengths.fit(length) == length;
        [if length < seq && fills { length } else { seq }]
    }

    fn describe(&self, stream: &Stream, [seq]: [usize; 1]) -> Result<Described<StepControls>> {
        let config = TrainingConfig { seq, ..self.config };
        let pass = StepPass::new(&config, self.options)?;
        let rotary = RotaryTables::new(stream, &config.model, seq)?;
        let (bindings, handles) = (self.bindings(&pass, &rotary)?, pass.controls());
        Ok(Described { pass: pass.pass, bindings, handles })
    }

    fn set(handles: &StepControls, controls: &mut Controls, step: StepInput<'_>) -> Result<()> {
        handles.set(controls, step)
    }

    fn number(step: StepInput<'_>) -> u32 {
        step.number
    }

    /// Metrics, then every trained parameter with its moments, then the bf16 copies.
    fn results<'a, 's>(
        &'a self,
        stream: &'a Stream,
        _: Self::Step<'s>,
    ) -> impl Iterator<Item = Result<NamedTensor>> {
        let metrics =
            std::iter::once_with(|| Ok(("metrics".to_owned(), self.metrics.download(stream)?)));
        let trained = self.state.trained_parameters();
        let mut reader = self.state.reader(stream);
        let state = state_order(trained.len()).map(move |(index, part)| {
            Ok((part.tensor_name(&trained[index].name), reader.read(index, part)?))
        });
        metrics.chain(state).chain(self.state.copies(stream))
    }
}
