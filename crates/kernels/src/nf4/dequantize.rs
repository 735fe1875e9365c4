//! Dequantization on the device.

use half::bf16;
use retrograph_kernel_abi::nf4 as abi;

use crate::checks::Check;
use crate::geometry::linear;
use crate::launch::{ArgumentTypes, Pointer};
use crate::tensor::Nf4;
use crate::{Dispatch, Kernel, KernelError, Launch, Problem, View};

/// Kernel of [`Dequantize`].
pub static NF4_DEQUANTIZE: Kernel =
    Kernel::new("nf4_dequantize", &abi::NF4_DEQUANTIZE, |problem, _| dispatch(problem));

/// Codes per 32-bit word.
const CODES_PER_WORD: usize = 8;

/// Four words of codes per thread.
fn dispatch(problem: &Problem) -> Option<Dispatch> {
    let blocks = problem.items()?.div_ceil(abi::DEQUANTIZE_THREADS * abi::WORDS_PER_THREAD);
    Some(linear(abi::NF4_DEQUANTIZE.entry(), blocks, abi::DEQUANTIZE_THREADS))
}

/// `out[i] = value[code[i]] · scale[i ÷ 64]`: a product rounded to f32, then to bf16, as in GEMMs
/// that read NF4.
///
/// Pays off if several tiles of a GEMM read each weight: this kernel decodes it once, the GEMM once
/// per tile.
#[derive(Clone, Copy, Debug)]
pub struct Dequantize<B> {
    /// `[n]`, read; n is a multiple of 8.
    pub w: Nf4<B>,
    /// `[n]`, written, aligned to 16 bytes.
    pub out: View<B, bf16>,
}

impl<B: Copy> Dequantize<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match, the number of elements is not a multiple of 8, or codes or
    /// result are not aligned to 16 bytes.
    pub fn launch(&self) -> Result<Launch<B>, KernelError> {
        let check = Check(NF4_DEQUANTIZE.name);
        let Self { w, out } = *self;
        w.check(check, &[w.len])?;
        check.length("out", out, w.len)?;
        let rule = "out must start at a multiple of 16 bytes";
        check.rule(out.is_aligned(16), rule, out.byte_range().start)?;
        let words = check.size("the number of words", w.len / CODES_PER_WORD)?;
        let scales = w.scale_pointers();
        let parameters = abi::DequantizeParameters::<ArgumentTypes<B>> {
            codes: Pointer::read(w.codes).any(),
            absmax: scales.absmax,
            nested: scales.nested,
            map: scales.map,
            offset: scales.offset,
            out: Pointer::write(out),
            words,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel: &NF4_DEQUANTIZE, problem: Problem::Items(words), arguments })
    }
}
