//! Row-major products compared with column-major products computed by definition.

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
fn row_major_products_become_column_major_ones() {
    let shape = MatrixShape { m: 3, n: 4, k: 5 };
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
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
