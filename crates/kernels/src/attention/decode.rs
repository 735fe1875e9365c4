//! Attention of one new token per sequence over its KV cache (flash-decoding): positions are split
//! among blocks. The number of sequences (`batch` in shapes) is the length of `position`. The
//! result of a sequence has the same bits in every batch with splits of the same length.
//!
//! [`DecodeAttention`] computes each split and [`DecodeAttentionCombine`] combines them. Only
//! positions in use are read, in f32 or bf16. Everything has the precision of f32.

use retrograph_kernel_abi::Signature;
use retrograph_kernel_abi::attention as abi;

use super::cache::{KvCacheShape, SPLIT_LEN};
use super::kv_cache_append::KvCache;
use crate::checks::Check;
use crate::geometry::{MAX_GRID_YZ, SMS, linear};
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Dispatch, Kernel, KernelError, Launch, Output, Problem, View};

/// Kernel of [`DecodeAttention`].
pub static DECODE_ATTENTION: Kernel =
    Kernel::new("decode_attention", &abi::DECODE_ATTENTION, |problem, _| {
        dispatch(&abi::DECODE_ATTENTION, problem)
    });

/// Kernel of [`DecodeAttention`] over caches in bf16.
pub static DECODE_ATTENTION_BF16: Kernel =
    Kernel::new("decode_attention_bf16", &abi::DECODE_ATTENTION_BF16, |problem, _| {
        dispatch(&abi::DECODE_ATTENTION_BF16, problem)
    });

/// Kernel of [`DecodeAttentionCombine`].
pub static DECODE_ATTENTION_COMBINE: Kernel =
    Kernel::new("decode_attention_combine", &abi::DECODE_ATTENTION_COMBINE, |problem, _| {
        let (entry, threads) = (abi::DECODE_ATTENTION_COMBINE.entry(), abi::DECODE_COMBINE_THREADS);
        problem.items().map(|heads| linear(entry, heads, threads))
    });

/// The most blocks per SM for splits of [`SPLIT_LEN`] positions: as many as run at a time.
const BLOCKS_PER_SM: u32 = 3;
/// The same for longer splits, per [`SPLIT_LEN`] positions. Their blocks spend less of their time
/// on queries, and more blocks balance the load.
const BLOCKS_OF_LONG_SPLITS: u32 = 6;

/// Blocks of heads, of splits, and sequences.
fn dispatch(kernel: &Signature, problem: &Problem) -> Option<Dispatch> {
    let Problem::Decode { head_blocks, split_blocks, batch, shared_bytes, softcap } = *problem
    else {
        return None;
    };
    let entry = kernel.entries[usize::from(softcap)];
    Some(Dispatch {
        grid: [head_blocks, split_blocks, batch],
        shared_bytes,
        ..linear(entry, 1, abi::DECODE_THREADS)
    })
}

/// Shared memory of a block that needs no function attribute.
const MAX_SHARED_BYTES: u32 = 48 << 10;
/// The largest head_dim.
const MAX_HEAD_DIM: usize = abi::DECODE_MAX_HEAD_DIM as usize;

/// The LoRA update `scale · b · t`, which is added to a projection.
#[derive(Clone, Copy, Debug)]
pub struct LoraUpdate<B> {
    /// `[batch, rank]`, read: `t = A·x`.
    pub t: View<B, f32>,
    /// B, `[outputs, rank]`, read.
    pub b: View<B, f32>,
    /// The LoRA scale, the same for all three projections.
    pub scale: f32,
}

/// The query, key or value projection of the new token.
#[derive(Clone, Copy, Debug)]
pub struct QkvProjection<B> {
    /// `[batch, heads, head_dim]`, read: without the LoRA update.
    pub x: View<B, f32>,
    /// The LoRA update to add.
    pub lora: Option<LoraUpdate<B>>,
}

impl<B> From<View<B, f32>> for QkvProjection<B> {
    fn from(x: View<B, f32>) -> Self {
        Self { x, lora: None }
    }
}

/// Norm and RoPE of query and key.
#[derive(Clone, Copy, Debug)]
pub struct QkNormRope<B> {
    /// `[head_dim]` each, read: the gains of the RMSNorm of each query head and key head.
    pub gammas: [Option<View<B, f32>>; 2],
    /// Added to the mean of squares; finite and not negative.
    pub eps: f32,
    /// `[positions, head_dim ÷ 2]` each, read: cosines and sines of
    /// [`rope_tables`](crate::rope::rope_tables).
    pub tables: [View<B, f32>; 2],
    /// Positions of the tables. Later positions take the last row.
    pub positions: usize,
}

