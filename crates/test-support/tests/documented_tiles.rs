//! The table of tiles in docs/gemm.md holds what the heuristic selects.

use half::bf16;
use retrograph_kernels::ops::{
    DType, Dgrad, Fprop, GatedActivation, GemmShape, GluDgrad, GluFprop, Wgrad,
};
use retrograph_kernels::{KernelError, Launch, SmTarget, View};

const PAGE: &str = include_str!("../../../docs/gemm.md");
/// Rows of the columns of the table.
const ROWS: [usize; 3] = [512, 2048, 4096];

/// A matrix in bf16. No launch runs, so all have the same address.
fn matrix(rows: usize, columns: usize) -> View<u64, bf16> {
    View::new(0, rows * columns)
}

/// The tile of a launch on sm_90a, such as `128×256`.
fn tile(launch: Result<Launch<u64>, KernelError>) -> String {
    let entry = launch.unwrap().dispatch(SmTarget::for_device(9, 0).unwrap()).entry;
    let (_, tile) = entry.rsplit_once("tma_").unwrap();
    tile.split('_').next().unwrap().replace('x', "×")
}

/// `fprop / dgrad / wgrad` of a linear layer.
fn linear(rows: usize, [inputs, outputs]: [usize; 2]) -> String {
    let shape = GemmShape { rows, inputs, outputs };
    let (x, w, y) = (matrix(rows, inputs), matrix(outputs, inputs), matrix(rows, outputs));
    let (bias, alpha, accumulate) = (None, 1.0, false);
    let fprop = Fprop { x, w, bias, y, shape, alpha, accumulate };
    let dgrad = Dgrad { grad_out: y, w, grad_input: x, shape, alpha, accumulate };
    let wgrad = Wgrad { grad_out: y, x, grad_weight: w, shape, alpha, accumulate };
    let launches =
        [fprop.launch_in(DType::Bf16), dgrad.launch_in(DType::Bf16), wgrad.launch_in(DType::Bf16)];
    launches.map(tile).join(" / ")
}

/// Forward and backward pass of a gated linear unit.
fn gated(rows: usize, [inputs, outputs]: [usize; 2]) -> String {
    let activation = GatedActivation::Silu;
    let (x, w, y) = (matrix(rows, inputs), matrix(outputs, inputs), matrix(rows, outputs));
    let shape = GemmShape { rows, inputs, outputs };
    let forward = GluFprop { activation, x, w: [w; 2], products: Some([y; 2]), out: y, shape };
    let shape = GemmShape { rows, inputs: outputs, outputs: inputs };
    let (gate, up, grad_gate, grad_up) = (y, y, y, y);
    let (grad_out, second) = (x, None);
    let backward =
        GluDgrad { activation, grad_out, w, second, gate, up, grad_gate, grad_up, shape };
    [forward.launch(), backward.launch()].map(tile).join(" / ")
}

#[test]
fn the_table_of_tiles_holds_what_the_heuristic_selects() {
    let (_, table) = PAGE.split_once("| Layer, inputs × outputs |").unwrap();
    let mut layers = 0;
    for line in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [layer, listed @ ..] = &cells[..] else { panic!("a row has cells: {line}") };
        let gate_and_up = layer.strip_prefix("gate and up of ");
        let sizes = gate_and_up.unwrap_or(layer).split(':').next().unwrap();
        let (inputs, outputs) = sizes.split_once(" × ").unwrap();
        let sizes = [inputs, outputs].map(|size| size.parse().unwrap());
        let found = ROWS.map(|rows| match gate_and_up {
            Some(_) => gated(rows, sizes),
            None => linear(rows, sizes),
        });
        assert_eq!(listed, found, "{layer}");
        layers += 1;
    }
    assert_eq!(layers, 10);
}
