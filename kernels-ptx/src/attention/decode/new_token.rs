//! The query, key and value of the new token, from the outputs of its projections.

use retrograph_kernel_abi::DType;
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value};

use crate::norm::rms_norm::scaled_rstd;
use crate::primitives::bf16::{pack, unpack};

/// Maximum head dimension.
pub(super) const MAX_HEAD_DIM: u32 = 512;

/// The output of a projection and its LoRA update, which may be null.
#[derive(Clone, Copy)]
struct Projection<'k> {
    x: Ptr<'k, f32>,
    low: Ptr<'k, f32>,
    up: Ptr<'k, f32>,
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
    low_scale: Value<'k, f32>,
    eps: Value<'k, f32>,
}

impl<'k> NewToken<'k> {
    /// Declares the pointer parameters.
    pub(super) fn declare(k: &Kernel<'k>, (target, dtype): (SmTarget, DType)) -> Self {
        let projections = ["q", "k", "v"].map(|name| {
            let x = k.pointer(name);
            let [low, up] = ["low", "up"].map(|part| k.pointer(&format!("{name}_{part}")));
            Projection { x, low, up }
        });
        let gammas = ["q_gamma", "k_gamma"].map(|name| k.pointer(name));
        let [cos, sin] = ["cos", "sin"].map(|name| k.pointer(name));
        let caches = ["keys", "values"].map(|name| k.pointer::<u32>(name).address());
        let [q, key, v] =
            ["query", "key", "value"].map(|name| k.shared::<f32>(name, MAX_HEAD_DIM as usize));
        let (none, zero) = (k.constant(0u32), k.constant(0.0f32));
        Self {
            k: *k,
            target,
            dtype,
            projections,
            gammas,
            cos,
            sin,
            caches,
            q,
            key,
            v,
            head_dim: none,
            rank: none,
            positions: none,
            low_scale: zero,
            eps: zero,
        }
    }

    /// Declares the scalar parameters.
    pub(super) fn with_sizes(self, k: &Kernel<'k>) -> Self {
        let [head_dim, rank, positions] =
            ["head_dim", "rank", "positions"].map(|name| k.param::<u32>(name));
        let [low_scale, eps] = ["low_scale", "eps"].map(|name| k.param::<f32>(name));
        Self { head_dim, rank, positions, low_scale, eps, ..self }
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
        let odd = (from.low.address() | from.up.address()) & 15;
        let aligned = odd.eq(0) & (rank & 3).eq(0);
        k.range(k.tid_x(), whole, k.ntid_x(), |i| {
            let value = k.var(0.0f32);
            k.when(i.lt(self.head_dim), || {
                let update = k.var(0.0f32);
                k.when(!from.low.is_null(), || {
                    let up = from.up.at((start + i).mul_wide(rank));
                    // 16 elements at a time, with their loads in flight together.
                    let blocks = aligned.select(rank & 0xffff_fff0, 0);
                    k.range(0u32, blocks, 16, |r| {
                        let vec4s = [0, 4, 8, 12]
                            .map(|vec4| (up.load_vec4(r + vec4), from.low.load_vec4(r + vec4)));
                        for (up, low) in vec4s {
                            update.update(|sum| (0..4).fold(sum, |sum, i| up[i].fma(low[i], sum)));
                        }
                    });
                    k.range(blocks, rank, 1, |r| {
                        update.update(|sum| up.load(r).fma(from.low.load(r), sum));
                    });
                });
                let x = from.x.load(start + i);
                value.set(self.low_scale.fma(update.get(), x));
            });
            to.store(i, value.get());
        });
    }

    /// Cosine and sine for this thread. A block has as many threads as the widest head has pairs.
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
