//! Pointers into global memory.

use std::marker::PhantomData;

use super::index::{Index, Position};
use super::kernel::{Emit, Kernel};
use super::memory::Location;
use super::predicate::Pred;
use super::scalar::{Arg, Scalar};
use super::value::Value;
use crate::ast::{Address, AddressBase, Immediate, Modifier, Opcode, Operand, Type};

/// A pointer to elements of type `T` in global memory: a 64-bit address and a constant offset.
///
/// Indices count elements. A Rust number folds into the offset, `[%rd1+12]`; a value costs one
/// instruction. Accesses are not checked.
pub struct Ptr<'k, T> {
    base: Value<'k, u64>,
    /// In bytes.
    offset: i64,
    element: PhantomData<T>,
}

impl<T> Clone for Ptr<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ptr<'_, T> {}

impl<'k, T> Ptr<'k, T> {
    pub(super) fn new(base: Value<'k, u64>) -> Self {
        Self { base, offset: 0, element: PhantomData }
    }

    /// The pointer with the 64-bit global `address`, for example from a table in memory.
    pub fn from_address(address: Value<'k, u64>) -> Self {
        Self::new(address)
    }

    /// The address.
    #[track_caller]
    pub fn address(self) -> Value<'k, u64> {
        self.base + self.offset as u64
    }

    /// The kernel that the pointer belongs to.
    pub fn kernel(self) -> Kernel<'k> {
        self.base.kernel()
    }

    /// The same address as a pointer to other elements.
    pub fn reinterpret<U>(self) -> Ptr<'k, U> {
        Ptr { base: self.base, offset: self.offset, element: PhantomData }
    }

    /// Whether the pointer is null.
    #[track_caller]
    pub fn is_null(self) -> Pred<'k> {
        self.address().eq(0)
    }

    /// Returns `other` if `condition` holds, else this pointer.
    #[must_use]
    #[track_caller]
    pub fn or(self, other: Self, condition: Pred<'k>) -> Self {
        Self::from_address(condition.select(other.address(), self.address()))
    }
}

impl<'k, T: Scalar> Ptr<'k, T> {
    /// The pointer to element `index`.
    #[track_caller]
    pub fn at(self, index: impl Index<'k>) -> Self {
        let kernel = self.kernel();
        match index.split() {
            Position::Fixed(index) => self.offset(index),
            Position::Unsigned(index) => self.step(Type::U32, index.operand()),
            Position::Signed(index) => self.step(Type::S32, index.operand()),
            Position::Long(index) => {
                let bytes = index << T::TYPE.size().trailing_zeros();
                let base = kernel.compute(Type::U64, self.sum(bytes));
                Self { base: Value::from_register(kernel, base), ..self }
            }
        }
    }

    /// The pointer `count` elements further. Emits no instruction.
    pub fn offset(self, count: i64) -> Self {
        Self { offset: self.offset + count * i64::from(T::TYPE.size()), ..self }
    }

    #[track_caller]
    fn sum(self, bytes: Value<'k, u64>) -> Emit<'static> {
        let operands = vec![self.base.operand(), bytes.operand()];
        Emit { opcode: Opcode::Add, modifiers: &[], types: &[Type::S64], operands }
    }

    /// `base + index * size`, in one instruction.
    #[track_caller]
    fn step(self, ty: Type, index: Operand) -> Self {
        let size = Operand::Immediate(Immediate::Integer(T::TYPE.size().into()));
        let operands = vec![index, size, self.base.operand()];
        let modifiers = &[Modifier::Wide];
        let kernel = self.kernel();
        let emit = Emit { opcode: Opcode::Mad, modifiers, types: &[ty], operands };
        let base = kernel.compute(Type::U64, emit);
        Self { base: Value::from_register(kernel, base), ..self }
    }

    #[track_caller]
    pub(super) fn location(self) -> Location<'k> {
        // An offset in an address has 32 bits.
        let fits = i32::try_from(self.offset).is_ok();
        let (base, offset) = if fits { (self.base, self.offset) } else { (self.address(), 0) };
        let address = Address { base: AddressBase::Register(base.register()), offset };
        Location { kernel: self.kernel(), space: Modifier::Global, address }
    }

