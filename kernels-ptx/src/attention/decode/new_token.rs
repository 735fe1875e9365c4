//! The query, key and value of the new token, from the outputs of its projections.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::attention::{DECODE_MAX_HEAD_DIM, DecodeAttentionParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value};

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
    cos: Ptr<'k, f32>,
    sin: Ptr<'k, f32>,
    /// Addresses of the key and the value cache.
    pub(super) caches: [Value<'k, u64>; 2],
    /// One head of the query, the key and the value.
    pub(super) q: Shared<'k, f32>,
    key: Shared<'k, f32>,
    pub(super) v: Shared<'k, f32>,
    pub(super) head_dim: Value<'k, u32>,
    rank: Value<'k, u32>,
    positions: Value<'k, u32>,
    lora_scale: Value<'k, f32>,
    eps: Value<'k, f32>,
}

impl<'k> NewToken<'k> {
    /// Takes the operands of the token of sequence `text` from `parameters`, and declares shared
    /// memory.
    pub(super) fn new(
        k: &Kernel<'k>,
        (target, dtype): (SmTarget, DType),
        (parameters, text): (&DecodeAttentionParameters<Declarations<'k>>, Value<'k, u32>),
    ) -> Self {
        let &DecodeAttentionParameters { q, q_lora_t, q_lora_b, .. } = parameters;
        let &DecodeAttentionParameters { k: key, k_lora_t, k_lora_b, .. } = parameters;
        let &DecodeAttentionParameters { v, v_lora_t, v_lora_b, .. } = parameters;
        let &DecodeAttentionParameters { q_gamma, k_gamma, cos, sin, .. } = parameters;
        let &DecodeAttentionParameters { key_cache, value_cache, head_dim, rank, .. } = parameters;
        let &DecodeAttentionParameters { positions, lora_scale, eps, .. } = parameters;
        let &DecodeAttentionParameters { kv_heads, text_positions, .. } = parameters;
        let width = kv_heads * head_dim;
        let of_text = |x: Ptr<'k, f32>, len: Value<'k, u32>| x.at(text.mul_wide(len));
        let (q, [key, v]) =
            (of_text(q, k.nctaid_x() * head_dim), [key, v].map(|x| of_text(x, width)));
        let projections = [
            Projection { x: q, t: of_text(q_lora_t, rank), b: q_lora_b },
            Projection { x: key, t: of_text(k_lora_t, rank), b: k_lora_b },
            Projection { x: v, t: of_text(v_lora_t, rank), b: v_lora_b },
        ];
        let first = (text * text_positions).mul_wide(width) << dtype.bytes().ilog2();
        let [q, key, v] = ["query", "key", "value"]
            .map(|name| k.shared::<f32>(name, DECODE_MAX_HEAD_DIM as usize));
        Self {
            k: *k,
            target,
            dtype,
            projections,
            gammas: [q_gamma, k_gamma],
            cos,
            sin,
            caches: [key_cache, value_cache].map(|cache| cache.address() + first),
            q,
            key,
            v,
            head_dim,
            rank,
            positions,
            lora_scale,
            eps,
        }
    }

    /// Computes the query of `head` before norm and RoPE; [`Self::compute`] completes it.
    pub(super) fn project_query(&self, head: Value<'k, u32>) {
        self.project(self.projections[0], head, self.q);
    }

