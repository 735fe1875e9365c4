//! Cross-entropy loss, and its gradient with respect to the logits.
//!
//! ```text
//! losses[r]         = ln Σ_c exp(logits[r][c] − max_r) + (max_r − logits[r][target_r])
//! p[r][c]           = exp(logits[r][c] − max_r) ÷ Σ_c exp(logits[r][c] − max_r)
//! grad_logits[r][c] = (p[r][c] − [c = target_r]) ÷ max(counted, 1)
//! ```
//!
//! The target 2³² − 1 is ignored: its loss is 0, and its gradient is p[r][c] · 0, which is 0 unless
//! p is NaN. Any other target outside the vocabulary gives NaN for the loss and the gradient of the
//! row. Neither is used as an index.
//!
//! The gradient is written as f32, bf16 or both, or in place of the logits. If all destinations are
//! null, only losses are computed.
//!
//! **Grid.** `cross_entropy_warp_per_row`: 4 rows per block of 128 threads, for small vocabularies.
//! `cross_entropy_block_per_row`: one block of 1024 threads per row, for large ones. Thread i of a
//! group handles the vec4s i, i + size, … (of bf16, groups of eight) in two passes. The first keeps
//! a running maximum and the sum of exponentials relative to it, and rescales the sum when the
//! maximum grows (Milakov and Gimelshein, arXiv 1805.02867). The second computes the gradient. The
//! thread that owns the target's column writes the loss before it may overwrite the logit.
//!
//! A thread loads [`UNROLL`] vectors of 16 bytes at a time. A block keeps as many of its row as its
//! dynamic shared memory holds, from the first on, so that the second pass reads less from global
//! memory.
//!
//! **Determinism.** A thread adds its vec4s in ascending order; a butterfly of fixed shape adds the
//! threads.

use retrograph_kernel_abi::loss::{
    CROSS_ENTROPY, CROSS_ENTROPY_BF16, CROSS_ENTROPY_UNROLL as UNROLL, CrossEntropyParameters,
    IGNORED_TARGET,
};
use retrograph_kernel_abi::{DType, RowKernel};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::{Entry, Module};
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Ptr, Shared, Value, Var};

use crate::primitives::bf16::unpack;
use crate::primitives::parameters::Declarations;
use crate::primitives::thread_group::ThreadGroup;
use crate::primitives::vec4::{Output, Vec4, aligned, load_eight_or, write_eight};

/// Builds the image for logits in f32.
pub(crate) fn module(target: SmTarget) -> Module {
    build(target, &CROSS_ENTROPY, DType::F32)
}

/// Builds the image for logits in bf16.
pub(crate) fn module_bf16(target: SmTarget) -> Module {
    build(target, &CROSS_ENTROPY_BF16, DType::Bf16)
}

fn build(target: SmTarget, kernel: &RowKernel, dtype: DType) -> Module {
    let entries = ThreadGroup::of_entries(kernel);
    let entries = entries.map(|(name, group)| entry((target, dtype), name, group));
    entries.into_iter().fold(ModuleBuilder::new(target), ModuleBuilder::entry).build()
}

fn entry(element: (SmTarget, DType), name: &str, group: ThreadGroup) -> Entry {
    Kernel::build(name, |k| describe(k, element, group))
}

