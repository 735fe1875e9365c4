//! Eight consecutive elements that belong to one thread, in f32 or bf16.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::elementwise::ELEMENTS_PER_THREAD;
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Pred, Ptr, Value};

use super::bf16::{pack, unpack};
use super::output::Output;
use super::registers::{Registers, registers, set, values};
use super::vec4::Vec4;

/// The indices of the elements.
pub(crate) const EIGHT: [usize; ELEMENTS_PER_THREAD as usize] = [0, 1, 2, 3, 4, 5, 6, 7];

/// The eight elements of type `dtype` from index `first` on in an array of `len`, padded with
/// `padding`. If they are complete and aligned, accesses have 16 bytes.
pub(crate) fn load_eight_or<'k>(
    dtype: DType,
    array: Ptr<'k, f32>,
    first: Value<'k, u32>,
    len: Value<'k, u32>,
    aligned: Pred<'k>,
    padding: f32,
) -> [Value<'k, f32>; EIGHT.len()] {
    let k = first.kernel();
    let slots: Registers<'k, { EIGHT.len() }> = registers(&k, padding);
    k.when_else(
        aligned & whole_eight(first, len),
        || set(&slots, load_eight(dtype, array, first)),
        || {
            for at in [0, 4] {
                let vec4 = Vec4::new(first + at, len, aligned);
                set(&slots[at as usize..], vec4.load_as_or(dtype, array.address(), padding));
            }
        },
    );
    values(&slots)
}

/// Writes eight elements from index `first` on to each non-null array of `to`, up to its end.
pub(crate) fn write_eight<'k>(
    target: SmTarget,
    to: Output<'k>,
    first: Value<'k, u32>,
    len: Value<'k, u32>,
    aligned: Pred<'k>,
    values: [Value<'k, f32>; EIGHT.len()],
) {
    first.kernel().when_else(
        aligned & whole_eight(first, len),
        || store_eight(target, to, first, values),
        || {
            for at in [0, 4] {
                let vec4 = Vec4::new(first + at, len, aligned);
                vec4.write(target, to, [0, 1, 2, 3].map(|next| values[at as usize + next]));
            }
        },
    );
}

/// Whether there are eight elements from `first` on.
fn whole_eight<'k>(first: Value<'k, u32>, len: Value<'k, u32>) -> Pred<'k> {
    (len - first).ge(ELEMENTS_PER_THREAD)
}

/// Eight aligned elements of an array of type `dtype`, by accesses of 16 bytes.
pub(crate) fn load_eight<'k>(
    dtype: DType,
    array: Ptr<'k, f32>,
    first: Value<'k, u32>,
) -> [Value<'k, f32>; EIGHT.len()] {
    if dtype == DType::F32 {
        let [low, high] = [0, 4].map(|at| array.load_vec4(first + at));
        return EIGHT.map(|at| if at < 4 { low[at] } else { high[at - 4] });
    }
    let pairs = array.reinterpret::<u32>().load_vec4(first >> 1).map(unpack);
    EIGHT.map(|at| pairs[at / 2][at % 2])
}

/// Stores eight aligned elements to each non-null array of `to`.
pub(crate) fn store_eight<'k>(
    target: SmTarget,
    to: Output<'k>,
    first: Value<'k, u32>,
    values: [Value<'k, f32>; EIGHT.len()],
) {
    let write_f32 = |array: Ptr<'k, f32>| {
        for at in [0, 4] {
            array.store_vec4(first + at, [0, 1, 2, 3].map(|next| values[at as usize + next]));
        }
    };
    to.write(write_f32, |array| {
        let words = [0, 2, 4, 6].map(|at| pack(target, [values[at], values[at + 1]]));
        array.store_vec4(first >> 1, words);
    });
}
