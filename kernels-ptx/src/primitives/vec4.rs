//! Vec4: up to four consecutive floats that belong to one thread.
//!
//! A complete and aligned vec4 is accessed by one 16-byte instruction, any other float by float.
//! Both give the same values in the same order, so results don't depend on alignment.

use retrograph_kernel_abi::elementwise::ELEMENTS_PER_THREAD;
use retrograph_kernel_abi::{Bf16, DType};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value};

use super::bf16::{pack, unpack};
use super::parameters::Declarations;

/// The values of a vec4.
pub(crate) type F32x4<'k> = [Value<'k, f32>; 4];

/// Up to four consecutive floats at the same index of several arrays.
#[derive(Clone, Copy)]
pub(crate) struct Vec4<'k> {
    k: Kernel<'k>,
    /// Index of the first float.
    first: Value<'k, u32>,
    /// Floats from `first` to the end of the array.
    remaining: Value<'k, u32>,
    /// Whether one vector instruction accesses it.
    vectorized: Pred<'k>,
}

/// The destination of a result: an f32 array, a bf16 array, or both. An unused one is null.
#[derive(Clone, Copy)]
pub(crate) struct Output<'k> {
    pub(crate) f32: Ptr<'k, f32>,
    pub(crate) bf16: Ptr<'k, u32>,
}

impl<'k> Output<'k> {
    /// The output with an array in f32 and one in bf16.
    pub(crate) fn new(f32: Ptr<'k, f32>, bf16: Ptr<'k, Bf16>) -> Self {
        Self { f32, bf16: bf16.reinterpret() }
    }

    /// The output in f32 alone.
    pub(crate) fn f32(f32: Ptr<'k, f32>) -> Self {
        Self { f32, bf16: Ptr::from_address(f32.kernel().constant(0u64)) }
    }

    /// Both arrays from element `elements` on; null stays null.
    pub(crate) fn at(self, elements: Value<'k, u64>) -> Self {
        let k = self.f32.kernel();
        let advance = |address: Value<'k, u64>, bytes: Value<'k, u64>| {
            let skip = address.eq(0).select(k.constant(0u64), bytes);
            address + skip
        };
        Self {
            f32: Ptr::from_address(advance(self.f32.address(), elements << 2)),
            bf16: Ptr::from_address(advance(self.bf16.address(), elements << 1)),
        }
    }

    /// The output in `dtype` alone: f32 or bf16.
    pub(crate) fn of(dtype: DType, array: Ptr<'k, u32>) -> Self {
        let null = array.kernel().constant(0u64);
        match dtype {
            DType::F32 => Self::f32(array.reinterpret()),
            _ => Self { f32: Ptr::from_address(null), bf16: array },
        }
    }

    /// `other` if `condition` holds, else this output.
    pub(crate) fn or(self, other: Self, condition: Pred<'k>) -> Self {
        let f32 = condition.select(other.f32.address(), self.f32.address());
        let bf16 = condition.select(other.bf16.address(), self.bf16.address());
        Self { f32: Ptr::from_address(f32), bf16: Ptr::from_address(bf16) }
    }

    /// Whether both arrays are null.
    pub(crate) fn is_null(self) -> Pred<'k> {
        (self.f32.address() | self.bf16.address()).eq(0)
    }

    /// Both arrays, for [`aligned`].
    pub(crate) fn arrays(self) -> [Ptr<'k, f32>; 2] {
        [self.f32, self.bf16.reinterpret()]
    }
}

/// Whether all of these arrays are 16-byte aligned.
pub(crate) fn aligned<'k>(arrays: &[Ptr<'k, f32>]) -> Pred<'k> {
    let addresses = arrays.iter().map(|array| array.address());
    let bits = addresses.reduce(|left, right| left | right).expect("there is an array");
    (bits & 15).eq(0)
}

impl<'k> Vec4<'k> {
    /// The vec4 from index `first` on in arrays of `len` floats. It is empty if `first ≥ len`.
    pub(crate) fn new(first: Value<'k, u32>, len: Value<'k, u32>, aligned: Pred<'k>) -> Self {
        let remaining = first.lt(len).select(len - first, 0);
        Self { k: first.kernel(), first, remaining, vectorized: aligned & remaining.ge(4) }
    }

