//! Branches, loops and barriers of the kernel itself.

use super::kernel::{Emit, Kernel};
use super::predicate::Pred;
use super::scalar::Arg;
use super::value::Value;
use crate::ast::{Guard, Immediate, LabelId, Modifier, Opcode, Operand};

/// A barrier for some of the threads of a block.
#[derive(Clone, Copy, Debug)]
pub struct NamedBarrier<'k> {
    /// Which one, from 1 to 15: 0 is that of [`Kernel::barrier`]. The same for all of a warp.
    pub id: Value<'k, u32>,
    /// How many threads come to it, a multiple of 32.
    pub threads: u32,
}

impl<'k> Kernel<'k> {
    /// Runs `body` in the threads where `condition` is true.
    #[track_caller]
    pub fn when(&self, condition: Pred<'k>, body: impl FnOnce()) {
        let end = self.label(format!("$when{}_end", self.next_block()));
        self.branch(Some(condition.guard(false)), end);
        self.scope(body);
        self.place(end);
    }

    /// Runs `yes` in the threads where `condition` is true, and `no` in the others.
    #[track_caller]
    pub fn when_else(&self, condition: Pred<'k>, yes: impl FnOnce(), no: impl FnOnce()) {
        let block = self.next_block();
        let other = self.label(format!("$when{block}_else"));
        let end = self.label(format!("$when{block}_end"));
        self.branch(Some(condition.guard(false)), other);
        self.scope(yes);
        self.branch(None, end);
        self.place(other);
        self.scope(no);
        self.place(end);
    }

    /// Runs `body` for `i = start, start + step, …` while `i < end`, in the kernel. `step` must
    /// not be 0, and the last `i + step` must fit in 32 bits.
    #[track_caller]
    pub fn range(
        &self,
        start: impl Arg<'k, u32>,
        end: impl Arg<'k, u32>,
        step: impl Arg<'k, u32>,
        body: impl FnOnce(Value<'k, u32>),
    ) {
        let (start, end, step) =
            (start.into_value(*self), end.into_value(*self), step.into_value(*self));
        let block = self.next_block();
        let head = self.label(format!("$range{block}_body"));
        let done = self.label(format!("$range{block}_end"));
        let index = self.var(start);
        // The test is at the bottom, so that an iteration has one branch; a loop that is known to
        // run needs none before it.
        let runs = start.known().zip(end.known()).is_some_and(|(start, end)| start < end);
        if !runs {
            self.branch(Some(start.lt(end).guard(false)), done);
        }
        self.place(head);
        self.scope(|| {
            body(index.live());
            index.add_assign(step);
            self.branch(Some(index.live().lt(end).guard(true)), head);
        });
        self.place(done);
    }

    /// Runs `body` as long as `condition` gives true, in the kernel. What `condition` computes may
    /// be used in `body`.
    #[track_caller]
    pub fn while_loop(&self, condition: impl FnOnce() -> Pred<'k>, body: impl FnOnce()) {
        let block = self.next_block();
        let head = self.label(format!("$while{block}_test"));
        let done = self.label(format!("$while{block}_end"));
        self.place(head);
        self.scope(|| {
            let go = condition();
            self.branch(Some(go.guard(false)), done);
            body();
            self.branch(None, head);
        });
        self.place(done);
    }

    /// Ends the thread where `condition` is true. A thread that has ended counts as arrived at
    /// every later barrier.
    #[track_caller]
    pub fn return_if(&self, condition: Pred<'k>) {
        let ret = Emit { opcode: Opcode::Ret, modifiers: &[], types: &[], operands: Vec::new() };
        self.emit_guarded(condition.guard(true), ret);
    }

    /// Stops the whole launch with an error where `condition` is true.
    #[track_caller]
    pub fn trap_if(&self, condition: Pred<'k>) {
        let trap = Emit { opcode: Opcode::Trap, modifiers: &[], types: &[], operands: Vec::new() };
        self.emit_guarded(condition.guard(true), trap);
    }

    /// Waits until every thread of the block is here (`bar.sync 0`), and makes what they wrote to
    /// shared and global memory visible to each other.
    pub fn barrier(&self) {
        let operands = vec![Operand::Immediate(Immediate::Integer(0))];
        let modifiers = &[Modifier::Sync];
        self.emit(Emit { opcode: Opcode::Bar, modifiers, types: &[], operands });
    }

    /// Waits at a barrier until as many threads as it is for have been there, this one included,
    /// here or with [`Kernel::bar_arrive`] (`bar.sync`). What they wrote before is visible then, and
    /// the barrier begins anew.
    ///
    /// Where a `condition` is given, threads for which it is false go on; it must be the same for
    /// all of a warp.
    #[track_caller]
    pub fn bar_sync(&self, barrier: NamedBarrier<'k>, condition: Option<Pred<'k>>) {
        self.bar(barrier, Modifier::Sync, condition);
    }

    /// Counts at a barrier, and goes on: threads in [`Kernel::bar_sync`] wait for this one
    /// (`bar.arrive`).
    #[track_caller]
    pub fn bar_arrive(&self, barrier: NamedBarrier<'k>, condition: Option<Pred<'k>>) {
        self.bar(barrier, Modifier::Arrive, condition);
    }

    #[track_caller]
    fn bar(&self, barrier: NamedBarrier<'k>, does: Modifier, condition: Option<Pred<'k>>) {
        let NamedBarrier { id, threads } = barrier;
        assert!(threads.is_multiple_of(32), "whole warps come to a barrier");
        let threads = Operand::Immediate(Immediate::Integer(threads.into()));
        let (modifiers, operands) = (&[does], vec![id.operand(), threads]);
        let emit = Emit { opcode: Opcode::Bar, modifiers, types: &[], operands };
        match condition {
            Some(condition) => self.emit_guarded(condition.guard(true), emit),
            None => self.emit(emit),
        }
    }

    /// Orders this thread's memory accesses before the fence before those after it, for every
    /// thread of the device (`membar.gl`).
    pub fn membar_gl(&self) {
        let modifiers = &[Modifier::Gl];
        self.emit(Emit { opcode: Opcode::Membar, modifiers, types: &[], operands: Vec::new() });
    }

    /// The same for all observers, the host included (`membar.sys`).
    pub fn membar_sys(&self) {
        let modifiers = &[Modifier::Sys];
        self.emit(Emit { opcode: Opcode::Membar, modifiers, types: &[], operands: Vec::new() });
    }

    /// Lets the kernels that start early behind this one start, as soon as every block has been
    /// here or has ended (`griddepcontrol.launch_dependents`, from sm_90 on).
    pub fn griddepcontrol_launch_dependents(&self) {
        self.griddepcontrol(Modifier::LaunchDependents);
    }

    /// Waits until the kernels in front are complete, and what they wrote is visible
    /// (`griddepcontrol.wait`, from sm_90 on).
    pub fn griddepcontrol_wait(&self) {
        self.griddepcontrol(Modifier::Wait);
    }

    fn griddepcontrol(&self, what: Modifier) {
        let (opcode, modifiers) = (Opcode::Griddepcontrol, &[what]);
        self.emit(Emit { opcode, modifiers, types: &[], operands: Vec::new() });
    }

    fn branch(&self, guard: Option<Guard>, target: LabelId) {
        let operands = vec![Operand::Label(target)];
        let emit = Emit { opcode: Opcode::Bra, modifiers: &[], types: &[], operands };
        match guard {
            Some(guard) => self.emit_guarded(guard, emit),
            None => self.emit(emit),
        }
    }
}
