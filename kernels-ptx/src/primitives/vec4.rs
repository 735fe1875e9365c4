//! Vec4: up to four consecutive floats that belong to one thread.
//!
//! A complete and aligned vec4 is accessed by one 16-byte instruction, any other float by float.
//! Both give the same values in the same order, so results don't depend on alignment.

use retrograph_kernel_abi::DType;
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value, Var};

use super::bf16::{pack_vec4, unpack};
use super::input::Input;
use super::output::Output;
use super::registers::{Registers, registers, set, values};

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

    /// Index of the first float.
    pub(crate) fn first(&self) -> Value<'k, u32> {
        self.first
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
        let words: Registers<'k, 2, u32> = registers(&self.k, 0);
        self.fetch_bf16(Ptr::from_address(array), &words);
        // Unpacks after the branch, so that the loads of several arrays are in flight together.
        let [[a, b], [c, d]] = words.map(|word| unpack(word.get()));
        [a, b, c, d]
    }

    /// The vec4 of `from`, as f32, padded with 0; 0 without an operand.
    pub(crate) fn read(&self, from: Input<'k>) -> F32x4<'k> {
        let bits: Registers<'k, 4, u32> = registers(&self.k, 0);
        self.k.when(!from.f32.is_null(), || {
            set(&bits, self.load(from.f32).map(Value::<f32>::bits));
        });
        self.k.when(!from.bf16.is_null(), || self.fetch_bf16(from.bf16, &bits));
        from.decode(values(&bits))
    }

    /// Sets the first two words to the vec4 of a bf16 array, padded with 0.
    fn fetch_bf16(&self, array: Ptr<'k, u32>, words: &[Var<'k, u32>]) {
        let vectorized = || set(words, array.load_vec2(self.first >> 1));
        let by_lane = || {
            self.for_each_lane(|lane| {
                let half = array.load_u16(self.first + lane);
                let half = if lane % 2 == 0 { half } else { half << 16 };
                words[lane as usize / 2].update(|word| word | half);
            });
        };
        self.k.when_else(self.vectorized, vectorized, by_lane);
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
        let slots = registers(&self.k, 0.0);
        let vectorized = || set(&slots, vector());
        let by_lane = || self.for_each_lane(|lane| slots[lane as usize].set(scalar(lane)));
        self.k.when_else(self.vectorized, vectorized, by_lane);
        values(&slots)
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
        let write_bf16 = |array: Ptr<'k, u32>| {
            let words = pack_vec4(target, values);
            let vectorized = || array.store_vec2(self.first >> 1, words);
            let by_lane = || {
                self.for_each_lane(|lane| {
                    let word = words[lane as usize / 2];
                    let half = if lane % 2 == 0 { word } else { word >> 16 };
                    array.store_u16(self.first + lane, half);
                });
            };
            self.k.when_else(self.vectorized, vectorized, by_lane);
        };
        to.write(|array| self.store(array, values), write_bf16);
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
