//! Backward pass of RMSNorm. With `h = x · rstd` and `u = gamma ⊙ grad_out`, for each row:
//!
//! ```text
//! grad_input          = rstd · (u − h · mean(u ⊙ h))
//! gamma_partials[p]   = Σ grad_out ⊙ h over the rows of block p
//! ```
//!
//! `grad_out` is the sum of up to three gradients, each in f32 or bf16, added in the order of the
//! parameters.
//!
//! `split_f16_rms_norm_backward` also splits the rows of `grad_input` into terms of f16.
//!
//! Grid: one block per `rows_per_block` consecutive rows, at most 256 blocks. `column_sum` adds the
//! rows of `gamma_partials` afterwards; the array is null if gamma is frozen. Entries `…_1` and
//! `…_2` keep a row and the partial sums of gamma in registers, that many vec4s per thread, and
//! load the next row during the block reduction. The others handle rows of any width,
//! `rms_norm_backward` also of any alignment. They read rows twice, and `grad_input` once more if
//! they split it. All add in the same order and give the same bits.
//!
//! Deterministic: each thread adds in order, a block reduction of fixed shape adds the threads, and
//! each element has one writer.
//!
//! Range: h is of order 1 for any scale of x, so no intermediate overflows if `rstd` does not.

mod pipelined;

use retrograph_kernel_abi::F16;
use retrograph_kernel_abi::norm::{
    MAX_THREADS, RMS_NORM_BACKWARD_ANY_WIDTH, RMS_NORM_BACKWARD_IN_REGISTERS,
    RmsNormBackwardParameters, SPLIT_RMS_NORM_BACKWARD_ANY_WIDTH,
    SPLIT_RMS_NORM_BACKWARD_IN_REGISTERS, SplitRmsNormBackwardParameters,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Ptr, Value, Var};

use crate::primitives::input::Input;
use crate::primitives::output::Output;
use crate::primitives::parameters::Declarations;
use crate::primitives::registers::{registers, values};
use crate::primitives::split_row::{ColumnScales, SplitRow, largest_exponent_sum};
use crate::primitives::vec4::{F32x4, Vec4, aligned, for_each_vec4};

/// Builds the image.
pub(crate) fn module(target: SmTarget) -> Module {
    let in_registers = RMS_NORM_BACKWARD_IN_REGISTERS;
    build(target, RMS_NORM_BACKWARD_ANY_WIDTH, in_registers, rows)
}

/// Builds the image that splits the gradient.
pub(crate) fn split(target: SmTarget) -> Module {
    let in_registers = SPLIT_RMS_NORM_BACKWARD_IN_REGISTERS;
    build(target, SPLIT_RMS_NORM_BACKWARD_ANY_WIDTH, in_registers, rows_to_split)
}

/// Builds an image. `declare` declares the parameters and describes the rows.
fn build(
    target: SmTarget,
    any_width: &str,
    in_registers: &[(u32, &str)],
    declare: impl for<'k> Fn(&Kernel<'k>) -> Rows<'k>,
) -> Module {
    let any_width = Kernel::build(any_width, |k| self::any_width(k, target, declare(k)));
    let entry = |&(vec4s, name): &(u32, &str)| {
        Kernel::build(name, |k| pipelined::in_registers(k, target, declare(k), vec4s))
    };
    let module = ModuleBuilder::new(target).entry(any_width);
    in_registers.iter().map(entry).fold(module, ModuleBuilder::entry).build()
}

/// The operands of all rows, or of one row.
#[derive(Clone, Copy)]
struct Rows<'k> {
    x: Ptr<'k, f32>,
    gamma: Ptr<'k, f32>,
    rstd: Ptr<'k, f32>,
    grad_out: [Input<'k>; 3],
    grad_input: Output<'k>,
    /// The terms of `grad_input`, if it is split.
    split: Option<SplitRows<'k>>,
    /// Whether the gradient is added to `grad_input`.
    accumulate: Pred<'k>,
    block: Block<'k>,
    width: Value<'k, u32>,
}

/// What a block computes.
#[derive(Clone, Copy)]
struct Block<'k> {
    /// Its partial gradient of gamma; not written if gamma is frozen.
    partial: Ptr<'k, f32>,
    frozen: Pred<'k>,
    /// Its first row, and the end of its rows.
    rows: [Value<'k, u32>; 2],
}

