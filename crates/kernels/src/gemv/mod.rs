//! Matrices times one vector: linear layers for one row of activations.
//!
//! One launch can hold several layers of the same input ([`Gemvs`]), the norm in front of them
//! ([`Normed`]), and what gates one by another ([`GatedGemv`]): a single row is over so quickly
//! that each further launch costs as much as it computes.

mod operands;

use crate::geometry::linear;
use crate::params::{f32, pointer, u32};
use crate::tensor::Stored;
use crate::{Dispatch, Kernel, KernelError, Launch, Parameter, Problem, View};
use operands::{Form, Operands};

/// A kernel whose image has its name, with `$scales` behind the pointers of each matrix.
macro_rules! gemv {
    ($(#[$doc:meta])* $constant:ident = $name:literal, $unit:literal, [$($scales:literal),*]) => {
        $(#[$doc])*
        pub static $constant: Kernel = Kernel {
            name: $name,
            image: $name,
            parameters: {
                static PARAMETERS: &[Parameter] = &[
                    pointer("x"),
                    pointer("gamma"),
                    pointer("w0"),
                    pointer("bias0"),
                    pointer("y0"),
                    $(pointer(concat!("w0", $scales)),)*
                    pointer("w1"),
                    pointer("bias1"),
                    pointer("y1"),
                    $(pointer(concat!("w1", $scales)),)*
                    pointer("w2"),
                    pointer("bias2"),
                    pointer("y2"),
                    $(pointer(concat!("w2", $scales)),)*
                    pointer("a0"),
                    pointer("low0"),
                    pointer("a1"),
                    pointer("low1"),
                    pointer("a2"),
                    pointer("low2"),
                    pointer("next"),
                    u32("inputs"),
                    u32("outputs0"),
                    u32("outputs1"),
                    u32("outputs2"),
                    u32("lows0"),
                    u32("lows1"),
                    u32("lows2"),
                    f32("eps"),
                    f32("alpha"),
                    u32("flags"),
                    u32("next_bytes"),
                ];
                PARAMETERS
            },
            entries: &[
                concat!($name, "_split1"),
                concat!($name, "_split2"),
                concat!($name, "_split4"),
                concat!($name, "_split8"),
                concat!($name, "_norm_split1"),
                concat!($name, "_norm_split2"),
                concat!($name, "_norm_split4"),
                concat!($name, "_norm_split8"),
                concat!($name, "_gated_split1"),
                concat!($name, "_gated_split2"),
                concat!($name, "_gated_split4"),
                concat!($name, "_gated_split8"),
            ],
            dispatch: |problem, _| dispatch(problem, &$constant, $unit),
        };
    };
}

gemv! {
    /// Kernel of [`Gemv`] and its kin with w in f32.
    GEMV = "gemv", 4, []
}
gemv! {
    /// Kernel of [`Gemv`] and its kin with w in bf16.
    GEMV_BF16 = "gemv_bf16", 8, []
}
gemv! {
    /// Kernel of [`Gemv`] and its kin with w in NF4.
    GEMV_NF4 = "gemv_nf4", 8, ["_absmax", "_nested", "_map", "_offset"]
}

/// Rows of a warp.
const ROWS: u32 = 4;
/// Warps of a block.
const WARPS: u32 = 8;
/// Warps that keep a device of 132 multiprocessors busy, about 16 on each.
const ENOUGH_WARPS: u32 = 2048;
/// Blocks of rows that are not split: three on each of 132 multiprocessors.
const MOST_BLOCKS: u32 = 396;

/// As few warps share their rows as keep the device busy: a split has to be added up. Where none
/// do, blocks take turns that are equally long. The choice depends on the sizes alone, which are
/// those of the problem: inputs, six numbers of outputs, and the form.
fn dispatch(problem: &Problem, kernel: &Kernel, unit: u32) -> Dispatch {
    let [inputs, outputs @ .., form] = problem.sizes;
    let form = Form::ALL[(form as usize).min(Form::ALL.len() - 1)];
    let used = if form == Form::Gated { &outputs[..1] } else { &outputs[..] };
    let of_team = if form == Form::Gated { ROWS / 2 } else { ROWS };
    let teams = used.iter().map(|outputs| outputs.div_ceil(of_team));
    let teams = teams.fold(0, u32::saturating_add);
    let busy = |split: u32| teams.saturating_mul(split) >= ENOUGH_WARPS;
    // Each lane should have a vector at least.
    let thin = |split: u32| inputs.div_ceil(32 * unit) <= split;
    let index = [1, 2, 4].iter().take_while(|&&split| !busy(split) && !thin(split)).count();
    let blocks = teams.div_ceil(WARPS >> index);
    let turns = if index == 0 { blocks.div_ceil(MOST_BLOCKS).max(1) } else { 1 };
    linear(kernel.entries[form as usize * 4 + index], blocks.div_ceil(turns), WARPS * 32)
}

/// An RMSNorm in front of a product: x is multiplied by `gamma ÷ sqrt(mean(x²) + eps)`.
///
/// The sums are of `w · x · gamma`, and are divided at the end, so that these products must stay in
/// the range of f32. Squares may leave it.
#[derive(Clone, Copy, Debug)]
pub struct Normed<B> {
    /// As many elements as x has, read.
    pub gamma: View<B, f32>,
    /// What is added to the mean; not negative.
    pub eps: f32,
}

/// `y = α·W·x (+ bias) (+ y)`: a linear layer for one token.
///
/// Factors are f32 whatever W is stored as: a product that is as long as reading W takes gains
/// nothing from rounding x, or what was decoded. W is read ahead.
#[derive(Clone, Copy, Debug)]
pub struct Gemv<B, W = View<B, f32>> {
    /// `inputs` elements, read.
    pub x: View<B, f32>,
    /// `outputs × inputs`, read: f32, bf16 or NF4.
    pub w: W,
    /// `outputs` elements, added after scaling.
    pub bias: Option<View<B, f32>>,
    /// `outputs` elements; not x, w or bias.
    pub y: View<B, f32>,
    /// The factor α.
    pub alpha: f32,
    /// Whether y is added to instead of overwritten.
    pub accumulate: bool,
}

/// One of several layers.
#[derive(Clone, Copy, Debug)]
pub struct GemvPart<B> {
    /// `outputs × inputs`, read.
    pub w: Stored<B>,
    /// `outputs` elements, added, read.
    pub bias: Option<View<B, f32>>,
    /// `outputs` elements, written.
    pub y: View<B, f32>,
}

/// `y = W·norm(x) (+ bias)` for several W and one x. All W are read ahead.
#[derive(Clone, Copy, Debug)]
pub struct Gemvs<'a, B> {
    /// `inputs` elements, read.
    pub x: View<B, f32>,
    /// The norm in front.
    pub norm: Option<Normed<B>>,
    /// One to three, stored in the same way.
    pub parts: &'a [GemvPart<B>],
    /// Up to three more, `outputs × inputs` in f32, w and y, where the others are f32 or bf16.
    pub lows: &'a [[View<B, f32>; 2]],
    /// The weights that are read next, which are asked for while this launch waits or ends. No
    /// result depends on it.
    pub next: Option<Stored<B>>,
}

/// `y = silu(W0·norm(x) + bias0) · (W1·norm(x) + bias1)`. Both W are read ahead.
#[derive(Clone, Copy, Debug)]
pub struct GatedGemv<B> {
    /// `inputs` elements, read.
    pub x: View<B, f32>,
    /// The norm in front.
    pub norm: Normed<B>,
    /// W0 and W1, `outputs × inputs`, read, stored in the same way.
    pub w: [Stored<B>; 2],
    /// `outputs` elements each, added, read.
    pub biases: [Option<View<B, f32>>; 2],
    /// `outputs` elements, written.
    pub y: View<B, f32>,
    /// The weights that are read next, as in [`Gemvs`].
    pub next: Option<Stored<B>>,
}

/// The most layers of a launch, and the most beside them in f32.
pub const GEMV_PARTS: usize = 3;

impl<B: Copy, W: Into<Stored<B>>> Gemv<B, W> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, w, bias, y, alpha, accumulate } = self;
        let parts = [GemvPart { w: w.into(), bias, y }];
        Operands { alpha, accumulate, ..Operands::of(x, &parts) }.launch()
    }
}

