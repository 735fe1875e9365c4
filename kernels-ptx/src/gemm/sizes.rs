//! The parameters of a product.

use retrograph_ptx::build::{Kernel, Pred, Ptr, Value};

/// Whether c is added to.
const ACCUMULATE: u32 = 1;
/// Whether a may be read in aligned quads.
const A_QUADS: u32 = 2;
/// Whether b may be read in aligned quads.
const B_QUADS: u32 = 4;
/// Whether c may be written in aligned quads.
const C_QUADS: u32 = 8;

/// `value ÷ size` for a size that is a power of two: `ptxas` makes a whole division of a constant
/// one.
pub(super) fn over<'k>(value: Value<'k, u32>, size: u32) -> Value<'k, u32> {
    assert!(size.is_power_of_two(), "tiles are powers of two");
    value >> size.ilog2()
}

/// One operand that is read.
#[derive(Clone, Copy)]
pub(super) struct Source<'k> {
    /// The plane of this block, first summand.
    pub(super) plane: Ptr<'k, f32>,
    /// From one row, as stored, to the next.
    pub(super) leading: Value<'k, u32>,
    /// From one summand to the next, in elements.
    pub(super) reduce: Value<'k, u32>,
    /// Whether it may be read in aligned quads.
    pub(super) quads: Pred<'k>,
}

/// The operand that is written.
#[derive(Clone, Copy)]
pub(super) struct Target<'k> {
    pub(super) plane: Ptr<'k, f32>,
    pub(super) bias: Ptr<'k, f32>,
    pub(super) leading: Value<'k, u32>,
    pub(super) alpha: Value<'k, f32>,
    pub(super) accumulate: Pred<'k>,
    pub(super) quads: Pred<'k>,
}

/// Everything that the kernel is given, with pointers moved to the plane of this block.
#[derive(Clone, Copy)]
pub(super) struct Parameters<'k> {
    pub(super) a: Source<'k>,
    pub(super) b: Source<'k>,
    pub(super) c: Target<'k>,
    pub(super) m: Value<'k, u32>,
    pub(super) n: Value<'k, u32>,
    pub(super) k: Value<'k, u32>,
    pub(super) reduce: Value<'k, u32>,
}

impl<'k> Parameters<'k> {
    /// Declares the parameters, in the order in which the launch gives them.
    pub(super) fn declare(k: &Kernel<'k>) -> Self {
        let [a, b, c, bias] = ["a", "b", "c", "bias"].map(|name| k.pointer::<f32>(name));
        let [m, n, depth, reduce] = ["m", "n", "k", "reduce"].map(|name| k.param::<u32>(name));
        let [heads, b_group] = ["heads", "b_group"].map(|name| k.param::<u32>(name));
        let [lda, ldb, ldc] = ["lda", "ldb", "ldc"].map(|name| k.param::<u32>(name));
        let a_strides = ["a_batch", "a_head", "a_reduce"].map(|name| k.param::<u32>(name));
        let b_strides = ["b_batch", "b_head", "b_reduce"].map(|name| k.param::<u32>(name));
        let c_strides = ["c_batch", "c_head"].map(|name| k.param::<u32>(name));
        let alpha = k.param::<f32>("alpha");
        let flags = k.param::<u32>("flags");
        let flag = |bit: u32| (flags & bit).ne(0);

        let batch = k.ctaid_z() / heads;
        let head = k.ctaid_z() - batch * heads;
        let plane = |pointer: Ptr<'k, f32>, strides: &[Value<'k, u32>], head: Value<'k, u32>| {
            pointer.at(batch.mul_wide(strides[0]) + head.mul_wide(strides[1]))
        };
        Self {
            a: Source {
                plane: plane(a, &a_strides, head),
                leading: lda,
                reduce: a_strides[2],
                quads: flag(A_QUADS),
            },
            b: Source {
                plane: plane(b, &b_strides, head / b_group),
                leading: ldb,
                reduce: b_strides[2],
                quads: flag(B_QUADS),
            },
            c: Target {
                plane: plane(c, &c_strides, head),
                bias,
                leading: ldc,
                alpha,
                accumulate: flag(ACCUMULATE),
                quads: flag(C_QUADS),
            },
            m,
            n,
            k: depth,
            reduce,
        }
    }
}
