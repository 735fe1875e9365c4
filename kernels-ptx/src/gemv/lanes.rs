//! The products of the lanes of a warp, and what they have on its way from memory.

use retrograph_ptx::build::{Kernel, Ptr, Value, Var};

use super::matrices::{Matrices, Row, ThreadGroup};
use super::{Form, Kind, ROWS, Storage};

/// Vectors of a row that are under way at once.
const AHEAD: u32 = 2;

/// Vectors of all rows from one place on: as loaded, not decoded.
struct Slot<'k> {
    /// Four words of each row, one of rows in NF4.
    words: [Vec<Var<'k, u32>>; ROWS],
    /// Of a row in NF4, whose codes are the first word: the scale, and that of the scale.
    scales: [[Var<'k, f32>; 2]; ROWS],
}

/// How the weights of a team are stored.
#[derive(Clone, Copy)]
enum Line {
    F32x4,
    Halves,
    Codes,
}

impl Line {
    /// Elements of a vector.
    fn unit(self) -> u32 {
        if matches!(self, Self::F32x4) { 4 } else { 8 }
    }
}

/// The products of one lane.
pub(super) struct Lanes<'k> {
    k: Kernel<'k>,
    kind: Kind,
    x: Ptr<'k, f32>,
    gamma: Ptr<'k, f32>,
    slots: [Slot<'k>; AHEAD as usize],
    sums: [Var<'k, f32>; ROWS],
    squares: Var<'k, f32>,
}

impl<'k> Lanes<'k> {
    pub(super) fn new(k: &Kernel<'k>, kind: Kind, matrices: &Matrices<'k>) -> Self {
        let words = if kind.storage == Storage::Nf4 { 1 } else { 4 };
        let slots = [(); AHEAD as usize].map(|()| Slot {
            words: [(); ROWS].map(|()| (0..words).map(|_| k.var(0u32)).collect()),
            scales: [(); ROWS].map(|()| [(); 2].map(|()| k.var(0.0f32))),
        });
        let (sums, squares) = ([(); ROWS].map(|()| k.var(0.0f32)), k.var(0.0f32));
        let Matrices { x, gamma, .. } = *matrices;
        Self { k: *k, kind, x, gamma, slots, sums, squares }
    }

    /// Forgets the sums.
    pub(super) fn clear(&self) {
        self.sums.iter().for_each(|sum| sum.set(0.0));
        self.squares.set(0.0);
    }

    /// The sums of this lane.
    pub(super) fn sums(&self) -> [Value<'k, f32>; ROWS] {
        self.sums.map(|sum| sum.get())
    }

    /// The squares of x that it added.
    pub(super) fn squares(&self) -> Value<'k, f32> {
        self.squares.get()
    }

    /// Runs `work` for the way in which the weights of `team` are stored.
    fn by_line(&self, team: &ThreadGroup<'k>, work: impl Fn(Line)) {
        let line = match self.kind.storage {
            Storage::F32 => Line::F32x4,
            Storage::Bf16 => Line::Halves,
            Storage::Nf4 => Line::Codes,
        };
        match team.floats {
            None => work(line),
            Some(floats) => self.k.when_else(floats, || work(Line::F32x4), || work(line)),
        }
    }

    /// The first element of this lane, and the distance to its next.
    fn start(&self, line: Line) -> (Value<'k, u32>, u32) {
        let part = self.k.warp() & (self.kind.split - 1);
        ((part * 32 + self.k.lane()) * line.unit(), self.kind.split * 32 * line.unit())
    }

    /// Elements of a row that a team has on its way at once.
    pub(super) fn ahead(kind: Kind) -> u32 {
        let unit = if kind.storage == Storage::F32 { Line::F32x4 } else { Line::Halves }.unit();
        AHEAD * kind.split * 32 * unit
    }

    /// Starts loading the first vectors of a team.
    pub(super) fn begin(&self, team: &ThreadGroup<'k>) {
        self.by_line(team, |line| {
            let (start, step) = self.start(line);
            for (ahead, slot) in (0..).zip(&self.slots) {
                self.fetch((line, team), slot, start + ahead * step);
            }
        });
    }

    /// Starts loading the vectors at `at`, where there are any.
    fn fetch(&self, (line, team): (Line, &ThreadGroup<'k>), slot: &Slot<'k>, at: Value<'k, u32>) {
        self.k.when(at.lt(team.length), || {
            let held = slot.words.iter().zip(slot.scales);
            for (row, (words, scales)) in team.rows.iter().zip(held) {
                match line {
                    Line::F32x4 | Line::Halves => {
                        let loaded = vector(line, row, at);
                        words.iter().zip(loaded).for_each(|(word, value)| word.set(value));
                    }
                    Line::Codes => {
                        let element = row.start + at;
                        words[0].set(Ptr::<u32>::from_address(row.address).load(element >> 3));
                        row.scales.expect("codes have scales").fetch(element, scales);
                    }
                }
            }
        });
    }

    /// Adds whole vectors, of which the first have been fetched.
    pub(super) fn by_vectors(&self, team: &ThreadGroup<'k>) {
        self.by_line(team, |line| {
            let (start, step) = self.start(line);
            let at = self.k.var(start);
            self.k.while_loop(
                || at.get().lt(team.length),
                || {
                    for slot in &self.slots {
                        let here = at.get();
                        self.k.when(here.lt(team.length), || {
                            self.add((line, team), slot, here);
                            self.fetch((line, team), slot, here + AHEAD * step);
                        });
                        at.add_assign(step);
                    }
                },
            );
        });
    }

    /// Adds the vectors of a slot, whose first element is number `at`.
    fn add(&self, (line, team): (Line, &ThreadGroup<'k>), slot: &Slot<'k>, at: Value<'k, u32>) {
        let vec4s = (0..line.unit() / 4).map(|vec4| {
            let x = self.x.load_vec4(at + vec4 * 4);
            let gamma = self.norms().then(|| self.gamma.load_vec4(at + vec4 * 4));
            (0..4).map(move |i| (x[i], gamma.map(|gamma| gamma[i])))
        });
        let x: Vec<_> = vec4s.flatten().map(|(x, gamma)| self.factor(x, gamma)).collect();
        for (row, sum) in self.sums.iter().enumerate() {
            let products = slot.decoded(line, team, row).into_iter().zip(&x);
            sum.update(|sum| products.fold(sum, |sum, (w, x)| w.fma(*x, sum)));
        }
    }

    fn norms(&self) -> bool {
        self.kind.form != Form::Plain
    }

    /// What weights are multiplied by. Its square is added where there is a norm.
    fn factor(&self, x: Value<'k, f32>, gamma: Option<Value<'k, f32>>) -> Value<'k, f32> {
        let Some(gamma) = gamma else { return x };
        self.squares.update(|squares| x.fma(x, squares));
        x * gamma
    }

    /// Adds the same elements in the same order, one at a time. Codes come in vectors only.
    pub(super) fn one_by_one(&self, team: &ThreadGroup<'k>) {
        self.by_line(team, |line| {
            if matches!(line, Line::Codes) {
                return;
            }
            let ((start, step), unit) = (self.start(line), line.unit());
            self.k.range(start, team.length, step, |first| {
                let end = (first + unit).min(team.length);
                self.k.range(first, end, 1, |i| {
                    let gamma = self.norms().then(|| self.gamma.load(i));
                    let x = self.factor(self.x.load(i), gamma);
                    for (sum, row) in self.sums.iter().zip(team.rows) {
                        let w = element(line, row.address, i);
                        sum.update(|sum| w.fma(x, sum));
                    }
                });
            });
        });
    }
}

/// Element `index` behind `address`.
fn element<'k>(line: Line, address: Value<'k, u64>, index: Value<'k, u32>) -> Value<'k, f32> {
    match line {
        Line::F32x4 => Ptr::<f32>::from_address(address).load(index),
        _ => Value::<f32>::from_bits(Ptr::<u32>::from_address(address).load_u16(index) << 16),
    }
}

/// The words of the vector of a row at `at`, which are no codes.
fn vector<'k>(line: Line, row: &Row<'k>, at: Value<'k, u32>) -> [Value<'k, u32>; 4] {
    let word = if matches!(line, Line::F32x4) { at } else { at >> 1 };
    Ptr::<u32>::from_address(row.address).load_vec4(word)
}

impl<'k> Slot<'k> {
    /// The elements that are held of a row.
    fn decoded(&self, line: Line, team: &ThreadGroup<'k>, row: usize) -> Vec<Value<'k, f32>> {
        let words = self.words[row].iter().map(|word| word.get());
        match line {
            Line::F32x4 => words.map(Value::<f32>::from_bits).collect(),
            Line::Halves => {
                let pair = |word: Value<'k, u32>| [word << 16, word & 0xffff_0000];
                words.flat_map(pair).map(Value::<f32>::from_bits).collect()
            }
            Line::Codes => {
                let nf4 = team.rows[row].scales.expect("codes have scales");
                let (word, scale) =
                    (self.words[row][0].get(), nf4.scale(self.scales[row].map(Var::get)));
                (0..8).map(|element| nf4.value(word, element) * scale).collect()
            }
        }
    }
}
