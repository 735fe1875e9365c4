//! The results of a block's tiles.

use std::ops::Range;

use retrograph_kernel_abi::gemm::{
    SKINNY_MAX_ROWS as ROWS, SKINNY_TILE_ROWS as TILE_ROWS, SKINNY_WARPS as WARPS, SkinnyForm,
};
use retrograph_ptx::build::{Kernel, Ptr, Shared, Value, Var};

use super::MAX_WARPS;
use super::products::LaneProducts;
use super::weights::Weights;
use crate::primitives::bf16::pack;
use crate::primitives::mma::{fragment_column, fragment_row};
use crate::primitives::sigmoid::silu;

/// Sums of a warp.
const WARP_SUMS: u32 = ROWS * TILE_ROWS;

/// The element of y that a thread writes in each tile. Adjacent threads have adjacent outputs.
pub(super) struct Output<'k, 'a> {
    k: Kernel<'k>,
    weights: &'a Weights<'k>,
    /// The row of x and y, and the output within the tile.
    row: Value<'k, u32>,
    output: Value<'k, u32>,
    /// The address of the element, or 0 if the thread does not write one.
    address: Var<'k, u64>,
    /// What is added: bias and y, and the bias of up with SwiGLU.
    addends: [Var<'k, f32>; 2],
    /// The sums of all warps, twice, so that a tile needs one barrier.
    warp_sums: Shared<'k, f32>,
    /// Which of the two is in use: 0, or its distance from the first.
    offset: Var<'k, u32>,
}

impl<'k, 'a> Output<'k, 'a> {
    pub(super) fn new(k: &Kernel<'k>, weights: &'a Weights<'k>) -> Self {
        let (thread, tile_outputs) = (k.tid_x(), weights.config.form.tile_outputs());
        Self {
            k: *k,
            weights,
            row: thread / tile_outputs,
            output: thread & (tile_outputs - 1),
            address: k.var(0u64),
            addends: [(); 2].map(|()| k.var(0.0)),
            warp_sums: k.shared::<f32>("warp_sums", (2 * MAX_WARPS * WARP_SUMS) as usize),
            offset: k.var(0u32),
        }
    }

    /// Starts loading what is added to the element of `tile`.
    pub(super) fn load_addends(&self, tile: Value<'k, u32>) {
        let Self { k, weights, row, address, addends, .. } = self;
        let halves = weights.halves(tile);
        let (layer, first) = halves[0];
        let output = first + self.output;
        address.set(0);
        addends.iter().for_each(|addend| addend.set(0.0));
        k.when(output.lt(layer.outputs) & row.lt(weights.rows), || {
            let index = row.mul_wide(layer.outputs) + output.cast::<u64>();
            let is_swiglu = weights.config.form == SkinnyForm::SwiGlu;
            address.set(layer.y + (index << if is_swiglu { 1 } else { 2 }));
            let biases = if is_swiglu { &halves[..] } else { &halves[..1] };
            for (addend, (layer, _)) in addends.iter().zip(biases) {
                let bias = Ptr::<f32>::from_address(layer.bias);
                k.when(!bias.is_null(), || addend.set(bias.load(output)));
            }
            if !is_swiglu {
                let y = Ptr::<f32>::from_address(address.get());
                k.when(weights.accumulate, || addends[0].add_assign(y.load(0)));
            }
        });
    }

    /// Writes the element of the tile whose addends were loaded.
    pub(super) fn write(&self, products: &LaneProducts<'k, '_>) {
        let Self { k, weights, address, .. } = self;
        let (config, address) = (weights.config, address.get());
        let sum_of = self.exchange(products);
        k.when(address.ne(0), || {
            let at = self.row * TILE_ROWS + self.output;
            let [first, second] = self.addends.map(Var::get);
            let result = sum_of(at) + first;
            if config.form == SkinnyForm::SwiGlu {
                let result = silu(result) * (sum_of(at + 8) + second);
                let word = pack(config.target, [result, k.constant(0.0)]);
                Ptr::<u32>::from_address(address).store_u16(k.constant(0), word);
            } else {
                Ptr::<f32>::from_address(address).store(0, result);
            }
        });
    }

    /// Shares the sums of this warp with the block, and waits until all warps have done so. The
    /// returned function adds the sums of all warps at index `row of x × TILE_ROWS + row of w`.
    fn exchange(
        &self,
        products: &LaneProducts<'k, '_>,
    ) -> impl Fn(Value<'k, u32>) -> Value<'k, f32> + use<'k> {
        let Self { k, warp_sums, offset, .. } = *self;
        let (from, own) = (offset.get(), products.sums());
        let to = from + k.warp() * WARP_SUMS;
        let (column, row) = (fragment_row(&k), fragment_column(&k));
        for (index, sum) in (0..).zip(own) {
            let at = (row + (index & 1)) * TILE_ROWS + column + (index & 2) * 4;
            warp_sums.store(to + at, sum);
        }
        k.barrier();
        offset.set(k.constant(MAX_WARPS * WARP_SUMS) - from);
        move |at| {
            let sums_of = |warps: Range<u32>| {
                let sums = warps.map(|warp| warp_sums.load(from + at + warp * WARP_SUMS));
                sums.reduce(|sum, of_warp| sum + of_warp).expect("there is a warp")
            };
            let (few, most) = (WARPS[0], WARPS[1]);
            let sum = k.var(sums_of(0..few));
            k.when(k.ntid_x().gt(few * 32), || sum.add_assign(sums_of(few..most)));
            sum.get()
        }
    }
}
