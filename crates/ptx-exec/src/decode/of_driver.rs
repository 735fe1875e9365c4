//! Calls of functions that the driver provides.

use retrograph_ptx::ast::{Entry, Function, Operand, Parameter, Type};

use super::{Decoder, Reason, VirtualRegister, width_of};
use crate::operation::{Control, Memory};

/// `cudaCGGetIntrinsicHandle` of a program linked with libcudadevrt.
pub const GET_GRID_HANDLE: &str = "libcudadevrt$cudaCGGetIntrinsicHandle";
/// `cudaCGSynchronize` of a program linked with libcudadevrt.
pub const SYNCHRONIZE_GRID: &str = "libcudadevrt$cudaCGSynchronize";

/// A function that the driver provides.
#[derive(Clone, Copy)]
enum DriverFunction {
    /// `__assertfail`.
    AssertFail,
    /// `vprintf`.
    Print,
    /// `cudaGraphSetConditional`.
    SetConditional,
    /// `malloc`.
    Allocate,
    /// `free`.
    Free,
    /// [`GET_GRID_HANDLE`].
    GridHandle,
    /// [`SYNCHRONIZE_GRID`].
    SynchronizeGrid,
}

impl DriverFunction {
    /// The function with the name, parameters and results of `code`, if there is one.
    fn of(code: &Entry) -> Option<Self> {
        let sizes = |list: &[Parameter]| list.iter().map(Parameter::size).collect::<Vec<_>>();
        let (parameters, results) = (sizes(&code.parameters), sizes(&code.results));
        match (code.name.as_str(), &parameters[..], &results[..]) {
            ("__assertfail", [8, 8, 4, 8, 8], []) => Some(Self::AssertFail),
            ("vprintf", [8, 8], [4]) => Some(Self::Print),
            ("cudaGraphSetConditional", [8, 4], []) => Some(Self::SetConditional),
            ("malloc", [8], [8]) => Some(Self::Allocate),
            ("free", [8], []) => Some(Self::Free),
            (GET_GRID_HANDLE, [4], [8]) => Some(Self::GridHandle),
            (SYNCHRONIZE_GRID, [8, 4], [4]) => Some(Self::SynchronizeGrid),
            _ => None,
        }
    }
}

/// The arguments of a call, whose number [`DriverFunction::of`] compared.
fn of_arity<const N: usize>(arguments: &[VirtualRegister]) -> [VirtualRegister; N] {
    arguments.try_into().expect("the function has these parameters")
}

impl<'a> Decoder<'a> {
    /// A call of a function without a body, which the driver provides.
    pub(super) fn call_of_driver(
        &mut self,
        function: &'a Function,
        arguments: &'a [Operand],
        results: &'a [Operand],
    ) -> Result<(), Reason> {
        let code = &function.code;
        let known = DriverFunction::of(code);
        let Some(known) = known.filter(|_| arguments.len() == code.parameters.len()) else {
            let name = &code.name;
            return Err(format!("the function `{name}`, which has no body in this module"));
        };
        let mark = self.local;
        let passed = self.pass(arguments, &code.parameters)?;
        let given = self.receive(results, &code.results)?;
        let mut values = Vec::new();
        for (address, parameter) in passed.into_iter().zip(&code.parameters) {
            values.push(self.load_argument(address, parameter.ty));
        }
        self.emit_call(known, &values, given.first().copied());
        self.take(results, &code.results, &given)?;
        self.local = mark;
        Ok(())
    }

    /// The work of a call, with these arguments and the address of its result.
    fn emit_call(
        &mut self,
        function: DriverFunction,
        arguments: &[VirtualRegister],
        result: Option<u64>,
    ) {
        match function {
            DriverFunction::AssertFail => {
                let [message, file, line, name, _] = of_arity(arguments);
                self.emit(Control::AssertFail { message, file, line, name });
            }
            DriverFunction::Print => {
                // The order of printed text must be reproducible, so blocks run in a fixed order.
                self.communicates = true;
                let [format, list] = of_arity(arguments);
                let d = self.temporary(width_of(Type::B32));
                self.emit(Control::Print { d, format, list });
                self.store_result(result, Type::B32, d);
            }
            DriverFunction::SetConditional => {
                // The last value is the result, so blocks run in a fixed order.
                self.communicates = true;
                let [handle, value] = of_arity(arguments);
                self.emit(Control::SetConditional { handle, value });
            }
            DriverFunction::Allocate => {
                // The returned addresses depend on the order of blocks.
                (self.communicates, self.uses_heap) = (true, true);
                let [size] = of_arity(arguments);
                let d = self.temporary(width_of(Type::B64));
                self.emit(Control::Allocate { d, size });
                self.store_result(result, Type::B64, d);
            }
            DriverFunction::Free => {
                (self.communicates, self.uses_heap) = (true, true);
                let [address] = of_arity(arguments);
                self.emit(Control::Free { address });
            }
            DriverFunction::GridHandle => {
                let [scope] = of_arity(arguments);
                let d = self.temporary(width_of(Type::B64));
                self.emit(Control::GridHandle { d, scope });
                self.store_result(result, Type::B64, d);
            }
            DriverFunction::SynchronizeGrid => {
                self.communicates = true;
                let [handle, _] = of_arity(arguments);
                let d = self.temporary(width_of(Type::B32));
                self.emit(Control::GridBarrier { d, handle });
                self.store_result(result, Type::B32, d);
            }
        }
    }

    /// Stores the result of a call, unless the call ignores it.
    fn store_result(&mut self, address: Option<u64>, ty: Type, value: VirtualRegister) {
        let Some(address) = address else { return };
        let (at, access) = self.local_access(address, ty, value);
        self.emit(Memory::Store1 { address: at, a: value, access });
    }

    fn load_argument(&mut self, address: u64, ty: Type) -> VirtualRegister {
        let value = self.temporary(width_of(ty));
        let (at, access) = self.local_access(address, ty, value);
        self.emit(Memory::Load1 { d: value, address: at, access });
        value
    }
}
