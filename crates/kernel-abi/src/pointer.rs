//! Typed pointer arguments, and the argument types of parameter structs.

use std::marker::PhantomData;

use crate::{
    Access, Any, Argument, Arguments, Cell, Element, Flags, ParameterTypes, TensorMapArgument, View,
};

/// A pointer parameter in a launch, to elements of type `E`.
pub struct Pointer<B, E>(Argument<B>, PhantomData<fn() -> E>);

impl<B, E> Pointer<B, E> {
    fn new(argument: Argument<B>) -> Self {
        Self(argument, PhantomData)
    }

    /// The null pointer: an optional operand that is absent.
    pub fn null() -> Self {
        Self::new(Argument::Null)
    }

    /// The same pointer for a parameter that takes elements of any type.
    pub fn any(self) -> Pointer<B, Any> {
        Pointer::new(self.0)
    }
}

impl<B: Copy, E> Pointer<B, E> {
    /// A view that is only read.
    pub fn read<T: Element<Parameter = E>>(view: View<B, T>) -> Self {
        Self::new(Argument::read(view))
    }

    /// A view that keeps none of its contents.
    pub fn write<T: Element<Parameter = E>>(view: View<B, T>) -> Self {
        Self::new(Argument::write(view))
    }

    /// A view that is updated in place.
    pub fn update<T: Element<Parameter = E>>(view: View<B, T>) -> Self {
        Self::new(Argument::update(view))
    }

    /// A view that is updated if `accumulate` is set, and keeps none of its contents if not.
    pub fn output<T: Element<Parameter = E>>(view: View<B, T>, accumulate: bool) -> Self {
        if accumulate { Self::update(view) } else { Self::write(view) }
    }

    /// An optional view that is only read.
    pub fn read_optional<T: Element<Parameter = E>>(view: Option<View<B, T>>) -> Self {
        view.map_or(Self::null(), Self::read)
    }

    /// An optional view that keeps none of its contents.
    pub fn write_optional<T: Element<Parameter = E>>(view: Option<View<B, T>>) -> Self {
        view.map_or(Self::null(), Self::write)
    }

    /// The same pointer with an empty range.
    pub fn without_access(mut self) -> Self {
        if let Argument::Buffer(argument) = &mut self.0 {
            argument.bytes.end = argument.bytes.start;
        }
        self
    }

    /// The same pointer with [`Access::ReadBeforeWait`], if it is only read.
    pub fn before_wait(mut self) -> Self {
        if let Argument::Buffer(argument) = &mut self.0
            && argument.access == Access::Read
        {
            argument.access = Access::ReadBeforeWait;
        }
        self
    }
}

impl<B> Pointer<B, u64> {
    /// A table of cells.
    pub fn table(cells: Vec<Cell<B>>) -> Self {
        Self::new(Argument::Table(cells))
    }
}

/// The values of parameters in a launch: a parameter struct of these types is filled by a launch.
pub struct ArgumentTypes<B>(PhantomData<B>);

impl<B> ParameterTypes for ArgumentTypes<B> {
    type Pointer<E> = Pointer<B, E>;
    type U32 = u32;
    type F32 = f32;
    type TensorMap = Option<TensorMapArgument<B>>;
    type F64 = f64;
    type Bool = bool;
    type Flags<F: Flags> = F;
}

impl<B> Arguments for ArgumentTypes<B> {
    type Argument = Argument<B>;

    fn pointer<E>(value: Pointer<B, E>) -> Argument<B> {
        value.0
    }

    fn u32(value: u32) -> Argument<B> {
        Argument::U32(value)
    }

    fn f32(value: f32) -> Argument<B> {
        Argument::F32(value.to_bits())
    }

    fn f64(value: f64) -> Argument<B> {
        Argument::U64(value.to_bits())
    }

    fn bool(value: bool) -> Argument<B> {
        Argument::U32(value.into())
    }

    fn flags<F: Flags>(value: F) -> Argument<B> {
        Argument::U32(value.bits())
    }

    fn tensor_map(value: Option<TensorMapArgument<B>>) -> Argument<B> {
        Argument::TensorMap(value)
    }
}
