//! Applies the repetition penalty to the logits, and finds the maximum of each chunk.

use retrograph_kernel_abi::sampling::{SAMPLE_ADJUST, SampleAdjustParameters, THREADS};
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::Kernel;

use super::{Sampling, for_each_chunk_vec4, of_sequence};
use crate::primitives::parameters::Declarations;
use crate::primitives::vec4::{Vec4, aligned};

/// The entry `sample_adjust`.
pub(super) fn entry() -> Entry {
    Kernel::build(SAMPLE_ADJUST.entry(), |k| {
        k.max_threads(THREADS);
        let SampleAdjustParameters { logits, seen, sampling, adjusted, maxima, vocab } =
            SampleAdjustParameters::declare(&mut Declarations(*k));
        let [logits, adjusted] = [logits, adjusted].map(|rows| of_sequence(rows, vocab));
        let seen = of_sequence(seen, vocab);
        let maxima = of_sequence(maxima, k.nctaid_x());

        let penalty = Sampling::load(sampling).penalty;
        let vectors = aligned(&[logits, adjusted]);
        let max = k.var(f32::NEG_INFINITY);
        for_each_chunk_vec4(k, |first| {
            let vec4 = Vec4::new(first, vocab, vectors);
            let values = vec4.load(logits).map(|value| k.var(value));
            for (lane, value) in values.iter().enumerate() {
                let token = first + lane as u32;
                k.when(token.lt(vocab), || {
                    // Reads the flags only if the penalty changes anything.
                    k.when(penalty.ne(1.0), || {
                        k.when(seen.load(token).ne(0), || {
                            value.update(|z| z.lt(0.0).select(z * penalty, z / penalty));
                        });
                    });
                    // A NaN appears in the maximum as infinity.
                    let z = value.get();
                    max.update(|max| max.max(z.eq(z).select(z, f32::INFINITY)));
                });
            }
            vec4.store(adjusted, values.map(|value| value.get()));
        });
        let max = k.block_max(max.get());
        k.when(k.tid_x().eq(0), || maxima.store(k.ctaid_x(), max));
    })
}
