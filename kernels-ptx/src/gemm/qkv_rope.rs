//! Queries, keys and values in one launch: three products with the same a. The epilogue adds the
//! bias and rotates queries and keys by RoPE.
//!
//! Each tile belongs to one product. Tiles are numbered along the columns of queries, keys and
//! values, each of which starts at a tile boundary. The tiles of warps hold whole heads, so a
//! thread has both elements of a pair.
//!
//! Results have the bits of f32 products followed by the RoPE kernel, which rounds them.

use retrograph_kernel_abi::gemm::{GemmQkvRopeParameters, MAX_ADDED_PRODUCTS, QKV_ROPE_HEAD_DIMS};
use retrograph_ptx::SmTarget;
use retrograph_ptx::build::{Kernel, Pred, Ptr, TensorMapParam, Value};

use super::accumulator::{AccFragment, WarpTile};
use super::epilogue::when_inside;
use super::params::{AddedProduct, EpilogueParams, GemmParams, GlobalOutput, TensorMaps, tiles};
use crate::primitives::bf16::pack;
use crate::primitives::mma::{LANE_ROWS, fragment_column};
use crate::primitives::parameters::Declarations;
use crate::primitives::rope::{Direction, RopeTables};

/// The operands of keys and values, and of the rotation.
#[derive(Clone, Copy)]
pub(super) struct QkvRopeParams<'k> {
    /// Keys and values.
    further: [Projection<'k>; 2],
    /// Columns of keys and of values.
    columns: Value<'k, u32>,
    rope: RopeTables<'k>,
    /// Tokens of a sequence.
    seq: Value<'k, u32>,
    head_dim: Value<'k, u32>,
    /// Whether this product is rotated: there is a rotation, and the product is queries or keys.
    rotates: Pred<'k>,
}

/// The operands that the three products do not share.
#[derive(Clone, Copy)]
struct Projection<'k> {
    b: Ptr<'k, u32>,
    out: Ptr<'k, u32>,
    bias: Ptr<'k, f32>,
    /// The maps of b and of the result.
    maps: [TensorMapParam<'k>; 2],
    /// The added product.
    added: AddedProduct<'k>,
}

impl<'k> Projection<'k> {
    /// `other` if `condition` holds, else this one.
    fn or(self, other: Self, condition: Pred<'k>) -> Self {
        Self {
            b: self.b.or(other.b, condition),
            out: self.out.or(other.out, condition),
            bias: self.bias.or(other.bias, condition),
            maps: [0, 1].map(|i| self.maps[i].or(other.maps[i], condition)),
            added: self.added.or(other.added, condition),
        }
    }
}

