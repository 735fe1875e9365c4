//! The sizes of a matrix product, and its form for cuBLAS.

use std::ffi::c_int;

use retrograph_driver::{Error, Result};

use super::table::GemmArguments;

/// The sizes of `c = a · b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixShape {
    /// Rows of the result.
    pub rows: usize,
    /// Columns of the result.
    pub columns: usize,
    /// The contracted size.
    pub inner: usize,
}

/// A product without its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GemmProblem {
    pub(crate) shape: MatrixShape,
    pub(crate) transpose_a: bool,
    pub(crate) transpose_b: bool,
    pub(crate) alpha: f32,
    pub(crate) accumulate: bool,
}

impl GemmProblem {
    /// The same product in column-major order: a row-major matrix is its transpose in column-major
    /// order, so `c = a · b` becomes `cᵀ = bᵀ · aᵀ`, and the first operand of cuBLAS is `b`.
    pub(crate) fn by_columns(&self) -> Result<GemmArguments> {
        let size = |value: usize| {
            let too_large = |_| Error::Library {
                call: "cublasGemmEx",
                status: 7,
                name: "a size of the product is more than 2^31 - 1",
            };
            c_int::try_from(value).map_err(too_large)
        };
        let MatrixShape { rows, columns, inner } = self.shape;
        Ok(GemmArguments {
            transpose_a: self.transpose_b,
            transpose_b: self.transpose_a,
            m: size(columns)?,
            n: size(rows)?,
            k: size(inner)?,
            lda: size(if self.transpose_b { inner } else { columns })?,
            ldb: size(if self.transpose_a { rows } else { inner })?,
            ldc: size(columns)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cublasGemmEx` as documented, with operands in the order of its arguments.
    fn columns_product(with: &GemmArguments, first: &[i64], second: &[i64], out: &mut [i64]) {
        let at = |values: &[i64], ld: c_int, transposed: bool, row: c_int, column: c_int| {
            let (row, column) = if transposed { (column, row) } else { (row, column) };
            values[(row + column * ld) as usize]
        };
        for (m, n) in (0..with.m).flat_map(|m| (0..with.n).map(move |n| (m, n))) {
            let terms = (0..with.k).map(|k| {
                at(first, with.lda, with.transpose_a, m, k)
                    * at(second, with.ldb, with.transpose_b, k, n)
            });
            out[(m + n * with.ldc) as usize] = terms.sum();
        }
    }

    #[test]
    fn products_by_rows_become_products_by_columns() {
        let shape = MatrixShape { rows: 3, columns: 4, inner: 5 };
        for (transpose_a, transpose_b) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let problem =
                GemmProblem { shape, transpose_a, transpose_b, alpha: 1.0, accumulate: false };
            let a: Vec<i64> = (0..15).map(|at| at * 7 % 11 - 5).collect();
            let b: Vec<i64> = (0..20).map(|at| at * 5 % 13 - 6).collect();
            let mut found = vec![0; 12];
            columns_product(&problem.by_columns().unwrap(), &b, &a, &mut found);
            for (row, column) in (0..3).flat_map(|row| (0..4).map(move |column| (row, column))) {
                let terms = (0..5).map(|k| {
                    let a = if transpose_a { a[k * 3 + row] } else { a[row * 5 + k] };
                    let b = if transpose_b { b[column * 5 + k] } else { b[k * 4 + column] };
                    a * b
                });
                assert_eq!(found[row * 4 + column], terms.sum::<i64>(), "{problem:?}");
            }
        }
    }
}