fn describe<'k>(k: &Kernel<'k>, (target, dtype): (SmTarget, DType), group: ThreadGroup) {
    k.max_threads(group.block_threads());
    let parameters = CrossEntropyParameters::declare(&mut Declarations(*k));
    let CrossEntropyParameters { logits, targets, losses, grad_logits, .. } = parameters;
    let CrossEntropyParameters { grad_logits_bf16, in_place, counted, .. } = parameters;
    let CrossEntropyParameters { rows, vocab, .. } = parameters;
    let logits = logits.reinterpret();
    let gradient = Output::new(grad_logits, grad_logits_bf16);
    let in_place = in_place.ne(0);

    let row = group.row(k);
    k.return_if(row.ge(rows));
    let start = row.mul_wide(vocab);
    let x = Ptr::<f32>::from_address(logits.address() + (start << dtype.bytes().ilog2()));
    let token = targets.load(row);
    let in_vocab = token.lt(vocab);
    let fallback = token.eq(IGNORED_TARGET).select(0.0, f32::NAN);
    let (thread_rank, size) = (group.thread_rank(k), group.size());
    let width = 16 / dtype.bytes();

    let (max, sum) = (k.var(f32::NEG_INFINITY), k.var(0.0f32));
    let vectorized = aligned(&[x]);
    let vectors = Vectors::new(k, (dtype, group), (x, vocab, vectorized));
    let accumulate = |values: &[Value<'k, f32>]| {
        let before = max.get();
        max.set(before.max(tree(values, &|a, b| a.max(b))));
        let values: Vec<_> = values.iter().map(|value| relative(*value, max.get())).collect();
        let added = tree(&values, &|a, b| a + b);
        sum.update(|sum| sum * relative(before, max.get()) + added);
    };
    vectors.for_each_chunk(|first| {
        let loaded = vectors.load(first);
        vectors.keep(first, &loaded);
        loaded.into_iter().for_each(|words| accumulate(&unpacked(dtype, words)));
    });
    vectors.for_each_rest(vocab, |first| {
        accumulate(&load((dtype, x), (first, vocab, vectorized)));
    });
    let thread_max = max.get();
    let max = group.max(k, thread_max);
    let sum = group.sum(k, sum.get() * relative(thread_max, max));

    // Group sizes are powers of two.
    k.when(thread_rank.eq((token >> width.ilog2()) & (size - 1)), || {
        let loss = k.var(fallback);
        k.when(in_vocab, || {
            let logit = match dtype {
                DType::F32 => x.load(token),
                _ => Value::<f32>::from_bits(x.reinterpret::<u32>().load_u16(token) << 16),
            };
            loss.set(sum.ln() + (max - logit));
        });
        losses.store(row, loss);
    });

    let weight = counted.load(0).max(1).cast::<f32>().rcp();
    let weight = in_vocab.select(weight, fallback);
    let scale = sum.rcp();
    let gradient = gradient.or(Output::of(dtype, logits), in_place);
    k.return_if(gradient.is_null());
    let gradient = gradient.at(start);
    let [f32, bf16] = gradient.arrays();
    let vectorized = aligned(&[x, f32, bf16]);
    let write = |first: Value<'k, u32>, values: Vec<Value<'k, f32>>| {
        let place = (first, vocab, vectorized);
        let entries: Vec<_> = (0u32..)
            .zip(values)
            .map(|(lane, value)| {
                let onehot = (first + lane).eq(token).select(1.0, 0.0);
                ((value - max).exp() * scale - onehot) * weight
            })
            .collect();
        match entries[..] {
            [a, b, c, d] => {
                Vec4::new(first, vocab, vectorized).write(target, gradient, [a, b, c, d]);
            }
            _ => write_eight(target, gradient, place, entries.try_into().expect("eight")),
        }
    };
    let vectors = vectors.only_if(vectorized);
    vectors.for_each_chunk(|first| {
        for ((first, exists), words) in
            vectors.in_chunk(first).into_iter().zip(vectors.load_kept(first))
        {
            k.when(exists, || write(first, unpacked(dtype, words)));
        }
    });
    vectors.for_each_rest(vocab, |first| {
        write(first, load((dtype, x), (first, vocab, vectorized)));
    });
}

/// The bytes of dynamic shared memory of a launch of the block entry at most: whole chunks.
pub(crate) fn smem_bytes(target: SmTarget) -> u32 {
    let chunk = CROSS_ENTROPY.block_threads * UNROLL * 16;
    // Reductions of the block need some shared memory, too.
    (target.features().smem_bytes_per_block - 1024) / chunk * chunk
}

/// The words of a vector of 16 bytes.
type Words<'k> = [Value<'k, u32>; 4];

/// The whole vectors of a row. A chunk is [`UNROLL`] of them for each thread of the group.
#[derive(Clone, Copy)]
struct Vectors<'k> {
    kernel: Kernel<'k>,
    group: ThreadGroup,
    dtype: DType,
    row: Ptr<'k, u32>,
    /// Elements of all vectors.
    len: Value<'k, u32>,
    /// Elements of the chunks whose words are kept in shared memory.
    kept: Value<'k, u32>,
    smem: Shared<'k, u32>,
}

