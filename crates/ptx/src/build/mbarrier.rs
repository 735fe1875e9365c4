//! Barriers in shared memory (`mbarrier`), for producers and consumers and for bulk copies.
//!
//! One thread calls [`Kernel::mbarrier_init`] and [`Kernel::fence_mbarrier_init`], and a block
//! barrier follows. A phase completes when all expected arrivals and all expected bytes have
//! arrived. Waits specify the parity of their phase, which is 0 for the first phase. A wait for
//! parity 1 on a new barrier returns at once.

use super::kernel::{Emit, Kernel};
use super::predicate::Pred;
use super::scalar::Arg;
use super::shared::Shared;
use super::value::Value;
use crate::ast::{Modifier, Opcode, Operand, Type};

impl<'k> Kernel<'k> {
    /// Initializes the 8 bytes at `mbarrier` as a barrier with `count` arrivals per phase
    /// (`mbarrier.init`). Needs sm_80.
    #[track_caller]
    pub fn mbarrier_init(&self, mbarrier: Shared<'k, u64>, count: impl Arg<'k, u32>) {
        let operands = vec![address(mbarrier), count.into_value(*self).operand()];
        self.mbarrier(&[Modifier::Init, Modifier::SharedCta], operands);
    }

    /// Invalidates the barrier, so that its memory can be reused (`mbarrier.inval`). Needs sm_80.
    #[track_caller]
    pub fn mbarrier_inval(&self, mbarrier: Shared<'k, u64>) {
        self.mbarrier(&[Modifier::Inval, Modifier::SharedCta], vec![address(mbarrier)]);
    }

    /// Makes initialized barriers visible to the cluster and to the async proxy
    /// (`fence.mbarrier_init`). Needs sm_90.
    pub fn fence_mbarrier_init(&self) {
        let modifiers = &[Modifier::MbarrierInit, Modifier::Release, Modifier::Cluster];
        self.emit(Emit { opcode: Opcode::Fence, modifiers, types: &[], operands: Vec::new() });
    }

    /// Counts one arrival of this thread (`mbarrier.arrive`). Earlier memory accesses of the thread
    /// are visible to the threads that wait for the phase. Needs sm_80.
    #[track_caller]
    pub fn mbarrier_arrive(&self, mbarrier: Shared<'k, u64>) {
        let operands = vec![Operand::Sink, address(mbarrier)];
        self.mbarrier(&[Modifier::Arrive, Modifier::SharedCta], operands);
    }

    /// Counts one arrival, and lets the phase wait for `bytes` more bytes of bulk copies
    /// (`mbarrier.arrive.expect_tx`). Needs sm_90.
    #[track_caller]
    pub fn mbarrier_arrive_expect_tx(&self, mbarrier: Shared<'k, u64>, bytes: impl Arg<'k, u32>) {
        let operands = vec![Operand::Sink, address(mbarrier), bytes.into_value(*self).operand()];
        self.mbarrier(&[Modifier::ArriveExpectTx, Modifier::SharedCta], operands);
    }

    /// Lets the phase wait for `bytes` more bytes of bulk copies (`mbarrier.expect_tx`). Needs
    /// sm_90.
    #[track_caller]
    pub fn mbarrier_expect_tx(&self, mbarrier: Shared<'k, u64>, bytes: impl Arg<'k, u32>) {
        let operands = vec![address(mbarrier), bytes.into_value(*self).operand()];
        self.mbarrier(&[Modifier::ExpectTx, Modifier::SharedCta], operands);
    }

    /// Returns whether the phase with this `parity` is complete, after a bounded wait
    /// (`mbarrier.try_wait.parity`). Needs sm_90.
    #[track_caller]
    pub fn mbarrier_try_wait_parity(
        &self,
        mbarrier: Shared<'k, u64>,
        parity: impl Arg<'k, u32>,
    ) -> Pred<'k> {
        self.is_complete(Modifier::TryWaitParity, mbarrier, parity.into_value(*self))
    }

    /// Whether the phase with this `parity` is complete, without a wait
    /// (`mbarrier.test_wait.parity`). Needs sm_80.
    #[track_caller]
    pub fn mbarrier_test_wait_parity(
        &self,
        mbarrier: Shared<'k, u64>,
        parity: impl Arg<'k, u32>,
    ) -> Pred<'k> {
        self.is_complete(Modifier::TestWaitParity, mbarrier, parity.into_value(*self))
    }

    /// Waits until the phase with this `parity` is complete: a loop around
    /// [`Kernel::mbarrier_try_wait_parity`]. Needs sm_90.
    #[track_caller]
    pub fn mbarrier_wait_parity(&self, mbarrier: Shared<'k, u64>, parity: impl Arg<'k, u32>) {
        let parity = parity.into_value(*self);
        let head = self.label(format!("$mbarrier{}_wait", self.next_block()));
        self.place(head);
        self.scope(|| {
            let complete = self.mbarrier_try_wait_parity(mbarrier, parity);
            let operands = vec![Operand::Label(head)];
            let emit = Emit { opcode: Opcode::Bra, modifiers: &[], types: &[], operands };
            self.emit_guarded(complete.guard(false), emit);
        });
    }

    #[track_caller]
    fn is_complete(
        &self,
        how: Modifier,
        mbarrier: Shared<'k, u64>,
        parity: Value<'k, u32>,
    ) -> Pred<'k> {
        let operands = vec![address(mbarrier), parity.operand()];
        let (modifiers, types) = (&[how, Modifier::SharedCta], &[Type::B64]);
        let emit = Emit { opcode: Opcode::Mbarrier, modifiers, types, operands };
        Pred::new(*self, self.compute(Type::Pred, emit))
    }

    fn mbarrier(&self, modifiers: &[Modifier], operands: Vec<Operand>) {
        self.emit(Emit { opcode: Opcode::Mbarrier, modifiers, types: &[Type::B64], operands });
    }
}

#[track_caller]
fn address(mbarrier: Shared<'_, u64>) -> Operand {
    Operand::Address(mbarrier.location().address)
}
