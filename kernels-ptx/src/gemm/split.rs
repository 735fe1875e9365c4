//! Splits the rows of f32 matrices into hi and lo terms of f16, or into hi alone:
//! `x[i, j] · column_scales[j] = scales[i] · (hi[i, j] + lo[i, j])`, up to rounding. x is loaded or
//! is the result of SwiGLU or of its backward pass.
//!
//! Grid: one block per row. The threads find the largest exponent of the row, then split the row,
//! eight elements at a time. Entries `…_1`, `…_2` and `…_4` keep that many groups of eight elements
//! per thread in registers; the others load or compute a row twice.
//!
//! [`split_row`](crate::primitives::split_row) describes the scale of a row and special values.
//!
//! Deterministic: a maximum does not depend on the order, and one thread computes each element.

use retrograph_kernel_abi::gemm::{
    SPLIT_ENTRIES, SPLIT_SWIGLU_BACKWARD_ENTRIES, SPLIT_SWIGLU_ENTRIES, SplitEntries,
    SplitParameters, SplitSwiGluBackwardParameters, SplitSwiGluParameters,
};
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use retrograph_ptx::build::{Kernel, ModuleBuilder, Pred, Ptr, Value, Var};

use crate::primitives::parameters::Declarations;
use crate::primitives::registers::{Registers, registers, set, values};
use crate::primitives::sigmoid;
use crate::primitives::split_row::{ColumnScales, SplitRow, largest_exponent_sum};

/// Elements of a group, which one thread splits.
const GROUP: u32 = 8;

/// Builds the image that splits a matrix.
pub(crate) fn module(target: SmTarget) -> Module {
    build(target, SPLIT_ENTRIES, matrix)
}

/// Builds the image that computes SwiGLU and splits the result.
pub(crate) fn swiglu(target: SmTarget) -> Module {
    build(target, SPLIT_SWIGLU_ENTRIES, of_swiglu)
}

/// Builds the image that computes the backward pass of SwiGLU and splits the gradients.
pub(crate) fn swiglu_backward(target: SmTarget) -> Module {
    build(target, SPLIT_SWIGLU_BACKWARD_ENTRIES, of_swiglu_backward)
}

fn matrix<'k>(k: &Kernel<'k>) -> Rows<'k, 1> {
    let SplitParameters { x, column_scales, terms, scales, rows, columns, term_count: count } =
        SplitParameters::declare(&mut Declarations(*k));
    let (column_scales, writes_lo) = (ColumnScales::new(column_scales), count.gt(1));
    let split = SplitRow::new(k.ctaid_x(), terms, scales, [rows, columns])
        .with_column_scales(column_scales)
        .with_lo_if(writes_lo);
    let x = row_of(x, columns);
    let fetch = move |column, [group]: &[Group<'k>; 1]| set(group, load(x, column));
    Rows { splits: [split], columns, fetch: Box::new(fetch) }
}

fn of_swiglu<'k>(k: &Kernel<'k>) -> Rows<'k, 1> {
    let SplitSwiGluParameters { gate, up, out, terms, scales, rows, columns } =
        SplitSwiGluParameters::declare(&mut Declarations(*k));
    let split = SplitRow::new(k.ctaid_x(), terms, scales, [rows, columns]);
    let [gate, up] = [gate, up].map(|matrix| row_of(matrix, columns));
    let out = OptionalRow::of(out, columns);
    let fetch = move |column, [group]: &[Group<'k>; 1]| {
        let inputs = load(gate, column).into_iter().zip(load(up, column));
        set(group, inputs.map(|(gate, up)| sigmoid::swiglu(gate, up)));
        out.store(column, group);
    };
    Rows { splits: [split], columns, fetch: Box::new(fetch) }
}

fn of_swiglu_backward<'k>(k: &Kernel<'k>) -> Rows<'k, 2> {
    let SplitSwiGluBackwardParameters {
        gate,
        up,
        grad_out,
        gate_column_scales,
        up_column_scales,
        grad_gate,
        grad_up,
        gate_terms,
        up_terms,
        gate_scales,
        up_scales,
        rows,
        columns,
    } = SplitSwiGluBackwardParameters::declare(&mut Declarations(*k));
    let split = |column_scales, terms, scales| {
        let column_scales = ColumnScales::new(column_scales);
        let row = SplitRow::new(k.ctaid_x(), terms, scales, [rows, columns]);
        row.with_column_scales(column_scales)
    };
    let splits = [
        split(gate_column_scales, gate_terms, gate_scales),
        split(up_column_scales, up_terms, up_scales),
    ];
    let inputs = [gate, up, grad_out].map(|matrix| row_of(matrix, columns));
    let grads = [grad_gate, grad_up].map(|matrix| OptionalRow::of(matrix, columns));
    let fetch = move |column, groups: &[Group<'k>; 2]| {
        let [gate, up, grad_out] = inputs.map(|input| load(input, column));
        for j in 0..GROUP as usize {
            let grads = sigmoid::swiglu_gradients([gate[j], up[j]], grad_out[j]);
            groups.iter().zip(grads).for_each(|(group, grad)| group[j].set(grad));
        }
        grads.iter().zip(groups).for_each(|(grad, group)| grad.store(column, group));
    };
    Rows { splits, columns, fetch: Box::new(fetch) }
}

