//! One GEMM of a linear layer: its launch and its expected result.

use half::bf16;
use retrograph_kernel_abi::gemm::{
    CLUSTER_SPLIT_K_TILES, GemmImage, IMAGES, MMA_SYNC, MULTISTAGE_BF16, MULTISTAGE_BF16_WGRAD,
    MULTISTAGE_NF4, SIMT, SIMT_NF4, TileConfig,
};
use retrograph_kernels::gemm::{GemmProblem, dispatch_entry};
use retrograph_kernels::nf4::{self, Nested};
use retrograph_kernels::ops::{DType, Dgrad, Fprop, GemmShape, Nf4, Nf4Scales, TensorView, Wgrad};
use retrograph_kernels::{Dispatch, KernelError, Launch, Problem, SmTarget, View};

use crate::bounds::{chain, within};
use crate::harness::Device;
use crate::products;
use crate::support::numbers::{doubles, same_bits};
use crate::support::reference::{bf16_bits, from_bf16_bits};

/// A tile of an image.
pub(crate) type Tile = TileConfig;

/// The f32 tiles for rows of any alignment.
pub(crate) const TILES: [Tile; SIMT_NF4.len()] = *SIMT_NF4.first_chunk().unwrap();

/// The bf16 tiles.
pub(crate) const BF16_TILES: &[Tile] = MMA_SYNC;

/// The f32 tiles for large products whose rows are multiples of 16 bytes.
pub(crate) const TF32X3_TILES: &[Tile] = SIMT.split_at(TILES.len()).1;

/// The tiles for two bf16 operands on `target` that add in one chain along K.
pub(crate) fn multistage_tiles(target: SmTarget) -> &'static [Tile] {
    tiles_of(target, MULTISTAGE_BF16_WGRAD)
}

/// The tiles for two bf16 operands that split K in a cluster on `target`.
pub(crate) fn cluster_split_k_tiles(target: SmTarget) -> &'static [Tile] {
    let (tiles, _) = MULTISTAGE_BF16.split_at(CLUSTER_SPLIT_K_TILES);
    if target.features().wgmma { tiles } else { &[] }
}

/// The tiles for an NF4 operand on `target`.
pub(crate) fn multistage_nf4_tiles(target: SmTarget) -> &'static [Tile] {
    tiles_of(target, MULTISTAGE_NF4)
}

/// The tiles of `table` that `target` supports. Tiles that need `wgmma` come first in a table.
pub(crate) fn tiles_of(target: SmTarget, table: &'static [Tile]) -> &'static [Tile] {
    let portable = table.iter().position(|tile| !tile.needs_wgmma()).unwrap();
    if target.features().wgmma { table } else { &table[portable..] }
}

/// The storage format of an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Format {
    F32,
    Bf16,
    Nf4,
    Nested,
}

/// The same numbers rounded to bf16.
pub(crate) fn rounded(values: &[f32]) -> Vec<f32> {
    from_bf16_bits(&bf16_bits(values))
}

/// The numbers rounded to bf16.
pub(crate) fn to_bf16(values: &[f32]) -> Vec<bf16> {
    bytemuck::cast_slice(&bf16_bits(values)).to_vec()
}

impl Format {
    /// The stored values of `values`.
    pub(crate) fn stored(self, values: &[f32]) -> Vec<f32> {
        match self {
            Self::F32 => values.to_vec(),
            Self::Bf16 => rounded(values),
            Self::Nf4 | Self::Nested => {
                let quantized = nf4::quantize(values).unwrap();
                let scales = match self {
                    Self::Nested => Nested::new(&quantized.absmax).scales(),
                    _ => quantized.absmax,
                };
                nf4::dequantize(&quantized.codes, &scales, values.len())
            }
        }
    }

    /// `values` on the device, `shift` elements after an aligned address if possible.
    pub(crate) fn upload(self, device: &Device, values: &[f32], shift: usize) -> TensorView<u64> {
        let padded = [&vec![f32::NAN; shift], values].concat();
        let range = shift..padded.len();
        match self {
            Self::F32 => device.upload(&padded).slice(range).into(),
            Self::Bf16 => device.upload(&to_bf16(&padded)).slice(range).into(),
            Self::Nf4 | Self::Nested => {
                let quantized = nf4::quantize(values).unwrap();
                let codes = device.upload(&quantized.codes);
                let scales = if self == Self::Nf4 {
                    Nf4Scales::Plain(device.upload(&quantized.absmax))
                } else {
                    let Nested { absmax, nested, offset } = Nested::new(&quantized.absmax);
                    Nf4Scales::Nested {
                        absmax: device.upload(&absmax),
                        nested: device.upload(&nested),
                        map: device.upload(&nf4::dynamic_map()),
                        offset: device.upload(&[offset]),
                    }
                };
                Nf4 { codes, scales, len: values.len() }.into()
            }
        }
    }
}