impl<'k> Block<'k> {
    fn new(
        k: &Kernel<'k>,
        partials: Ptr<'k, f32>,
        [rows, width]: [Value<'k, u32>; 2],
        rows_per_block: Value<'k, u32>,
    ) -> Self {
        k.max_threads(MAX_THREADS);
        let frozen = partials.is_null();
        let partial = partials.at(k.ctaid_x().mul_wide(width));
        let first = k.ctaid_x() * rows_per_block;
        Self { partial, frozen, rows: [first, (first + rows_per_block).min(rows)] }
    }
}

/// A matrix that is split.
#[derive(Clone, Copy)]
struct SplitRows<'k> {
    terms: Ptr<'k, F16>,
    scales: Ptr<'k, f32>,
    column_scales: ColumnScales<'k>,
    sizes: [Value<'k, u32>; 2],
}

impl<'k> SplitRows<'k> {
    fn row(self, index: Value<'k, u32>) -> SplitRow<'k> {
        let row = SplitRow::new(index, self.terms, self.scales, self.sizes);
        row.with_column_scales(self.column_scales)
    }
}

/// The terms of one vec4 of a row.
struct Terms<'k> {
    /// `x · rstd`.
    h: F32x4<'k>,
    /// `gamma ⊙ grad_out`.
    u: F32x4<'k>,
    grad_out: F32x4<'k>,
    rstd: Value<'k, f32>,
}

impl<'k> Rows<'k> {
    /// The operands of row `index`.
    fn row(self, index: Value<'k, u32>) -> Self {
        let start = index.mul_wide(self.width);
        let (x, rstd) = (self.x.at(start), self.rstd.at(index));
        let grad_out = self.grad_out.map(|gradient| gradient.at(start));
        Self { x, rstd, grad_out, grad_input: self.grad_input.at(start), ..self }
    }

    /// The terms of one vec4 of this row.
    fn terms(&self, vec4: Vec4<'k>) -> Terms<'k> {
        let (x, gamma) = (vec4.load(self.x), vec4.load(self.gamma));
        let gradients = self.grad_out.map(|gradient| vec4.read(gradient));
        Terms::of(x, gamma, gradients, self.rstd.load(0))
    }

    /// Whether every operand of this row is 16-byte aligned.
    fn aligned(&self) -> Pred<'k> {
        let partial = Ptr::from_address(self.block.frozen.select(0, self.block.partial.address()));
        let [plain, rounded] = self.grad_input.arrays();
        let gradients = self.grad_out.iter().flat_map(|gradient| gradient.arrays());
        let others = [self.x, self.gamma, plain, rounded, partial];
        aligned(&gradients.chain(others).collect::<Vec<_>>())
    }
}

impl<'k> Terms<'k> {
    fn of(x: F32x4<'k>, gamma: F32x4<'k>, gradients: [F32x4<'k>; 3], rstd: Value<'k, f32>) -> Self {
        let h = x.map(|x| x * rstd);
        let [a, b, c] = gradients;
        let grad_out = [0, 1, 2, 3].map(|i| a[i] + b[i] + c[i]);
        let u = [0, 1, 2, 3].map(|i| gamma[i] * grad_out[i]);
        Self { h, u, grad_out, rstd }
    }

    /// Adds `u ⊙ h`, in order.
    fn add_products(&self, sum: Var<'k, f32>) {
        for i in 0..4 {
            sum.update(|sum| self.u[i].fma(self.h[i], sum));
        }
    }

    /// `before + rstd · (u − h · mean)`.
    fn gradient(&self, before: F32x4<'k>, mean: Value<'k, f32>) -> F32x4<'k> {
        [0, 1, 2, 3].map(|i| before[i] + self.rstd * (-mean).fma(self.h[i], self.u[i]))
    }

