//! Calls of functions that the driver provides.

use retrograph_ptx::ast::{Function, Operand, Parameter, Type};

use super::{Decoder, Reason, VirtualRegister, width_of};
use crate::exec::operation::{Control, Memory};

/// `cudaCGGetIntrinsicHandle` of a program linked with libcudadevrt.
pub(crate) const GET_GRID_HANDLE: &str = "libcudadevrt$cudaCGGetIntrinsicHandle";
/// `cudaCGSynchronize` of a program linked with libcudadevrt.
pub(crate) const SYNCHRONIZE_GRID: &str = "libcudadevrt$cudaCGSynchronize";

impl<'a> Decoder<'a> {
    /// A call of a function without a body, which the driver provides.
    pub(super) fn call_of_driver(
        &mut self,
        function: &'a Function,
        (arguments, results): (&'a [Operand], &'a [Operand]),
    ) -> Result<(), Reason> {
        let code = &function.code;
        let sizes = |list: &[Parameter]| list.iter().map(Parameter::size).collect::<Vec<_>>();
        let shape = (code.name.as_str(), &sizes(&code.parameters)[..], &sizes(&code.results)[..]);
        let is_known = matches!(
            shape,
            ("__assertfail", [8, 8, 4, 8, 8], [])
                | ("vprintf", [8, 8], [4])
                | ("cudaGraphSetConditional", [8, 4], [])
                | ("malloc", [8], [8])
                | ("free", [8], [])
                | (GET_GRID_HANDLE, [4], [8])
                | (SYNCHRONIZE_GRID, [8, 4], [4])
        );
        if !is_known || arguments.len() != code.parameters.len() {
            let name = &code.name;
            return Err(format!("the function `{name}`, which has no body in this module"));
        }
        let mark = self.local;
        let passed = self.pass(arguments, &code.parameters)?;
        let given = self.receive(results, &code.results)?;
        let mut values = Vec::new();
        for (address, parameter) in passed.into_iter().zip(&code.parameters) {
            values.push(self.load_argument(address, parameter.ty));
        }
        match (&values[..], &given[..]) {
            (&[scope], &[address]) if code.name == GET_GRID_HANDLE => {
                let handle = self.temporary(width_of(Type::B64));
                self.emit(Control::GridHandle { d: handle, scope });
                let (at, access) = self.local_access(address, Type::B64, handle);
                self.emit(Memory::Store1 { address: at, a: handle, access });
            }
            (&[handle, _], &[address]) if code.name == SYNCHRONIZE_GRID => {
                self.communicates = true;
                let code = self.temporary(width_of(Type::B32));
                self.emit(Control::GridBarrier { d: code, handle });
                let (at, access) = self.local_access(address, Type::B32, code);
                self.emit(Memory::Store1 { address: at, a: code, access });
            }
            (&[message, file, line, name, _], _) => {
                self.emit(Control::AssertFail { message, file, line, name });
            }
            (&[format, list], &[address]) => {
                // The order of printed text must be reproducible, so blocks run in a fixed order.
                self.communicates = true;
                let count = self.temporary(width_of(Type::B32));
                self.emit(Control::Print { d: count, format, list });
                let (at, access) = self.local_access(address, Type::B32, count);
                self.emit(Memory::Store1 { address: at, a: count, access });
            }
            (&[handle, value], &[]) => {
                // The last value is the result, so blocks run in a fixed order.
                self.communicates = true;
                self.emit(Control::SetConditional { handle, value });
            }
            (&[size], &[address]) => {
                // The returned addresses depend on the order of blocks.
                (self.communicates, self.uses_heap) = (true, true);
                let block = self.temporary(width_of(Type::B64));
                self.emit(Control::Allocate { d: block, size });
                let (at, access) = self.local_access(address, Type::B64, block);
                self.emit(Memory::Store1 { address: at, a: block, access });
            }
            (&[address], _) => {
                (self.communicates, self.uses_heap) = (true, true);
                self.emit(Control::Free { address });
            }
            _ => {}
        }
        self.take(results, &code.results, &given)?;
        self.local = mark;
        Ok(())
    }

    fn load_argument(&mut self, address: u64, ty: Type) -> VirtualRegister {
        let value = self.temporary(width_of(ty));
        let (at, access) = self.local_access(address, ty, value);
        self.emit(Memory::Load1 { d: value, address: at, access });
        value
    }
}
