//! Programs with the state that they step: the run has one lane, and with `--verify` a second.

use retrograph_runtime::{
    Bindings, BuildOptions, Context, Controls, DeviceBuffer, Program, Stream, WarmModules,
};

use super::shorter::Shorter;
use crate::data::Batch;
use crate::error::Result;
use crate::model::{METRICS, StepPass};
use crate::state::{ModelState, RotaryTables};

/// What building a lane needs besides its state.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) stream: &'a Stream,
    pub(super) modules: &'a WarmModules,
    pub(super) step: &'a StepPass,
    pub(super) rotary: &'a RotaryTables,
}

/// What all programs of a lane read and change.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    state: &'a ModelState,
    metrics: &'a DeviceBuffer<f32>,
    halt: &'a DeviceBuffer<u32>,
    gradients: &'a [(String, DeviceBuffer<f32>)],
}

impl Shared<'_> {
    /// Memory for the externals of `step`.
    pub(super) fn bindings(&self, step: &StepPass, rotary: &RotaryTables) -> Bindings {
        let mut bindings = Bindings::new();
        self.state.bind(&mut bindings, &step.parameters);
        bindings.bind(step.metrics, self.metrics).bind(step.halt, self.halt);
        bindings.bind(step.cos, &rotary.cos).bind(step.sin, &rotary.sin);
        for ((_, buffer), held) in self.gradients.iter().zip(step.trained()) {
            let trained = held.trained.expect("only trained parameters are listed");
            bindings.bind(trained.grad, buffer);
        }
        bindings
    }
}

/// Programs and what they change.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) state: ModelState,
    pub(super) metrics: DeviceBuffer<f32>,
    /// Gradients, where the caller keeps them.
    pub(super) gradients: Vec<(String, DeviceBuffer<f32>)>,
    halt: DeviceBuffer<u32>,
    /// The program of whole sequences.
    program: Program,
    shorter: Option<Shorter>,
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
        let shared =
            Shared { state: &state, metrics: &metrics, halt: &halt, gradients: &gradients };
        let bindings = shared.bindings(step, rotary);
        let program = Program::build(stream, modules, &step.pass, &bindings, options)?;
        Ok(Self { state, metrics, gradients, halt, program, shorter: None })
    }

    /// Takes shorter sequences, too, by the programs of `shorter`.
    pub(super) fn with_shorter(self, shorter: Option<Shorter>) -> Self {
        Self { shorter, ..self }
    }

    /// Whether a batch is for a program of shorter sequences.
    pub(super) fn is_shorter(&self, batch: &Batch) -> bool {
        self.shorter.as_ref().is_some_and(|shorter| shorter.takes(batch))
    }

    /// Enqueues one step: `controls` are those of a step of whole sequences.
    pub(super) fn step(
        &mut self,
        stream: &Stream,
        controls: &Controls,
        (step, batch): (u32, &Batch),
    ) -> Result<()> {
        let Self { state, metrics, gradients, halt, program, shorter } = self;
        match shorter.as_mut().filter(|shorter| shorter.takes(batch)) {
            Some(shorter) => {
                let shared = Shared { state, metrics, halt, gradients };
                shorter.step(stream, shared, (step, batch))
            }
            None => Ok(program.step(stream, controls).map(|_| ())?),
        }
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
