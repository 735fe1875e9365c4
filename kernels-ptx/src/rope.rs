//! Rotary position embedding (RoPE, half-split pairs) of queries and keys, and its inverse.
//!
//! ```text
//! out[i]        = x[i] · cos[s][i] − x[i + half] · sin[s][i]        i < half, s the position
//! out[i + half] = x[i + half] · cos[s][i] + x[i] · sin[s][i]
//! ```
//!
//! The inverse negates the sine. A launch rotates one tensor, or two that differ only in their
//! number of heads. Positions start at 0 in each sequence, or at `*start`, or are data of the
//! launch for each token. Positions past the end of the tables use the last row.
//!
//! **Grid.** One thread per vec4 of pairs, over the first tensor and then the second; blocks of 128
//! threads in x.
//!
//! **Determinism.** One thread computes each element and reads only its own pair, so an f32 output
//! may alias its input.

use retrograph_kernel_abi::rope::{ROPE, RopeParameters, THREADS};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Ptr, Value};

use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::vec4::{Vec4, aligned};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    ModuleBuilder::new(target).entry(Kernel::build(ROPE.entry(), |k| rope(k, target))).build()
}

/// A tensor to rotate.
#[derive(Clone, Copy)]
struct Tensor<'k> {
    x: Ptr<'k, f32>,
    out: Output<'k>,
    heads: Value<'k, u32>,
}

impl<'k> Tensor<'k> {
    /// `other` if `condition` holds, else this tensor.
    fn or(self, other: Self, condition: Pred<'k>) -> Self {
        let x = condition.select(other.x.address(), self.x.address());
        let out = self.out.or(other.out, condition);
        Self { x: Ptr::from_address(x), out, heads: condition.select(other.heads, self.heads) }
    }
}

fn rope(k: &Kernel<'_>, target: SmTarget) {
    k.max_threads(THREADS);
    let parameters = RopeParameters::declare(&mut Declarations(*k));
    let RopeParameters { x, out, out_bf16, heads, x_2, out_2, out_2_bf16, heads_2, .. } =
        parameters;
    let first = Tensor { x, out: Output::new(out, out_bf16), heads };
    let second = Tensor { x: x_2, out: Output::new(out_2, out_2_bf16), heads: heads_2 };
    let RopeParameters { cos, sin, start, vec4s_of_first: first_count, vec4s, .. } = parameters;
    let RopeParameters { half, seq, positions, inverse, token_positions, .. } = parameters;
    let inverse = inverse.ne(0);

    let index = k.ctaid_x() * k.ntid_x() + k.tid_x();
    k.return_if(index.ge(vec4s));
    let in_second = index.ge(first_count);
    let Tensor { x, out, heads } = first.or(second, in_second);
    let index = index - in_second.select(first_count, 0);
    let vec4s_per_half = (half + 3) >> 2;
    let row = index / vec4s_per_half;
    let token = row / heads;
    let position = k.var(token % seq);
    k.when(!start.is_null(), || position.add_assign(start.load(0)));
    k.when(!token_positions.is_null(), || position.set(token_positions.load(token)));
    let position = position.get().min(positions - 1);
    let angles = position.mul_wide(half);
    let (cos, sin) = (cos.at(angles), sin.at(angles));

    // Row r starts at 2 · r · half; its second half starts `half` elements later.
    let first_half = row.mul_wide(half) << 1;
    let second_half = first_half + half.cast::<u64>();
    let (from, to) =
        ([x.at(first_half), x.at(second_half)], [out.at(first_half), out.at(second_half)]);
    let written = to.iter().flat_map(|to| to.arrays());
    let arrays: Vec<_> = from.into_iter().chain([cos, sin]).chain(written).collect();
    let vec4 = Vec4::new((index - row * vec4s_per_half) * 4, half, aligned(&arrays));
    let (a, b) = (vec4.load(from[0]), vec4.load(from[1]));
    let (cos, sin) = (vec4.load(cos), vec4.load(sin));
    let sin = sin.map(|sin| inverse.select(-sin, sin));
    let lanes = [0, 1, 2, 3];
    vec4.write(target, to[0], lanes.map(|i| a[i] * cos[i] - b[i] * sin[i]));
    vec4.write(target, to[1], lanes.map(|i| b[i] * cos[i] + a[i] * sin[i]));
}
