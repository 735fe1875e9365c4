//! Writes the results of a warpgroup through shared memory by TMA bulk stores.
//!
//! The 64 rows of a warpgroup are written in boxes of 128 bytes per row: 64 columns of bf16, or 32
//! of f32. With two buffers, filling one overlaps the bulk store from the other. Results that bulk
//! stores cannot write pass through the first buffer, too, and threads write them.

use retrograph_kernel_abi::gemm::{CONSUMER_ROWS, TENSOR_MAP_BOX, TENSOR_MAP_BOX_F32};
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, NamedBarrier, Pred, Shared, TensorMapParam, Value, Var};

use super::accumulator::AccFragment;
use super::staged_store::matrices;
use crate::primitives::bf16::pack;
use crate::primitives::swizzle::LINE_WORDS;
use crate::primitives::wgmma::WARPGROUP_THREADS;

/// Words of a buffer: 64 lines of 128 bytes.
pub(super) const BUFFER_WORDS: u32 = 64 * LINE_WORDS;

/// The stores of one warpgroup.
#[derive(Clone, Copy)]
pub(super) struct BulkStore<'k> {
    kernel: Kernel<'k>,
    target: SmTarget,
    /// The first buffer.
    buffer: Shared<'k, u32>,
    /// Whether a second buffer follows it.
    has_second: bool,
    barrier: NamedBarrier<'k>,
    /// Whether this thread issues the bulk stores.
    leader: Pred<'k>,
}

impl<'k> BulkStore<'k> {
    /// The stores of warpgroup `warpgroup`. `buffer` is its first buffer; `has_second` tells
    /// whether a second one follows it.
    pub(super) fn new(
        k: &Kernel<'k>,
        target: SmTarget,
        warpgroup: Value<'k, u32>,
        buffer: Shared<'k, u32>,
        has_second: bool,
    ) -> Self {
        let barrier = NamedBarrier { id: warpgroup + 1, threads: WARPGROUP_THREADS };
        let leader = (k.tid_x() & (WARPGROUP_THREADS - 1)).eq(0);
        Self { kernel: *k, target, buffer, has_second, barrier, leader }
    }

