//! Matrix products of a warp by tensor cores: `a·bᵀ` of two tiles, and `p·b` of a fragment held in
//! registers and a tile.
//!
//! **Columns.** `a·bᵀ` has the columns of an `mma` accumulator: of each fragment, a lane holds the
//! columns 2·member and 2·member + 1, with member = lane mod 4. `p·b` in bf16 has the same columns.
//! In f32, which `ldmatrix` can't transpose, a lane loads two neighbors in a row of b at once, one
//! for each of two fragments. It then holds four consecutive columns of each 16: the first and
//! third in one fragment, the second and fourth in the next.

use retrograph_kernel_abi::DType;
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Shared, Value};

use super::config::Config;
use super::loader::PlacedTile;
use crate::primitives::bf16::pack;
use crate::primitives::mma::{AccFragment, acc_row, add_fragments};
use crate::primitives::tf32::{mma_tf32x3, split};

/// Words after which the swizzle pattern of a row repeats: eight chunks.
pub(super) const PERIOD: u32 = 32;

/// The matrix products of one warp, with the addresses from which its lanes load.
pub(super) struct WarpMma<'k> {
    pub(super) kernel: Kernel<'k>,
    pub(super) config: Config,
    pub(super) smem: Shared<'k, u32>,
    head_dim: Value<'k, u32>,
    /// The lane's first `ldmatrix` word in 16 rows of a (and, in bf16, of b in `p·b`), and in 16
    /// rows of b in `a·bᵀ`. XOR with a constant gives later pairs of chunks.
    a_word: Value<'k, u32>,
    b_word: Value<'k, u32>,
    /// The lane's first word in 8 rows of b in `p·b`, in f32.
    b_word_f32: Value<'k, u32>,
    /// Words before the warp's rows of a.
    warp_offset: Value<'k, u32>,
}

/// A left operand in registers: one fragment per step of K.
pub(super) type Fragments<'k> = Vec<[Value<'k, u32>; 4]>;

/// An operand of an instruction: unchanged in bf16, split into hi and lo in f32.
type Operand<'k, const N: usize> = Vec<[Value<'k, u32>; N]>;

/// Converts an accumulator to the left operand of the next product.
pub(super) fn to_fragments<'k>(config: Config, acc: &[AccFragment<'k>]) -> Fragments<'k> {
    match config.dtype {
        // The columns 2·member and 2·member + 1 become the elements member and member + 4 along K.
        DType::F32 => {
            acc.iter().map(|acc| [0, 2, 1, 3].map(|i: usize| acc[i].get().bits())).collect()
        }
        _ => pack_fragments(config.target, acc),
    }
}

/// Rounds an accumulator to bf16, as the left operand of the next product.
pub(super) fn pack_fragments<'k>(target: SmTarget, acc: &[AccFragment<'k>]) -> Fragments<'k> {
    fragments_of(acc, |pair| pack(target, pair))
}

