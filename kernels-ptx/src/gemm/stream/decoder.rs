//! The way of an operand in NF4 into a stage, where it lies as if it had been copied as bf16.
//!
//! Its codes are copied into the stage before, where that is possible without a register. Threads
//! decode them while tensor cores multiply that stage: each that has a share takes as many
//! neighbours as every other one, half a block or less, so that it makes one table of what the
//! codes of its block stand for. The scale is loaded while the stage before is decoded.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use super::panel::{COPY, Panel, Section, Spot};
use crate::gemm::nf4::{Nf4, Rounded};
use crate::gemm::sizes::over;

/// Codes in a word, whose values are copied together, and codes in a copy.
const WORD: u32 = 8;
const CODES: u32 = COPY * 2;
/// The most neighbours that lie together in a stage: a line of 128 bytes.
const LINE: u32 = 64;

/// One thread's share in decoding an operand. What does not depend on the stage is found out once:
/// threads have hardly the time to decode while tensor cores multiply a stage.
pub(super) struct Decoder<'k> {
    kernel: Kernel<'k>,
    target: SmTarget,
    panel: Panel,
    of: Nf4<'k>,
    /// The address of the operand, and its first element of this block's plane.
    address: Value<'k, u64>,
    first: Value<'k, u32>,
    /// Neighbours that a thread decodes, and how many threads do.
    unit: u32,
    threads: u32,
    /// Where this thread's neighbours are, where it finds their codes in a stage, and the words of
    /// a panel to which their values go.
    own: Spot<'k>,
    codes: Value<'k, u32>,
    words: Vec<Value<'k, u32>>,
    /// Where the codes are that it copies.
    copied: Spot<'k>,
    /// The scale of the next stage, on its way, and what is added to nested ones.
    scale: [Var<'k, f32>; 2],
    offset: Value<'k, f32>,
}

/// Words that the codes of a stage take in it.
pub(super) fn words(target: SmTarget, panel: Panel) -> u32 {
    if target.features().cp_async { panel.extent * panel.depth / WORD } else { 0 }
}

/// Run and element in it of element `element` of a stage, in the order in which threads take them:
/// along lines, and then from run to run, so that neighbouring threads neither load from different
/// sectors nor store to the same banks.
fn taken<'k>(panel: Panel, element: Value<'k, u32>) -> (Value<'k, u32>, Value<'k, u32>) {
    let [runs, length] = panel.runs();
    let within = length.min(LINE);
    let line = over(element, within);
    (line & (runs - 1), over(line, runs) * within + (element & (within - 1)))
}

impl<'k> Decoder<'k> {
    /// The share of this thread in decoding `section` of an operand with these scales.
    pub(super) fn new(
        k: &Kernel<'k>,
        target: SmTarget,
        (section, of): (Section<'k>, Nf4<'k>),
    ) -> Self {
        let panel = section.panel;
        let elements = panel.extent * panel.depth;
        // Where they cannot share alike, the last ones have nothing to do.
        let unit = (elements / panel.threads).next_power_of_two();
        let threads = elements / unit;
        let whole = elements.is_multiple_of(unit) && CODES.is_multiple_of(unit);
        assert!(whole && unit >= 2 * WORD, "threads decode as much each, and no more than a copy");
        let (address, first) = section.source.start(k);
        let element = match threads < panel.threads {
            true => k.tid_x().min(threads - 1) * unit,
            false => k.tid_x() * unit,
        };
        let (run, along) = taken(panel, element);
        let word = |word| panel.word(run, along + word * WORD);
        Self {
            kernel: *k,
            target,
            panel,
            of,
            address,
            first,
            unit,
            threads,
            own: section.spot((run, along), unit),
            codes: over(element, WORD),
            words: (0..unit / WORD).map(word).collect(),
            copied: section.spot(taken(panel, k.tid_x() * CODES), CODES),
            scale: [(); 2].map(|()| k.var(0.0f32)),
            offset: of.offset(),
        }
    }