/// Attention of one token at `position` over all positions up to it.
///
/// For each split of the cache it computes the sum of values weighted by `exp(score − max)`, the
/// maximum score of the split, and the sum of the weights. [`DecodeAttentionCombine`] computes the
/// output from them.
///
/// The kernel fuses LoRA-B, q/k norm, RoPE and the append: the token's key and value are written to
/// the cache at `position`, if that is within the capacity, rounded as in
/// [`KvCacheAppend`](crate::attention::KvCacheAppend).
///
/// With caches in bf16, the products run on tensor cores from sm_80 on. Weights are sums of three
/// bf16 numbers, of which some are 0, so an infinite value gives NaN.
#[derive(Clone, Copy, Debug)]
pub struct DecodeAttention<B> {
    /// Query (`heads` heads), key and value (`kv_heads` heads each) of the token.
    pub qkv: [QkvProjection<B>; 3],
    /// Norm and RoPE of query and key.
    pub norm_rope: QkNormRope<B>,
    /// `[batch, positions, kv_heads, head_dim]` each, read, and written at `position`. `positions`
    /// is the capacity for one sequence, at least the capacity for several.
    pub caches: KvCache<B>,
    /// `[batch, heads, splits, head_dim]`, written for splits with positions in use.
    pub partials: View<B, f32>,
    /// `[batch, heads, splits, 2]`, written for the same splits: maximum and sum.
    pub stats: View<B, f32>,
    /// `[batch]`, read: the position of the token of each sequence.
    pub position: View<B, u32>,
    /// The sizes of one sequence; head_dim is even and at most 512.
    pub shape: KvCacheShape,
    /// Sliding window: the most positions that the token attends to, itself included; all if
    /// `None`. At least 1.
    pub window: Option<u32>,
    /// The softmax scale, usually 1/√head_dim.
    pub scale: f32,
    /// The cap of the scores: with it, a score s is `softcap · tanh(s ÷ softcap)`. Finite and
    /// positive.
    pub softcap: Option<f32>,
}

/// The pointers of a projection.
struct ProjectionPointers<B> {
    x: Pointer<B, f32>,
    lora_t: Pointer<B, f32>,
    lora_b: Pointer<B, f32>,
}

/// The parameters of the projections: pointers, and rank and scale of their LoRA updates.
struct QkvParameters<B> {
    pointers: [ProjectionPointers<B>; 3],
    rank: u32,
    lora_scale: f32,
}

impl<B: Copy> DecodeAttention<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match the shape and the number of sequences, `head_dim` is odd or above
    /// 512, a bf16 cache row is not a multiple of 4 bytes, LoRA matrices or norms do not fit the
    /// heads, the window is 0, or the cap of the scores is not finite and positive.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { norm_rope, caches, partials, stats, position, shape, window, scale, .. } = self;
        let check = Check(DECODE_ATTENTION.name);
        let [keys, values] = caches.views();
        let batch = position.len();
        let cache_positions =
            shape.check_batch(check, [("keys", keys), ("values", values)], batch)?;
        caches.check_words(check, shape.width())?;
        let head_dim = shape.head_dim;
        let holds = head_dim.is_multiple_of(2) && head_dim <= MAX_HEAD_DIM;
        check.rule(holds, "head_dim must be even and at most 512", head_dim)?;
        let sizes = Splits { partials, stats, position }.check(check, shape)?;
        let kv_heads = check.size("kv_heads", shape.kv_heads)?;
        let group = check.size("the heads of a group", shape.heads / shape.kv_heads)?;
        let head_dim = check.size("head_dim", head_dim)?;
        let split_len = check.size("the positions of a split", shape.split_length(batch))?;
        let block_heads = sizes.block_heads([kv_heads, group], [head_dim, split_len]);
        let group_blocks = group.div_ceil(block_heads);
        let QkvParameters { pointers: [q, k, v], rank, lora_scale } = self.qkv(check)?;
        norm_rope.check(check, shape.head_dim)?;
        let QkNormRope { gammas, eps, tables, positions } = norm_rope;
        let ([q_gamma, k_gamma], [cos, sin]) =
            (gammas.map(Pointer::read_optional), tables.map(Pointer::read));
        let [key_cache, value_cache] = caches.pointers();
        let parameters = abi::DecodeAttentionParameters::<ArgumentTypes<B>> {
            q: q.x,
            q_lora_t: q.lora_t,
            q_lora_b: q.lora_b,
            k: k.x,
            k_lora_t: k.lora_t,
            k_lora_b: k.lora_b,
            v: v.x,
            v_lora_t: v.lora_t,
            v_lora_b: v.lora_b,
            q_gamma,
            k_gamma,
            cos,
            sin,
            key_cache,
            value_cache,
            partials: Pointer::write(partials),
            stats: Pointer::write(stats),
            position: Pointer::read(position),
            capacity: check.size("the capacity", shape.capacity)?,
            cache_positions,
            kv_heads,
            group,
            block_heads,
            group_blocks,
            splits: sizes.splits,
            split_len,
            window: check_window(check, window)?,
            head_dim,
            rank,
            positions: check.size("positions", positions)?,
            lora_scale,
            eps,
            scale,
            softcap: check.softcap(self.softcap)?,
        };
        let kernel = match caches {
            KvCache::F32(_) => &DECODE_ATTENTION,
            KvCache::Bf16(_) => &DECODE_ATTENTION_BF16,
        };
        let head_blocks = kv_heads * group_blocks;
        let split_blocks = sizes.split_blocks(head_blocks, split_len);
        let shared_bytes = abi::decode_shared_bytes(block_heads, head_dim, split_len);
        let problem = Problem::Decode {
            head_blocks,
            split_blocks,
            batch: sizes.batch,
            shared_bytes,
            softcap: self.softcap.is_some(),
        };
        Ok(Launch { kernel, problem, arguments: parameters.into_arguments() })
    }

    /// Checks the three projections.
    fn qkv(&self, check: Check) -> Result<QkvParameters<B>, KernelError> {
        let (KvCacheShape { heads, kv_heads, .. }, batch) = (self.shape, self.position.len());
        let first = self.qkv.iter().find_map(|projection| projection.lora);
        let rank = first.map_or(0, |lora| lora.t.len() / batch);
        let lora_scale = first.map_or(0.0, |lora| lora.scale);
        let [q, k, v] = self.qkv;
        let checked = |name, projection: QkvProjection<B>, heads| {
            let outputs = check.product("heads × head_dim", &[heads, self.shape.head_dim])?;
            projection.check(check, name, [batch, outputs], rank, lora_scale)
        };
        let pointers =
            [checked("q", q, heads)?, checked("k", k, kv_heads)?, checked("v", v, kv_heads)?];
        Ok(QkvParameters { pointers, rank: check.size("rank", rank)?, lora_scale })
    }
}

