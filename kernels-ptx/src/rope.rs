//! Rotary position embedding with split halves, both ways, of one tensor or of two that differ in
//! their heads: queries and keys.
//!
//! ```text
//! out[i]        = x[i] · cos[s][i] − x[i + half] · sin[s][i]        i < half, s the position
//! out[i + half] = x[i + half] · cos[s][i] + x[i] · sin[s][i]
//! ```
//!
//! for every head of every token; the inverse has the sine negated. Positions count from 0 in each
//! sequence, or from what `start` points to. Those past the tables take their last row.
//!
//! **Grid.** One thread for four neighbouring pairs of a head, in the order of the first halves,
//! the second tensor behind the first; blocks of 128 threads in x.
//!
//! **Determinism.** Every element is computed by one thread from its own operands, and only they
//! are read, so that an output in f32 may be its x.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Ptr, Value};

use crate::primitives::vec4::{Output, Vec4, aligned};

/// The image for `target`.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build("rope", |k| rope(k, target))).build()
}

/// A tensor that is turned.
#[derive(Clone, Copy)]
struct Tensor<'k> {
    x: Ptr<'k, f32>,
    out: Output<'k>,
    heads: Value<'k, u32>,
}

impl<'k> Tensor<'k> {
    fn declare(k: &Kernel<'k>, suffix: &str) -> Self {
        let x = k.pointer(&format!("x{suffix}"));
        let out = Output::declare(k, &format!("out{suffix}"));
        Self { x, out, heads: k.param(&format!("heads{suffix}")) }
    }

    /// This one, or `other` where `instead` holds.
    fn or(self, other: Self, instead: Pred<'k>) -> Self {
        let x = instead.select(other.x.address(), self.x.address());
        let out = self.out.or(other.out, instead);
        Self { x: Ptr::from_address(x), out, heads: instead.select(other.heads, self.heads) }
    }
}

fn rope(k: &Kernel<'_>, target: SmTarget) {
    k.max_threads(128);
    let (first, second) = (Tensor::declare(k, ""), Tensor::declare(k, "_2"));
    let cos = k.pointer::<f32>("cos");
    let sin = k.pointer::<f32>("sin");
    let start = k.pointer::<u32>("start");
    let of_first = k.param::<u32>("quads_of_first");
    let vec4s = k.param::<u32>("quads");
    let half = k.param::<u32>("half");
    let seq = k.param::<u32>("seq");
    let positions = k.param::<u32>("positions");
    let inverse = k.param::<u32>("inverse").ne(0);

    let index = k.ctaid_x() * k.ntid_x() + k.tid_x();
    k.return_if(index.ge(vec4s));
    let behind = index.ge(of_first);
    let Tensor { x, out, heads } = first.or(second, behind);
    let index = index - behind.select(of_first, 0);
    let of_half = (half + 3) >> 2;
    let row = index / of_half;
    let offset = k.var(0u32);
    k.when(!start.is_null(), || offset.set(start.load(0)));
    let position = (offset.get() + row / heads % seq).min(positions - 1);
    let angles = position.mul_wide(half);
    let (cos, sin) = (cos.at(angles), sin.at(angles));

    // Row r starts at 2 · r · half, and its second half as much as a half behind that.
    let begin = row.mul_wide(half) << 1;
    let middle = begin + half.cast::<u64>();
    let (from, to) = ([x.at(begin), x.at(middle)], [out.at(begin), out.at(middle)]);
    let written = to.iter().flat_map(|to| to.arrays());
    let arrays: Vec<_> = from.into_iter().chain([cos, sin]).chain(written).collect();
    let vec4 = Vec4::new((index - row * of_half) * 4, half, aligned(&arrays));
    let (a, b) = (vec4.load(from[0]), vec4.load(from[1]));
    let (cos, sin) = (vec4.load(cos), vec4.load(sin));
    let sin = sin.map(|sin| inverse.select(-sin, sin));
    let lanes = [0, 1, 2, 3];
    vec4.write(target, to[0], lanes.map(|i| a[i] * cos[i] - b[i] * sin[i]));
    vec4.write(target, to[1], lanes.map(|i| b[i] * cos[i] + a[i] * sin[i]));
}
