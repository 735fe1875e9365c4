//! The way of an operand in NF4 into a stage, where it lies as if it had been copied as bf16.
//!
//! Its codes are copied into the stage before, where that is possible without a register. Threads
//! decode them while tensor cores multiply that stage: each takes as many neighbours as every other
//! one, half a block or less, so that it makes one table of what the codes of its block stand for.
//! The scale is loaded while the stage before is decoded.

use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, Shared, Value, Var};

use super::ring::{COPY, Panel, Section};
use crate::gemm::nf4::{Nf4, Rounded};
use crate::gemm::sizes::over;

/// Codes in a word, whose values are copied together, and codes in a copy.
const WORD: u32 = 8;
const CODES: u32 = COPY * 2;
/// The most neighbours that lie together in a stage: a line of 128 bytes.
const LINE: u32 = 64;

/// One thread's share in decoding an operand.
pub(super) struct Decoder<'k> {
    kernel: Kernel<'k>,
    target: SmTarget,
    section: Section<'k>,
    of: Nf4<'k>,
    /// The address of the operand, and its first element of this block's plane.
    address: Value<'k, u64>,
    first: Value<'k, u32>,
    /// Neighbours that a thread decodes.
    unit: u32,
    /// The scale of the next stage, on its way.
    scale: [Var<'k, f32>; 2],
}

/// Words that the codes of a stage take in it.
pub(super) fn words(target: SmTarget, panel: Panel) -> u32 {
    if target.number >= 80 { panel.extent * panel.depth / WORD } else { 0 }
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
        let unit = elements / panel.threads;
        let whole = elements.is_multiple_of(panel.threads) && CODES.is_multiple_of(unit);
        assert!(whole && unit >= 2 * WORD, "threads decode as much each, and no more than a copy");
        let (address, first) = section.source.start(k);
        let scale = [(); 2].map(|()| k.var(0.0f32));
        Self { kernel: *k, target, section, of, address, first, unit, scale }
    }

    /// Run and element in it of element `element` of a stage, in the order in which threads take
    /// them: along lines, and then from run to run, so that neighbouring threads neither load from
    /// different sectors nor store to the same banks.
    fn spot(&self, element: Value<'k, u32>) -> (Value<'k, u32>, Value<'k, u32>) {
        let [runs, length] = self.section.panel.runs();
        let within = length.min(LINE);
        let line = over(element, within);
        (line & (runs - 1), over(line, runs) * within + (element & (within - 1)))
    }

    /// Where the codes of element `element` of stage `stage` lie, as a number in the operand, and
    /// whether they lie before the end of the contraction. There is one summand.
    fn place(
        &self,
        (stage, element): (Value<'k, u32>, Value<'k, u32>),
        unit: u32,
    ) -> (Value<'k, u32>, Pred<'k>) {
        let start = stage * self.section.panel.depth;
        let (index, inside) = self.section.place(start, self.spot(element), unit);
        (index + self.first, inside)
    }

    fn codes_at(&self, index: Value<'k, u32>) -> Ptr<'k, u32> {
        Ptr::from_address(self.address).at(over(index, WORD))
    }

    /// Starts to copy the codes of stage `stage` to `codes`.
    pub(super) fn copy(&self, stage: Value<'k, u32>, codes: Shared<'k, u32>) {
        if self.target.number < 80 {
            return;
        }
        let (k, panel) = (self.kernel, self.section.panel);
        let copies = panel.extent * panel.depth / CODES;
        let copy = || {
            let (index, _) = self.place((stage, k.tid_x() * CODES), CODES);
            codes.at(k.tid_x() * (COPY / 4)).copy_async(self.codes_at(index), COPY);
        };
        if copies == panel.threads { copy() } else { k.when(k.tid_x().lt(copies), copy) }
    }

    /// Starts loading the scale of stage `stage`, or of the last one behind it.
    pub(super) fn fetch(&self, stage: Value<'k, u32>) {
        let (index, _) = self.place((stage, self.kernel.tid_x() * self.unit), self.unit);
        self.of.fetch(index, self.scale);
    }

    /// What was fetched of the scale, before the next one is.
    pub(super) fn fetched(&self) -> [Value<'k, f32>; 2] {
        self.scale.map(Var::get)
    }

    /// Decodes stage `stage` with the scale that was fetched for it, from `codes` to `panel`. What
    /// lies past the end of the contraction becomes zero.
    pub(super) fn decode(
        &self,
        (stage, fetched): (Value<'k, u32>, [Value<'k, f32>; 2]),
        (panel, codes): (Shared<'k, u32>, Shared<'k, u32>),
    ) {
        let element = self.kernel.tid_x() * self.unit;
        let (index, inside) = self.place((stage, element), self.unit);
        let table = Rounded::new(self.target, inside.select(self.of.scale(fetched), 0.0));
        let (run, along) = self.spot(element);
        for (word, codes) in (0..).zip(self.codes(index, codes.at(over(element, WORD)))) {
            let to = panel.at(self.section.panel.word(run, along + word * WORD));
            to.store_vec4(0, table.words(codes));
        }
    }

    /// This thread's words of codes.
    fn codes(&self, index: Value<'k, u32>, copied: Shared<'k, u32>) -> Vec<Value<'k, u32>> {
        let from = self.codes_at(index);
        match (self.target.number >= 80, self.unit / WORD) {
            (true, 4) => copied.load_vec4(0).into(),
            (true, _) => copied.load_vec2(0).into(),
            (false, 4) => from.load_vec4(0).into(),
            (false, _) => from.load_vec2(0).into(),
        }
    }
}
