//! Cross-entropy loss, and its gradient with respect to the logits.
//!
//! ```text
//! losses[r]         = ln Σ_c exp(logits[r][c] − max_r) + (max_r − logits[r][target_r])
//! p[r][c]           = exp(logits[r][c] − max_r) ÷ Σ_c exp(logits[r][c] − max_r)
//! grad_logits[r][c] = (p[r][c] − [c = target_r]) ÷ max(counted, 1)
//! ```
//!
//! With a cap, logits are `cap · t` of the stored values, with `t = tanh(stored ÷ cap)`, and their
//! gradient is multiplied by 1 − t².
//!
//! The target 2³² − 1 is ignored: its loss and its gradient are 0, and its logits are not read. Any
//! other target outside the vocabulary gives NaN for the loss and the gradient of the row. Neither
//! is used as an index.
//!
//! With an order, row r of the logits has target and loss `order[r]`. If that is not a row, nothing
//! is read or written. Rows from the limit on are ignored, and their gradient is not written.
//!
//! The gradient is written as f32, bf16 or both, or in place of the logits. If all destinations are
//! null, only losses are computed. `split_f16_cross_entropy` writes it in terms of f16 instead.
//!
//! **Grid.** `cross_entropy_warp_per_row`: 4 rows per block of 128 threads, for small vocabularies.
//! `cross_entropy_block_per_row`: one block of 512 threads per row, for large ones. Thread i of a
//! group handles the vectors i, i + size, … of 16 bytes in two passes, [`UNROLL`] at a time. The
//! first keeps a running maximum and the sum of exponentials relative to it, and rescales the sum
//! when the maximum grows (Milakov and Gimelshein, arXiv 1805.02867). The second computes the
//! gradient, from the end of the row to its start. If the gradient is split, the second finds its
//! largest exponent, and a third computes it again. The thread that owns the target's column writes
//! the loss before it may overwrite the logit.
//!
//! **Determinism.** A thread adds its vectors in ascending order; a butterfly of fixed shape adds
//! the threads.

use std::f32::consts::LOG2_E;

use retrograph_kernel_abi::loss::{
    CROSS_ENTROPY, CROSS_ENTROPY_BF16, CROSS_ENTROPY_SOFTCAP, CROSS_ENTROPY_SOFTCAP_BF16,
    CrossEntropyParameters, IGNORED_TARGET, SPLIT_CROSS_ENTROPY, SplitCrossEntropyParameters,
};
use retrograph_kernel_abi::{DType, RowKernel};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Ptr, Value};

use crate::primitives::bf16::unpack;
use crate::primitives::eight::{load_eight_or, write_eight};
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::softcap::{Softcap, softcap, softcap_backward};
use crate::primitives::split_row::{ColumnScales, SplitRow, largest_exponent_sum};
use crate::primitives::thread_group::ThreadGroup;
use crate::primitives::vec4::{F32x4, Vec4, aligned};

/// Vectors that a thread loads at a time.
const UNROLL: u32 = 4;

/// How an image reads logits.
#[derive(Clone, Copy)]
struct Format {
    dtype: DType,
    /// Whether logits have a cap.
    capped: bool,
}

/// Builds the image for logits in f32.
pub(crate) fn module(target: SmTarget) -> Module {
    build(target, &CROSS_ENTROPY, Format { dtype: DType::F32, capped: false })
}

/// Builds the image for logits in bf16.
pub(crate) fn module_bf16(target: SmTarget) -> Module {
    build(target, &CROSS_ENTROPY_BF16, Format { dtype: DType::Bf16, capped: false })
}

/// Builds the image for logits in f32 with a cap.
pub(crate) fn module_softcap(target: SmTarget) -> Module {
    build(target, &CROSS_ENTROPY_SOFTCAP, Format { dtype: DType::F32, capped: true })
}

/// Builds the image for logits in bf16 with a cap.
pub(crate) fn module_softcap_bf16(target: SmTarget) -> Module {
    build(target, &CROSS_ENTROPY_SOFTCAP_BF16, Format { dtype: DType::Bf16, capped: true })
}

