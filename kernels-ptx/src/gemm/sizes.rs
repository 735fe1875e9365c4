//! The parameters of a product.

use retrograph_ptx::build::{Kernel, Pred, Ptr, Value, Var};

use super::cargo::Stored;
use super::nf4::Nf4;

/// Whether c is added to.
const ACCUMULATE: u32 = 1;
/// Whether a may be read in aligned vectors.
const A_VECTORS: u32 = 2;
/// Whether b may be read in aligned vectors.
const B_VECTORS: u32 = 4;
/// Whether c may be written in aligned quads.
const C_QUADS: u32 = 8;
/// Whether c is bf16.
const C_BF16: u32 = 16;

/// `value ÷ size` for a size that is a power of two or three times one, and a value below 2^16:
/// `ptxas` makes a whole division of a constant one.
pub(super) fn over<'k>(value: Value<'k, u32>, size: u32) -> Value<'k, u32> {
    if size.is_power_of_two() {
        return value >> size.ilog2();
    }
    let third = size / 3;
    assert!(third.is_power_of_two() && third * 3 == size, "tiles are 2^n or 3 · 2^n");
    // 2^17 ÷ 3, rounded up: exact as long as value ÷ third is below 2^17 ÷ 2.
    ((value >> third.ilog2()) * 43_691) >> 17
}

/// What [`over`] leaves of `value`.
pub(super) fn rest<'k>(value: Value<'k, u32>, size: u32) -> Value<'k, u32> {
    match size.is_power_of_two() {
        true => value & (size - 1),
        false => value - over(value, size) * size,
    }
}

/// How the elements of an operand are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    /// As f32.
    F32,
    /// As bf16.
    Bf16,
    /// As NF4, with the scales in parameters of their own.
    Nf4,
}

/// One operand that is read.
#[derive(Clone, Copy)]
pub(super) struct Source<'k> {
    /// How its elements lie in memory.
    pub(super) stored: Stored<'k>,
    /// Where the operand starts.
    pub(super) address: Value<'k, u64>,
    /// The first element of the plane of this block, first summand.
    pub(super) plane: Value<'k, u64>,
    /// From one row, as stored, to the next.
    pub(super) leading: Value<'k, u32>,
    /// From one summand to the next, in elements.
    pub(super) reduce: Value<'k, u32>,
    /// Whether it may be read in aligned vectors.
    pub(super) vectors: Pred<'k>,
}

impl<'k> Source<'k> {
    /// The address that elements of the plane are counted from, and the number of the first one.
    /// Scales of NF4 are found by the place in the whole operand.
    pub(super) fn start(&self, k: &Kernel<'k>) -> (Value<'k, u64>, Value<'k, u32>) {
        match self.stored {
            Stored::Nf4(_) => (self.address, self.plane.cast()),
            stored => (self.address + (self.plane << stored.bytes().ilog2()), k.constant(0)),
        }
    }

    /// Moves the address of a plane to that of the next summand.
    pub(super) fn advance(&self, base: Var<'k, u64>) {
        base.add_assign(self.reduce.mul_wide(self.stored.bytes()));
    }
}

/// The operand that is written.
#[derive(Clone, Copy)]
pub(super) struct Target<'k> {
    pub(super) plane: Ptr<'k, f32>,
    /// The plane of bf16, and whether that is what c is, for products that can write it.
    pub(super) rounded: Option<(Ptr<'k, u32>, Pred<'k>)>,
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
    /// Declares the parameters, in the order in which the launch gives them. `storage` says how a
    /// and b are stored; only b can be NF4.
    pub(super) fn declare(k: &Kernel<'k>, storage: [Storage; 2]) -> Self {
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
        let stored = storage.map(|storage| match storage {
            Storage::F32 => Stored::F32,
            Storage::Bf16 => Stored::Bf16,
            Storage::Nf4 => Stored::Nf4(Nf4::declare(k)),
        });

        let batch = k.ctaid_z() / heads;
        let head = k.ctaid_z() - batch * heads;
        let plane = |strides: &[Value<'k, u32>], head: Value<'k, u32>| {
            batch.mul_wide(strides[0]) + head.mul_wide(strides[1])
        };
        Self {
            a: Source {
                stored: stored[0],
                address: a.address(),
                plane: plane(&a_strides, head),
                leading: lda,
                reduce: a_strides[2],
                vectors: flag(A_VECTORS),
            },
            b: Source {
                stored: stored[1],
                address: b.address(),
                plane: plane(&b_strides, head / b_group),
                leading: ldb,
                reduce: b_strides[2],
                vectors: flag(B_VECTORS),
            },
            c: Target {
                plane: c.at(plane(&c_strides, head)),
                rounded: (storage[0] == Storage::Bf16).then(|| {
                    let address = c.address() + (plane(&c_strides, head) << 1);
                    (Ptr::from_address(address), flag(C_BF16))
                }),
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

    /// First row and column of the tile of this block.
    pub(super) fn origin(&self, k: &Kernel<'k>, [rows, columns]: [u32; 2]) -> [Value<'k, u32>; 2] {
        let reach = self.m + (rows - 1);
        let down = if rows.is_power_of_two() { over(reach, rows) } else { reach / rows };
        let column = k.ctaid_x() / down;
        [(k.ctaid_x() - column * down) * rows, column * columns]
    }
}