    /// `before + grad_out ⊙ h`.
    fn gamma_gradient(&self, before: F32x4<'k>) -> F32x4<'k> {
        [0, 1, 2, 3].map(|i| self.grad_out[i].fma(self.h[i], before[i]))
    }
}

/// Declares the parameters of `rms_norm_backward`.
fn rows<'k>(k: &Kernel<'k>) -> Rows<'k> {
    let parameters = RmsNormBackwardParameters::declare(&mut Declarations(*k));
    let RmsNormBackwardParameters { x, gamma, rstd, gamma_partials, .. } = parameters;
    let RmsNormBackwardParameters { grad_out, grad_out_bf16, .. } = parameters;
    let RmsNormBackwardParameters { grad_out_2, grad_out_2_bf16, .. } = parameters;
    let RmsNormBackwardParameters { grad_out_3, grad_out_3_bf16, .. } = parameters;
    let RmsNormBackwardParameters { grad_input, grad_input_bf16, .. } = parameters;
    let RmsNormBackwardParameters { rows, width, rows_per_block, accumulate, .. } = parameters;
    let accumulate = accumulate.ne(0);
    let grad_out = [
        Input::new(grad_out, grad_out_bf16),
        Input::new(grad_out_2, grad_out_2_bf16),
        Input::new(grad_out_3, grad_out_3_bf16),
    ];
    let (grad_input, split) = (Output::new(grad_input, grad_input_bf16), None);
    Rows {
        x,
        gamma,
        rstd,
        grad_out,
        grad_input,
        split,
        accumulate,
        block: Block::new(k, gamma_partials, [rows, width], rows_per_block),
        width,
    }
}

/// Declares the parameters of `split_f16_rms_norm_backward`.
fn rows_to_split<'k>(k: &Kernel<'k>) -> Rows<'k> {
    let parameters = SplitRmsNormBackwardParameters::declare(&mut Declarations(*k));
    let SplitRmsNormBackwardParameters { x, gamma, rstd, gamma_partials, .. } = parameters;
    let SplitRmsNormBackwardParameters { grad_out, grad_out_2, grad_out_3, .. } = parameters;
    let SplitRmsNormBackwardParameters { grad_input, column_scales, .. } = parameters;
    let SplitRmsNormBackwardParameters { terms, scales, accumulate, .. } = parameters;
    let SplitRmsNormBackwardParameters { rows, width, rows_per_block, .. } = parameters;
    let accumulate = accumulate.ne(0);
    let grad_out = [grad_out, grad_out_2, grad_out_3].map(Input::f32);
    let column_scales = ColumnScales::new(column_scales);
    let split = SplitRows { terms, scales, column_scales, sizes: [rows, width] };
    let (grad_input, split) = (Output::f32(grad_input), Some(split));
    Rows {
        x,
        gamma,
        rstd,
        grad_out,
        grad_input,
        split,
        accumulate,
        block: Block::new(k, gamma_partials, [rows, width], rows_per_block),
        width,
    }
}

/// Rows of any width and alignment, read twice.
fn any_width<'k>(k: &Kernel<'k>, target: SmTarget, rows: Rows<'k>) {
    let ([first, end], width) = (rows.block.rows, rows.width);
    k.range(first, end, 1, |index| {
        let row = rows.row(index);
        let (aligned, not_first) = (row.aligned(), index.ne(first));
        let sum = k.var(0.0);
        for_each_vec4(k, width, aligned, |vec4| row.terms(vec4).add_products(sum));
        let mean = k.block_sum(sum.get()) / width.cast::<f32>();
        let split = rows.split.map(|split| (split.row(index), k.var(0)));
        for_each_vec4(k, width, aligned, |vec4| {
            let terms = row.terms(vec4);
            let before = load_if(k, row.accumulate, vec4, row.grad_input.f32);
            let gradient = terms.gradient(before, mean);
            vec4.write(target, row.grad_input, gradient);
            if let Some((split, largest)) = split {
                let scales = split.column_scales(vec4.first());
                largest.update(|largest| largest_exponent_sum(gradient, scales, largest));
            }
            k.when(!row.block.frozen, || {
                let before = load_if(k, not_first, vec4, row.block.partial);
                vec4.store(row.block.partial, terms.gamma_gradient(before));
            });
        });
        if let Some((split, largest)) = split {
            let largest = split.write_scale(k, largest.get());
            for_each_vec4(k, width, aligned, |vec4| {
                // This thread has written them.
                let gradient = vec4.load(row.grad_input.f32);
                let first = vec4.first();
                split.write(target, first, gradient, split.column_scales(first), largest);
            });
        }
    });
}

/// The vec4 of `array` if `condition` holds, else 0.
fn load_if<'k>(
    k: &Kernel<'k>,
    condition: Pred<'k>,
    vec4: Vec4<'k>,
    array: Ptr<'k, f32>,
) -> F32x4<'k> {
    let registers = registers(k, 0.0);
    k.when(condition, || {
        registers.iter().zip(vec4.load(array)).for_each(|(slot, value)| slot.set(value));
    });
    values(&registers)
}
