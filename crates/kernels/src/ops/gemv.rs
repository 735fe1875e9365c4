//! Matrix times vector, for one row of activations.

use super::geometry::linear;
use super::stored::Stored;
use super::{f32, pointer, u32};
use crate::checks::Check;
use crate::{
    Access, Argument, BufferArgument, Dispatch, Kernel, KernelError, Launch, Parameter, Problem,
    View,
};

/// A kernel whose image has its name, with `$scales` behind the first four parameters.
macro_rules! gemv {
    ($(#[$doc:meta])* $constant:ident = $name:literal, $unit:literal, [$($scales:literal),*]) => {
        $(#[$doc])*
        pub static $constant: Kernel = Kernel {
            name: $name,
            image: $name,
            parameters: {
                static PARAMETERS: &[Parameter] = &[
                    pointer("x"),
                    pointer("w"),
                    pointer("bias"),
                    pointer("y"),
                    $(pointer($scales),)*
                    u32("inputs"),
                    u32("outputs"),
                    f32("alpha"),
                    u32("flags"),
                ];
                PARAMETERS
            },
            entries: &[
                concat!($name, "_split1"),
                concat!($name, "_split2"),
                concat!($name, "_split4"),
                concat!($name, "_split8"),
            ],
            dispatch: |problem, _| dispatch(problem, &$constant, $unit),
        };
    };
}

gemv! {
    /// Kernel of [`Gemv`] with w in f32.
    GEMV = "gemv", 4, []
}
gemv! {
    /// Kernel of [`Gemv`] with w in bf16.
    GEMV_BF16 = "gemv_bf16", 8, []
}
gemv! {
    /// Kernel of [`Gemv`] with w in NF4.
    GEMV_NF4 = "gemv_nf4", 8, ["b_absmax", "b_nested", "b_map", "b_offset"]
}

/// Outputs of a warp.
const OUTPUTS: u32 = 4;
/// Warps of a block.
const WARPS: u32 = 8;
/// Warps that keep a device of 132 multiprocessors busy, 16 on each.
const ENOUGH_WARPS: u32 = 2112;
/// The largest extent, so that the end of a run that starts inside has an index of 32 bits.
const LONGEST: usize = 0x7fff_ffff;
/// y is added to.
const ACCUMULATE: u32 = 1;
/// x and w are read in aligned vectors.
const VECTORS: u32 = 2;

/// As few warps share their outputs as keep the device busy: a split has to be added up. The choice
/// depends on the sizes alone.
fn dispatch(problem: &Problem, kernel: &Kernel, unit: u32) -> Dispatch {
    let [inputs, outputs, ..] = problem.sizes;
    let groups = outputs.div_ceil(OUTPUTS);
    let busy = |split: u32| groups.saturating_mul(split) >= ENOUGH_WARPS;
    // Each lane should have a vector at least.
    let thin = |split: u32| inputs.div_ceil(32 * unit) <= split;
    let index = [1, 2, 4].iter().take_while(|&&split| !busy(split) && !thin(split)).count();
    let groups_of_block = WARPS >> index;
    linear(kernel.entries[index], groups.div_ceil(groups_of_block), WARPS * 32)
}

/// `y = α·W·x (+ bias) (+ y)`: a linear layer for one token.
///
/// Factors are f32 whatever W is stored as: a product that is as long as reading W takes gains
/// nothing from rounding x, or what was decoded.
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

impl<B: Copy, W: Into<Stored<B>>> Gemv<B, W> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, w, bias, y, alpha, accumulate } = self;
        let w: Stored<B> = w.into();
        let (kernel, unit) = match w {
            Stored::F32(_) => (&GEMV, 4),
            Stored::Bf16(_) => (&GEMV_BF16, 8),
            Stored::Nf4(_) => (&GEMV_NF4, 8),
        };
        let check = Check(kernel.name);
        let inputs = check.at_most("inputs", x.len(), LONGEST)?;
        let outputs = check.at_most("outputs", y.len(), LONGEST)?;
        check.elements("w", w.len(), check.product("outputs × inputs", &[y.len(), x.len()])?)?;
        w.check(check, &[x.len()])?;
        if let Some(bias) = bias {
            check.length("bias", bias, y.len())?;
        }
        let start = x.byte_range().start;
        let vectors = start % 16 == 0 && inputs % unit == 0 && w.in_vectors(&[x.len()]);
        let rule = "x starts at a multiple of 16 bytes where w is in NF4";
        check.rule(vectors || !matches!(w, Stored::Nf4(_)), rule, (start, x.len()))?;
        let flags = if accumulate { ACCUMULATE } else { 0 } | if vectors { VECTORS } else { 0 };
        let access = if accumulate { Access::ReadWrite } else { Access::Write };
        let (w, scales) = w.arguments();
        let mut arguments = vec![
            Argument::read(x),
            w,
            bias.map_or(Argument::Null, Argument::read),
            Argument::Buffer(BufferArgument::new(y, access)),
        ];
        arguments.extend(scales);
        arguments.extend([inputs, outputs].map(Argument::U32));
        arguments.extend([Argument::f32(alpha), Argument::U32(flags)]);
        Ok(Launch { kernel, problem: Problem::from([inputs, outputs]), arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SmTarget;

    fn chosen(inputs: u32, outputs: u32) -> (&'static str, u32) {
        let dispatch = (GEMV.dispatch)(&Problem::from([inputs, outputs]), SmTarget::exact(90));
        (dispatch.entry, dispatch.grid[0])
    }

    #[test]
    fn few_outputs_are_shared_and_many_are_not() {
        // The projections of Qwen2.5 1.5B: q and o, k and v, gate and up, down, logits.
        assert_eq!(chosen(1536, 1536), ("gemv_split8", 384));
        assert_eq!(chosen(1536, 256), ("gemv_split8", 64));
        assert_eq!(chosen(1536, 8960), ("gemv_split1", 280));
        assert_eq!(chosen(8960, 1536), ("gemv_split8", 384));
        assert_eq!(chosen(1536, 151_936), ("gemv_split1", 4748));
        // A low-rank update up: too short to be shared.
        assert_eq!(chosen(16, 1536), ("gemv_split1", 48));
    }

    #[test]
    fn nothing_is_launched_for_no_outputs() {
        let empty = |sizes| dispatch(&Problem::from(sizes), &GEMV_BF16, 8).is_empty();
        assert!(empty([5, 0]) && !empty([0, 5]));
        assert_eq!(chosen(u32::MAX >> 1, u32::MAX >> 1).0, "gemv_split1");
    }
}
