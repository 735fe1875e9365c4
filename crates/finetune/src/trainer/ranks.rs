//! A trainer as one of several ranks.

use retrograph_kernels::Element;
use retrograph_runtime::{Bindings, DeviceBuffer, Policy, Program, Ranks};

use super::Trainer;
use super::metrics::IN_FLIGHT;
use crate::data::Batch;
use crate::error::Result;
use crate::group::ProcessGroup;
use crate::model::{StepInput, StepPass};
use crate::state::RotaryTables;

impl Trainer {
    /// The processes of the run, if there are several.
    pub fn group(&self) -> Option<&ProcessGroup> {
        self.group.as_ref()
    }

    /// The position of this trainer among the devices of the run.
    pub fn ranks(&self) -> Ranks {
        self.step.options.ranks
    }

    /// Requests to stop. With several ranks, the next step carries the request to all ranks, and
    /// all stop [before the same step](Trainer::stops_before).
    pub fn request_stop(&mut self) {
        self.stop = true;
    }

    /// Returns the first step that no rank starts, once a rank has requested to stop.
    pub fn stops_before(&self) -> Option<u32> {
        self.stop_before
    }

    /// Fails if another rank has failed.
    pub(super) fn check_group(&self) -> Result<()> {
        Ok(self.group.as_ref().map_or(Ok(()), ProcessGroup::check)?)
    }

    /// Runs steps that change nothing after step `halted` was not finite, until all ranks have
    /// started the same steps: some ranks may have started more before they knew.
    ///
    /// # Errors
    /// The error of `batch`, or if a rank or the device fails.
    pub(crate) fn catch_up(
        &mut self,
        halted: u32,
        batch: impl Fn(u32) -> Result<Batch>,
    ) -> Result<()> {
        let end = halted + IN_FLIGHT as u32;
        while self.group.is_some() && self.next_step < end {
            while self.queue.is_full() {
                self.queue.take(true)?;
            }
            self.enqueue(&batch(self.next_step)?)?;
        }
        while self.queue.take(true)?.is_some() {}
        Ok(())
    }

    /// Gives every rank the current values of all trained parameters, and their copies. A step only
    /// exchanges the parameters that the next step reads first. All ranks must call it.
    ///
    /// # Errors
    /// If a rank or the device fails.
    pub fn gather_parameters(&self) -> Result<()> {
        self.gather_weights()?;
        let mut copied = self.state().sharded_values().filter(|(_, copy)| copy.is_some());
        copied.try_for_each(|(values, _)| self.gather(values))
    }

    /// Gives every rank the current weights in the form that products read. All ranks must call it.
    ///
    /// # Errors
    /// If a rank or the device fails.
    pub(crate) fn gather_weights(&self) -> Result<()> {
        for (values, copy) in self.state().sharded_values() {
            match copy {
                Some(copy) => self.gather(copy)?,
                None => self.gather(values)?,
            }
        }
        Ok(())
    }

    /// Exchanges the blocks of `buffer`. Does nothing if there is one rank.
    pub(super) fn gather<T: Element>(&self, buffer: &DeviceBuffer<T>) -> Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        let communicator = group.communicator()?;
        group.waiting("an exchange", || communicator.all_gather(&self.stream, buffer))?;
        Ok(group.require_healthy()?)
    }

    /// Returns the blocks of all ranks; `own` is the block of this rank.
    ///
    /// # Errors
    /// If a rank or the device fails.
    pub(crate) fn gathered(&self, own: &[f64]) -> Result<Vec<f64>> {
        let Some(group) = &self.group else { return Ok(own.to_vec()) };
        let Ranks { rank, world_size: count } = group.ranks();
        let mut all = vec![0.0; own.len() * count];
        all[rank * own.len()..][..own.len()].copy_from_slice(own);
        let buffer = DeviceBuffer::from_slice(&self.stream, &all)?;
        self.gather(&buffer)?;
        Ok(buffer.download(&self.stream)?)
    }

    /// Returns the first rank whose loss or gradients of step `number` are not finite. All ranks
    /// must call it after that step has halted. `None` if there is one rank, or if the devices have
    /// too little memory to find out.
    ///
    /// # Errors
    /// If a rank or the device fails.
    pub(crate) fn culprit(&self, number: u32, batch: &Batch) -> Result<Option<usize>> {
        if self.group.is_none() {
            return Ok(None);
        }
        let finite = self.own_metrics(number, batch).inspect_err(|error| {
            tracing::warn!(%error, "the gradients of this rank were not computed again");
        });
        let finite =
            finite.map_or(1.0, |all| f64::from(u8::from(all.iter().all(|x| x.is_finite()))));
        Ok(self.gathered(&[finite])?.iter().position(|finite| *finite == 0.0))
    }

    /// Computes loss and gradient norm of the rows of this rank, without collectives.
    fn own_metrics(&self, number: u32, batch: &Batch) -> Result<Vec<f32>> {
        let pass = StepPass::of_one_rank(&self.config, self.step.options)?;
        let rotary = RotaryTables::new(&self.stream, &self.config.model, self.config.seq)?;
        let metrics = DeviceBuffer::<f32>::zeroed(self.context(), pass.metrics.len())?;
        let halt = DeviceBuffer::<u32>::zeroed(self.context(), 1)?;
        let mut bindings = Bindings::new();
        self.state().bind(&mut bindings, &pass.parameters);
        bindings.bind(pass.metrics, &metrics).bind(pass.halt, &halt);
        bindings.bind(pass.cos, &rotary.cos).bind(pass.sin, &rotary.sin);
        let modules = &self.modules;
        let mut program =
            Program::build(&self.stream, modules, &pass.pass, &bindings, Policy::Eager)?;
        let mut controls = pass.pass.controls();
        pass.controls().set(&mut controls, StepInput { number, batch, stop: false })?;
        program.step(&self.stream, &controls)?;
        Ok(metrics.download(&self.stream)?)
    }
}