    /// Where the codes of `spot` in stage `stage` lie, as a number in the operand, and whether they
    /// lie before the end of the contraction. There is one summand.
    fn place(&self, stage: Value<'k, u32>, spot: &Spot<'k>) -> (Value<'k, u32>, Pred<'k>) {
        let (index, inside) = spot.at(stage * self.panel.depth);
        (index + self.first, inside)
    }

    fn codes_at(&self, index: Value<'k, u32>) -> Ptr<'k, u32> {
        Ptr::from_address(self.address).at(over(index, WORD))
    }

    /// Runs `body` in the first `count` threads.
    fn in_first(&self, count: u32, body: impl FnOnce()) {
        let k = self.kernel;
        if count == self.panel.threads { body() } else { k.when(k.tid_x().lt(count), body) }
    }

    /// Starts to copy the codes of stage `stage` to `codes`, or zeros if there is no such stage.
    pub(super) fn copy(
        &self,
        (stage, there): (Value<'k, u32>, Option<Pred<'k>>),
        codes: Shared<'k, u32>,
    ) {
        if !self.target.features().cp_async {
            return;
        }
        self.in_first(self.panel.extent * self.panel.depth / CODES, || {
            let (index, _) = self.place(stage, &self.copied);
            let to = codes.at(self.kernel.tid_x() * (COPY / 4));
            let bytes = there.map_or(self.kernel.constant(COPY), |there| there.select(COPY, 0));
            to.copy_async(self.codes_at(index), bytes);
        });
    }

    /// Starts loading the scale of stage `stage`, or of the last one behind it.
    pub(super) fn fetch(&self, stage: Value<'k, u32>) {
        let (index, _) = self.place(stage, &self.own);
        self.of.fetch(index, self.scale);
    }

    /// What was fetched of the scale, before the next one is.
    pub(super) fn fetched(&self) -> [Value<'k, f32>; 2] {
        self.scale.map(Var::get)
    }

    /// Starts to decode stage `stage` with the scale that was fetched for it, from `codes` to
    /// `panel`. What lies past the end of the contraction becomes zero.
    pub(super) fn start(
        &self,
        (stage, fetched): (Value<'k, u32>, [Value<'k, f32>; 2]),
        (panel, codes): (Shared<'k, u32>, Shared<'k, u32>),
    ) -> Decoding<'k, '_> {
        let (index, inside) = self.place(stage, &self.own);
        let codes = self.words_of_codes(index, codes.at(self.codes));
        let scale = self.of.scale_with(fetched, || self.offset);
        let table = Rounded::new(self.target, inside.select(scale, 0.0));
        Decoding { decoder: self, table, codes, panel }
    }

    /// This thread's words of codes.
    fn words_of_codes(
        &self,
        index: Value<'k, u32>,
        copied: Shared<'k, u32>,
    ) -> Vec<Value<'k, u32>> {
        let from = self.codes_at(index);
        match (self.target.features().cp_async, self.unit / WORD) {
            (true, 4) => copied.load_vec4(0).into(),
            (true, _) => copied.load_vec2(0).into(),
            (false, 4) => from.load_vec4(0).into(),
            (false, _) => from.load_vec2(0).into(),
        }
    }
}

/// What it takes to decode a thread's share of a stage.
pub(super) struct Decoding<'k, 'd> {
    decoder: &'d Decoder<'k>,
    table: Rounded<'k>,
    codes: Vec<Value<'k, u32>>,
    panel: Shared<'k, u32>,
}

impl Decoding<'_, '_> {
    /// Stores the first half of the values, or the other one.
    pub(super) fn store(&self, half: u32) {
        let Decoder { threads, words, .. } = self.decoder;
        let (first, count) = (half as usize * words.len() / 2, words.len() / 2);
        self.decoder.in_first(*threads, || {
            for (word, codes) in words.iter().zip(&self.codes).skip(first).take(count) {
                self.panel.at(*word).store_vec4(0, self.table.words(*codes));
            }
        });
    }
}