    /// The vec4 of `array`, padded with 0.
    pub(crate) fn load(&self, array: Ptr<'k, f32>) -> F32x4<'k> {
        self.gather(|| array.load_vec4(self.first), |lane| array.load(self.first + lane))
    }

    /// The vec4 of `array`, padded with `padding`.
    pub(crate) fn load_or(&self, array: Ptr<'k, f32>, padding: f32) -> F32x4<'k> {
        let [a, b, c, d] = self.load(array);
        let padded =
            |lane: u32, value: Value<'k, f32>| self.remaining.gt(lane).select(value, padding);
        [a, padded(1, b), padded(2, c), padded(3, d)]
    }

    /// The vec4 of the bf16 array at address `array`, as f32, padded with 0.
    pub(crate) fn load_bf16(&self, array: Value<'k, u64>) -> F32x4<'k> {
        let array = Ptr::<u32>::from_address(array);
        let words = [(); 2].map(|()| self.k.var(0u32));
        let vectorized = || {
            let loaded = array.load_vec2(self.first >> 1);
            words.iter().zip(loaded).for_each(|(word, loaded)| word.set(loaded));
        };
        let by_lane = || {
            self.for_each_lane(|lane| {
                let half = array.load_u16(self.first + lane);
                let half = if lane % 2 == 0 { half } else { half << 16 };
                words[lane as usize / 2].update(|word| word | half);
            });
        };
        self.k.when_else(self.vectorized, vectorized, by_lane);
        // After the branch, so that the loads of several arrays are in flight together.
        let [[a, b], [c, d]] = words.map(|word| unpack(word.get()));
        [a, b, c, d]
    }

    /// The vec4 of the array at address `array` with elements of type `dtype`, padded with 0.
    ///
    /// # Panics
    /// For other types than f32 and bf16.
    pub(crate) fn load_as(&self, dtype: DType, array: Value<'k, u64>) -> F32x4<'k> {
        match dtype {
            DType::F32 => self.load(Ptr::from_address(array)),
            DType::Bf16 => self.load_bf16(array),
            other => unreachable!("no kernel loads four elements of {other}"),
        }
    }

    /// The same, padded with `padding`.
    pub(crate) fn load_as_or(
        &self,
        dtype: DType,
        array: Value<'k, u64>,
        padding: f32,
    ) -> F32x4<'k> {
        let values = self.load_as(dtype, array);
        let padded = |lane: usize| self.remaining.gt(lane as u32).select(values[lane], padding);
        [0, 1, 2, 3].map(padded)
    }

    /// The result of `vector` if the vec4 is complete and aligned; otherwise of `scalar` for each
    /// float inside the array, padded with 0.
    fn gather(
        &self,
        vector: impl Fn() -> F32x4<'k>,
        scalar: impl Fn(u32) -> Value<'k, f32>,
    ) -> F32x4<'k> {
        let slots = [(); 4].map(|()| self.k.var(0.0));
        let vectorized = || slots.iter().zip(vector()).for_each(|(slot, value)| slot.set(value));
        let by_lane = || self.for_each_lane(|lane| slots[lane as usize].set(scalar(lane)));
        self.k.when_else(self.vectorized, vectorized, by_lane);
        slots.map(|slot| slot.get())
    }

    /// Stores the vec4 into `array`, up to its end.
    pub(crate) fn store(&self, array: Ptr<'k, f32>, values: F32x4<'k>) {
        let vectorized = || array.store_vec4(self.first, values);
        let by_lane = || {
            self.for_each_lane(|lane| array.store(self.first + lane, values[lane as usize]));
        };
        self.k.when_else(self.vectorized, vectorized, by_lane);
    }

    /// Stores the vec4 to each non-null array of `to`.
    pub(crate) fn write(&self, target: SmTarget, to: Output<'k>, values: F32x4<'k>) {
        self.k.when(!to.f32.is_null(), || self.store(to.f32, values));
        self.k.when(!to.bf16.is_null(), || {
            let words = [0, 2].map(|i| pack(target, [values[i], values[i + 1]]));
            let vectorized = || to.bf16.store_vec2(self.first >> 1, words);
            let by_lane = || {
                self.for_each_lane(|lane| {
                    let word = words[lane as usize / 2];
                    let half = if lane % 2 == 0 { word } else { word >> 16 };
                    to.bf16.store_u16(self.first + lane, half);
                });
            };
            self.k.when_else(self.vectorized, vectorized, by_lane);
        });
    }

    /// Runs `body` for each lane inside the array.
    fn for_each_lane(&self, body: impl Fn(u32)) {
        for lane in 0..4 {
            self.k.when(self.remaining.gt(lane), || body(lane));
        }
    }
}

/// Runs `body` for each vec4 of `len` floats that belongs to this thread, in a block-stride loop.
///
/// `len` plus four floats per thread of the block must stay below 2³².
pub(crate) fn for_each_vec4<'k>(
    k: &Kernel<'k>,
    len: Value<'k, u32>,
    aligned: Pred<'k>,
    body: impl Fn(Vec4<'k>),
) {
    k.range(k.tid_x() * 4, len, k.ntid_x() * 4, |first| {
        body(Vec4::new(first, len, aligned));
    });
}

/// The operands of an elementwise kernel.
pub(crate) struct Elementwise<'k, const I: usize, const O: usize> {
    pub(crate) inputs: [Ptr<'k, f32>; I],
    pub(crate) outputs: [Output<'k>; O],
    /// Number of elements.
    pub(crate) n: Value<'k, u32>,
}

/// An elementwise kernel over inputs of type `dtype`: a thread has [`ELEMENTS_PER_THREAD`]
/// consecutive elements. It loads all inputs before it computes.
///
/// Each output is written as f32, bf16, or both.
pub(crate) fn elementwise<const I: usize, const O: usize>(
    (target, name, dtype): (SmTarget, &str, DType),
    declare: impl for<'k> Fn(&mut Declarations<'k>) -> Elementwise<'k, I, O>,
    formula: impl for<'k> Fn([Value<'k, f32>; I]) -> [Value<'k, f32>; O],
) -> Entry {
    Kernel::build(name, |k| {
        let Elementwise { inputs, outputs, n } = declare(&mut Declarations(*k));
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
                let results = EIGHT.map(|at| formula(loaded.map(|values| values[at])));
                for (index, output) in outputs.iter().enumerate() {
                    store_eight(target, (*output, first), results.map(|result| result[index]));
                }
            },
            || {
                for at in (0..ELEMENTS_PER_THREAD).step_by(4) {
                    let vec4 = Vec4::new(first + at, n, aligned);
                    let loaded = inputs.map(|input| vec4.load_as(dtype, input.address()));
                    let results = [0, 1, 2, 3].map(|at| formula(loaded.map(|values| values[at])));
                    for (index, output) in outputs.iter().enumerate() {
                        vec4.write(target, *output, results.map(|result| result[index]));
                    }
                }
            },
        );
    })
}