    /// Writes `acc` as bf16 to a plane of `map`, at row and column `origin`. The stores may still
    /// be in flight on return.
    pub(super) fn write_bf16(
        &self,
        map: TensorMapParam<'k>,
        plane: Value<'k, u32>,
        origin: [Value<'k, u32>; 2],
        acc: &[AccFragment<'k>],
    ) {
        self.write_boxes(map, plane, TENSOR_MAP_BOX[0], origin, acc, |buffer, fragments| {
            self.store_matrices(buffer, fragments);
        });
    }

    /// As [`Self::write_bf16`], as f32.
    pub(super) fn write_f32(
        &self,
        map: TensorMapParam<'k>,
        plane: Value<'k, u32>,
        origin: [Value<'k, u32>; 2],
        acc: &[AccFragment<'k>],
    ) {
        self.write_boxes(map, plane, TENSOR_MAP_BOX_F32[0], origin, acc, |buffer, fragments| {
            self.store_pairs(buffer, fragments);
        });
    }

    /// Passes `acc` to `write` through shared memory: each thread calls it for four adjacent
    /// elements of a row at a time, with their row and column in `acc`.
    ///
    /// `write` becomes one piece of code for all elements. Once per pair of accumulators, it would
    /// be most of the kernel, and of the time to compile it.
    pub(super) fn write_by_threads(
        &self,
        acc: &[AccFragment<'k>],
        write: impl FnOnce(Value<'k, u32>, Value<'k, u32>, [Value<'k, f32>; 4]),
    ) {
        const COLUMNS: u32 = TENSOR_MAP_BOX_F32[0];
        let (k, buffer) = (self.kernel, self.buffer);
        let boxes = acc.chunks_exact(COLUMNS as usize / 8);
        assert!(boxes.remainder().is_empty(), "columns fill boxes");
        k.range(0, boxes.len() as u32, 1, |index| {
            self.wait_and_synchronize(0);
            for (number, fragments) in (0u32..).zip(boxes) {
                k.when(index.eq(number), || self.store_pairs(buffer, fragments));
            }
            k.bar_sync(self.barrier, None);
            let thread = k.tid_x() & (WARPGROUP_THREADS - 1);
            k.range(thread, CONSUMER_ROWS * (COLUMNS / 4), WARPGROUP_THREADS, |vector| {
                let (row, chunk) = (vector / (COLUMNS / 4), vector & (COLUMNS / 4 - 1));
                let place = buffer.at(row * LINE_WORDS + (chunk ^ (row & 7)) * 4);
                write(row, index * COLUMNS + chunk * 4, place.reinterpret().load_vec4(0));
            });
        });
    }

    /// Stores boxes of `columns` columns. `fill` writes each box to a buffer.
    fn write_boxes(
        &self,
        map: TensorMapParam<'k>,
        plane: Value<'k, u32>,
        columns: u32,
        [row, column]: [Value<'k, u32>; 2],
        acc: &[AccFragment<'k>],
        fill: impl Fn(Shared<'k, u32>, &[AccFragment<'k>]),
    ) {
        for (index, fragments) in (0u32..).zip(acc.chunks_exact(columns as usize / 8)) {
            let first = column + index * columns;
            self.store_box(index, map, [first, row, plane], |buffer| {
                fill(buffer, fragments);
            });
        }
    }

    /// Stores a box to `map` at `origin` (column, row, plane). `fill` writes it to a buffer;
    /// `index` counts the boxes of a tile.
    fn store_box(
        &self,
        index: u32,
        map: TensorMapParam<'k>,
        origin: [Value<'k, u32>; 3],
        fill: impl FnOnce(Shared<'k, u32>),
    ) {
        let (k, two) = (self.kernel, self.has_second);
        let buffer = self.buffer.offset(i64::from(u32::from(two) * (index % 2) * BUFFER_WORDS));
        // The first box of a tile may reuse the buffer of the last box of the previous tile.
        self.wait_and_synchronize(u32::from(two && index > 0));
        fill(buffer);
        k.fence_proxy_async();
        k.bar_sync(self.barrier, None);
        k.when(self.leader, || {
            let [column, row, plane] = origin;
            k.cp_async_bulk_tensor_3d_store(map, [column, row, plane], buffer);
            k.cp_async_bulk_commit_group();
        });
    }

    /// Waits until all but the last `pending` stores have read their buffers, and for all threads
    /// of the warpgroup.
    fn wait_and_synchronize(&self, pending: u32) {
        let k = self.kernel;
        k.when(self.leader, || k.cp_async_bulk_wait_group_read(pending));
        k.bar_sync(self.barrier, None);
    }

    /// Waits for all threads of the warpgroup.
    pub(super) fn synchronize(&self) {
        self.kernel.bar_sync(self.barrier, None);
    }

    /// Waits until all stores have read their buffers.
    pub(super) fn wait(&self) {
        let k = self.kernel;
        k.when(self.leader, || k.cp_async_bulk_wait_group_read(0));
    }

    /// Stores the fragments of a warp as bf16 to a buffer.
    fn store_matrices(&self, buffer: Shared<'k, u32>, values: &[[Var<'k, f32>; 4]]) {
        let k = self.kernel;
        let word = |pair: [Var<'k, f32>; 2]| pack(self.target, pair.map(Var::get));
        let words: Vec<_> =
            values.iter().map(|&[a, b, x, y]| [word([a, b]), word([x, y])]).collect();
        for (pair, words) in words.chunks_exact(2).enumerate() {
            let [[a, b], [x, y]] = [words[0], words[1]];
            k.stmatrix_x4(matrices(&k, buffer, pair), [a, b, x, y]);
        }
    }

    /// Stores the fragments of a warp as f32 to a buffer with the 128-byte swizzle, two adjacent
    /// elements at a time.
    fn store_pairs(&self, buffer: Shared<'k, u32>, values: &[[Var<'k, f32>; 4]]) {
        let k = self.kernel;
        let (group, member) = (k.lane() >> 2, k.lane() & 3);
        let row = (k.warp() & 3) * 16 + group;
        for (j, [a, b, x, y]) in (0u32..).zip(values) {
            // Rows that are 8 apart have the same swizzle.
            let chunk = ((member >> 1) + j * 2) ^ group;
            let place = buffer.at(row * LINE_WORDS + chunk * 4 + (member & 1) * 2).reinterpret();
            place.store_vec2(0, [a.get(), b.get()]);
            place.store_vec2(8 * LINE_WORDS, [x.get(), y.get()]);
        }
    }
}
