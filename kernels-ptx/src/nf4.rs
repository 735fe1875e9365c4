//! Dequantization of NF4: `out[i] = bf16(value[code[i]] · scale[i ÷ 64])`.
//!
//! Grid: a block of 256 threads has 1024 consecutive words of eight codes. A thread loads four
//! words and their scales before it decodes, so that loads overlap, and stores 16 bytes per word.
//!
//! Deterministic: one thread computes each element.

use retrograph_kernel_abi::nf4::{
    BLOCK, DEQUANTIZE_THREADS, DequantizeParameters, NF4_DEQUANTIZE, Nf4Scales, WORDS_PER_THREAD,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder};

use crate::primitives::bf16::pack;
use crate::primitives::nf4::Nf4;
use crate::primitives::parameters::Declarations;

/// Codes per 32-bit word.
const CODES: u32 = 8;

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let entry = Kernel::build(NF4_DEQUANTIZE.entry(), |k| dequantize(k, target));
    ModuleBuilder::new(target).entry(entry).build()
}

fn dequantize(k: &Kernel<'_>, target: SmTarget) {
    let DequantizeParameters { codes, absmax, nested, map, offset, out, words } =
        DequantizeParameters::declare(&mut Declarations(*k));
    k.max_threads(DEQUANTIZE_THREADS);
    let scales = Nf4Scales { absmax, nested, map, offset };
    let nf4 = Nf4::new(k, scales, 0, Nf4::tables(k, 1));
    nf4.fill_tables();
    let (offset, codes) = (nf4.offset(), codes.reinterpret::<u32>());

    let first = k.ctaid_x() * (DEQUANTIZE_THREADS * WORDS_PER_THREAD) + k.tid_x();
    let loaded: Vec<_> = (0..WORDS_PER_THREAD)
        .map(|number| {
            let word = first + number * DEQUANTIZE_THREADS;
            let (code, scale) = (k.var(0_u32), [(); 2].map(|()| k.var(0.0_f32)));
            k.when(word.lt(words), || {
                code.set(codes.load(word));
                nf4.fetch(word * CODES, scale);
            });
            (word, code, scale)
        })
        .collect();
    for (word, code, scale) in loaded {
        k.when(word.lt(words), || {
            let (code, scale) = (code.get(), scale.map(|part| part.get()));
            let scale = nf4.scale_with(scale, || offset);
            let pair =
                |first: u32| pack(target, [first, first + 1].map(|at| nf4.value(code, at) * scale));
            out.reinterpret::<u32>().store_vec4(word * (CODES / 2), [0, 2, 4, 6].map(pair));
        });
    }
    const { assert!(BLOCK.is_multiple_of(CODES)) };
}
