//! Parameter lists, declared in the source of a kernel.

use std::marker::PhantomData;

use retrograph_ptx::build::{Kernel, Pred, Ptr, TensorMapParam, Value};

use crate::{Declare, Flags, ParameterTypes};

/// Declares parameters in a kernel and gives the registers that hold them.
pub struct Declarations<'k>(pub Kernel<'k>);

/// A set of flags in a register.
pub struct FlagSet<'k, F> {
    bits: Value<'k, u32>,
    flags: PhantomData<F>,
}

impl<F> Clone for FlagSet<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F> Copy for FlagSet<'_, F> {}

impl<'k, F: Flags> FlagSet<'k, F> {
    /// Whether `flag` is set.
    #[track_caller]
    pub fn has(self, flag: F) -> Pred<'k> {
        (self.bits & flag.bits()).ne(0)
    }
}

impl<'k> ParameterTypes for Declarations<'k> {
    type Pointer<E> = Ptr<'k, E>;
    type U32 = Value<'k, u32>;
    type F32 = Value<'k, f32>;
    type F64 = Value<'k, f64>;
    type Bool = Value<'k, u32>;
    type Flags<F: Flags> = FlagSet<'k, F>;
    type TensorMap = TensorMapParam<'k>;
}

impl<'k> Declare for Declarations<'k> {
    fn pointer<E>(&mut self, name: &'static str) -> Ptr<'k, E> {
        self.0.pointer::<u32>(name).reinterpret()
    }

    fn u32(&mut self, name: &'static str) -> Value<'k, u32> {
        self.0.param(name)
    }

    fn f32(&mut self, name: &'static str) -> Value<'k, f32> {
        self.0.param(name)
    }

    fn f64(&mut self, name: &'static str) -> Value<'k, f64> {
        Value::<f64>::from_bits(self.0.param::<u64>(name))
    }

    fn bool(&mut self, name: &'static str) -> Value<'k, u32> {
        self.0.param(name)
    }

    fn flags<F: Flags>(&mut self, name: &'static str) -> FlagSet<'k, F> {
        FlagSet { bits: self.0.param(name), flags: PhantomData }
    }

    fn tensor_map(&mut self, name: &'static str) -> TensorMapParam<'k> {
        self.0.tensor_map(name)
    }
}
