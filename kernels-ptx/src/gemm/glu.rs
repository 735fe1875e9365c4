//! Epilogues of gated linear units.
//!
//! Forward: `gate = x·w_gateᵀ`, `up = x·w_upᵀ` and `out = activation(gate) · up`; gate and up are
//! written if a backward pass needs them. Backward: the product is the gradient of `out`; only the
//! gradients of gate and up are written.
//!
//! Each product is first rounded to bf16, so results have the bits of the products followed by the
//! elementwise kernels.

use retrograph_kernel_abi::elementwise::GatedActivation;
use retrograph_kernel_abi::gemm::{GemmGluBackwardParameters, GemmGluParameters, TENSOR_MAP_BOX};
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Ptr, Shared, TensorMapParam, Value, Var};

use super::accumulator::{AccFragment, WarpTile};
use super::epilogue::when_inside;
use super::params::GemmParams;
use super::staged_store::{BOX_FRAGMENTS, ResultBox, StagedStore, load_pair};
use crate::primitives::bf16::{pack, unpack};
use crate::primitives::gated::{glu_bf16, glu_gradients_bf16};
use crate::primitives::parameters::Declarations;
use crate::primitives::tma_pipeline::Stage;

/// Further operands of the forward pass.
#[derive(Clone, Copy)]
pub(super) struct GluParams<'k> {
    activation: GatedActivation,
    pub(super) up_b: Ptr<'k, u32>,
    gate: Ptr<'k, u32>,
    up: Ptr<'k, u32>,
    pub(super) up_b_map: TensorMapParam<'k>,
    gate_map: TensorMapParam<'k>,
    up_map: TensorMapParam<'k>,
}

/// Further operands of the backward pass.
#[derive(Clone, Copy)]
pub(super) struct GluBackwardParams<'k> {
    activation: GatedActivation,
    gate: Ptr<'k, u32>,
    up: Ptr<'k, u32>,
    grad_up: Ptr<'k, u32>,
    /// The maps of gate and up.
    pub(super) input_maps: [TensorMapParam<'k>; 2],
    grad_up_map: TensorMapParam<'k>,
}

/// `activation(gate) · up` of two elements per bf16 word.
fn forward<'k>(
    activation: GatedActivation,
    target: SmTarget,
    words: [Value<'k, u32>; 2],
) -> Value<'k, u32> {
    let [gate, up] = words.map(unpack);
    pack(target, [0, 1].map(|i| glu_bf16(activation, gate[i], up[i])))
}

/// The gradients of gate and up of two elements per bf16 word.
fn backward<'k>(
    activation: GatedActivation,
    target: SmTarget,
    inputs: [Value<'k, u32>; 2],
    grad_out: Value<'k, u32>,
) -> [Value<'k, u32>; 2] {
    let ([gate, up], grad_out) = (inputs.map(unpack), unpack(grad_out));
    let [first, second] =
        [0, 1].map(|i| glu_gradients_bf16(activation, [gate[i], up[i]], grad_out[i]));
    [0, 1].map(|i| pack(target, [first[i], second[i]]))
}