fn build(target: SmTarget, kernel: &RowKernel, format: Format) -> Module {
    let entries = ThreadGroup::of_entries(kernel);
    let entries = entries.map(|(name, group)| entry(target, format, name, group));
    entries.into_iter().fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

fn entry(target: SmTarget, format: Format, name: &str, group: ThreadGroup) -> Entry {
    let dtype = format.dtype;
    Kernel::build(name, |k| {
        k.max_threads(group.block_threads());
        let parameters = CrossEntropyParameters::declare(&mut Declarations(*k));
        let CrossEntropyParameters { logits, targets, losses, order, row_limit, .. } = parameters;
        let CrossEntropyParameters { grad_logits, grad_logits_bf16, in_place, .. } = parameters;
        let CrossEntropyParameters { counted, rows, vocab, softcap, .. } = parameters;
        let logits = logits.reinterpret();
        let gradient = Output::new(grad_logits, grad_logits_bf16);
        let in_place = in_place.ne(0);
        let operands =
            Operands { logits, targets, losses, order, row_limit, counted, rows, vocab, softcap };
        // Selected where it is written, since registers are scarce in between.
        let gradient = || gradient.or(Output::of(dtype, logits), in_place);
        let row = operands.write_loss(k, format, group, |vectors, _, start| {
            let gradient = gradient();
            k.when(!gradient.is_null(), || vectors.write_zeros(target, gradient.at(start)));
        });
        let gradient = gradient();
        k.return_if(gradient.is_null());
        row.write_gradient(target, gradient.at(row.start));
    })
}

/// Builds the image for logits in f32 whose gradient is split.
pub(crate) fn split(target: SmTarget) -> Module {
    let format = Format { dtype: DType::F32, capped: false };
    let entry = |(name, group): (&str, ThreadGroup)| {
        Kernel::build(name, |k| {
            k.max_threads(group.block_threads());
            let parameters = SplitCrossEntropyParameters::declare(&mut Declarations(*k));
            let SplitCrossEntropyParameters { logits, targets, losses, .. } = parameters;
            let SplitCrossEntropyParameters { order, row_limit, .. } = parameters;
            let SplitCrossEntropyParameters { column_scales, terms, scales, .. } = parameters;
            let SplitCrossEntropyParameters { counted, rows, vocab, .. } = parameters;
            let (logits, softcap) = (logits.reinterpret(), k.constant(0.0));
            let operands = Operands {
                logits,
                targets,
                losses,
                order,
                row_limit,
                counted,
                rows,
                vocab,
                softcap,
            };
            let split = |index| SplitRow::new(index, terms, scales, [rows, vocab]);
            let row = operands.write_loss(k, format, group, |vectors, index, _| {
                vectors.split_zeros(target, group.thread_rank(k), split(index));
            });
            let split = split(row.index).with_column_scales(ColumnScales::new(column_scales));
            row.split_gradient(target, group, split);
        })
    };
    let entries = ThreadGroup::of_entries(&SPLIT_CROSS_ENTROPY).map(entry);
    entries.into_iter().fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

/// The operands of the losses.
struct Operands<'k> {
    logits: Ptr<'k, u32>,
    targets: Ptr<'k, u32>,
    losses: Ptr<'k, f32>,
    order: Ptr<'k, u32>,
    row_limit: Ptr<'k, u32>,
    counted: Ptr<'k, u32>,
    rows: Value<'k, u32>,
    vocab: Value<'k, u32>,
    softcap: Value<'k, f32>,
}

impl<'k> Operands<'k> {
    /// Writes the loss of the row of `group`, and returns the row. If the row is ignored, the block
    /// calls `write_zeros` with the vectors, the index and the start of the row, and ends.
    fn write_loss(
        &self,
        k: &Kernel<'k>,
        format: Format,
        group: ThreadGroup,
        write_zeros: impl FnOnce(&Vectors<'k>, Value<'k, u32>, Value<'k, u64>),
    ) -> Row<'k> {
        let Self { logits, targets, losses, counted, rows, vocab, softcap, .. } = *self;
        let Self { order, row_limit, .. } = *self;
        let dtype = format.dtype;
        let index = group.row(k);
        k.return_if(index.ge(rows));
        let start = index.mul_wide(vocab);
        let x = Ptr::<f32>::from_address(logits.address() + (start << dtype.bytes().ilog2()));
        let (thread_rank, size) = (group.thread_rank(k), group.size());
        let (place, limit) = (k.var(index), k.var(rows));
        k.when(!order.is_null(), || place.set(order.load(index)));
        k.when(!row_limit.is_null(), || limit.set(row_limit.load(0)));
        let (place, limited) = (place.get(), index.ge(limit.get()));
        k.return_if(place.ge(rows));
        let token = targets.load(place);
        let in_vocab = token.lt(vocab);
        let width = 16 / dtype.bytes();

        let first = thread_rank * width;
        let cap = Cap::new(format, softcap);
        let vectors = Vectors { dtype, x, vocab, cap, first, stride: size * width };
        let ignored = limited | token.eq(IGNORED_TARGET);
        k.when(ignored, || {
            k.when(thread_rank.eq(0), || losses.store(place, 0.0));
            k.when(!limited, || write_zeros(&vectors, index, start));
        });
        k.return_if(ignored);
        let [max, sum] = vectors.max_and_sum(k, group);

        // Group sizes are powers of two.
        k.when(thread_rank.eq((token >> width.ilog2()) & (size - 1)), || {
            let loss = k.var(f32::NAN);
            k.when(in_vocab, || {
                let logit = match dtype {
                    DType::F32 => x.load(token),
                    _ => Value::<f32>::from_bits(x.reinterpret::<u32>().load_u16(token) << 16),
                };
                loss.set(sum.ln() + (max - vectors.cap.apply(logit).value));
            });
            losses.store(place, loss);
        });

        let weight = counted.load(0).max(1).cast::<f32>().rcp();
        let weight = in_vocab.select(weight, f32::NAN);
        let factor = sum.rcp() * weight;
        Row { vectors, index, start, max, factor, one_hot: OneHot { token, weight } }
    }
}

/// A row and what its gradient depends on: `exp(logit − max) · factor − one_hot`.
struct Row<'k> {
    vectors: Vectors<'k>,
    index: Value<'k, u32>,
    /// The index of its first element.
    start: Value<'k, u64>,
    max: Value<'k, f32>,
    factor: Value<'k, f32>,
    one_hot: OneHot<'k>,
}

