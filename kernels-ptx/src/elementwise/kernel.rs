//! The common structure of elementwise kernels: the elements of each thread, and how it accesses
//! them.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::elementwise::ELEMENTS_PER_THREAD;
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Ptr, Value};

use crate::primitives::eight::{EIGHT, load_eight, store_eight};
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::vec4::{Vec4, aligned};

/// The operands of an elementwise kernel.
pub(crate) struct Elementwise<'k, const I: usize, const O: usize> {
    pub(crate) inputs: [Ptr<'k, f32>; I],
    pub(crate) outputs: [Output<'k>; O],
    /// Number of elements.
    pub(crate) n: Value<'k, u32>,
}

/// An elementwise kernel over inputs of type `dtype`. A thread handles [`ELEMENTS_PER_THREAD`]
/// consecutive elements and loads all inputs before it computes.
///
/// Each output is written as f32, bf16, or both.
pub(crate) fn elementwise<const I: usize, const O: usize>(
    target: SmTarget,
    name: &str,
    dtype: DType,
    declare: impl for<'k> Fn(&mut Declarations<'k>) -> Elementwise<'k, I, O>,
    formula: impl for<'k> Fn([Value<'k, f32>; I]) -> [Value<'k, f32>; O],
) -> Entry {
    elementwise_with(target, name, dtype, |k| (declare(k), []), |inputs, []| formula(inputs))
}

/// As [`elementwise`], but the formula also reads scalars.
pub(crate) fn elementwise_with<const I: usize, const O: usize, const S: usize>(
    target: SmTarget,
    name: &str,
    dtype: DType,
    declare: impl for<'k> Fn(&mut Declarations<'k>) -> (Elementwise<'k, I, O>, [Value<'k, f32>; S]),
    formula: impl for<'k> Fn([Value<'k, f32>; I], [Value<'k, f32>; S]) -> [Value<'k, f32>; O],
) -> Entry {
    Kernel::build(name, |k| {
        let (Elementwise { inputs, outputs, n }, scalars) = declare(&mut Declarations(*k));
        let index = k.ctaid_x() * k.ntid_x() + k.tid_x();
        // Compares counts of threads: the elements of the last one may exceed 2³².
        const REST: u32 = ELEMENTS_PER_THREAD - 1;
        k.return_if(index.ge((n >> ELEMENTS_PER_THREAD.ilog2()) + (n & REST).min(1)));
        let written = outputs.iter().flat_map(|output| output.arrays());
        let arrays: Vec<_> = inputs.iter().copied().chain(written).collect();
        let (first, aligned) = (index * ELEMENTS_PER_THREAD, aligned(&arrays));
        let whole = aligned & (n - first).ge(ELEMENTS_PER_THREAD);
        k.when_else(
            whole,
            || {
                let loaded = inputs.map(|input| load_eight(dtype, input, first));
                let results = EIGHT.map(|at| formula(loaded.map(|values| values[at]), scalars));
                for (index, output) in outputs.iter().enumerate() {
                    store_eight(target, *output, first, results.map(|result| result[index]));
                }
            },
            || {
                for at in (0..ELEMENTS_PER_THREAD).step_by(4) {
                    let vec4 = Vec4::new(first + at, n, aligned);
                    let loaded = inputs.map(|input| vec4.load_as(dtype, input.address()));
                    let results =
                        [0, 1, 2, 3].map(|at| formula(loaded.map(|values| values[at]), scalars));
                    for (index, output) in outputs.iter().enumerate() {
                        vec4.write(target, *output, results.map(|result| result[index]));
                    }
                }
            },
        );
    })
}