impl<'k> Vectors<'k> {
    /// Those of the row at `row` with `vocab` elements; none unless `aligned`.
    fn new(
        k: &Kernel<'k>,
        (dtype, group): (DType, ThreadGroup),
        (row, vocab, aligned): (Ptr<'k, f32>, Value<'k, u32>, Pred<'k>),
    ) -> Self {
        let kept = match group {
            ThreadGroup::Block { .. } => k.dynamic_smem_size() / dtype.bytes(),
            ThreadGroup::Warp { .. } => k.constant(0),
        };
        let len = aligned.select(vocab & !(16 / dtype.bytes() - 1), 0);
        let (row, smem) = (row.reinterpret(), k.dynamic_shared());
        Self { kernel: *k, group, dtype, row, len, kept, smem }
    }

    /// The same vectors if `condition` holds, else none.
    fn only_if(self, condition: Pred<'k>) -> Self {
        Self { len: condition.select(self.len, 0), ..self }
    }

    /// Elements from a vector of a thread to its next one.
    fn stride(&self) -> u32 {
        self.group.size() * 16 / self.dtype.bytes()
    }

    /// Calls `body` with the first element of this thread in each chunk.
    fn for_each_chunk(&self, body: impl FnOnce(Value<'k, u32>)) {
        let k = &self.kernel;
        let first = self.group.thread_rank(k) * (16 / self.dtype.bytes());
        k.range(first, self.len, self.stride() * UNROLL, body);
    }

    /// Calls `body` with the first element of what vectors leave to this thread, 16 bytes each.
    fn for_each_rest(&self, vocab: Value<'k, u32>, body: impl FnOnce(Value<'k, u32>)) {
        let (k, width) = (&self.kernel, 16 / self.dtype.bytes());
        // The thread is that of a vector at this place.
        let rank = (self.group.thread_rank(k) - self.len / width) & (self.group.size() - 1);
        k.range(self.len + rank * width, vocab, self.stride(), body);
    }

    /// The first element of each vector of this thread in a chunk, and whether there is one.
    fn in_chunk(&self, first: Value<'k, u32>) -> [(Value<'k, u32>, Pred<'k>); UNROLL as usize] {
        std::array::from_fn(|index| {
            let first = first + index as u32 * self.stride();
            (first, first.lt(self.len))
        })
    }

    /// The words of the vectors of a chunk, −∞ where there is none. All loads are in flight at the
    /// same time.
    fn load(&self, first: Value<'k, u32>) -> [Words<'k>; UNROLL as usize] {
        let k = &self.kernel;
        let padding = match self.dtype {
            DType::F32 => 0xff80_0000u32,
            _ => 0xff80_ff80,
        };
        self.in_chunk(first).map(|(first, exists)| {
            let words = [(); 4].map(|()| k.var(padding));
            k.when(exists, || set(words, self.row.load_vec4(self.word(first))));
            words.map(|word| word.get())
        })
    }

    /// Keeps the words of a chunk in shared memory if it has place.
    fn keep(&self, first: Value<'k, u32>, vectors: &[Words<'k>; UNROLL as usize]) {
        self.kernel.when(first.lt(self.kept), || {
            for ((first, _), words) in self.in_chunk(first).into_iter().zip(vectors) {
                self.smem.store_vec4(self.word(first), *words);
            }
        });
    }

    /// The same as [`Self::load`], from shared memory if they are kept.
    fn load_kept(&self, first: Value<'k, u32>) -> [Words<'k>; UNROLL as usize] {
        let k = &self.kernel;
        let vectors = [(); UNROLL as usize].map(|()| [(); 4].map(|()| k.var(0u32)));
        let set = |loaded: [Words<'k>; UNROLL as usize]| {
            vectors.into_iter().zip(loaded).for_each(|(words, loaded)| set(words, loaded));
        };
        let kept = || self.in_chunk(first).map(|(first, _)| self.smem.load_vec4(self.word(first)));
        k.when_else(first.lt(self.kept), || set(kept()), || set(self.load(first)));
        vectors.map(|words| words.map(|word| word.get()))
    }

    fn word(&self, element: Value<'k, u32>) -> Value<'k, u32> {
        element / (4 / self.dtype.bytes())
    }
}

fn set<'k>(to: [Var<'k, u32>; 4], words: Words<'k>) {
    to.into_iter().zip(words).for_each(|(to, word)| to.set(word));
}

/// The elements of words.
fn unpacked<'k>(dtype: DType, words: Words<'k>) -> Vec<Value<'k, f32>> {
    match dtype {
        DType::F32 => words.map(Value::<f32>::from_bits).to_vec(),
        _ => words.into_iter().flat_map(unpack).collect(),
    }
}

/// The logits of 16 bytes from index `first` on, padded with −∞.
fn load<'k>(
    (dtype, x): (DType, Ptr<'k, f32>),
    (first, vocab, vectorized): (Value<'k, u32>, Value<'k, u32>, Pred<'k>),
) -> Vec<Value<'k, f32>> {
    match dtype {
        DType::F32 => Vec4::new(first, vocab, vectorized).load_or(x, f32::NEG_INFINITY).to_vec(),
        _ => load_eight_or((dtype, x), (first, vocab, vectorized), f32::NEG_INFINITY).to_vec(),
    }
}

/// Combines neighbours, then the results of neighbours.
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

/// `exp(value − max)`, and 0 while every value is −∞.
fn relative<'k>(value: Value<'k, f32>, max: Value<'k, f32>) -> Value<'k, f32> {
    let max = max.eq(f32::NEG_INFINITY).select(0.0, max);
    (value - max).exp()
}