/// A row that is `weight` at the target and 0 elsewhere.
#[derive(Clone, Copy)]
struct OneHot<'k> {
    token: Value<'k, u32>,
    weight: Value<'k, f32>,
}

/// The vectors of 16 bytes of a row that belong to a thread.
struct Vectors<'k> {
    dtype: DType,
    x: Ptr<'k, f32>,
    vocab: Value<'k, u32>,
    cap: Cap<'k>,
    /// The first element of the thread's first vector.
    first: Value<'k, u32>,
    /// Elements from one vector of the thread to the next.
    stride: u32,
}

/// The order of the vectors of a thread.
#[derive(Clone, Copy)]
enum Direction {
    Up,
    Down,
}

impl<'k> Vectors<'k> {
    /// Returns the maximum of the logits, and the sum of `exp(logit − max)`, of the whole row.
    fn max_and_sum(&self, k: &Kernel<'k>, group: ThreadGroup) -> [Value<'k, f32>; 2] {
        let dtype = self.dtype;
        let (max, sum) = (k.var(f32::NEG_INFINITY), k.var(0.0f32));
        let vectorized = aligned(&[self.x]);
        self.for_each_vector(vectorized, Direction::Up, |_, logits| {
            let values: Vec<_> = logits.iter().map(|logit| logit.value).collect();
            let before = max.get();
            max.set(before.max(tree(&values, &|a, b| a.max(b))));
            let exponentials: Vec<_> =
                values.iter().map(|value| relative(dtype, *value, max.get())).collect();
            let added = tree(&exponentials, &|a, b| a + b);
            sum.update(|sum| sum * relative(dtype, before, max.get()) + added);
        });
        let thread_max = max.get();
        let max = group.max(k, thread_max);
        [max, group.sum(k, sum.get() * relative(dtype, thread_max, max))]
    }

    /// Writes a gradient of zeros.
    fn write_zeros(&self, target: SmTarget, gradient: Output<'k>) {
        let (k, width) = (&self.vocab.kernel(), 16 / self.dtype.bytes());
        let vectorized = aligned(&gradient.arrays());
        let zero = k.constant(0.0);
        k.range(self.first, self.vocab, self.stride, |first| match width {
            4 => Vec4::new(first, self.vocab, vectorized).write(target, gradient, [zero; 4]),
            _ => write_eight(target, gradient, first, self.vocab, vectorized, [zero; 8]),
        });
    }

    /// Splits a gradient of zeros in f32.
    fn split_zeros(&self, target: SmTarget, thread_rank: Value<'k, u32>, split: SplitRow<'k>) {
        let k = self.vocab.kernel();
        let largest = split.write_scale_by(thread_rank, k.constant(0.0));
        k.range(self.first, self.vocab, self.stride, |first| {
            split.write(target, first, [k.constant(0.0); 4], split.column_scales(first), largest);
        });
    }