/// Builds an image with `entries`. `declare` declares the parameters and describes the rows.
fn build<const N: usize>(
    target: SmTarget,
    SplitEntries { any_width, in_registers }: SplitEntries,
    declare: impl for<'k> Fn(&Kernel<'k>) -> Rows<'k, N>,
) -> Module {
    let entry = |name: &str, groups: Option<u32>| {
        Kernel::build(name, |k| {
            let rows = declare(k);
            k.max_threads(SplitEntries::MAX_THREADS);
            if groups == Some(2) {
                // With two blocks per SM, one row is loaded while another is written.
                k.min_blocks(2);
            }
            match groups {
                None => rows.any_width(k, target),
                Some(groups) => rows.in_registers(k, target, groups),
            }
        })
    };
    let module = ModuleBuilder::new(target).entry(entry(any_width, None));
    let add = |module: ModuleBuilder, (groups, name)| module.entry(entry(name, Some(groups)));
    in_registers.into_iter().fold(module, add).build()
}

/// The elements of a group.
type Group<'k> = Registers<'k, { GROUP as usize }>;

/// Loads or computes the groups of all matrices at a column.
type Fetch<'k, const N: usize> = Box<dyn Fn(Value<'k, u32>, &[Group<'k>; N]) + 'k>;

/// The row of this block in `N` matrices that are split.
struct Rows<'k, const N: usize> {
    splits: [SplitRow<'k>; N],
    columns: Value<'k, u32>,
    fetch: Fetch<'k, N>,
}

/// A row that is also written in f32, if the matrix is not null.
#[derive(Clone, Copy)]
struct OptionalRow<'k> {
    row: Ptr<'k, f32>,
    exists: Pred<'k>,
}

impl<'k> OptionalRow<'k> {
    /// The row of this block.
    fn of(matrix: Ptr<'k, f32>, columns: Value<'k, u32>) -> Self {
        Self { row: row_of(matrix, columns), exists: !matrix.is_null() }
    }

    /// Stores a group at `column`.
    fn store(&self, column: Value<'k, u32>, group: &Group<'k>) {
        column.kernel().when(self.exists, || {
            let [a, b, c, d, e, f, g, h] = values(group);
            self.row.store_vec4(column, [a, b, c, d]);
            self.row.store_vec4(column + 4, [e, f, g, h]);
        });
    }
}

/// The row of this block.
fn row_of<'k>(matrix: Ptr<'k, f32>, columns: Value<'k, u32>) -> Ptr<'k, f32> {
    matrix.at(columns.kernel().ctaid_x().mul_wide(columns))
}

/// Loads a group at `column`.
fn load<'k>(row: Ptr<'k, f32>, column: Value<'k, u32>) -> Vec<Value<'k, f32>> {
    [column, column + 4].into_iter().flat_map(|at| row.load_vec4(at)).collect()
}

impl<'k, const N: usize> Rows<'k, N> {
    /// Splits a row of any width, which is loaded or computed twice.
    fn any_width(&self, k: &Kernel<'k>, target: SmTarget) {
        let (first, step) = (k.tid_x() * GROUP, k.ntid_x() * GROUP);
        let (largest, groups) =
            ([(); N].map(|()| k.var(0_u32)), [(); N].map(|()| registers(k, 0.0)));
        k.range(first, self.columns, step, |column| {
            (self.fetch)(column, &groups);
            self.update_largest(column, &groups, largest);
        });
        let largest = self.write_scales(k, largest.map(|largest| largest.get()));
        k.range(first, self.columns, step, |column| {
            (self.fetch)(column, &groups);
            self.write(target, column, &groups, largest);
        });
    }

    /// Splits a row in registers, `count` groups per thread.
    fn in_registers(&self, k: &Kernel<'k>, target: SmTarget, count: u32) {
        let groups: Vec<(Value<'k, u32>, [Group<'k>; N])> = (0..count)
            .map(|number| {
                ((k.tid_x() + k.ntid_x() * number) * GROUP, [(); N].map(|()| registers(k, 0.0)))
            })
            .collect();
        let inside = |column: Value<'k, u32>| column.lt(self.columns);
        for &(column, ref groups) in &groups {
            k.when(inside(column), || (self.fetch)(column, groups));
        }
        let largest = [(); N].map(|()| k.var(0_u32));
        for &(column, ref groups) in &groups {
            k.when(inside(column), || self.update_largest(column, groups, largest));
        }
        let largest = self.write_scales(k, largest.map(|largest| largest.get()));
        for &(column, ref groups) in &groups {
            k.when(inside(column), || self.write(target, column, groups, largest));
        }
    }

    /// Updates the largest exponent sum of each matrix with the groups at `column`.
    fn update_largest(
        &self,
        column: Value<'k, u32>,
        groups: &[Group<'k>; N],
        largest: [Var<'k, u32>; N],
    ) {
        for ((split, group), largest) in self.splits.iter().zip(groups).zip(largest) {
            let column_scales = split.column_scales(column);
            largest.update(|largest| largest_exponent_sum(values(group), column_scales, largest));
        }
    }

    /// Writes the scales; see [`SplitRow::write_scale`].
    fn write_scales(&self, k: &Kernel<'k>, largest: [Value<'k, u32>; N]) -> [Value<'k, u32>; N] {
        std::array::from_fn(|at| self.splits[at].write_scale(k, largest[at]))
    }

    /// Writes the terms of the groups at `column`.
    fn write(
        &self,
        target: SmTarget,
        column: Value<'k, u32>,
        groups: &[Group<'k>; N],
        largest: [Value<'k, u32>; N],
    ) {
        for ((split, group), largest) in self.splits.iter().zip(groups).zip(largest) {
            let column_scales = split.column_scales(column);
            split.write(target, column, values(group), column_scales, largest);
        }
    }
}
