//! Asynchronous copies from global to shared memory (`cp.async`).

use super::kernel::{Emit, Kernel};
use super::pointer::Ptr;
use super::scalar::{Arg, Scalar};
use super::shared::Shared;
use crate::ast::{Address, AddressBase, Immediate, Modifier, Opcode, Operand};

/// Bytes that one copy writes.
const COPY_BYTES: i64 = 16;

impl<'k, T: Scalar> Shared<'k, T> {
    /// Starts a copy of 16 bytes from `from` to this address (`cp.async.cg`). It reads only the
    /// first `bytes` bytes and writes zeros for the rest. `bytes` is at most 16.
    ///
    /// Both addresses must be multiples of 16. The copy is complete after
    /// [`Kernel::cp_async_wait_group`]; other threads of the block see it after a barrier. Needs
    /// sm_80.
    #[track_caller]
    pub fn cp_async<U: Scalar>(self, from: Ptr<'k, U>, bytes: impl Arg<'k, u32>) {
        let location = self.location();
        let base = AddressBase::Register(from.address().register());
        let operands = vec![
            Operand::Address(location.address),
            Operand::Address(Address { base, offset: 0 }),
            Operand::Immediate(Immediate::Integer(COPY_BYTES)),
            bytes.into_value(location.kernel).operand(),
        ];
        let modifiers = &[Modifier::Async, Modifier::Cg, Modifier::SharedGlobal];
        location.kernel.emit(Emit { opcode: Opcode::Cp, modifiers, types: &[], operands });
    }
}

impl Kernel<'_> {
    /// Puts the copies that this thread started since its last commit into one group, which may be
    /// empty (`cp.async.commit_group`).
    pub fn cp_async_commit_group(&self) {
        let modifiers = &[Modifier::Async, Modifier::CommitGroup];
        self.emit(Emit { opcode: Opcode::Cp, modifiers, types: &[], operands: Vec::new() });
    }

    /// Waits until at most the `pending` most recent groups of this thread are incomplete
    /// (`cp.async.wait_group`).
    pub fn cp_async_wait_group(&self, pending: u32) {
        let operands = vec![Operand::Immediate(Immediate::Integer(pending.into()))];
        let modifiers = &[Modifier::Async, Modifier::WaitGroup];
        self.emit(Emit { opcode: Opcode::Cp, modifiers, types: &[], operands });
    }
}
