//! Matrix times vector, for one row of activations.

use super::geometry::linear;
use super::{f32, pointer, u32};
use crate::checks::Check;
use crate::{
    Access, Argument, BufferArgument, Dispatch, Kernel, KernelError, Launch, Problem, View,
};

/// Kernel of [`Gemv`].
pub static GEMV: Kernel = Kernel {
    name: "gemv",
    image: "gemv",
    parameters: &[
        pointer("x"),
        pointer("w"),
        pointer("bias"),
        pointer("y"),
        u32("inputs"),
        u32("outputs"),
        f32("alpha"),
        u32("flags"),
    ],
    entries: &["gemv_split1", "gemv_split2", "gemv_split4", "gemv_split8"],
    dispatch: |problem, _| dispatch(problem),
};

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
/// x and w are read in aligned groups of four.
const QUADS: u32 = 2;

/// As few warps share their outputs as keep the device busy: a split has to be added up. The choice
/// depends on the sizes alone.
fn dispatch(problem: &Problem) -> Dispatch {
    let [inputs, outputs, ..] = problem.sizes;
    let groups = outputs.div_ceil(OUTPUTS);
    let busy = |split: u32| groups.saturating_mul(split) >= ENOUGH_WARPS;
    // Each lane should have a quad at least.
    let thin = |split: u32| inputs.div_ceil(128) <= split;
    let index = [1, 2, 4].iter().take_while(|&&split| !busy(split) && !thin(split)).count();
    let groups_of_block = WARPS >> index;
    linear(GEMV.entries[index], groups.div_ceil(groups_of_block), WARPS * 32)
}

/// `y = α·W·x (+ bias) (+ y)`: a linear layer for one token.
#[derive(Clone, Copy, Debug)]
pub struct Gemv<B> {
    /// `inputs` elements, read.
    pub x: View<B, f32>,
    /// `outputs × inputs`, read.
    pub w: View<B, f32>,
    /// `outputs` elements, added after scaling.
    pub bias: Option<View<B, f32>>,
    /// `outputs` elements; not x, w or bias.
    pub y: View<B, f32>,
    /// The factor α.
    pub alpha: f32,
    /// Whether y is added to instead of overwritten.
    pub accumulate: bool,
}

impl<B: Copy> Gemv<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { x, w, bias, y, alpha, accumulate } = self;
        let check = Check(GEMV.name);
        let inputs = check.at_most("inputs", x.len(), LONGEST)?;
        let outputs = check.at_most("outputs", y.len(), LONGEST)?;
        check.length("w", w, check.product("outputs × inputs", &[y.len(), x.len()])?)?;
        if let Some(bias) = bias {
            check.length("bias", bias, y.len())?;
        }
        let aligned = |view: View<B, f32>| view.byte_range().start.is_multiple_of(16);
        let quads = inputs % 4 == 0 && aligned(x) && aligned(w);
        let flags = if accumulate { ACCUMULATE } else { 0 } | if quads { QUADS } else { 0 };
        let access = if accumulate { Access::ReadWrite } else { Access::Write };
        let arguments = vec![
            Argument::read(x),
            Argument::read(w),
            bias.map_or(Argument::Null, Argument::read),
            Argument::Buffer(BufferArgument::new(y, access)),
            Argument::U32(inputs),
            Argument::U32(outputs),
            Argument::f32(alpha),
            Argument::U32(flags),
        ];
        Ok(Launch { kernel: &GEMV, problem: Problem::from([inputs, outputs]), arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(inputs: u32, outputs: u32) -> (&'static str, u32) {
        let dispatch = dispatch(&Problem::from([inputs, outputs]));
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
        assert!(dispatch(&Problem::from([5, 0])).is_empty());
        assert!(!dispatch(&Problem::from([0, 5])).is_empty());
        assert_eq!(chosen(u32::MAX >> 1, u32::MAX >> 1).0, "gemv_split1");
    }
}