/// The eight elements of type `dtype` from index `first` on in an array of `len`, padded with
/// `padding`. If they are complete and aligned, accesses have 16 bytes.
pub(crate) fn load_eight_or<'k>(
    (dtype, array): (DType, Ptr<'k, f32>),
    (first, len, aligned): (Value<'k, u32>, Value<'k, u32>, Pred<'k>),
    padding: f32,
) -> [Value<'k, f32>; EIGHT.len()] {
    let k = first.kernel();
    let slots = [(); EIGHT.len()].map(|()| k.var(padding));
    let set = |at: usize, values: &[Value<'k, f32>]| {
        slots[at..].iter().zip(values).for_each(|(slot, value)| slot.set(*value));
    };
    k.when_else(
        aligned & whole_eight(first, len),
        || set(0, &load_eight(dtype, array, first)),
        || {
            for at in [0, 4] {
                let vec4 = Vec4::new(first + at, len, aligned);
                set(at as usize, &vec4.load_as_or(dtype, array.address(), padding));
            }
        },
    );
    slots.map(|slot| slot.get())
}

/// Writes eight elements from index `first` on to each non-null array of `to`, up to its end.
pub(crate) fn write_eight<'k>(
    target: SmTarget,
    to: Output<'k>,
    (first, len, aligned): (Value<'k, u32>, Value<'k, u32>, Pred<'k>),
    values: [Value<'k, f32>; EIGHT.len()],
) {
    first.kernel().when_else(
        aligned & whole_eight(first, len),
        || store_eight(target, (to, first), values),
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

const EIGHT: [usize; ELEMENTS_PER_THREAD as usize] = [0, 1, 2, 3, 4, 5, 6, 7];

/// Eight aligned elements of an array of type `dtype`, by accesses of 16 bytes.
fn load_eight<'k>(
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
fn store_eight<'k>(
    target: SmTarget,
    (to, first): (Output<'k>, Value<'k, u32>),
    values: [Value<'k, f32>; EIGHT.len()],
) {
    let k = first.kernel();
    k.when(!to.f32.is_null(), || {
        for at in [0, 4] {
            to.f32.store_vec4(first + at, [0, 1, 2, 3].map(|next| values[at as usize + next]));
        }
    });
    k.when(!to.bf16.is_null(), || {
        let words = [0, 2, 4, 6].map(|at| pack(target, [values[at], values[at + 1]]));
        to.bf16.store_vec4(first >> 1, words);
    });
}