impl<B: Copy> Gemvs<'_, B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, norm, parts, lows, next } = self;
        let form = if norm.is_some() { Form::Norm } else { Form::Plain };
        Operands { norm, lows, form, next, ..Operands::of(x, parts) }.launch()
    }
}

impl<B: Copy> GatedGemv<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, norm, w: [gate, up], biases: [first, second], y, next } = self;
        let parts = [GemvPart { w: gate, bias: first, y }, GemvPart { w: up, bias: second, y }];
        let (norm, form) = (Some(norm), Form::Gated);
        Operands { norm, form, next, ..Operands::of(x, &parts) }.launch()
    }
}

/// The kernels of this family.
pub(crate) static KERNELS: &[&Kernel] = &[&GEMV, &GEMV_BF16, &GEMV_NF4];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SmTarget;

    fn chosen(sizes: [u32; 8]) -> (&'static str, u32) {
        let dispatch = (GEMV.dispatch)(&Problem::from(sizes), SmTarget::exact(90));
        (dispatch.entry, dispatch.grid[0])
    }

    fn plain(inputs: u32, outputs: u32) -> (&'static str, u32) {
        chosen([inputs, outputs, 0, 0, 0, 0, 0, 0])
    }

    #[test]
    fn few_outputs_are_shared_and_many_take_turns() {
        // The projections of Qwen2.5 1.5B: o, down, logits.
        assert_eq!(plain(1536, 1536), ("gemv_split8", 384));
        assert_eq!(plain(8960, 1536), ("gemv_split8", 384));
        assert_eq!(chosen([1536, 151_936, 0, 0, 0, 0, 0, 1]), ("gemv_norm_split1", 396));
        // q, k, v, and two low-rank updates down; gate and up.
        assert_eq!(chosen([1536, 1536, 256, 256, 16, 16, 0, 1]), ("gemv_norm_split4", 260));
        assert_eq!(chosen([1536, 8960, 8960, 0, 0, 0, 0, 2]), ("gemv_gated_split1", 280));
        // A low-rank update up: too short to be shared.
        assert_eq!(plain(16, 1536), ("gemv_split1", 48));
    }

    #[test]
    fn nothing_is_launched_for_no_outputs() {
        let empty = |sizes: [u32; 2]| dispatch(&Problem::from(sizes), &GEMV_BF16, 8).is_empty();
        assert!(empty([5, 0]) && !empty([0, 5]));
        assert_eq!(plain(u32::MAX >> 1, u32::MAX >> 1).0, "gemv_split1");
    }
}
