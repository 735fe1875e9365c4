//! The dot products of one lane, with its vectors in flight.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::gemv::{GemvForm, vector_len};
use retrograph_ptx::build::{Kernel, Ptr, Value, Var};

use super::matrices::{Matrices, Row, RowTile};
use super::{Config, ROWS};
use crate::primitives::bf16::widen;
use crate::primitives::registers::set;

/// Vectors of a row in flight.
const VECTORS_IN_FLIGHT: u32 = 2;

/// One vector of each row, as loaded.
struct InFlight<'k> {
    /// Four words per row; one word of codes in NF4.
    words: [Vec<Var<'k, u32>>; ROWS],
    /// NF4: the scale of the codes, and the scale of the scale.
    scales: [[Var<'k, f32>; 2]; ROWS],
}

/// The accumulators and vectors of one lane.
pub(super) struct LaneDots<'k> {
    k: Kernel<'k>,
    config: Config,
    x: Ptr<'k, f32>,
    gamma: Ptr<'k, f32>,
    in_flight: [InFlight<'k>; VECTORS_IN_FLIGHT as usize],
    sums: [Var<'k, f32>; ROWS],
    squares: Var<'k, f32>,
}

impl<'k> LaneDots<'k> {
    pub(super) fn new(k: &Kernel<'k>, config: Config, matrices: &Matrices<'k>) -> Self {
        let words = if config.dtype == DType::Nf4 { 1 } else { 4 };
        let in_flight = [(); VECTORS_IN_FLIGHT as usize].map(|()| InFlight {
            words: [(); ROWS].map(|()| (0..words).map(|_| k.var(0u32)).collect()),
            scales: [(); ROWS].map(|()| [(); 2].map(|()| k.var(0.0f32))),
        });
        let (sums, squares) = ([(); ROWS].map(|()| k.var(0.0f32)), k.var(0.0f32));
        let Matrices { x, gamma, .. } = *matrices;
        Self { k: *k, config, x, gamma, in_flight, sums, squares }
    }

    /// Sets the sums to 0.
    pub(super) fn reset(&self) {
        self.sums.iter().for_each(|sum| sum.set(0.0));
        self.squares.set(0.0);
    }

    /// The sums of this lane, one per row.
    pub(super) fn sums(&self) -> [Value<'k, f32>; ROWS] {
        self.sums.map(|sum| sum.get())
    }

    /// The sum of x² of this lane.
    pub(super) fn squares(&self) -> Value<'k, f32> {
        self.squares.get()
    }

    /// Runs `body` with the element type of the weights of `tile`.
    fn with_dtype(&self, tile: &RowTile<'k>, body: impl Fn(DType)) {
        let dtype = self.config.dtype;
        match tile.is_f32 {
            None => body(dtype),
            Some(is_f32) => self.k.when_else(is_f32, || body(DType::F32), || body(dtype)),
        }
    }

    /// The first element of this lane, and the distance between its vectors.
    fn start(&self, dtype: DType) -> (Value<'k, u32>, u32) {
        let part = self.k.warp() & (self.config.split - 1);
        (
            (part * 32 + self.k.lane()) * vector_len(dtype),
            self.config.split * 32 * vector_len(dtype),
        )
    }

    /// Elements of a row that are in flight.
    pub(super) fn elements_in_flight(config: Config) -> u32 {
        VECTORS_IN_FLIGHT * config.split * 32 * vector_len(config.dtype)
    }

    /// Starts loading the first vectors of a tile.
    pub(super) fn prefetch_first(&self, tile: &RowTile<'k>) {
        self.with_dtype(tile, |dtype| {
            let (start, step) = self.start(dtype);
            for (index, vectors) in (0..).zip(&self.in_flight) {
                self.fetch(dtype, tile, vectors, start + index * step);
            }
        });
    }

    /// Starts loading the vectors at `at`, if they are inside the rows.
    fn fetch(&self, dtype: DType, tile: &RowTile<'k>, vectors: &InFlight<'k>, at: Value<'k, u32>) {
        self.k.when(at.lt(tile.length), || {
            let registers = vectors.words.iter().zip(vectors.scales);
            for (row, (words, scales)) in tile.rows.iter().zip(registers) {
                match dtype {
                    DType::Nf4 => {
                        let element = row.start + at;
                        words[0].set(Ptr::<u32>::from_address(row.address).load(element >> 3));
                        row.scales.expect("codes have scales").fetch(element, scales);
                    }
                    _ => set(words, load_vector(dtype, row, at)),
                }
            }
        });
    }

    /// Adds all vectors, the first of which are in flight.
    pub(super) fn accumulate_vectorized(&self, tile: &RowTile<'k>) {
        self.with_dtype(tile, |dtype| {
            let (start, step) = self.start(dtype);
            let at = self.k.var(start);
            self.k.while_loop(
                || at.get().lt(tile.length),
                || {
                    for vectors in &self.in_flight {
                        let here = at.get();
                        self.k.when(here.lt(tile.length), || {
                            self.add(dtype, tile, vectors, here);
                            self.fetch(dtype, tile, vectors, here + VECTORS_IN_FLIGHT * step);
                        });
                        at.add_assign(step);
                    }
                },
            );
        });
    }

    /// Adds the products of the loaded vectors; their first element has index `at`.
    fn add(&self, dtype: DType, tile: &RowTile<'k>, vectors: &InFlight<'k>, at: Value<'k, u32>) {
        let vec4s = (0..vector_len(dtype) / 4).map(|vec4| {
            let x = self.x.load_vec4(at + vec4 * 4);
            let gamma = self.has_norm().then(|| self.gamma.load_vec4(at + vec4 * 4));
            (0..4).map(move |i| (x[i], gamma.map(|gamma| gamma[i])))
        });
        let x: Vec<_> = vec4s.flatten().map(|(x, gamma)| self.scaled_x(x, gamma)).collect();
        for (row, sum) in self.sums.iter().enumerate() {
            let products = vectors.decode(dtype, tile, row).into_iter().zip(&x);
            sum.update(|sum| products.fold(sum, |sum, (w, x)| w.fma(*x, sum)));
        }
    }

    fn has_norm(&self) -> bool {
        self.config.variant != GemvForm::Plain
    }

    /// x, times gamma if a norm is fused; then also adds x² to the squares.
    fn scaled_x(&self, x: Value<'k, f32>, gamma: Option<Value<'k, f32>>) -> Value<'k, f32> {
        let Some(gamma) = gamma else { return x };
        self.squares.update(|squares| x.fma(x, squares));
        x * gamma
    }

    /// Adds the same elements in the same order, one by one. NF4 is always vectorized.
    pub(super) fn accumulate_scalar(&self, tile: &RowTile<'k>) {
        self.with_dtype(tile, |dtype| {
            if dtype == DType::Nf4 {
                return;
            }
            let ((start, step), unit) = (self.start(dtype), vector_len(dtype));
            self.k.range(start, tile.length, step, |first| {
                let end = (first + unit).min(tile.length);
                self.k.range(first, end, 1, |i| {
                    let gamma = self.has_norm().then(|| self.gamma.load(i));
                    let x = self.scaled_x(self.x.load(i), gamma);
                    for (sum, row) in self.sums.iter().zip(tile.rows) {
                        let w = element(dtype, row.address, i);
                        sum.update(|sum| w.fma(x, sum));
                    }
                });
            });
        });
    }
}

/// Element `index` of the row at `address`.
fn element<'k>(dtype: DType, address: Value<'k, u64>, index: Value<'k, u32>) -> Value<'k, f32> {
    match dtype {
        DType::F32 => Ptr::<f32>::from_address(address).load(index),
        _ => Value::<f32>::from_bits(Ptr::<u32>::from_address(address).load_u16(index) << 16),
    }
}

/// The 16-byte vector of a row at element `at`, in f32 or bf16.
fn load_vector<'k>(dtype: DType, row: &Row<'k>, at: Value<'k, u32>) -> [Value<'k, u32>; 4] {
    let word = if dtype == DType::F32 { at } else { at >> 1 };
    Ptr::<u32>::from_address(row.address).load_vec4_streaming(word)
}

impl<'k> InFlight<'k> {
    /// The loaded elements of a row, as f32.
    fn decode(&self, dtype: DType, tile: &RowTile<'k>, row: usize) -> Vec<Value<'k, f32>> {
        let words = self.words[row].iter().map(|word| word.get());
        match dtype {
            DType::F32 => words.map(Value::<f32>::from_bits).collect(),
            DType::Bf16 => words.flat_map(widen).map(Value::<f32>::from_bits).collect(),
            DType::Nf4 => {
                let nf4 = tile.rows[row].scales.expect("codes have scales");
                let (word, scale) =
                    (self.words[row][0].get(), nf4.scale(self.scales[row].map(Var::get)));
                (0..8).map(|element| nf4.value(word, element) * scale).collect()
            }
            other => unreachable!("no GEMV reads a matrix in {other}"),
        }
    }
}