pub(crate) fn shape([rows, inputs, outputs]: [usize; 3]) -> GemmShape {
    GemmShape { rows, inputs, outputs }
}

/// One of the three products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    Fprop,
    Dgrad,
    Wgrad,
}

pub(crate) const OPS: [Op; 3] = [Op::Fprop, Op::Dgrad, Op::Wgrad];

impl Op {
    /// Lengths of the two operands and of the result, and of the contraction.
    pub(crate) fn lens(self, s: GemmShape) -> ([usize; 3], usize) {
        let (x, w, y) = (s.rows * s.inputs, s.outputs * s.inputs, s.rows * s.outputs);
        match self {
            Self::Fprop => ([x, w, y], s.inputs),
            Self::Dgrad => ([y, w, x], s.outputs),
            Self::Wgrad => ([y, x, w], s.rows),
        }
    }

    pub(crate) fn reference(self, a: &[f64], b: &[f64], s: GemmShape) -> Vec<f64> {
        match self {
            Self::Fprop => products::fprop(a, b, s),
            Self::Dgrad => products::dgrad(a, b, s),
            Self::Wgrad => products::wgrad(a, b, s),
        }
    }
}

/// The operands and options of one GEMM.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) op: Op,
    pub(crate) shape: GemmShape,
    pub(crate) a: &'a [f32],
    pub(crate) b: &'a [f32],
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) alpha: f32,
    /// The previous c, if the product is accumulated.
    pub(crate) before: Option<&'a [f32]>,
    /// Offset of the operands from an aligned address, in elements.
    pub(crate) shift: usize,
    pub(crate) compute: DType,
    /// The format of a: f32 or bf16.
    pub(crate) left: Format,
    /// The format of b.
    pub(crate) format: Format,
}

impl<'a> Case<'a> {
    pub(crate) fn new(op: Op, shape: GemmShape, a: &'a [f32], b: &'a [f32]) -> Self {
        let (compute, left, format) = (DType::F32, Format::F32, Format::F32);
        let (bias, before) = (None, None);
        Self { op, shape, a, b, bias, alpha: 1.0, before, shift: 0, compute, left, format }
    }

