//! Loader that dequantizes an NF4 operand into a stage, as bf16.
//!
//! `cp.async`, if the target has it, copies the codes of a stage into the previous stage. Threads
//! decode them while tensor cores multiply that stage. Each thread decodes the same number of
//! consecutive elements, at most half an NF4 block, so it needs a single table of 16 scaled values.
//! The scale is loaded another stage earlier.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use crate::gemm::operand_tile::{BlockOperand, OperandTile, TileCoord};
use crate::primitives::arith::div_const;
use crate::primitives::nf4::{Bf16Table, Nf4};
use crate::primitives::smem_tile::{CHUNK_BYTES, SmemTile};

/// Codes per word, whose bf16 values fill one chunk, and codes per chunk.
const CODES_PER_WORD: u32 = 8;
const CODES_PER_CHUNK: u32 = CHUNK_BYTES * 2;
/// Maximum consecutive bf16 elements in shared memory: a line of 128 bytes.
const LINE_LEN: u32 = 64;

/// A thread's share of dequantizing an operand. Everything that does not depend on the stage is
/// computed once, because threads have few issue slots while tensor cores run.
pub(in crate::gemm) struct Nf4Loader<'k> {
    kernel: Kernel<'k>,
    target: SmTarget,
    tile: OperandTile,
    nf4: Nf4<'k>,
    /// Address of the operand, and the first element of this block's plane.
    address: Value<'k, u64>,
    first: Value<'k, u32>,
    /// Elements that a thread decodes, and the number of threads that decode.
    elements_per_thread: u32,
    threads: u32,
    /// The elements that this thread decodes, the index of their first word of codes in a stage,
    /// and the words of the tile for their values.
    own: TileCoord<'k>,
    codes: Value<'k, u32>,
    words: Vec<Value<'k, u32>>,
    /// The codes that this thread copies.
    copied: TileCoord<'k>,
    /// The scale of the next stage, in flight, and the offset of nested scales.
    scale: [Var<'k, f32>; 2],
    offset: Value<'k, f32>,
}

/// Words of shared memory for the codes of a stage.
pub(in crate::gemm) fn code_words(target: SmTarget, tile: OperandTile) -> u32 {
    if target.features().cp_async { tile.extent * tile.tile_k / CODES_PER_WORD } else { 0 }
}

/// The run, and the index in it, of element `element` of a stage in thread order: along a line,
/// then from run to run. In this order, consecutive threads load from the same sectors and store to
/// different banks.
fn run_and_element<'k>(
    tile: OperandTile,
    element: Value<'k, u32>,
) -> (Value<'k, u32>, Value<'k, u32>) {
    let SmemTile { runs, length, .. } = tile.smem;
    let line_len = length.min(LINE_LEN);
    let line = div_const(element, line_len);
    (line & (runs - 1), div_const(line, runs) * line_len + (element & (line_len - 1)))
}

impl<'k> Nf4Loader<'k> {
    /// This thread's share of `source`, whose scales are `nf4`.
    pub(in crate::gemm) fn new(
        k: &Kernel<'k>,
        target: SmTarget,
        source: BlockOperand<'k>,
        nf4: Nf4<'k>,
    ) -> Self {
        let tile = source.tile;
        let elements = tile.extent * tile.tile_k;
        // If the elements do not divide evenly, the last threads have none.
        let unit = (elements / tile.threads).next_power_of_two();
        let threads = elements / unit;
        let even = elements.is_multiple_of(unit) && CODES_PER_CHUNK.is_multiple_of(unit);
        assert!(even && unit >= 2 * CODES_PER_WORD, "a thread decodes two words to one chunk");
        let (address, first) = source.operand.start(k);
        let element = match threads < tile.threads {
            true => k.tid_x().min(threads - 1) * unit,
            false => k.tid_x() * unit,
        };
        let (run, along) = run_and_element(tile, element);
        let word = |word| tile.smem.word(run, along + word * CODES_PER_WORD);
        Self {
            kernel: *k,
            target,
            tile,
            nf4,
            address,
            first,
            elements_per_thread: unit,
            threads,
            own: source.coord(run, along, unit),
            codes: div_const(element, CODES_PER_WORD),
            words: (0..unit / CODES_PER_WORD).map(word).collect(),
            copied: {
                let (run, along) = run_and_element(tile, k.tid_x() * CODES_PER_CHUNK);
                source.coord(run, along, CODES_PER_CHUNK)
            },
            scale: [(); 2].map(|()| k.var(0.0f32)),
            offset: nf4.offset(),
        }
    }