    /// Calls `body` with the index of the first element and the logits of each vector, padded with
    /// −∞. [`UNROLL`] vectors are loaded at a time, if `vectorized`.
    fn for_each_vector(
        &self,
        vectorized: Pred<'k>,
        direction: Direction,
        body: impl Fn(Value<'k, u32>, &[Logit<'k>]),
    ) {
        let (k, chunk) = (self.vocab.kernel(), self.stride * UNROLL);
        let chunks = vectorized.select(self.vocab / chunk, 0);
        let load_chunks = || {
            k.range(0, chunks, 1, |index| {
                let index = match direction {
                    Direction::Up => index,
                    Direction::Down => chunks - 1 - index,
                };
                let first = index * chunk + self.first;
                let words = [0, 1, 2, 3].map(|vector| {
                    let first = first + vector * self.stride;
                    self.x.reinterpret().load_vec4(first >> (4 / self.dtype.bytes()).ilog2())
                });
                for vector in 0..UNROLL {
                    let vector = match direction {
                        Direction::Up => vector,
                        Direction::Down => UNROLL - 1 - vector,
                    };
                    let values = unpacked(self.dtype, words[vector as usize]);
                    let logits: Vec<_> = values.into_iter().map(|it| self.cap.apply(it)).collect();
                    body(first + vector * self.stride, &logits);
                }
            });
        };
        let load_rest = || {
            k.range(chunks * chunk + self.first, self.vocab, self.stride, |first| {
                let values = load(self.dtype, self.x, first, self.vocab, vectorized);
                let logits = (0u32..).zip(values).map(|(lane, value)| {
                    self.cap.apply(value).or_padding(|| (first + lane).lt(self.vocab))
                });
                body(first, &logits.collect::<Vec<_>>());
            });
        };
        match direction {
            Direction::Up => {
                load_chunks();
                load_rest();
            }
            Direction::Down => {
                load_rest();
                load_chunks();
            }
        }
    }
}

impl<'k> Row<'k> {
    /// Writes the gradient of the logits.
    fn write_gradient(&self, target: SmTarget, gradient: Output<'k>) {
        let [f32, bf16] = gradient.arrays();
        let vectorized = aligned(&[self.vectors.x, f32, bf16]);
        let vocab = self.vectors.vocab;
        // Downwards, since the end of the row is still in the L2 cache.
        self.for_each_gradient(vectorized, Direction::Down, |first, entries| match entries[..] {
            [a, b, c, d] => {
                Vec4::new(first, vocab, vectorized).write(target, gradient, [a, b, c, d]);
            }
            _ => {
                let entries = entries.try_into().expect("eight");
                write_eight(target, gradient, first, vocab, vectorized, entries);
            }
        });
    }

    /// Splits the gradient of logits in f32, in rows of whole vectors, which it computes twice.
    fn split_gradient(&self, target: SmTarget, group: ThreadGroup, split: SplitRow<'k>) {
        let k = &self.max.kernel();
        let vectorized = aligned(&[self.vectors.x]);
        let largest = k.var(0);
        // Against the direction of the last pass, whose end is still in the L2 cache.
        self.for_each_gradient(vectorized, Direction::Down, |first, entries| {
            let (entries, scales) = (of_vec4(entries), split.column_scales(first));
            largest.update(|largest| largest_exponent_sum(entries, scales, largest));
        });
        let largest = split.write_scale_of(k, group, largest.get());
        self.for_each_gradient(vectorized, Direction::Up, |first, entries| {
            split.write(target, first, of_vec4(entries), split.column_scales(first), largest);
        });
    }

    /// Calls `body` with the index of the first element and the gradients of each vector.
    fn for_each_gradient(
        &self,
        vectorized: Pred<'k>,
        direction: Direction,
        body: impl Fn(Value<'k, u32>, Vec<Value<'k, f32>>),
    ) {
        let Self { max, factor, one_hot: OneHot { token, weight }, .. } = *self;
        let (k, dtype) = (&max.kernel(), self.vectors.dtype);
        let width = 16 / dtype.bytes();
        self.vectors.for_each_vector(vectorized, direction, |first, logits| {
            let entries: Vec<_> = logits
                .iter()
                .map(|logit| k.var(relative(dtype, logit.value, max) * factor))
                .collect();
            let column = token - first;
            k.when(column.lt(width), || {
                for (lane, entry) in (0u32..).zip(&entries) {
                    let onehot = column.eq(lane).select(weight, 0.0);
                    entry.update(|entry| entry - onehot);
                }
            });
            let entries = entries.iter().zip(logits);
            body(first, entries.map(|(entry, logit)| logit.backward(entry.get())).collect());
        });
    }
}

