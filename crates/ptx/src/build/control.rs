//! Branches, loops, barriers and fences.

use super::kernel::{Emit, Kernel};
use super::predicate::Pred;
use super::scalar::Arg;
use super::value::Value;
use crate::ast::{Guard, Immediate, LabelId, Modifier, Opcode, Operand};

/// A barrier for some threads of a block.
#[derive(Clone, Copy, Debug)]
pub struct NamedBarrier<'k> {
    /// Barrier number, 1 to 15; [`Kernel::barrier`] uses 0. Uniform within a warp.
    pub id: Value<'k, u32>,
    /// Number of threads that synchronize or arrive, a multiple of 32.
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

    /// A loop in the kernel: runs `body` for `i = start, start + step, …` while `i < end`. `step`
    /// must not be 0, and the last `i + step` must fit in 32 bits.
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
        // The test is at the bottom, so an iteration has one branch. A loop whose first iteration
        // is certain needs no test before it.
        let nonempty = start.known().zip(end.known()).is_some_and(|(start, end)| start < end);
        if !nonempty {
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

    /// A loop in the kernel: runs `body` while `condition` is true. `body` may use values that
    /// `condition` computes.
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

    /// Ends the thread if `condition` is true (`ret`). Later barriers count it as arrived.
    #[track_caller]
    pub fn return_if(&self, condition: Pred<'k>) {
        let ret = Emit { opcode: Opcode::Ret, modifiers: &[], types: &[], operands: Vec::new() };
        self.emit_guarded(condition.guard(true), ret);
    }

    /// Stops the whole launch with an error if `condition` is true (`trap`).
    #[track_caller]
    pub fn trap_if(&self, condition: Pred<'k>) {
        let trap = Emit { opcode: Opcode::Trap, modifiers: &[], types: &[], operands: Vec::new() };
        self.emit_guarded(condition.guard(true), trap);
    }

    /// Waits for every thread of the block (`bar.sync 0`). Their earlier writes to shared and
    /// global memory are then visible to each other.
    pub fn barrier(&self) {
        let operands = vec![Operand::Immediate(Immediate::Integer(0))];
        let modifiers = &[Modifier::Sync];
        self.emit(Emit { opcode: Opcode::Bar, modifiers, types: &[], operands });
    }

    /// Waits until `barrier.threads` threads have executed `bar_sync` or [`Kernel::bar_arrive`] on
    /// this barrier, this one included (`bar.sync`). Their earlier writes are then visible, and
    /// the barrier can be used again.
    ///
    /// If a `condition` is given, only threads for which it is true execute the instruction. It
    /// must be uniform within a warp.
    #[track_caller]
    pub fn bar_sync(&self, barrier: NamedBarrier<'k>, condition: Option<Pred<'k>>) {
        self.bar(barrier, Modifier::Sync, condition);
    }

    /// Arrives at a barrier without waiting (`bar.arrive`), under `condition` as in
    /// [`Kernel::bar_sync`].
    #[track_caller]
    pub fn bar_arrive(&self, barrier: NamedBarrier<'k>, condition: Option<Pred<'k>>) {
        self.bar(barrier, Modifier::Arrive, condition);
    }

    #[track_caller]
    fn bar(&self, barrier: NamedBarrier<'k>, operation: Modifier, condition: Option<Pred<'k>>) {
        let NamedBarrier { id, threads } = barrier;
        assert!(threads.is_multiple_of(32), "the threads of a barrier are a multiple of 32");
        let threads = Operand::Immediate(Immediate::Integer(threads.into()));
        let (modifiers, operands) = (&[operation], vec![id.operand(), threads]);
        let emit = Emit { opcode: Opcode::Bar, modifiers, types: &[], operands };
        match condition {
            Some(condition) => self.emit_guarded(condition.guard(true), emit),
            None => self.emit(emit),
        }
    }

    /// Memory fence: every thread of the device observes this thread's accesses before the fence
    /// earlier than its accesses after the fence (`membar.gl`).
    pub fn membar_gl(&self) {
        let modifiers = &[Modifier::Gl];
        self.emit(Emit { opcode: Opcode::Membar, modifiers, types: &[], operands: Vec::new() });
    }

    /// As [`Kernel::membar_gl`], but only orders accesses by acquire and release patterns
    /// (`fence.acq_rel.gpu`).
    pub fn fence_acq_rel_gpu(&self) {
        let modifiers = &[Modifier::AcqRel, Modifier::Gpu];
        self.emit(Emit { opcode: Opcode::Fence, modifiers, types: &[], operands: Vec::new() });
    }

    /// Memory fence for all observers, including the host and other devices (`membar.sys`).
    pub fn membar_sys(&self) {
        let modifiers = &[Modifier::Sys];
        self.emit(Emit { opcode: Opcode::Membar, modifiers, types: &[], operands: Vec::new() });
    }

    /// Lets dependent grids start as soon as every block has executed it or ended
    /// (`griddepcontrol.launch_dependents`). Needs sm_90.
    pub fn griddepcontrol_launch_dependents(&self) {
        self.griddepcontrol(Modifier::LaunchDependents);
    }

    /// Waits until all prerequisite grids are complete and their writes visible
    /// (`griddepcontrol.wait`). Needs sm_90.
    pub fn griddepcontrol_wait(&self) {
        self.griddepcontrol(Modifier::Wait);
    }

    fn griddepcontrol(&self, operation: Modifier) {
        let (opcode, modifiers) = (Opcode::Griddepcontrol, &[operation]);
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
