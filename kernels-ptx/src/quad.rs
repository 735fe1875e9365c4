//! Quads: up to four neighbouring floats, which belong to one thread.
//!
//! A quad is moved by one 16-byte access where it is whole and its operands are aligned, and one
//! float at a time elsewhere. Both ways give the same values in the same order, so that a kernel's
//! result does not depend on the alignment of its operands.

use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Value};

use crate::bf16::pack;

/// Four floats of one thread.
pub(crate) type Floats<'k> = [Value<'k, f32>; 4];

/// Up to four neighbouring floats at the same place of several arrays.
#[derive(Clone, Copy)]
pub(crate) struct Quad<'k> {
    k: Kernel<'k>,
    /// Index of the first float.
    first: Value<'k, u32>,
    /// How many floats there are from `first` to the end of the array.
    left: Value<'k, u32>,
    /// Whether the quad is moved by one access.
    whole: Pred<'k>,
}

/// Where a result goes: as f32, as bf16, or both. What it does not go to is null.
#[derive(Clone, Copy)]
pub(crate) struct Written<'k> {
    pub(crate) f32: Ptr<'k, f32>,
    pub(crate) bf16: Ptr<'k, u32>,
}

impl<'k> Written<'k> {
    /// Declares the parameters `name` and `name_bf16`.
    pub(crate) fn declare(k: &Kernel<'k>, name: &str) -> Self {
        Self { f32: k.pointer(name), bf16: k.pointer(&format!("{name}_bf16")) }
    }

    /// The places `elements` further; what is null stays null.
    pub(crate) fn at(self, elements: Value<'k, u64>) -> Self {
        let k = self.f32.kernel();
        let far = |address: Value<'k, u64>, bytes: Value<'k, u64>| {
            let skip = address.eq(0).select(k.constant(0u64), bytes);
            address + skip
        };
        Self {
            f32: Ptr::from_address(far(self.f32.address(), elements << 2)),
            bf16: Ptr::from_address(far(self.bf16.address(), elements << 1)),
        }
    }

    /// The same, or as f32 to `array`, where `instead` holds.
    pub(crate) fn or_at(self, array: Ptr<'k, f32>, instead: Pred<'k>) -> Self {
        let address = instead.select(array.address(), self.f32.address());
        Self { f32: Ptr::from_address(address), ..self }
    }

    /// The same, or where `other` is, where `instead` holds.
    pub(crate) fn or(self, other: Self, instead: Pred<'k>) -> Self {
        let plain = instead.select(other.f32.address(), self.f32.address());
        let rounded = instead.select(other.bf16.address(), self.bf16.address());
        Self { f32: Ptr::from_address(plain), bf16: Ptr::from_address(rounded) }
    }

    /// Whether it goes nowhere.
    pub(crate) fn is_null(self) -> Pred<'k> {
        (self.f32.address() | self.bf16.address()).eq(0)
    }

    /// Both arrays, to see whether they are aligned.
    pub(crate) fn arrays(self) -> [Ptr<'k, f32>; 2] {
        [self.f32, self.bf16.reinterpret()]
    }
}

/// Whether all of these arrays start at a multiple of 16 bytes.
pub(crate) fn aligned<'k>(arrays: &[Ptr<'k, f32>]) -> Pred<'k> {
    let addresses = arrays.iter().map(|array| array.address());
    let bits = addresses.reduce(|left, right| left | right).expect("there is an array");
    (bits & 15).eq(0)
}

impl<'k> Quad<'k> {
    /// The quad that starts at `first` in arrays of `len` floats; it has none where `first` is not
    /// below `len`.
    pub(crate) fn new(first: Value<'k, u32>, len: Value<'k, u32>, aligned: Pred<'k>) -> Self {
        let left = first.lt(len).select(len - first, 0);
        Self { k: first.kernel(), first, left, whole: aligned & left.ge(4) }
    }