    /// The index in the operand of `coord` in stage `stage`, and whether it is in bounds. NF4
    /// operands have no outer reduction.
    fn index(&self, stage: Value<'k, u32>, coord: &TileCoord<'k>) -> (Value<'k, u32>, Pred<'k>) {
        let (index, inside) = coord.index(stage * self.tile.tile_k);
        (index + self.first, inside)
    }

    fn codes_at(&self, index: Value<'k, u32>) -> Ptr<'k, u32> {
        Ptr::from_address(self.address).at(div_const(index, CODES_PER_WORD))
    }

    /// Runs `body` in the first `count` threads.
    fn in_first_threads(&self, count: u32, body: impl FnOnce()) {
        let k = self.kernel;
        if count == self.tile.threads { body() } else { k.when(k.tid_x().lt(count), body) }
    }

    /// Starts copying the codes of stage `stage` to `codes`; zero-fills if `enabled` is false.
    pub(in crate::gemm) fn copy_codes(
        &self,
        stage: Value<'k, u32>,
        enabled: Option<Pred<'k>>,
        codes: Shared<'k, u32>,
    ) {
        if !self.target.features().cp_async {
            return;
        }
        self.in_first_threads(self.tile.extent * self.tile.tile_k / CODES_PER_CHUNK, || {
            let (index, _) = self.index(stage, &self.copied);
            let to = codes.at(self.kernel.tid_x() * (CHUNK_BYTES / 4));
            let bytes = enabled.map_or(self.kernel.constant(CHUNK_BYTES), |enabled| {
                enabled.select(CHUNK_BYTES, 0)
            });
            to.cp_async(self.codes_at(index), bytes);
        });
    }

    /// Starts loading the scale of stage `stage`, clamped to the last stage.
    pub(in crate::gemm) fn load_scale(&self, stage: Value<'k, u32>) {
        let (index, _) = self.index(stage, &self.own);
        self.nf4.fetch(index, self.scale);
    }

    /// The loaded scale, before [`Self::load_scale`] replaces it.
    pub(in crate::gemm) fn loaded_scale(&self) -> [Value<'k, f32>; 2] {
        self.scale.map(Var::get)
    }

    /// Prepares to dequantize stage `stage` with its `scale`, from `codes` to `tile`. Elements past
    /// the end of K become zero.
    pub(in crate::gemm) fn dequantize(
        &self,
        stage: Value<'k, u32>,
        scale: [Value<'k, f32>; 2],
        tile: Shared<'k, u32>,
        codes: Shared<'k, u32>,
    ) -> Dequantize<'k, '_> {
        let (index, inside) = self.index(stage, &self.own);
        let codes = self.load_codes(index, codes.at(self.codes));
        let scale = self.nf4.scale_with(scale, || self.offset);
        let table = Bf16Table::new(self.target, inside.select(scale, 0.0));
        Dequantize { loader: self, table, codes, tile }
    }

    /// This thread's words of codes, from shared memory if the target has `cp.async`.
    fn load_codes(&self, index: Value<'k, u32>, copied: Shared<'k, u32>) -> Vec<Value<'k, u32>> {
        let global = self.codes_at(index);
        match (self.target.features().cp_async, self.elements_per_thread / CODES_PER_WORD) {
            (true, 4) => copied.load_vec4(0).into(),
            (true, _) => copied.load_vec2(0).into(),
            (false, 4) => global.load_vec4(0).into(),
            (false, _) => global.load_vec2(0).into(),
        }
    }
}

/// The dequantization of a thread's share of a stage, in two halves.
pub(in crate::gemm) struct Dequantize<'k, 'l> {
    loader: &'l Nf4Loader<'k>,
    table: Bf16Table<'k>,
    codes: Vec<Value<'k, u32>>,
    tile: Shared<'k, u32>,
}

impl Dequantize<'_, '_> {
    /// Decodes and stores one half of the elements: 0 or 1.
    pub(in crate::gemm) fn store_half(&self, half: u32) {
        let Nf4Loader { threads, words, .. } = self.loader;
        let (first, count) = (half as usize * words.len() / 2, words.len() / 2);
        self.loader.in_first_threads(*threads, || {
            for (word, codes) in words.iter().zip(&self.codes).skip(first).take(count) {
                self.tile.at(*word).store_vec4(0, self.table.decode(*codes));
            }
        });
    }
}
