//! A kernel under construction: registers, scopes and statements.

use std::cell::RefCell;
use std::marker::PhantomData;

use super::pointer::Ptr;
use super::scalar::Scalar;
pub(super) use super::state::Emit;
use super::state::State;
use super::value::{Value, ValueSource};
use crate::ast::{
    Address, AddressBase, Entry, Guard, LabelId, Modifier, Opcode, Operand, Parameter, RegisterId,
    SpecialRegister, Statement, Symbol, Type, Variable,
};

/// A kernel under construction.
///
/// A copyable handle. The lifetime `'k` is unique to one call of [`Kernel::build`], and every value
/// carries it.
#[derive(Clone, Copy)]
pub struct Kernel<'k> {
    state: &'k RefCell<State>,
    // Invariant: the lifetimes of two kernels never unify.
    brand: PhantomData<fn(&'k ()) -> &'k ()>,
}

impl<'k> Kernel<'k> {
    /// Builds the kernel that `describe` describes.
    ///
    /// # Panics
    /// If a name is declared twice, or a value is used outside the block (the body of a
    /// [`Kernel::when`] or of a loop) that computed it.
    pub fn build(name: &str, describe: impl for<'a> FnOnce(&Kernel<'a>)) -> Entry {
        let mut start = State { open: vec![0], ..State::default() };
        start.entry.name = name.to_owned();
        let state = RefCell::new(start);
        describe(&Kernel { state: &state, brand: PhantomData });
        state.into_inner().finish()
    }

    /// A parameter of type `T`.
    pub fn param<T: Scalar>(&self, name: &str) -> Value<'k, T> {
        let ty = T::TYPE;
        let register = self.register(ty);
        let mut state = self.state.borrow_mut();
        state.claim(name);
        let symbol = Symbol::Parameter(state.entry.parameters.len() as u32);
        state.entry.parameters.push(Parameter::scalar(name, ty));
        let address = Address { base: AddressBase::Symbol(symbol), offset: 0 };
        state.push_prologue(Emit {
            opcode: Opcode::Ld,
            modifiers: &[Modifier::Param],
            types: &[ty],
            operands: vec![Operand::Register(register), Operand::Address(address)],
        });
        state.registers[register.0 as usize].1 = 0;
        Value::from_register(*self, register)
    }

    /// A pointer parameter to elements of type `T` in global memory. It may be null if the kernel
    /// checks [`Ptr::is_null`] before it accesses memory.
    pub fn pointer<T: Scalar>(&self, name: &str) -> Ptr<'k, T> {
        let generic = self.param::<u64>(name);
        let register = self.register(Type::U64);
        let mut state = self.state.borrow_mut();
        state.push_prologue(Emit {
            opcode: Opcode::Cvta,
            modifiers: &[Modifier::To, Modifier::Global],
            types: &[Type::U64],
            operands: vec![Operand::Register(register), generic.operand_unchecked()],
        });
        state.registers[register.0 as usize].1 = 0;
        drop(state);
        Ptr::new(Value::from_register(*self, register))
    }

    /// The generic address of a parameter of `bytes` bytes, which the launch passes by value.
    pub(super) fn param_bytes(&self, name: &str, bytes: u32, align: u32) -> Value<'k, u64> {
        let register = self.register(Type::U64);
        let mut state = self.state.borrow_mut();
        state.claim(name);
        let symbol = Symbol::Parameter(state.entry.parameters.len() as u32);
        let parameter = Parameter::scalar(name, Type::B8);
        let (align, length) = (Some(align), Some(bytes));
        state.entry.parameters.push(Parameter { align, length, ..parameter });
        state.push_prologue(Emit {
            opcode: Opcode::Cvta,
            modifiers: &[Modifier::Param],
            types: &[Type::U64],
            operands: vec![Operand::Register(register), Operand::Symbol(symbol, 0)],
        });
        state.registers[register.0 as usize].1 = 0;
        drop(state);
        Value::from_register(*self, register)
    }

    /// A constant. It is an immediate wherever the instruction allows one.
    pub fn constant<T: Scalar>(&self, value: T) -> Value<'k, T> {
        Value::new(*self, ValueSource::Constant(value.to_bits()))
    }

    /// Limits the threads per block (`.maxntid`), so `ptxas` can use more registers per thread.
    pub fn max_threads(&self, threads: u32) {
        self.state.borrow_mut().entry.limits.max_threads = Some([threads, 1, 1]);
    }

    /// Limits registers so that `blocks` blocks fit on an SM (`.minnctapersm`). Needs
    /// [`Kernel::max_threads`].
    pub fn min_blocks(&self, blocks: u32) {
        self.state.borrow_mut().entry.limits.min_blocks = Some(blocks);
    }

    /// Asks `ptxas` for at most `registers` registers per thread (`.maxnreg`).
    pub fn max_registers(&self, registers: u32) {
        self.state.borrow_mut().entry.limits.max_registers = Some(registers);
    }

    /// Sets the number of blocks per cluster in x (`.reqnctapercluster`). Needs sm_90.
    pub fn cluster_blocks(&self, blocks: u32) {
        self.state.borrow_mut().entry.limits.cluster = Some([blocks, 1, 1]);
    }

    /// Whether the kernel declares clusters of several blocks.
    pub(super) fn is_clustered(&self) -> bool {
        self.state.borrow().entry.limits.cluster.is_some_and(|blocks| blocks != [1; 3])
    }

    /// The value of a special register, which the prologue reads once.
    pub(super) fn special(&self, special: SpecialRegister) -> Value<'k, u32> {
        let known = self.state.borrow().specials.get(&special).copied();
        let register = known.unwrap_or_else(|| {
            let source = Operand::Special(special);
            let register = self.prologue_mov(Type::U32, source);
            self.state.borrow_mut().specials.insert(special, register);
            register
        });
        Value::from_register(*self, register)
    }

    /// The register that holds the 32-bit address of a shared variable.
    pub(super) fn address_of(&self, symbol: Symbol) -> RegisterId {
        let mut known = self.state.borrow().addresses.clone().into_iter();
        if let Some((_, register)) = known.find(|&(of, _)| of == symbol) {
            return register;
        }
        let register = self.prologue_mov(Type::U32, Operand::Symbol(symbol, 0));
        self.state.borrow_mut().addresses.push((symbol, register));
        register
    }

    /// A register that the prologue sets to `source`.
    fn prologue_mov(&self, ty: Type, source: Operand) -> RegisterId {
        let register = self.register(ty);
        let mut state = self.state.borrow_mut();
        state.registers[register.0 as usize].1 = 0;
        state.push_prologue(Emit {
            opcode: Opcode::Mov,
            modifiers: &[],
            types: &[ty],
            operands: vec![Operand::Register(register), source],
        });
        register
    }

    /// A new register of the innermost open scope.
    pub(super) fn register(&self, ty: Type) -> RegisterId {
        let mut state = self.state.borrow_mut();
        let scope = *state.open.last().expect("the outermost scope is never closed");
        state.registers.push((ty, scope));
        RegisterId(state.registers.len() as u32 - 1)
    }

    /// Panics if the block that made `register` is closed.
    #[track_caller]
    pub(super) fn check_open(&self, register: RegisterId) {
        let state = self.state.borrow();
        let scope = state.registers[register.0 as usize].1;
        assert!(
            state.open.contains(&scope),
            "kernel `{}`: a value is used outside the block that computed it; create a `var` \
             before the block and set it inside",
            state.entry.name
        );
    }

    /// Appends an instruction.
    pub(super) fn emit(&self, emit: Emit<'_>) {
        self.state.borrow_mut().entry.body.push(emit.statement(None));
    }

    /// Appends an instruction under a guard.
    pub(super) fn emit_guarded(&self, guard: Guard, emit: Emit<'_>) {
        self.state.borrow_mut().entry.body.push(emit.statement(Some(guard)));
    }

    /// Appends an instruction whose destination is a new register of type `ty`.
    pub(super) fn compute(&self, ty: Type, mut emit: Emit<'_>) -> RegisterId {
        let register = self.register(ty);
        emit.operands.insert(0, Operand::Register(register));
        self.emit(emit);
        register
    }

    /// Declares a variable of the entry.
    pub(super) fn declare(&self, variable: Variable) -> Symbol {
        let mut state = self.state.borrow_mut();
        state.claim(&variable.name);
        state.entry.variables.push(variable);
        Symbol::Local(state.entry.variables.len() as u32 - 1)
    }

    /// The variable called `name`, if it has been declared.
    pub(super) fn declared(&self, name: &str) -> Option<Symbol> {
        let state = self.state.borrow();
        let found = state.entry.variables.iter().position(|variable| variable.name == name);
        found.map(|index| Symbol::Local(index as u32))
    }

    /// A number for the labels of the next branch or loop.
    pub(super) fn next_block(&self) -> u32 {
        let mut state = self.state.borrow_mut();
        state.blocks += 1;
        state.blocks
    }

    /// A label, not yet placed.
    pub(super) fn label(&self, name: String) -> LabelId {
        let mut state = self.state.borrow_mut();
        state.entry.labels.push(name);
        LabelId(state.entry.labels.len() as u32 - 1)
    }

    /// Places a label.
    pub(super) fn place(&self, label: LabelId) {
        self.state.borrow_mut().entry.body.push(Statement::Label(label));
    }

    /// Runs `body` in a scope of its own.
    pub(super) fn scope<R>(&self, body: impl FnOnce() -> R) -> R {
        {
            let mut state = self.state.borrow_mut();
            state.scopes += 1;
            let scope = state.scopes;
            state.open.push(scope);
        }
        let result = body();
        self.state.borrow_mut().open.pop();
        result
    }
}