    /// The quad in `array`; what lies behind its end is taken as 0.
    pub(crate) fn load(&self, array: Ptr<'k, f32>) -> Floats<'k> {
        self.gather(|| array.load_vec4(self.first), |lane| array.load(self.first + lane))
    }

    /// The quad in `array`; what lies behind its end is taken as `beyond`.
    pub(crate) fn load_or(&self, array: Ptr<'k, f32>, beyond: f32) -> Floats<'k> {
        let [a, b, c, d] = self.load(array);
        let filled = |lane: u32, value: Value<'k, f32>| self.left.gt(lane).select(value, beyond);
        [a, filled(1, b), filled(2, c), filled(3, d)]
    }

    /// The quad of the row of bf16 at `row`, as f32.
    pub(crate) fn load_bf16(&self, row: Value<'k, u64>) -> Floats<'k> {
        let words = Ptr::<u32>::from_address(row);
        self.gather(
            || {
                let [low, high] = words.load_vec2(self.first >> 1);
                [low << 16, low & 0xffff_0000, high << 16, high & 0xffff_0000]
                    .map(Value::<f32>::from_bits)
            },
            |lane| Value::<f32>::from_bits(words.load_u16(self.first + lane) << 16),
        )
    }

    /// The quad that `whole` gives, or lane by lane `one`; what lies behind the end of the array is
    /// taken as 0.
    pub(crate) fn gather(
        &self,
        whole: impl Fn() -> Floats<'k>,
        one: impl Fn(u32) -> Value<'k, f32>,
    ) -> Floats<'k> {
        let slots = [(); 4].map(|()| self.k.var(0.0));
        let vector = || slots.iter().zip(whole()).for_each(|(slot, value)| slot.set(value));
        let single = || self.each(|lane| slots[lane as usize].set(one(lane)));
        self.k.when_else(self.whole, vector, single);
        slots.map(|slot| slot.get())
    }

    /// Stores the quad into `array`, as far as it reaches.
    pub(crate) fn store(&self, array: Ptr<'k, f32>, values: Floats<'k>) {
        let vector = || array.store_vec4(self.first, values);
        let single = || {
            self.each(|lane| array.store(self.first + lane, values[lane as usize]));
        };
        self.k.when_else(self.whole, vector, single);
    }

    /// Stores the quad where `to` is: as f32 and rounded to bf16.
    pub(crate) fn write(&self, target: SmTarget, to: Written<'k>, values: Floats<'k>) {
        self.k.when(!to.f32.is_null(), || self.store(to.f32, values));
        self.k.when(!to.bf16.is_null(), || {
            let words = [0, 2].map(|i| pack(target, [values[i], values[i + 1]]));
            let vector = || to.bf16.store_vec2(self.first >> 1, words);
            let single = || {
                self.each(|lane| {
                    let word = words[lane as usize / 2];
                    let half = if lane % 2 == 0 { word } else { word >> 16 };
                    to.bf16.store_u16(self.first + lane, half);
                });
            };
            self.k.when_else(self.whole, vector, single);
        });
    }

    /// Runs `body` for each lane that the array reaches.
    fn each(&self, body: impl Fn(u32)) {
        for lane in 0..4 {
            self.k.when(self.left.gt(lane), || body(lane));
        }
    }
}

/// Runs `body` for each quad of `len` floats that belongs to this thread of the block.
///
/// Quads go round the threads of the block. `len` must leave room for four floats of each thread
/// below 2³².
pub(crate) fn block_quads<'k>(
    k: &Kernel<'k>,
    len: Value<'k, u32>,
    aligned: Pred<'k>,
    body: impl Fn(Quad<'k>),
) {
    k.range(k.tid_x() * 4, len, k.ntid_x() * 4, |first| {
        body(Quad::new(first, len, aligned));
    });
}

/// A kernel that computes each element of its outputs from the same place of its inputs.
///
/// Thread i of the grid has the elements from 4·i to 4·i + 3. Each output is written as f32, as
/// bf16, or both.
pub(crate) fn streaming<const I: usize, const O: usize>(
    named: (SmTarget, &str),
    arrays: ([&str; I], [&str; O]),
    formula: impl for<'k> Fn([Value<'k, f32>; I]) -> [Value<'k, f32>; O],
) -> Entry {
    streaming_from(Form::F32, named, arrays, formula)
}

/// How inputs are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    F32,
    Bf16,
}

/// The same kernel over inputs that are all stored in `form`.
pub(crate) fn streaming_from<const I: usize, const O: usize>(
    form: Form,
    (target, name): (SmTarget, &str),
    (inputs, outputs): ([&str; I], [&str; O]),
    formula: impl for<'k> Fn([Value<'k, f32>; I]) -> [Value<'k, f32>; O],
) -> Entry {
    Kernel::build(name, |k| {
        let inputs = inputs.map(|name| k.pointer::<f32>(name));
        let outputs = outputs.map(|name| Written::declare(k, name));
        let n = k.param::<u32>("n");
        let quad = k.ctaid_x() * k.ntid_x() + k.tid_x();
        // Quads are counted, not elements, since four times the last thread may pass 2³².
        k.return_if(quad.ge((n >> 2) + (n & 3).min(1)));
        let written = outputs.iter().flat_map(|output| output.arrays());
        let arrays: Vec<_> = inputs.iter().copied().chain(written).collect();
        let quad = Quad::new(quad * 4, n, aligned(&arrays));
        let loaded = inputs.map(|input| match form {
            Form::F32 => quad.load(input),
            Form::Bf16 => quad.load_bf16(input.address()),
        });
        let results = [0, 1, 2, 3].map(|lane| formula(loaded.map(|floats| floats[lane])));
        for (index, output) in outputs.into_iter().enumerate() {
            quad.write(target, output, results.map(|result| result[index]));
        }
    })
}