impl<B: Copy> QkvProjection<B> {
    /// Checks the projection `name` with its LoRA update, whose rank and scale are given.
    fn check(
        self,
        check: Check,
        name: &'static str,
        [batch, outputs]: [usize; 2],
        rank: usize,
        lora_scale: f32,
    ) -> Result<ProjectionPointers<B>, KernelError> {
        let Self { x, lora } = self;
        check.length(name, x, check.product("batch × outputs", &[batch, outputs])?)?;
        if let Some(lora) = lora {
            check.length("t", lora.t, check.product("batch × rank", &[batch, rank])?)?;
            check.length("b", lora.b, check.product("outputs × rank", &[outputs, rank])?)?;
            let same = lora.scale.to_bits() == lora_scale.to_bits();
            check.constant("scale", lora.scale, same, "the same for all LoRA updates")?;
        }
        Ok(ProjectionPointers {
            x: Pointer::read(x),
            lora_t: Pointer::read_optional(lora.map(|lora| lora.t)),
            lora_b: Pointer::read_optional(lora.map(|lora| lora.b)),
        })
    }
}

impl<B: Copy> QkNormRope<B> {
    fn check(self, check: Check, head_dim: usize) -> Result<(), KernelError> {
        let Self { gammas, eps, tables: [cos, sin], positions } = self;
        for gamma in gammas.into_iter().flatten() {
            check.length("gammas", gamma, head_dim)?;
        }
        check.not_negative("eps", eps)?;
        check.rule(positions > 0, "the tables must have a position", positions)?;
        let angles = check.product("positions × pairs", &[positions, head_dim / 2])?;
        check.length("tables", cos, angles)?;
        check.length("tables", sin, angles)
    }
}

/// The sizes that both decode kernels share.
struct Sizes {
    heads: u32,
    splits: u32,
    batch: u32,
}

impl Sizes {
    /// Query heads of a block: as many of a group as fit, while there are blocks for all SMs. More
    /// heads read keys and values fewer times.
    fn block_heads(&self, [kv_heads, group]: [u32; 2], [head_dim, split_len]: [u32; 2]) -> u32 {
        let groups = u64::from(kv_heads) * u64::from(self.splits) * u64::from(self.batch);
        let fits = |heads: &u32| {
            let fills = u64::from(group.div_ceil(*heads)) * groups >= u64::from(SMS);
            fills && abi::decode_shared_bytes(*heads, head_dim, split_len) <= MAX_SHARED_BYTES
        };
        (2..=group.min(abi::DECODE_MAX_BLOCK_HEADS)).rev().find(fits).unwrap_or(1)
    }