/// The bf16 words of the upper and the lower row of each fragment.
fn words<'k>(target: SmTarget, fragments: &[AccFragment<'k>]) -> Vec<[Value<'k, u32>; 2]> {
    let word = |pair: [Var<'k, f32>; 2]| pack(target, pair.map(Var::get));
    fragments.iter().map(|&[a, b, x, y]| [word([a, b]), word([x, y])]).collect()
}

impl<'k> GluParams<'k> {
    pub(super) fn declare(k: &Kernel<'k>, activation: GatedActivation) -> Self {
        let GemmGluParameters { up_b, gate, up, up_b_map, gate_map, up_map } =
            GemmGluParameters::declare(&mut Declarations(*k));
        let [up_b, gate, up] = [up_b, gate, up].map(|pointer| pointer.reinterpret());
        Self { activation, up_b, gate, up, up_b_map, gate_map, up_map }
    }

    /// Writes the tile of a warpgroup at `row` and `column`. The first half of `acc` is gate, the
    /// second up. `boxes` returns the warpgroup's boxes in a stage, two or more.
    pub(super) fn store(
        &self,
        store: &StagedStore<'k>,
        boxes: impl Fn(Stage<'k>) -> Vec<Shared<'k, u32>>,
        target: SmTarget,
        params: &GemmParams<'k>,
        [row, column]: [Value<'k, u32>; 2],
        acc: &[AccFragment<'k>],
    ) {
        let k = row.kernel();
        let out_map = params.maps.expect("both operands are bf16").c;
        let kept = !self.gate.is_null();
        let product = |map, rows| ResultBox { map, rows, kept: Some(kept) };
        let result = |rows| ResultBox { map: out_map, rows, kept: None };
        let (gate, up) = acc.split_at(acc.len() / 2);
        let chunks = gate.chunks(BOX_FRAGMENTS).zip(up.chunks(BOX_FRAGMENTS));
        for (index, (gate, up)) in (0u32..).zip(chunks) {
            // Rounding before the activation frees the registers of the products.
            let [gate, up] = [gate, up].map(|fragments| words(target, fragments));
            let origin = [column + index * TENSOR_MAP_BOX[0], row, k.constant(0)];
            let end = params.n;
            let pair =
                |words: &[[Value<'k, u32>; 2]], pair: usize| [words[pair * 2], words[pair * 2 + 1]];
            let out = |at: usize| {
                each_word([pair(&gate, at), pair(&up, at)], |words| {
                    forward(self.activation, target, words)
                })
            };
            let stage = store.next();
            match boxes(stage)[..] {
                [first, second, third, ..] => {
                    let results = [
                        product(self.gate_map, first),
                        product(self.up_map, second),
                        result(third),
                    ];
                    store.store(stage, results, origin, end, |at| {
                        [pair(&gate, at), pair(&up, at), out(at)]
                    });
                }
                [first, second] => {
                    let results = [product(self.gate_map, first), product(self.up_map, second)];
                    store.store(stage, results, origin, end, |at| [pair(&gate, at), pair(&up, at)]);
                    let stage = store.next();
                    let results = [result(boxes(stage)[0])];
                    store.store(stage, results, origin, end, |at| [out(at)]);
                }
                _ => unreachable!("a stage has two boxes for each warpgroup"),
            }
        }
    }

    /// Writes the tile of a warp at `origin` from registers.
    pub(super) fn write(
        &self,
        target: SmTarget,
        params: &GemmParams<'k>,
        warp_tile: &WarpTile<'k>,
        origin: [Value<'k, u32>; 2],
        acc: [&[Vec<AccFragment<'k>>]; 2],
    ) {
        let k = &origin[0].kernel();
        let (out, kept) = (params.c.bf16.expect("c may be bf16").0, !self.gate.is_null());
        warp_tile.for_each_pair_of(k, acc, |row, column, pairs| {
            when_inside(params, origin, [row, column], |word| {
                let products = pairs.map(|pair| pack(target, pair));
                k.when(kept, || {
                    self.gate.store(word, products[0]);
                    self.up.store(word, products[1]);
                });
                out.store(word, forward(self.activation, target, products));
            });
        });
    }
}

impl<'k> GluBackwardParams<'k> {
    pub(super) fn declare(k: &Kernel<'k>, activation: GatedActivation) -> Self {
        let GemmGluBackwardParameters { gate, up, grad_up, gate_map, up_map, grad_up_map } =
            GemmGluBackwardParameters::declare(&mut Declarations(*k));
        let [gate, up, grad_up] = [gate, up, grad_up].map(|pointer| pointer.reinterpret());
        Self { activation, gate, up, grad_up, input_maps: [gate_map, up_map], grad_up_map }
    }

    /// Writes the tile of a warpgroup at `row` and `column`, from stages with 64 columns of gate
    /// and up. `boxes` returns the warpgroup's boxes of both in a stage; the gradients replace
    /// them.
    pub(super) fn store(
        &self,
        store: &StagedStore<'k>,
        boxes: impl Fn(Stage<'k>) -> Vec<Shared<'k, u32>>,
        target: SmTarget,
        params: &GemmParams<'k>,
        [row, column]: [Value<'k, u32>; 2],
        acc: &[AccFragment<'k>],
    ) {
        let k = &row.kernel();
        let grad_gate_map = params.maps.expect("both operands are bf16").c;
        for (index, acc) in (0u32..).zip(acc.chunks(BOX_FRAGMENTS)) {
            // Rounding before gate and up are loaded frees the registers of the product.
            let grad_out = words(target, acc);
            let stage = store.next();
            let boxes = boxes(stage);
            let inputs = [boxes[0], boxes[1]];
            let result = |map, rows| ResultBox { map, rows, kept: None };
            let results = [result(grad_gate_map, inputs[0]), result(self.grad_up_map, inputs[1])];
            let origin = [column + index * TENSOR_MAP_BOX[0], row, k.constant(0)];
            store.store(stage, results, origin, params.n, |pair| {
                let [gate, up] = inputs.map(|rows| load_pair(k, rows, pair));
                let grad_out = [grad_out[pair * 2], grad_out[pair * 2 + 1]];
                let grads = each_word([gate, up, grad_out], |[gate, up, grad_out]| {
                    backward(self.activation, target, [gate, up], grad_out)
                });
                [0, 1].map(|result| grads.map(|words| words.map(|grads| grads[result])))
            });
        }
    }

    /// Writes the tile of a warp at `origin` from registers.
    pub(super) fn write(
        &self,
        target: SmTarget,
        params: &GemmParams<'k>,
        warp_tile: &WarpTile<'k>,
        origin: [Value<'k, u32>; 2],
        acc: &[Vec<AccFragment<'k>>],
    ) {
        let k = &origin[0].kernel();
        let grad_gate = params.c.bf16.expect("c may be bf16").0;
        warp_tile.for_each_pair(k, acc, |row, column, pair| {
            when_inside(params, origin, [row, column], |word| {
                let inputs = [self.gate, self.up].map(|input| input.load(word));
                let values = backward(self.activation, target, inputs, pack(target, pair));
                for (to, value) in [grad_gate, self.grad_up].into_iter().zip(values) {
                    to.store(word, value);
                }
            });
        });
    }
}

/// Applies `formula` to the corresponding words of pairs of fragments.
fn each_word<'k, T, const N: usize>(
    pairs: [[[Value<'k, u32>; 2]; 2]; N],
    formula: impl Fn([Value<'k, u32>; N]) -> T,
) -> [[T; 2]; 2] {
    [0, 1].map(|fragment| [0, 1].map(|half| formula(pairs.map(|pair| pair[fragment][half]))))
}