/// The gradients of a vector in f32.
fn of_vec4(entries: Vec<Value<'_, f32>>) -> F32x4<'_> {
    entries.try_into().expect("a vector has four elements in f32")
}

/// The cap of the logits.
#[derive(Clone, Copy)]
enum Cap<'k> {
    None,
    /// With the accuracy of f32.
    F32(Value<'k, f32>),
    /// Of logits in bf16, with a relative error of 2⁻²⁰.
    Fast(Softcap<'k>),
}

impl<'k> Cap<'k> {
    fn new(format: Format, cap: Value<'k, f32>) -> Self {
        match (format.capped, format.dtype) {
            (false, _) => Self::None,
            (true, DType::F32) => Self::F32(cap),
            (true, _) => Self::Fast(Softcap::new(cap.kernel().constant(1.0), cap)),
        }
    }

    /// The logit of a stored value.
    fn apply(&self, x: Value<'k, f32>) -> Logit<'k> {
        match self {
            Self::None => Logit { value: x, tanh: None },
            Self::F32(cap) => {
                let value = softcap(x, *cap);
                Logit { value, tanh: Some(value / *cap) }
            }
            Self::Fast(softcap) => {
                let tanh = softcap.tanh(x);
                Logit { value: softcap.cap * tanh, tanh: Some(tanh) }
            }
        }
    }
}

/// A logit.
#[derive(Clone, Copy)]
struct Logit<'k> {
    /// With its cap.
    value: Value<'k, f32>,
    /// The logit ÷ the cap, if there is one.
    tanh: Option<Value<'k, f32>>,
}

impl<'k> Logit<'k> {
    /// −∞ if the logit is not `in_row`. Without a cap it already is.
    fn or_padding(self, in_row: impl FnOnce() -> Pred<'k>) -> Self {
        match self.tanh {
            Some(_) => Self { value: in_row().select(self.value, f32::NEG_INFINITY), ..self },
            None => self,
        }
    }

    /// The gradient of the stored value from the gradient of the logit.
    fn backward(&self, grad: Value<'k, f32>) -> Value<'k, f32> {
        self.tanh.map_or(grad, |tanh| softcap_backward(grad, tanh))
    }
}

/// The elements in words of a vector.
fn unpacked(dtype: DType, words: [Value<'_, u32>; 4]) -> Vec<Value<'_, f32>> {
    match dtype {
        DType::F32 => words.map(Value::<f32>::from_bits).to_vec(),
        _ => words.into_iter().flat_map(unpack).collect(),
    }
}

/// The logits of 16 bytes from index `first` on, padded with −∞.
fn load<'k>(
    dtype: DType,
    x: Ptr<'k, f32>,
    first: Value<'k, u32>,
    vocab: Value<'k, u32>,
    vectorized: Pred<'k>,
) -> Vec<Value<'k, f32>> {
    match dtype {
        DType::F32 => Vec4::new(first, vocab, vectorized).load_or(x, f32::NEG_INFINITY).to_vec(),
        _ => load_eight_or(dtype, x, first, vocab, vectorized, f32::NEG_INFINITY).to_vec(),
    }
}

/// Reduces values by a tree: combines neighbors, then the results of neighbors.
fn tree<'k>(
    values: &[Value<'k, f32>],
    combine: &impl Fn(Value<'k, f32>, Value<'k, f32>) -> Value<'k, f32>,
) -> Value<'k, f32> {
    match values {
        [value] => *value,
        _ => {
            let (low, high) = values.split_at(values.len() / 2);
            combine(tree(low, combine), tree(high, combine))
        }
    }
}

/// `exp(value − max)`, and 0 while every value is −∞. For logits in bf16, the exponent is rounded
/// to f32, and results below 2⁻¹²⁶ are 0.
fn relative<'k>(dtype: DType, value: Value<'k, f32>, max: Value<'k, f32>) -> Value<'k, f32> {
    let max = max.eq(f32::NEG_INFINITY).select(0.0, max);
    match dtype {
        DType::F32 => (value - max).exp(),
        _ => ((value - max) * LOG2_E).exp2_ftz(),
    }
}
