//! Copies from global to shared memory that run while the thread goes on (`cp.async`).

use super::kernel::{Emit, Kernel};
use super::pointer::Ptr;
use super::scalar::{Arg, Scalar};
use super::shared::Shared;
use crate::ast::{Address, AddressBase, Immediate, Modifier, Opcode, Operand};

/// Bytes that a copy fills.
const BYTES: i64 = 16;

impl<'k, T: Scalar> Shared<'k, T> {
    /// Starts to fill the 16 bytes here with the first `bytes` bytes, at most 16, from `from`, and
    /// with zeros behind them (`cp.async.cg`). Both places must be multiples of 16 bytes. Nothing
    /// may look at the target before [`Kernel::wait_copies`] and, in other threads, a barrier
    /// after it. sm_80 and later.
    #[track_caller]
    pub fn copy_async<U: Scalar>(self, from: Ptr<'k, U>, bytes: impl Arg<'k, u32>) {
        let location = self.location();
        let base = AddressBase::Register(from.address().register());
        let operands = vec![
            Operand::Address(location.address),
            Operand::Address(Address { base, offset: 0 }),
            Operand::Immediate(Immediate::Integer(BYTES)),
            bytes.bring(location.kernel).operand(),
        ];
        let modifiers = &[Modifier::Async, Modifier::Cg, Modifier::SharedGlobal];
        location.kernel.emit(Emit { opcode: Opcode::Cp, modifiers, types: &[], operands });
    }
}

impl Kernel<'_> {
    /// Makes one group of the copies that this thread has started since the last one, which may be
    /// none (`cp.async.commit_group`).
    pub fn commit_copies(&self) {
        let modifiers = &[Modifier::Async, Modifier::CommitGroup];
        self.emit(Emit { opcode: Opcode::Cp, modifiers, types: &[], operands: Vec::new() });
    }

    /// Waits until all of this thread's groups but the last `under_way` have landed
    /// (`cp.async.wait_group`).
    pub fn wait_copies(&self, under_way: u32) {
        let operands = vec![Operand::Immediate(Immediate::Integer(under_way.into()))];
        let modifiers = &[Modifier::Async, Modifier::WaitGroup];
        self.emit(Emit { opcode: Opcode::Cp, modifiers, types: &[], operands });
    }
}