    /// The available tiles.
    pub(crate) fn tiles(&self, target: SmTarget) -> &'static [Tile] {
        match (self.compute, self.left) {
            (DType::F32, _) => &TILES,
            (_, Format::Bf16) if self.format != Format::Bf16 => multistage_nf4_tiles(target),
            (_, Format::Bf16) => multistage_tiles(target),
            _ => BF16_TILES,
        }
    }

    /// The launch, and the buffer that holds c.
    pub(crate) fn launch(&self, device: &Device) -> (Launch<u64>, View<u64, f32>) {
        self.describe(device).unwrap()
    }

    /// The launch and the buffer that holds c, or an error.
    pub(crate) fn describe(
        &self,
        device: &Device,
    ) -> Result<(Launch<u64>, View<u64, f32>), KernelError> {
        let place = |data: &[f32]| {
            let padded = [&vec![f32::NAN; self.shift], data].concat();
            device.upload(&padded).slice(self.shift..padded.len())
        };
        let (a, bias) = (self.left.upload(device, self.a, self.shift), self.bias.map(place));
        let w = self.format.upload(device, self.b, self.shift);
        let ([.., len], _) = self.op.lens(self.shape);
        let c = match self.before {
            Some(before) => place(before),
            None => device.unwritten(self.shift + len).slice(self.shift..self.shift + len),
        };
        let (shape, alpha, accumulate) = (self.shape, self.alpha, self.before.is_some());
        let (grad_out, x) = (a, a);
        let launch = match (self.op, w) {
            (Op::Fprop, w) => {
                Fprop { x, w, bias, y: c, shape, alpha, accumulate }.launch_in(self.compute)
            }
            (Op::Dgrad, w) => Dgrad { grad_out, w, grad_input: c, shape, alpha, accumulate }
                .launch_in(self.compute),
            (Op::Wgrad, x) => Wgrad { grad_out, x, grad_weight: c, shape, alpha, accumulate }
                .launch_in(self.compute),
        };
        Ok((launch?, c))
    }

    /// The launch of the product with its result written in bf16.
    pub(crate) fn launch_rounded(
        &self,
        device: &Device,
        c: View<u64, bf16>,
    ) -> Result<Launch<u64>, KernelError> {
        let (a, w) = (self.left.upload(device, self.a, 0), self.format.upload(device, self.b, 0));
        let bias = self.bias.map(|bias| device.upload(bias));
        let (shape, alpha, accumulate) = (self.shape, self.alpha, false);
        match self.op {
            Op::Fprop => {
                Fprop { x: a, w, bias, y: c, shape, alpha, accumulate }.launch_in(self.compute)
            }
            Op::Dgrad => Dgrad { grad_out: a, w, grad_input: c, shape, alpha, accumulate }
                .launch_in(self.compute),
            Op::Wgrad => Wgrad { grad_out: a, x: w, grad_weight: c, shape, alpha, accumulate }
                .launch_in(self.compute),
        }
    }

    /// Runs the tile that the heuristic selects.
    pub(crate) fn run(&self, device: &Device) -> Vec<f32> {
        let (launch, c) = self.launch(device);
        device.run(&launch);
        device.download(c)
    }

    /// Runs a given tile.
    pub(crate) fn run_tile(&self, device: &Device, tile: Tile) -> Vec<f32> {
        let (launch, c) = self.launch(device);
        device.run_as(&launch, geometry(&launch, device.target(), tile));
        device.download(c)
    }

    /// Runs given tiles, and the first one twice. All give the same bits.
    pub(crate) fn run_tiles(&self, device: &Device, tiles: &[Tile]) -> Vec<f32> {
        let first = self.run_tile(device, tiles[0]);
        for &tile in tiles {
            same_bits(&first, &self.run_tile(device, tile), &format!("{tile:?}"));
        }
        first
    }

    /// The operands after conversion to the compute type.
    fn operands(&self) -> [Vec<f64>; 2] {
        let b = self.format.stored(self.b);
        match self.compute {
            DType::F32 => [doubles(self.a), doubles(&b)],
            _ => [doubles(&rounded(self.a)), doubles(&rounded(&b))],
        }
    }

    /// Compares with the reference of the converted operands, with the error bound of a chain of
    /// fused multiply-adds. Tensor cores truncate sums of several products, which needs four times
    /// the bound.
    #[track_caller]
    pub(crate) fn check(&self, actual: &[f32], what: &str) {
        let slack = if self.compute == DType::F32 { 1.0 } else { 4.0 };
        self.check_within(slack, actual, what);
    }

    /// The same with a bound that is `slack` times as wide.
    #[track_caller]
    pub(crate) fn check_within(&self, slack: f64, actual: &[f32], what: &str) {
        let ([.., len], terms) = self.op.lens(self.shape);
        let alpha = f64::from(self.alpha);
        let [a, b] = self.operands();
        let abs = |values: &[f64]| values.iter().map(|v| v.abs()).collect::<Vec<_>>();
        let mut expected = self.op.reference(&a, &b, self.shape);
        let mut magnitudes = self.op.reference(&abs(&a), &abs(&b), self.shape);
        for i in 0..len {
            let bias = self.bias.map_or(0.0, |bias| bias[i % bias.len()].into());
            let before = self.before.map_or(0.0, |before| before[i].into());
            expected[i] = expected[i] * alpha + bias + before;
            magnitudes[i] = magnitudes[i] * alpha.abs() + f64::abs(bias) + f64::abs(before);
        }
        let bounds: Vec<_> = magnitudes.iter().map(|&m| slack * chain(terms, m)).collect();
        within(actual, &expected, &bounds, &format!("{:?} {:?} {what}", self.op, self.shape));
    }
}

/// The image of the kernel of a launch.
fn image(launch: &Launch<u64>) -> &'static GemmImage {
    let image = IMAGES.iter().copied().find(|image| image.name == launch.kernel().image);
    image.expect("the image is listed")
}

/// The tile of an entry of a launch.
pub(crate) fn tile_of(launch: &Launch<u64>, entry: &str) -> Tile {
    let image = image(launch);
    let index = image.entries.iter().position(|listed| *listed == entry);
    image.tiles[index.expect("the image has the entry")]
}

/// The geometry of a tile for a launch.
pub(crate) fn geometry(launch: &Launch<u64>, target: SmTarget, tile: Tile) -> Dispatch {
    let Problem::Gemm(GemmProblem { m, n, tensor_maps, .. }) = *launch.problem() else {
        panic!("{:?} is not a matrix product", launch.kernel())
    };
    if tile.needs_tensor_maps() && !tensor_maps {
        // The launch cannot use this tile; it runs the selected one.
        return launch.dispatch(target);
    }
    let image = image(launch);
    let index =
        image.tiles.iter().position(|listed| *listed == tile).expect("the image has the tile");
    let dispatch = dispatch_entry(launch, image.entries[index], target);
    let mut dispatch = dispatch.expect("the entry is one of the image");
    if tile.needs_tensor_maps() {
        // Persistent blocks compute several tiles each.
        let tiles = u32::try_from(tile.tiles(m, n)).expect("a small product");
        let cluster = tile.cluster();
        dispatch.grid[0] = tiles.div_ceil(3).next_multiple_of(cluster.m) * cluster.k;
    }
    dispatch
}
