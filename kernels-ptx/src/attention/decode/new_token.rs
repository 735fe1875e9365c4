//! The query, key and value of the new token, from the outputs of its projections.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::attention::{DECODE_MAX_BLOCK_HEADS, DecodeAttentionParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value};

use super::Heads;
use crate::norm::rms_norm::scaled_rstd;
use crate::primitives::bf16::{pack, unpack};
use crate::primitives::parameters::Declarations;

/// The output of a projection and its LoRA update, which may be null.
#[derive(Clone, Copy)]
struct Projection<'k> {
    x: Ptr<'k, f32>,
    /// A·x of the LoRA update.
    t: Ptr<'k, f32>,
    /// B of the LoRA update.
    b: Ptr<'k, f32>,
}

/// The parameters, and the shared memory for the results.
#[derive(Clone, Copy)]
pub(super) struct NewToken<'k> {
    k: Kernel<'k>,
    target: SmTarget,
    /// Element type of the cache.
    dtype: DType,
    projections: [Projection<'k>; 3],
    gammas: [Ptr<'k, f32>; 2],
    /// The tables of cosines and sines.
    tables: [Ptr<'k, f32>; 2],
    /// Their rows at the position of the token, in shared memory.
    angles: [Shared<'k, f32>; 2],
    /// Addresses of the key and the value cache.
    pub(super) caches: [Value<'k, u64>; 2],
    /// Byte offset of the first row of the sequence.
    pub(super) first_row: Value<'k, u64>,
    /// The queries of the block, each padded to whole vec4s, and one head of the key and the value.
    pub(super) q: Shared<'k, f32>,
    key: Shared<'k, f32>,
    pub(super) v: Shared<'k, f32>,
    head_dim: Value<'k, u32>,
    /// Elements of a head padded to whole vec4s.
    padded: Value<'k, u32>,
    rank: Value<'k, u32>,
    positions: Value<'k, u32>,
    lora_scale: Value<'k, f32>,
    eps: Value<'k, f32>,
}

impl<'k> NewToken<'k> {
    /// Takes the operands of the token of `sequence` from `parameters`, and declares shared
    /// memory.
    pub(super) fn new(
        k: &Kernel<'k>,
        target: SmTarget,
        dtype: DType,
        parameters: &DecodeAttentionParameters<Declarations<'k>>,
        sequence: Value<'k, u32>,
    ) -> Self {
        let &DecodeAttentionParameters { q, q_lora_t, q_lora_b, .. } = parameters;
        let &DecodeAttentionParameters { k: key, k_lora_t, k_lora_b, .. } = parameters;
        let &DecodeAttentionParameters { v, v_lora_t, v_lora_b, .. } = parameters;
        let &DecodeAttentionParameters { q_gamma, k_gamma, cos, sin, .. } = parameters;
        let &DecodeAttentionParameters { key_cache, value_cache, head_dim, rank, .. } = parameters;
        let &DecodeAttentionParameters { positions, lora_scale, eps, .. } = parameters;
        let &DecodeAttentionParameters { kv_heads, group, cache_positions, .. } = parameters;
        let width = kv_heads * head_dim;
        let of_sequence = |x: Ptr<'k, f32>, len: Value<'k, u32>| x.at(sequence.mul_wide(len));
        let (q, [key, v]) =
            (of_sequence(q, group * width), [key, v].map(|x| of_sequence(x, width)));
        let projections = [
            Projection { x: q, t: of_sequence(q_lora_t, rank), b: q_lora_b },
            Projection { x: key, t: of_sequence(k_lora_t, rank), b: k_lora_b },
            Projection { x: v, t: of_sequence(v_lora_t, rank), b: v_lora_b },
        ];
        let first = (sequence * cache_positions).mul_wide(width) << dtype.bytes().ilog2();
        // As in `decode_shared_bytes`.
        let padded = (head_dim + 3) & 0xffff_fffc;
        let q = k.dynamic_shared::<f32>();
        let key = q.at(parameters.block_heads * padded);
        let v = key.at(padded);
        let cos_of_token = v.at(padded);
        let angles = [cos_of_token, cos_of_token.at(padded >> 1)];
        Self {
            k: *k,
            target,
            dtype,
            projections,
            gammas: [q_gamma, k_gamma],
            tables: [cos, sin],
            angles,
            caches: [key_cache, value_cache].map(|cache| cache.address()),
            first_row: first,
            q,
            key,
            v,
            head_dim,
            padded,
            rank,
            positions,
            lora_scale,
            eps,
        }
    }

    /// Computes the queries of `heads` before norm and RoPE; [`Self::compute`] completes them.
    pub(super) fn project_queries(&self, heads: Heads<'k>) {
        let (k, from, padded) = (self.k, self.projections[0], self.padded);
        // Vectors of all queries are in flight together.
        let is_plain = from.t.is_null() & padded.eq(self.head_dim) & (from.x.address() & 15).eq(0);
        k.when_else(
            is_plain,
            || {
                k.range(k.tid_x() * 4, heads.count * padded, k.ntid_x() * 4, |index| {
                    let x = from.x.load_vec4(heads.first * self.head_dim + index);
                    self.q.store_vec4(index, x);
                });
            },
            || self.project(from, heads.first, heads.count, self.q),
        );
    }

    /// Completes the queries of `heads`. If `in_split`, also computes key and value, which the
    /// first block of each group writes to the given rows of the cache.
    pub(super) fn compute(
        &self,
        heads: Heads<'k>,
        position: Value<'k, u32>,
        in_split: Pred<'k>,
        rows: [Value<'k, u64>; 2],
    ) {
        let (k, warp, one) = (self.k, self.k.warp(), self.k.constant(1));
        let [_, key, v] = self.projections;
        self.load_angles(position.min(self.positions - 1));
        k.when(in_split, || {
            self.project(key, heads.kv_head, one, self.key);
            self.project(v, heads.kv_head, one, self.v);
        });
        k.barrier();
        // Each warp completes one vector, and some of the last split two.
        k.when(warp.lt(heads.count), || self.norm_and_rotate(self.query(warp), self.gammas[0]));
        let [key_row, value_row] = rows;
        k.when(in_split & warp.eq(0), || self.store_to_cache(self.v, heads, value_row));
        k.when(in_split & warp.eq(DECODE_MAX_BLOCK_HEADS - 1), || {
            self.norm_and_rotate(self.key, self.gammas[1]);
            self.store_to_cache(self.key, heads, key_row);
        });
        k.barrier();
    }

    /// The query of head `head` of the block.
    pub(super) fn query(&self, head: Value<'k, u32>) -> Shared<'k, f32> {
        self.q.at(head * self.padded)
    }

    /// The first element of shared memory that is not used here.
    pub(super) fn shared_end(&self) -> Shared<'k, f32> {
        self.v.at(self.padded * 2)
    }

    /// `count` heads of a projection plus its LoRA update, padded with zeros to whole vec4s.
    fn project(
        &self,
        from: Projection<'k>,
        first: Value<'k, u32>,
        count: Value<'k, u32>,
        to: Shared<'k, f32>,
    ) {
        let (k, rank, padded) = (self.k, self.rank, self.padded);
        let odd = (from.t.address() | from.b.address()) & 15;
        let aligned = odd.eq(0) & (rank & 3).eq(0);
        k.range(k.tid_x(), count * padded, k.ntid_x(), |index| {
            // Heads without padding are contiguous. Otherwise, the head is found by a division.
            let (padding, head) = (padded - self.head_dim, k.var(0u32));
            k.when(padding.gt(0), || head.set(index / padded));
            let head = head.get();
            let is_padding = padding.gt(0) & (index - head * padded).ge(self.head_dim);
            let value = k.var(0.0f32);
            k.when(!is_padding, || {
                let row = first * self.head_dim + index - head * padding;
                let update = k.var(0.0f32);
                k.when(!from.t.is_null(), || {
                    let up = from.b.at(row.mul_wide(rank));
                    // 16 elements at a time, with their loads in flight together.
                    let blocks = aligned.select(rank & 0xffff_fff0, 0);
                    k.range(0u32, blocks, 16, |r| {
                        let vec4s = [0, 4, 8, 12]
                            .map(|vec4| (up.load_vec4(r + vec4), from.t.load_vec4(r + vec4)));
                        for (up, low) in vec4s {
                            update.update(|sum| (0..4).fold(sum, |sum, i| up[i].fma(low[i], sum)));
                        }
                    });
                    k.range(blocks, rank, 1, |r| {
                        update.update(|sum| up.load(r).fma(from.t.load(r), sum));
                    });
                });
                let x = from.x.load(row);
                value.set(self.lora_scale.fma(update.get(), x));
            });
            to.store(index, value.get());
        });
    }

    /// Copies the cosines and sines of a position to shared memory. A block has at least one thread
    /// per pair of elements of a head.
    fn load_angles(&self, position: Value<'k, u32>) {
        let (k, half) = (self.k, self.head_dim >> 1);
        let i = k.tid_x();
        k.when(i.lt(half), || {
            let row = position.mul_wide(half);
            for (table, angles) in self.tables.into_iter().zip(self.angles) {
                angles.store(i, table.at(row).load(i));
            }
        });
    }

    /// Applies the optional norm and RoPE to a head. A warp executes it.
    fn norm_and_rotate(&self, part: Shared<'k, f32>, gamma: Ptr<'k, f32>) {
        let (k, half) = (self.k, self.head_dim >> 1);
        let rstd = k.var(1.0f32);
        k.when(!gamma.is_null(), || {
            rstd.set(scaled_rstd(k, self.head_dim, self.eps, |scale| {
                let sum = k.var(0.0f32);
                k.range(k.lane(), self.head_dim, 32, |i| {
                    let x = part.load(i) * scale;
                    sum.update(|sum| x.fma(x, sum));
                });
                k.warp_sum(sum.get())
            }));
            // All lanes must have read before one of them writes.
            k.warp_barrier();
        });
        k.range(k.lane(), half, 32, |i| {
            let [a, b] = [i, i + half].map(|i| {
                let x = k.var(part.load(i));
                k.when(!gamma.is_null(), || x.set(x.get() * rstd.get() * gamma.load(i)));
                x.get()
            });
            let [cos, sin] = self.angles.map(|angles| angles.load(i));
            part.store(i, a * cos - b * sin);
            part.store(i + half, b * cos + a * sin);
        });
        k.warp_barrier();
    }

    /// Rounds a vector to the type of the cache, and writes it there if `heads` are the first of
    /// their group. A warp executes it.
    fn store_to_cache(&self, part: Shared<'k, f32>, heads: Heads<'k>, row: Value<'k, u64>) {
        let (k, writes) = (self.k, heads.first_of_group);
        k.range(k.lane(), self.head_dim >> 1, 32, |pair| {
            let values = [0, 1].map(|i| part.load(pair * 2 + i));
            if self.dtype == DType::F32 {
                let row = Ptr::<f32>::from_address(row);
                k.when(writes, || {
                    (0..).zip(values).for_each(|(i, value)| row.store(pair * 2 + i, value));
                });
                return;
            }
            let word = pack(self.target, values);
            let rounded = unpack(word);
            (0..).zip(rounded).for_each(|(i, value)| part.store(pair * 2 + i, value));
            k.when(writes, || Ptr::<u32>::from_address(row).store(pair, word));
        });
    }

    /// This lane's part of the dot product of the key and the query of head `head` of the block.
    pub(super) fn score(&self, head: Value<'k, u32>) -> Value<'k, f32> {
        let (k, query) = (self.k, self.query(head));
        let dot = k.var(0.0f32);
        k.range(k.lane() * 4, self.head_dim, 128, |i| {
            let (q, key) = (query.load_vec4(i), self.key.load_vec4(i));
            dot.update(|dot| (0..4).fold(dot, |dot, i| q[i].fma(key[i], dot)));
        });
        dot.get()
    }
}