    /// Blocks for the splits: one for each, unless many blocks then compute the same queries.
    fn split_blocks(&self, head_blocks: u32, split_len: u32) -> u32 {
        let others = u64::from(head_blocks) * u64::from(self.batch);
        let per_sm = match split_len.div_ceil(SPLIT_LEN) {
            0..=1 => BLOCKS_PER_SM,
            longer => BLOCKS_OF_LONG_SPLITS * longer,
        };
        let most = u64::from(per_sm * SMS) / others.max(1);
        most.clamp(1, self.splits.into()) as u32
    }
}

/// The operands that both decode kernels share.
struct Splits<B> {
    partials: View<B, f32>,
    stats: View<B, f32>,
    position: View<B, u32>,
}

impl<B: Copy> Splits<B> {
    /// Checks the lengths and returns the sizes.
    fn check(self, check: Check, shape: KvCacheShape) -> Result<Sizes, KernelError> {
        let Self { partials, stats, position } = self;
        let (heads, batch) = (shape.heads, position.len());
        let splits = shape.splits(batch);
        check.rule(batch > 0, "there must be a position for each sequence", batch)?;
        let some = splits > 0 && shape.head_dim > 0;
        let rule = "the cache must have a position and heads an element";
        check.rule(some, rule, [shape.capacity, shape.head_dim])?;
        let what = "batch × heads × splits × head_dim";
        let elements = check.product(what, &[batch, heads, splits, shape.head_dim])?;
        check.size(what, elements)?;
        check.length("partials", partials, elements)?;
        let pairs = check.product("batch × heads × splits", &[batch, heads, splits, 2])?;
        check.length("stats", stats, pairs)?;
        let rule = "stats must start at a multiple of 8 bytes";
        check.rule(stats.is_aligned(8), rule, stats.byte_range().start)?;
        let splits = check.at_most("the number of splits", splits, MAX_GRID_YZ)?;
        let batch = check.at_most("the number of sequences", batch, MAX_GRID_YZ)?;
        Ok(Sizes { heads: check.size("heads", heads)?, splits, batch })
    }
}

/// Returns the window parameter of the kernels. A window includes at least the token itself.
pub(super) fn check_window(check: Check, window: Option<u32>) -> Result<u32, KernelError> {
    check.rule(window != Some(0), "a window must have at least one position", 0)?;
    Ok(window.unwrap_or(u32::MAX))
}

/// Combines the splits of [`DecodeAttention`] into the attention output, in order.
#[derive(Clone, Copy, Debug)]
pub struct DecodeAttentionCombine<B> {
    /// `[batch, heads, splits, head_dim]`, read.
    pub partials: View<B, f32>,
    /// `[batch, heads, splits, 2]`, read.
    pub stats: View<B, f32>,
    /// `[batch, heads, head_dim]`, written.
    pub out: Output<B>,
    /// `[batch]`, read: the position of the token of each sequence.
    pub position: View<B, u32>,
    /// The sizes.
    pub shape: KvCacheShape,
    /// The window of [`DecodeAttention`].
    pub window: Option<u32>,
}

impl<B: Copy> DecodeAttentionCombine<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If a length does not match the shape and the number of sequences, or the window is 0.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { partials, stats, out, position, shape, window } = self;
        let check = Check(DECODE_ATTENTION_COMBINE.name);
        let Sizes { heads, splits, .. } =
            Splits { partials, stats, position }.check(check, shape)?;
        let blocks = check.product("batch × heads", &[position.len(), shape.heads])?;
        out.check(check, "out", check.product("out", &[blocks, shape.head_dim])?)?;
        let (out, out_bf16) = out.pointers();
        let parameters = abi::DecodeCombineParameters::<ArgumentTypes<B>> {
            partials: Pointer::read(partials),
            stats: Pointer::read(stats),
            out,
            out_bf16,
            position: Pointer::read(position),
            capacity: check.size("the capacity", shape.capacity)?,
            heads,
            head_dim: check.size("head_dim", shape.head_dim)?,
            split_len: check
                .size("the positions of a split", shape.split_length(position.len()))?,
            window: check_window(check, window)?,
            splits,
        };
        let arguments = parameters.into_arguments();
        let problem = Problem::Items(check.size("batch × heads", blocks)?);
        Ok(Launch { kernel: &DECODE_ATTENTION_COMBINE, problem, arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_several_splits_only_if_there_are_many_blocks() {
        let blocks = |splits, batch, head_blocks, split_len| {
            Sizes { heads: 12, splits, batch }.split_blocks(head_blocks, split_len)
        };
        assert_eq!(blocks(16, 8, 2, 64), 16);
        assert_eq!(blocks(128, 1, 2, 64), 128);
        assert_eq!(blocks(128, 8, 2, 64), 24);
        // Longer splits have more blocks.
        assert_eq!(blocks(128, 8, 2, 256), 128);
        assert_eq!(blocks(512, 8, 2, 256), 198);
        assert_eq!(blocks(3, u32::MAX, u32::MAX, 64), 1);
    }
}
