//! Shared memory.

use std::marker::PhantomData;

use super::index::{Index, Position};
use super::kernel::{Emit, Kernel};
use super::memory::Location;
use super::scalar::{Arg, Scalar};
use super::value::Value;
use crate::ast::{
    Address, AddressBase, Immediate, Linkage, Modifier, Opcode, Operand, RegisterId, StateSpace,
    Symbol, Type, Variable,
};

/// The name of dynamic shared memory in every module.
pub(super) const DYNAMIC: &str = "dynamic_shared";

/// A pointer to elements of type `T` in shared memory.
///
/// Indices count elements. A Rust number folds into the address; a value costs one 32-bit
/// instruction. Accesses are not checked.
pub struct Shared<'k, T> {
    kernel: Kernel<'k>,
    symbol: Symbol,
    /// The address, if an index was not constant.
    register: Option<RegisterId>,
    /// In bytes.
    offset: i64,
    element: PhantomData<T>,
}

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<'_, T> {}

impl<'k> Kernel<'k> {
    /// A static array of `len` elements in shared memory, aligned to 16 bytes and uninitialized.
    pub fn shared<T: Scalar>(&self, name: &str, len: usize) -> Shared<'k, T> {
        let symbol = self.declare(Variable {
            linkage: Linkage::Internal,
            space: StateSpace::Shared,
            is_managed: false,
            align: Some(16),
            ty: untyped(T::TYPE),
            name: name.to_owned(),
            length: Some(u32::try_from(len).expect("shared memory is far smaller than 4 GiB")),
            initial: Vec::new(),
        });
        Shared::of(*self, symbol)
    }

    /// The dynamic shared memory of the launch as elements of type `T`. Every call returns the same
    /// memory.
    pub fn dynamic_shared<T: Scalar>(&self) -> Shared<'k, T> {
        self.dynamic_shared_aligned(16)
    }

    /// The dynamic shared memory of the launch, which begins at a multiple of `align` bytes. The
    /// first call decides.
    pub fn dynamic_shared_aligned<T: Scalar>(&self, align: u32) -> Shared<'k, T> {
        let symbol = self.declared(DYNAMIC).unwrap_or_else(|| {
            self.declare(Variable {
                linkage: Linkage::Extern,
                space: StateSpace::Shared,
                is_managed: false,
                align: Some(align),
                ty: Type::B8,
                name: DYNAMIC.to_owned(),
                length: Some(0),
                initial: Vec::new(),
            })
        });
        Shared::of(*self, symbol)
    }
}

/// The untyped type of the same size, with which memory is declared.
fn untyped(ty: Type) -> Type {
    if ty.size() == 8 { Type::B64 } else { Type::B32 }
}

impl<'k, T: Scalar> Shared<'k, T> {
    pub(super) fn of(kernel: Kernel<'k>, symbol: Symbol) -> Self {
        Self { kernel, symbol, register: None, offset: 0, element: PhantomData }
    }

    /// The same address as a pointer to other elements.
    pub fn reinterpret<U: Scalar>(self) -> Shared<'k, U> {
        let Self { kernel, symbol, register, offset, .. } = self;
        Shared { kernel, symbol, register, offset, element: PhantomData }
    }

    /// The pointer to element `index`.
    #[track_caller]
    pub fn at(self, index: impl Index<'k>) -> Self {
        let index = match index.split() {
            Position::Fixed(index) => return self.offset(index),
            Position::Unsigned(index) => index,
            Position::Signed(index) => index.cast(),
            Position::Long(index) => index.cast(),
        };
        let size = Operand::Immediate(Immediate::Integer(T::TYPE.size().into()));
        let operands = vec![index.operand(), size, Operand::Register(self.base())];
        let modifiers = &[Modifier::Lo];
        let emit = Emit { opcode: Opcode::Mad, modifiers, types: &[Type::U32], operands };
        Self { register: Some(self.kernel.compute(Type::U32, emit)), ..self }
    }

    /// The pointer `count` elements further. Emits no instruction.
    pub fn offset(self, count: i64) -> Self {
        Self { offset: self.offset + count * i64::from(T::TYPE.size()), ..self }
    }

    /// The 32-bit address in the shared state space.
    #[track_caller]
    pub fn address(self) -> Value<'k, u32> {
        Value::from_register(self.kernel, self.base()) + self.offset as u32
    }

    /// The register of the base address.
    #[track_caller]
    fn base(self) -> RegisterId {
        match self.register {
            Some(register) => {
                self.kernel.check_open(register);
                register
            }
            None => self.kernel.address_of(self.symbol),
        }
    }

    #[track_caller]
    pub(super) fn location(self) -> Location<'k> {
        let base = match self.register {
            Some(_) => AddressBase::Register(self.base()),
            None => AddressBase::Symbol(self.symbol),
        };
        let address = Address { base, offset: self.offset };
        Location { kernel: self.kernel, space: Modifier::Shared, address }
    }

    /// Loads element `index`.
    #[track_caller]
    pub fn load(self, index: impl Index<'k>) -> Value<'k, T> {
        self.at(index).location().load(None)
    }

    /// Stores `value` as element `index`.
    #[track_caller]
    pub fn store(self, index: impl Index<'k>, value: impl Arg<'k, T>) {
        let value = value.into_value(self.kernel);
        self.at(index).location().store(value);
    }

    /// Loads the two elements from `index` with one instruction. The address must be a multiple of
    /// their total size.
    #[track_caller]
    pub fn load_vec2(self, index: impl Index<'k>) -> [Value<'k, T>; 2] {
        self.at(index).location().load_vector(None)
    }

    /// Stores two elements from `index` with one instruction. The address must be a multiple of
    /// their total size.
    #[track_caller]
    pub fn store_vec2(self, index: impl Index<'k>, values: [Value<'k, T>; 2]) {
        self.at(index).location().store_vector(values);
    }
}

impl<'k, T: super::Word> Shared<'k, T> {
    /// Loads the four elements from `index` with one instruction. The address must be a multiple
    /// of 16.
    #[track_caller]
    pub fn load_vec4(self, index: impl Index<'k>) -> [Value<'k, T>; 4] {
        self.at(index).location().load_vector(None)
    }

    /// Stores four elements from `index` with one instruction. The address must be a multiple of
    /// 16.
    #[track_caller]
    pub fn store_vec4(self, index: impl Index<'k>, values: [Value<'k, T>; 4]) {
        self.at(index).location().store_vector(values);
    }
}

impl<T: Scalar> std::fmt::Debug for Shared<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared<{}>({:?} {:?}{:+})", T::TYPE, self.symbol, self.register, self.offset)
    }
}
