//! Programs for steps whose sequences are all shorter than the configuration says, built when they
//! are needed. They change the same state as the program of whole sequences.

use retrograph_runtime::program::{Buckets, CacheOptions, Described, ProgramCache};
use retrograph_runtime::{BuildOptions, Stream, WarmModules};

use super::lane::Shared;
use crate::config::TrainingConfig;
use crate::data::{Batch, Lengths};
use crate::error::{Error, Result};
use crate::model::{StepControls, StepOptions, StepPass};
use crate::state::RotaryTables;

/// The programs by the length of their sequences.
pub(super) struct Shorter {
    config: TrainingConfig,
    options: StepOptions,
    lengths: Lengths,
    programs: ProgramCache<1, StepControls>,
}

impl Shorter {
    /// A set without programs. The kernels of all `lengths` must be warm.
    pub(super) fn new(
        modules: &WarmModules,
        (config, lengths): (&TrainingConfig, Lengths),
        options: StepOptions,
        build: BuildOptions,
    ) -> Result<Self> {
        let buckets = Buckets::list(lengths.all()).map_err(|error| Error::InvalidConfig {
            field: "buckets",
            value: format!("{lengths:?}"),
            rule: error.to_string(),
        })?;
        let held = CacheOptions { build, ..CacheOptions::default() };
        let programs = ProgramCache::new(modules, [buckets], held);
        Ok(Self { config: *config, options, lengths, programs })
    }

    /// Whether a batch has sequences of one of the shorter lengths.
    pub(super) fn takes(&self, batch: &Batch) -> bool {
        let tokens = batch.tokens.len();
        let length = tokens / self.config.batch;
        length < self.config.seq
            && length * self.config.batch == tokens
            && self.lengths.fit(length) == length
    }

    /// Enqueues step number `step` over what `shared` has.
    pub(super) fn step(
        &mut self,
        stream: &Stream,
        shared: Shared<'_>,
        (step, batch): (u32, &Batch),
    ) -> Result<()> {
        let length = batch.tokens.len() / self.config.batch;
        let (config, options) = (&self.config, self.options);
        let built = self.programs.get_or_build(stream, [length], |_| {
            let config = TrainingConfig { seq: length, ..*config };
            let pass = StepPass::new(&config, options)?;
            let rotary = RotaryTables::new(stream, &config.model, length)?;
            let (bindings, handles) = (shared.bindings(&pass, &rotary), pass.controls());
            Ok::<_, Error>(Described { pass: pass.pass, bindings, handles })
        });
        let mut program = built?;
        let mut controls = program.pass().controls();
        program.handles().set(&mut controls, step, batch)?;
        program.step(stream, &controls)?;
        Ok(())
    }
}

impl std::fmt::Debug for Shorter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shorter({:?}, {:?})", self.lengths, self.programs.statistics())
    }
}