    /// Loads element `index`.
    #[track_caller]
    pub fn load(self, index: impl Index<'k>) -> Value<'k, T> {
        self.at(index).location().load(None)
    }

    /// Loads element `index` through the read-only cache (`ld.global.nc`). Nothing may write it
    /// during the launch.
    #[track_caller]
    pub fn load_nc(self, index: impl Index<'k>) -> Value<'k, T> {
        self.at(index).location().load(Some(Modifier::Nc))
    }

    /// Loads element `index` from memory, not from a cache that may be stale (`ld.volatile`). Use
    /// it if the host or another device writes the element.
    #[track_caller]
    pub fn load_volatile(self, index: impl Index<'k>) -> Value<'k, T> {
        self.at(index).location().load(Some(Modifier::Volatile))
    }

    /// Stores `value` as element `index`, which the host or another device reads (`st.volatile`).
    /// [`Kernel::membar_sys`] orders it after earlier writes.
    #[track_caller]
    pub fn store_volatile(self, index: impl Index<'k>, value: impl Arg<'k, T>) {
        let value = value.into_value(self.kernel());
        self.at(index).location().store_as(value, Some(Modifier::Volatile));
    }

    /// Prefetches the cache line at this address into L2 (`prefetch.global.L2`).
    #[track_caller]
    pub fn prefetch_l2(self) {
        let location = self.location();
        let (operands, modifiers) =
            (vec![Operand::Address(location.address)], &[Modifier::Global, Modifier::L2]);
        let opcode = Opcode::Prefetch;
        location.kernel.emit(Emit { opcode, modifiers, types: &[], operands });
    }

    /// Prefetches `bytes` bytes into L2 (`cp.async.bulk.prefetch.L2`). The address and `bytes` must
    /// be multiples of 16. Needs sm_90.
    #[track_caller]
    pub fn cp_async_bulk_prefetch_l2(self, bytes: impl Arg<'k, u32>) {
        let location = self.location();
        let operands =
            vec![Operand::Address(location.address), bytes.into_value(location.kernel).operand()];
        let modifiers = &[Modifier::BulkPrefetch, Modifier::L2Global];
        location.kernel.emit(Emit { opcode: Opcode::Cp, modifiers, types: &[], operands });
    }

    /// Stores `value` as element `index`.
    #[track_caller]
    pub fn store(self, index: impl Index<'k>, value: impl Arg<'k, T>) {
        let value = value.into_value(self.kernel());
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

impl<'k, T: super::Word> Ptr<'k, T> {
    /// Loads the four elements from `index` with one instruction. The address must be a multiple
    /// of 16.
    #[track_caller]
    pub fn load_vec4(self, index: impl Index<'k>) -> [Value<'k, T>; 4] {
        self.at(index).location().load_vector(None)
    }

    /// Loads the four elements from `index` through the read-only cache, as [`Ptr::load_nc`] loads
    /// one. The address must be a multiple of 16.
    #[track_caller]
    pub fn load_vec4_nc(self, index: impl Index<'k>) -> [Value<'k, T>; 4] {
        self.at(index).location().load_vector(Some(Modifier::Nc))
    }

    /// Loads the four elements from `index` without allocating them in the L1 cache, for data that
    /// is read once (`ld.global.L1::no_allocate`). The address must be a multiple of 16.
    #[track_caller]
    pub fn load_vec4_streaming(self, index: impl Index<'k>) -> [Value<'k, T>; 4] {
        self.at(index).location().load_vector(Some(Modifier::L1NoAllocate))
    }

    /// Loads the four elements from `index`, as [`Ptr::load_volatile`] loads one. The address must
    /// be a multiple of 16.
    #[track_caller]
    pub fn load_vec4_volatile(self, index: impl Index<'k>) -> [Value<'k, T>; 4] {
        self.at(index).location().load_vector(Some(Modifier::Volatile))
    }

    /// Stores four elements from `index` with one instruction. The address must be a multiple of
    /// 16.
    #[track_caller]
    pub fn store_vec4(self, index: impl Index<'k>, values: [Value<'k, T>; 4]) {
        self.at(index).location().store_vector(values);
    }
}

impl<'k, T: Scalar> Ptr<'k, T> {
    /// Loads the unsigned 8-bit number at `index`.
    #[track_caller]
    pub fn load_u8(self, index: Value<'k, u32>) -> Value<'k, u32> {
        self.load_narrow(Type::U8, index.cast())
    }

    /// Loads the unsigned 16-bit number at `index`.
    #[track_caller]
    pub fn load_u16(self, index: Value<'k, u32>) -> Value<'k, u32> {
        self.load_narrow(Type::U16, index.mul_wide(2))
    }

    /// Stores the lower 16 bits of `value` as 16-bit element `index`.
    #[track_caller]
    pub fn store_u16(self, index: Value<'k, u32>, value: Value<'k, u32>) {
        let kernel = self.kernel();
        let base = (self.address() + index.mul_wide(2)).register();
        let address = Address { base: AddressBase::Register(base), offset: 0 };
        let operands = vec![Operand::Address(address), Operand::Register(value.register())];
        let modifiers = &[Modifier::Global];
        kernel.emit(Emit { opcode: Opcode::St, modifiers, types: &[Type::U16], operands });
    }

    #[track_caller]
    fn load_narrow(self, ty: Type, bytes: Value<'k, u64>) -> Value<'k, u32> {
        let kernel = self.kernel();
        let base = (self.address() + bytes).register();
        let address = Address { base: AddressBase::Register(base), offset: 0 };
        let operands = vec![Operand::Address(address)];
        let modifiers = &[Modifier::Global];
        let emit = Emit { opcode: Opcode::Ld, modifiers, types: &[ty], operands };
        Value::from_register(kernel, kernel.compute(Type::U32, emit))
    }
}

impl<'k> Kernel<'k> {
    /// Whether `pointer`, an optional operand, is null.
    #[track_caller]
    pub fn is_null<T: Scalar>(&self, pointer: Ptr<'k, T>) -> Pred<'k> {
        pointer.is_null()
    }
}

impl<T: Scalar> std::fmt::Debug for Ptr<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ptr<{}>({:?}{:+})", T::TYPE, self.base, self.offset)
    }
}
