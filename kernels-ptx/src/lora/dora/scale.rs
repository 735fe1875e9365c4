//! Scales columns: `y = x ⊙ mag_norm_scales + bias`, and the backward pass
//! `dx = dy ⊙ mag_norm_scales`, `dm = Σ dy ⊙ x / norms` per tile of 64 rows.
//!
//! Grid: x: 64 rows; y: 128 columns. A warp takes every eighth row, a lane a vec4 of columns, four
//! rows in flight.
//!
//! Deterministic: one thread computes each element. A warp adds its rows in ascending order, and
//! the eight warps are added in order.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::lora::dora::scale::{self, COLUMNS, ROWS, THREADS};
use retrograph_kernel_abi::lora::dora::{ScaleBackwardParameters, ScaleParameters};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Entry;
use retrograph_ptx::build::{Kernel, Ptr, Value};

use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::registers::{Registers, registers, set, values};
use crate::primitives::smem_tile::SmemTile;
use crate::primitives::vec4::{F32x4, Vec4, aligned};

const WARPS: u32 = THREADS / 32;
/// Rows of a warp in flight.
const ROWS_IN_FLIGHT: u32 = 4;
/// The sums of the warps in shared memory.
const SUMS: SmemTile = SmemTile::f32([WARPS, COLUMNS], 0);

pub(super) fn entry(target: SmTarget, x: DType) -> Entry {
    Kernel::build(scale::entry(x), |k| {
        let ScaleParameters { x: input, mag_norm_scales, bias, y, y_bf16, rows, columns } =
            ScaleParameters::declare(&mut Declarations(*k));
        let (input, y) = (input.reinterpret::<f32>(), Output::new(y, y_bf16));
        let [y_f32, y_rounded] = y.arrays();
        let arrays = [input, mag_norm_scales, bias, y_f32, y_rounded];
        let block = Block::new(k, [rows, columns], &arrays);
        let mag_norm_scales = block.vec4.load(mag_norm_scales);
        let biases: Registers<'_> = registers(k, 0.0);
        k.when(!bias.is_null(), || set(&biases, block.vec4.load(bias)));
        let biases = values(&biases);
        block.for_each_rows([(x, input)], |row, [x]| {
            let result = [0, 1, 2, 3].map(|at| x[at].fma(mag_norm_scales[at], biases[at]));
            block.vec4.write(target, y.at(row.mul_wide(columns)), result);
        });
    })
}

pub(super) fn backward_entry(target: SmTarget, [grad_out, x]: [DType; 2]) -> Entry {
    Kernel::build(scale::backward_entry(grad_out, x), |k| {
        let parameters = ScaleBackwardParameters::declare(&mut Declarations(*k));
        let ScaleBackwardParameters { grad_input, grad_input_bf16, grad_magnitudes, .. } =
            parameters;
        let ScaleBackwardParameters { mag_norm_scales, norms, rows, columns, .. } = parameters;
        let inputs = [
            (grad_out, parameters.grad_out.reinterpret::<f32>()),
            (x, parameters.x.reinterpret::<f32>()),
        ];
        let to = Output::new(grad_input, grad_input_bf16);
        let [to_f32, to_rounded] = to.arrays();
        let arrays = [inputs[0].1, inputs[1].1, mag_norm_scales, norms, to_f32, to_rounded];
        let block = Block::new(k, [rows, columns], &arrays);
        let (mag_norm_scales, norms) =
            (block.vec4.load(mag_norm_scales), block.vec4.load_or(norms, 1.0));
        let sums = registers(k, 0.0);
        block.for_each_rows(inputs, |row, [grad_out, x]| {
            let result = [0, 1, 2, 3].map(|at| grad_out[at] * mag_norm_scales[at]);
            block.vec4.write(target, to.at(row.mul_wide(columns)), result);
            for (at, sum) in sums.iter().enumerate() {
                sum.update(|sum| grad_out[at].fma(x[at], sum));
            }
        });
        let shared = k.shared::<f32>("sums", SUMS.words() as usize);
        shared.at(k.warp() * SUMS.pitch() + k.lane() * 4).store_vec4(0, values(&sums));
        k.barrier();
        k.when(k.warp().eq(0), || {
            let own = shared.at(k.lane() * 4);
            let warps = (0..WARPS).map(|warp| own.load_vec4(warp * SUMS.pitch()));
            let total = warps.reduce(|sum, next| [0, 1, 2, 3].map(|at| sum[at] + next[at]));
            let total = total.expect("there is a warp");
            let result = [0, 1, 2, 3].map(|at| total[at] / norms[at]);
            // The partial rows may be aligned differently from the operands.
            let out = grad_magnitudes.at(k.ctaid_x().mul_wide(columns));
            let whole = aligned(&[out]);
            Vec4::new(block.first_column, columns, whole).store(out, result);
        });
    })
}

/// The rows and columns of a block, as one of its threads accesses them.
struct Block<'k> {
    k: Kernel<'k>,
    first_column: Value<'k, u32>,
    vec4: Vec4<'k>,
    rows: Value<'k, u32>,
    columns: Value<'k, u32>,
}

impl<'k> Block<'k> {
    fn new(k: &Kernel<'k>, [rows, columns]: [Value<'k, u32>; 2], arrays: &[Ptr<'k, f32>]) -> Self {
        k.max_threads(THREADS);
        let first_column = k.ctaid_y() * COLUMNS + k.lane() * 4;
        let aligned = aligned(arrays) & (columns & 3).eq(0);
        let vec4 = Vec4::new(first_column, columns, aligned);
        Self { k: *k, first_column, vec4, rows, columns }
    }

    /// Runs `body` with the number of each row of this warp and its vec4 of each input.
    fn for_each_rows<const I: usize>(
        &self,
        inputs: [(DType, Ptr<'k, f32>); I],
        body: impl Fn(Value<'k, u32>, [F32x4<'k>; I]),
    ) {
        let Self { k, vec4, rows, columns, .. } = *self;
        let first = k.ctaid_x() * ROWS + k.warp();
        let end = (k.ctaid_x() * ROWS + ROWS).min(rows);
        k.range(first, end, WARPS * ROWS_IN_FLIGHT, |at| {
            let loaded = (0..ROWS_IN_FLIGHT).map(|number| {
                let row = at + number * WARPS;
                let slots = inputs.map(|_| registers(&k, 0.0));
                k.when(row.lt(end), || {
                    for ((dtype, input), slots) in inputs.iter().zip(&slots) {
                        let elements = row.mul_wide(columns);
                        let bytes = elements << dtype.bytes().ilog2();
                        set(slots, vec4.load_as(*dtype, input.address() + bytes));
                    }
                });
                (row, slots)
            });
            for (row, slots) in loaded.collect::<Vec<_>>() {
                k.when(row.lt(end), || body(row, slots.map(|slots| values(&slots))));
            }
        });
    }
}