/// Converts an accumulator to the left operand of the next product; `pack` rounds pairs of
/// elements.
pub(super) fn fragments_of<'k>(
    acc: &[AccFragment<'k>],
    pack: impl Fn([Value<'k, f32>; 2]) -> Value<'k, u32>,
) -> Fragments<'k> {
    let pair =
        |acc: &AccFragment<'k>, half: usize| pack([acc[half * 2].get(), acc[half * 2 + 1].get()]);
    let steps = acc.chunks_exact(2);
    steps.map(|two| [0, 1, 2, 3].map(|i| pair(&two[i / 2], i % 2))).collect()
}

impl<'k> WarpMma<'k> {
    /// The products of this warp over tiles in `smem`, whose rows have `head_dim` elements and then
    /// padding.
    pub(super) fn new(
        k: &Kernel<'k>,
        config: Config,
        smem: Shared<'k, u32>,
        head_dim: Value<'k, u32>,
    ) -> Self {
        let lane = k.lane();
        let (within, low, high) = (lane & 7, (lane >> 3) & 1, lane >> 4);
        let words = config.row_words();
        let word =
            |row: Value<'k, u32>, chunk: Value<'k, u32>| row * words + ((chunk ^ within) << 2);
        let (a_word, b_word) = (word(within + low * 8, high), word(within + high * 8, low));
        let row = (lane & 3) * 2;
        let b_word_f32 = row * words + (((lane >> 3) ^ row) << 2) + ((lane >> 1) & 2);
        Self {
            kernel: *k,
            config,
            smem,
            head_dim,
            a_word,
            b_word,
            b_word_f32,
            warp_offset: k.warp() * (16 * words),
        }
    }

    /// The addresses of the four pairs of chunks of a period, the first of which is at `word`.
    fn chunk_pairs(&self, word: Value<'k, u32>) -> [Shared<'k, u32>; 4] {
        [0, 8, 16, 24].map(|offset| self.smem.at(word ^ offset))
    }

    /// Four matrices of the chunks 2·`step` and 2·`step` + 1, from the rows at `chunk_pairs` in the
    /// tile whose words start at `first`.
    fn ldmatrix(
        chunk_pairs: &[Shared<'k, u32>; 4],
        first: u32,
        step: u32,
        transposed: bool,
    ) -> [Value<'k, u32>; 4] {
        let offset = first + step / 4 * PERIOD;
        chunk_pairs[step as usize % 4].offset(offset.into()).ldmatrix_x4(transposed)
    }

    /// `acc += a·bᵀ`, for the warp's 16 rows of `a` and all rows of `b`.
    pub(super) fn multiply_transposed(&self, [a, b]: [PlacedTile; 2], acc: &[AccFragment<'k>]) {
        if !self.config.has_tensor_cores() {
            return self.multiply_transposed_fma([a, b], acc);
        }
        let words = self.config.row_words();
        // A bound that is unknown at compile time prevents unrolling, which would take too many
        // registers in f32.
        let end = match self.config.dtype {
            DType::F32 => self.head_dim,
            _ => self.kernel.constant(words),
        };
        self.kernel.range(0, end, PERIOD, |offset| {
            let a_chunks = self.chunk_pairs(self.a_word + self.warp_offset + offset);
            let b_chunks = self.chunk_pairs(self.b_word + offset);
            let stage_acc = self.stage_acc(acc);
            for step in 0..4 {
                let a_operand = self.operand(Self::ldmatrix(&a_chunks, a.first, step, false));
                let b_operands: Vec<_> = (0..b.tile.runs / 16)
                    .map(|i| Self::ldmatrix(&b_chunks, b.first + i * 16 * words, step, false))
                    .flat_map(|[a, b, c, d]| [[a, b], [c, d]].map(|two| self.operand(two)))
                    .collect();
                self.mma(&a_operand, &b_operands, &stage_acc);
            }
            self.add_stage(acc, &stage_acc);
        });
    }

    /// `acc += p·b`, for all rows of `b`.
    pub(super) fn multiply(&self, p: &Fragments<'k>, b: PlacedTile, acc: &[AccFragment<'k>]) {
        assert_eq!(
            p.len() as u32 * self.config.mma_k(),
            b.tile.runs,
            "a fragment for each step of K"
        );
        if !self.config.has_tensor_cores() {
            return self.multiply_fma(p, b, acc);
        }
        let p: Vec<_> = p.iter().map(|fragment| self.operand(*fragment)).collect();
        let b_addresses = self.b_addresses();
        for (group, acc) in (0..).zip(acc.chunks(4)) {
            let multiply_group = || {
                for (pair, acc) in (group * 2..).zip(acc.chunks_exact(2)) {
                    let stage_acc = self.stage_acc(acc);
                    for (step, a_operand) in (0..).zip(&p) {
                        let row = step * self.config.mma_k();
                        let first = b.first + row * self.config.row_words();
                        let b_operands = self.load_b(&b_addresses, first, pair);
                        self.mma(a_operand, &b_operands, &stage_acc);
                    }
                    self.add_stage(acc, &stage_acc);
                }
            };
            // The branch skips the padding of the head. It also keeps the assembler from hoisting
            // loads until registers run out.
            if self.config.dtype == DType::F32 && group > 0 {
                self.kernel.when(self.head_dim.gt(group * 32), multiply_group);
            } else {
                multiply_group();
            }
        }
    }

    /// The addresses of rows of b along K: the pairs of chunks of a period in bf16; in f32 two
    /// rows, in both halves of a period.
    fn b_addresses(&self) -> [Shared<'k, u32>; 4] {
        match self.config.dtype {
            DType::F32 => {
                let row = self.b_word_f32;
                let next = (row ^ 4) + self.config.row_words();
                [row, next, row ^ 16, next ^ 16].map(|word| self.smem.at(word))
            }
            _ => self.chunk_pairs(self.a_word),
        }
    }

    /// One step of K of b, for both fragments of pair `pair`, from the rows whose words start at
    /// `first`.
    fn load_b(
        &self,
        addresses: &[Shared<'k, u32>; 4],
        first: u32,
        pair: u32,
    ) -> [Operand<'k, 2>; 2] {
        let [a, b, c, d] = match self.config.dtype {
            DType::F32 => {
                let offset = i64::from(first + pair / 2 * PERIOD);
                let half = pair as usize % 2 * 2;
                let rows = [addresses[half], addresses[half + 1]];
                let [[a, c], [b, d]] = rows.map(|row| row.offset(offset).load_vec2(0));
                [a, b, c, d]
            }
            _ => Self::ldmatrix(addresses, first, pair, true),
        };
        [[a, b], [c, d]].map(|words| self.operand(words))
    }

    fn operand<const N: usize>(&self, words: [Value<'k, u32>; N]) -> Operand<'k, N> {
        match self.config.dtype {
            DType::F32 => split(words).to_vec(),
            _ => vec![words],
        }
    }

    /// `acc += a·b`, with one operand of b per fragment of `acc`.
    fn mma(&self, a: &Operand<'k, 4>, b: &[Operand<'k, 2>], acc: &[AccFragment<'k>]) {
        let k = &self.kernel;
        if self.config.dtype == DType::F32 {
            let b: Vec<_> = b.iter().map(|b| [b[0], b[1]]).collect();
            return mma_tf32x3(k, [a[0], a[1]], &b, acc);
        }
        assert_eq!(b.len(), acc.len(), "an operand of b for each fragment");
        b.iter().zip(acc).for_each(|(b, acc)| k.mma_m16n8k16_bf16(a[0], b[0], *acc));
    }

    /// The accumulator of a stage: in f32 it starts from zero, see [`WarpMma::add_stage`].
    fn stage_acc(&self, acc: &[AccFragment<'k>]) -> Vec<AccFragment<'k>> {
        match self.config.dtype {
            DType::F32 => acc_row(&self.kernel, acc.len() as u32 * 8),
            _ => acc.to_vec(),
        }
    }

    /// Adds the accumulator of a stage in f32, because tensor cores truncate when they accumulate.
    fn add_stage(&self, acc: &[AccFragment<'k>], stage_acc: &[AccFragment<'k>]) {
        if self.config.dtype == DType::F32 {
            add_fragments(acc, stage_acc);
        }
    }
}