    /// Completes the query of `head`. If `in_split`, also computes key and value, which the first
    /// head of each group writes to the given rows of the cache.
    pub(super) fn compute(
        &self,
        (head, group): (Value<'k, u32>, Value<'k, u32>),
        position: Value<'k, u32>,
        (in_split, rows): (Pred<'k>, [Value<'k, u64>; 2]),
    ) {
        let k = self.k;
        let kv_head = head / group;
        let [_, key, v] = self.projections;
        let row = position.min(self.positions - 1).mul_wide(self.head_dim >> 1);
        let angles = self.angles(row);
        k.when(in_split, || {
            self.project(key, kv_head, self.key);
            self.project(v, kv_head, self.v);
        });
        k.barrier();
        self.norm_and_rotate(self.q, self.gammas[0], angles);
        k.when(in_split, || self.norm_and_rotate(self.key, self.gammas[1], angles));
        k.barrier();
        k.when(in_split, || {
            let writes = (head - kv_head * group).eq(0);
            for (part, row) in [self.key, self.v].into_iter().zip(rows) {
                self.store_to_cache(part, writes, row);
            }
        });
        k.barrier();
    }

    /// One head of a projection plus its LoRA update, padded with zeros to whole vec4s.
    fn project(&self, from: Projection<'k>, head: Value<'k, u32>, to: Shared<'k, f32>) {
        let (k, rank) = (self.k, self.rank);
        let start = head * self.head_dim;
        let whole = (self.head_dim + 3) & 0xffff_fffc;
        let odd = (from.t.address() | from.b.address()) & 15;
        let aligned = odd.eq(0) & (rank & 3).eq(0);
        k.range(k.tid_x(), whole, k.ntid_x(), |i| {
            let value = k.var(0.0f32);
            k.when(i.lt(self.head_dim), || {
                let update = k.var(0.0f32);
                k.when(!from.t.is_null(), || {
                    let up = from.b.at((start + i).mul_wide(rank));
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
                let x = from.x.load(start + i);
                value.set(self.lora_scale.fma(update.get(), x));
            });
            to.store(i, value.get());
        });
    }

    /// Cosine and sine for this thread. A block has one thread per pair of the widest head.
    fn angles(&self, row: Value<'k, u64>) -> [Value<'k, f32>; 2] {
        let (k, half) = (self.k, self.head_dim >> 1);
        let found = [(); 2].map(|()| k.var(0.0f32));
        k.when(k.tid_x().lt(half), || {
            let tables = [self.cos, self.sin].map(|table| table.at(row).load(k.tid_x()));
            found.iter().zip(tables).for_each(|(found, value)| found.set(value));
        });
        found.map(|found| found.get())
    }

    /// Applies the optional norm and RoPE to a head.
    fn norm_and_rotate(
        &self,
        part: Shared<'k, f32>,
        gamma: Ptr<'k, f32>,
        [cos, sin]: [Value<'k, f32>; 2],
    ) {
        let (k, half) = (self.k, self.head_dim >> 1);
        let rstd = k.var(1.0f32);
        // Every warp adds up the squares itself.
        k.when(!gamma.is_null(), || {
            rstd.set(scaled_rstd(k, (self.head_dim, self.eps), |scale| {
                let sum = k.var(0.0f32);
                k.range(k.lane(), self.head_dim, 32, |i| {
                    let x = part.load(i) * scale;
                    sum.update(|sum| x.fma(x, sum));
                });
                k.warp_sum(sum.get())
            }));
            // All threads must have read before one of them writes.
            k.barrier();
        });
        let i = k.tid_x();
        k.when(i.lt(half), || {
            let [a, b] = [i, i + half].map(|i| {
                let x = k.var(part.load(i));
                k.when(!gamma.is_null(), || x.set(x.get() * rstd.get() * gamma.load(i)));
                x.get()
            });
            part.store(i, a * cos - b * sin);
            part.store(i + half, b * cos + a * sin);
        });
    }

    /// Rounds a vector to the type of the cache and writes it there.
    fn store_to_cache(&self, part: Shared<'k, f32>, writes: Pred<'k>, row: Value<'k, u64>) {
        let k = self.k;
        k.range(k.tid_x(), self.head_dim >> 1, k.ntid_x(), |pair| {
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

    /// This lane's part of the dot product of query and key.
    pub(super) fn score(&self) -> Value<'k, f32> {
        let k = self.k;
        let dot = k.var(0.0f32);
        k.range(k.lane() * 4, self.head_dim, 128, |i| {
            let (q, key) = (self.q.load_vec4(i), self.key.load_vec4(i));
            dot.update(|dot| (0..4).fold(dot, |dot, i| q[i].fma(key[i], dot)));
        });
        dot.get()
    }
}
