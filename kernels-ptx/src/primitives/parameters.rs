//! Parameter lists of `retrograph-kernel-abi`, declared in a kernel.

use retrograph_kernel_abi::{Declare, ParameterTypes};
use retrograph_ptx::build::{Kernel, Ptr, Value};

/// Declares parameters in a kernel and gives the registers that hold them.
pub(crate) struct Declarations<'k>(pub(crate) Kernel<'k>);

impl<'k> ParameterTypes for Declarations<'k> {
    type Pointer = Ptr<'k, f32>;
    type U32 = Value<'k, u32>;
    type F32 = Value<'k, f32>;
}

impl<'k> Declare for Declarations<'k> {
    fn pointer(&mut self, name: &'static str) -> Ptr<'k, f32> {
        self.0.pointer(name)
    }

    fn u32(&mut self, name: &'static str) -> Value<'k, u32> {
        self.0.param(name)
    }

    fn f32(&mut self, name: &'static str) -> Value<'k, f32> {
        self.0.param(name)
    }
}