impl<'k> QkvRopeParams<'k> {
    /// Declares the parameters. The first three of `added` belong to queries, keys and values.
    pub(super) fn declare(
        k: &Kernel<'k>,
        added: [Option<AddedProduct<'k>>; MAX_ADDED_PRODUCTS],
    ) -> Self {
        let parameters = GemmQkvRopeParameters::declare(&mut Declarations(*k));
        let GemmQkvRopeParameters { keys_b, keys, keys_bias, keys_b_map, keys_map, .. } =
            parameters;
        let GemmQkvRopeParameters { values_b, values, values_bias, values_b_map, .. } = parameters;
        let GemmQkvRopeParameters { cos, sin, token_positions, positions, .. } = parameters;
        let GemmQkvRopeParameters { kv_columns, seq, head_dim, values_map, .. } = parameters;
        let added = |index: usize| added[index].expect("the entry has added products");
        let keys = Projection {
            b: keys_b.reinterpret(),
            out: keys.reinterpret(),
            bias: keys_bias,
            maps: [keys_b_map, keys_map],
            added: added(1),
        };
        let values = Projection {
            b: values_b.reinterpret(),
            out: values.reinterpret(),
            bias: values_bias,
            maps: [values_b_map, values_map],
            added: added(2),
        };
        let rope = RopeTables::new([cos, sin], token_positions, [positions, head_dim]);
        let (further, columns, rotates) = ([keys, values], kv_columns, rope.exist());
        Self { further, columns, rope, seq, head_dim, rotates }
    }

    /// Number of tiles of `tile_n` columns along N, over all products.
    pub(super) fn tiles_across(&self, params: &GemmParams<'k>, tile_n: u32) -> Value<'k, u32> {
        tiles(params.n, tile_n) + tiles(self.columns, tile_n) * 2
    }

    /// The product that tile `across` belongs to, and the first column of the tile in its result.
    pub(super) fn product_of(
        &self,
        params: &GemmParams<'k>,
        across: Value<'k, u32>,
        tile_n: u32,
    ) -> (GemmParams<'k>, Value<'k, u32>) {
        let maps = params.maps.expect("both operands are bf16");
        let queries = Projection {
            b: Ptr::from_address(params.b.address),
            out: params.c.bf16.expect("c may be bf16").0,
            bias: params.c.bias,
            maps: [maps.b, maps.c],
            added: params.added[0].expect("the entry has added products"),
        };
        let (first_key, per_product) = (tiles(params.n, tile_n), tiles(self.columns, tile_n));
        let first_value = first_key + per_product;
        let (further, is_value) = (across.ge(first_key), across.ge(first_value));
        let [keys, values] = self.further;
        let Projection { b, out, bias, maps: [b_map, c_map], added } =
            queries.or(keys, further).or(values, is_value);
        let skipped = further.select(is_value.select(first_value, first_key), 0);
        let n = further.select(self.columns, params.n);
        let bf16 = params.c.bf16.map(|(_, is_bf16)| (out, is_bf16));
        let product = GemmParams {
            c: GlobalOutput { bf16, bias, leading_dim: n, ..params.c },
            n,
            maps: Some(TensorMaps { b: b_map, c: c_map, ..maps }),
            added: [Some(added), None, None, None, None],
            epilogue: EpilogueParams::QkvRope(Self { rotates: self.rotates & !is_value, ..*self }),
            ..params.with_b(b)
        };
        (product, (across - skipped) * tile_n)
    }

    /// Adds the bias of `product` to a lane's accumulators and rotates them. They start at `row`
    /// and at `column`, the first column of a head.
    pub(super) fn apply(
        &self,
        product: &GemmParams<'k>,
        [row, column]: [Value<'k, u32>; 2],
        acc: &[AccFragment<'k>],
    ) {
        let k = &row.kernel();
        let bias = product.c.bias;
        let has_bias = !bias.is_null();
        let first = column + fragment_column(k);
        // Columns past the end are not written, so their bias does not matter.
        let last = product.n - 1;
        for (chunk, fragments) in (0u32..).zip(acc.chunks(BIAS_FRAGMENTS)) {
            k.when(has_bias, || {
                let first = first + chunk * (BIAS_FRAGMENTS as u32 * 8);
                for (j, fragment) in (0u32..).zip(fragments) {
                    let pair = [0, 1].map(|next| bias.load((first + (j * 8 + next)).min(last)));
                    (0..4).for_each(|i| fragment[i].add_assign(pair[i % 2]));
                }
            });
        }
        let rotate = |head_dim: u32| {
            let heads: Vec<_> = acc.chunks(head_dim as usize / 8).collect();
            let pairs = head_dim as usize / 16;
            for (index, offset) in LANE_ROWS.into_iter().enumerate() {
                // Rows past the end are not written, so their angle does not matter.
                let row = (row + offset).min(product.m - 1);
                let angles = self.rope.angles(k, [row, row % self.seq]);
                for pairs in [0..pairs / 2, pairs / 2..pairs] {
                    k.when(self.rotates, || {
                        Direction::Forward.rotate_row(&heads, pairs, index, angles);
                    });
                }
            }
        };
        let (small, large) = (QKV_ROPE_HEAD_DIMS[0], QKV_ROPE_HEAD_DIMS[1]);
        k.when_else(self.head_dim.eq(large), || rotate(large), || rotate(small));
    }

    /// Applies the epilogue to the accumulators of a warp and writes them from registers. The tile
    /// of the block starts at `origin`.
    pub(super) fn write(
        &self,
        target: SmTarget,
        product: &GemmParams<'k>,
        warp_tile: &WarpTile<'k>,
        origin: [Value<'k, u32>; 2],
        acc: &[Vec<AccFragment<'k>>],
    ) {
        let k = &origin[0].kernel();
        let out = product.c.bf16.expect("c may be bf16").0;
        for (place, row) in warp_tile.rows(k).zip(acc) {
            self.apply(product, [origin[0] + place, origin[1]], row);
        }
        warp_tile.for_each_pair(k, acc, |row, column, pair| {
            when_inside(product, origin, [row, column], |word| {
                out.store(word, pack(target, pair));
            });
        });
    }
}

/// Fragments whose bias is loaded in one branch. The branches, like those around the angles of half
/// a head, keep the compiler from loading more values than there are registers for.
const BIAS_FRAGMENTS: usize = 16;
