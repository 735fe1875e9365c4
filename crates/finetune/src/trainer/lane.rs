//! One program with the state that it steps: the run has one, and with `--verify` a second.

use retrograph_kernels::ops::rope_tables_of;
use retrograph_runtime::{
    Bindings, BuildOptions, Context, Controls, DeviceBuffer, Program, Stream, WarmModules,
};

use super::state::ModelState;
use crate::config::TrainingConfig;
use crate::error::Result;
use crate::model::{METRICS, StepPass};

/// The rotary tables on the device.
#[derive(Clone, Debug)]
pub(crate) struct RotaryTables {
    pub(crate) cos: DeviceBuffer<f32>,
    pub(crate) sin: DeviceBuffer<f32>,
}

impl RotaryTables {
    /// Makes the tables of a model for its sequence length.
    pub(crate) fn new(stream: &Stream, config: &TrainingConfig) -> Result<Self> {
        let (cos, sin) = rope_tables_of(config.seq, &config.model.rope_frequencies());
        let cos = DeviceBuffer::from_slice(stream, &cos)?;
        let sin = DeviceBuffer::from_slice(stream, &sin)?;
        Ok(Self { cos, sin })
    }
}

/// What building a lane needs besides its state.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) stream: &'a Stream,
    pub(super) modules: &'a WarmModules,
    pub(super) step: &'a StepPass,
    pub(super) rotary: &'a RotaryTables,
}

/// A program and what it changes.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) state: ModelState,
    pub(super) metrics: DeviceBuffer<f32>,
    /// Gradients, where the caller keeps them.
    pub(super) gradients: Vec<(String, DeviceBuffer<f32>)>,
    program: Program,
}

impl Lane {
    /// Builds the program of `site` over `state`.
    pub(super) fn new(
        site: Site<'_>,
        state: ModelState,
        gradients: Vec<(String, DeviceBuffer<f32>)>,
        options: BuildOptions,
    ) -> Result<Self> {
        let Site { stream, modules, step, rotary } = site;
        let context: &Context = stream.context();
        let metrics = DeviceBuffer::zeroed(context, METRICS)?;
        let halt = DeviceBuffer::zeroed(context, 1)?;
        let mut bindings = Bindings::new();
        state.bind(&mut bindings, &step.parameters);
        bindings.bind(step.metrics, &metrics).bind(step.halt, &halt);
        bindings.bind(step.cos, &rotary.cos).bind(step.sin, &rotary.sin);
        for ((_, buffer), held) in gradients.iter().zip(step.trained()) {
            let trained = held.trained.expect("only trained parameters are listed");
            bindings.bind(trained.grad, buffer);
        }
        let program = Program::build(stream, modules, &step.pass, &bindings, options)?;
        Ok(Self { state, metrics, gradients, program })
    }

    /// Enqueues one step.
    pub(super) fn step(&mut self, stream: &Stream, controls: &Controls) -> Result<()> {
        self.program.step(stream, controls)?;
        Ok(())
    }

    /// The program.
    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    /// The program, to be stepped by the caller.
    pub(super) fn program_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}
