//! Destinations of results in f32, in bf16, or in both.

use retrograph_kernel_abi::{Bf16, DType};
use retrograph_ptx::build::{Pred, Ptr, Value};

/// The destination of a result: an f32 array, a bf16 array, or both. An unused one is null.
#[derive(Clone, Copy)]
pub(crate) struct Output<'k> {
    pub(crate) f32: Ptr<'k, f32>,
    pub(crate) bf16: Ptr<'k, u32>,
}

impl<'k> Output<'k> {
    /// The output with an array in f32 and one in bf16.
    pub(crate) fn new(f32: Ptr<'k, f32>, bf16: Ptr<'k, Bf16>) -> Self {
        Self { f32, bf16: bf16.reinterpret() }
    }

    /// The output in f32 only.
    pub(crate) fn f32(f32: Ptr<'k, f32>) -> Self {
        Self { f32, bf16: Ptr::from_address(f32.kernel().constant(0u64)) }
    }

    /// Both arrays from element `elements` on; null stays null.
    pub(crate) fn at(self, elements: Value<'k, u64>) -> Self {
        let k = self.f32.kernel();
        let advance = |address: Value<'k, u64>, bytes: Value<'k, u64>| {
            let skip = address.eq(0).select(k.constant(0u64), bytes);
            address + skip
        };
        Self {
            f32: Ptr::from_address(advance(self.f32.address(), elements << 2)),
            bf16: Ptr::from_address(advance(self.bf16.address(), elements << 1)),
        }
    }

    /// The output in `dtype` only: f32 or bf16.
    pub(crate) fn of(dtype: DType, array: Ptr<'k, u32>) -> Self {
        let null = array.kernel().constant(0u64);
        match dtype {
            DType::F32 => Self::f32(array.reinterpret()),
            _ => Self { f32: Ptr::from_address(null), bf16: array },
        }
    }

    /// `other` if `condition` holds, else this output.
    pub(crate) fn or(self, other: Self, condition: Pred<'k>) -> Self {
        Self { f32: self.f32.or(other.f32, condition), bf16: self.bf16.or(other.bf16, condition) }
    }

    /// Whether both arrays are null.
    pub(crate) fn is_null(self) -> Pred<'k> {
        (self.f32.address() | self.bf16.address()).eq(0)
    }

    /// Both arrays, for [`aligned`].
    pub(crate) fn arrays(self) -> [Ptr<'k, f32>; 2] {
        [self.f32, self.bf16.reinterpret()]
    }

    /// Runs `f32` and `bf16` with the array of that type, if it is not null.
    pub(crate) fn write(self, f32: impl FnOnce(Ptr<'k, f32>), bf16: impl FnOnce(Ptr<'k, u32>)) {
        let k = self.f32.kernel();
        k.when(!self.f32.is_null(), || f32(self.f32));
        k.when(!self.bf16.is_null(), || bf16(self.bf16));
    }
}
