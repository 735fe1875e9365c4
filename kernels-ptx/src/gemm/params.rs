//! The parameters of a GEMM kernel.

use retrograph_kernel_abi::DType;
use retrograph_kernel_abi::gemm::{
    AddedProductParameters, Epilogue, GemmFlags, GemmImage, GemmParameters, GemmRowLimitParameters,
    GemmTensorMaps, Layout, MAX_ADDED_PRODUCTS, SplitScaleParameters,
};
use retrograph_ptx::build::{Kernel, Pred, Ptr, TensorMapParam, Value, Var};

use super::glu::{GluBackwardParams, GluParams};
use super::loader::vector::{LoTerm, OperandFormat};
use super::operand_tile::{BlockOperand, OperandTile};
use super::qkv_rope::QkvRopeParams;
use super::squares::SquaresParams;
use crate::primitives::arith::div_const;
use crate::primitives::nf4::Nf4;
use crate::primitives::parameters::Declarations;
use crate::primitives::smem_tile::Major;

/// An input operand in global memory.
#[derive(Clone, Copy)]
pub(super) struct GlobalOperand<'k> {
    pub(super) format: OperandFormat<'k>,
    /// Address of the whole operand.
    pub(super) address: Value<'k, u64>,
    /// Index of the first element of this block's plane, at the first index of the outer reduction.
    pub(super) plane: Value<'k, u64>,
    /// Elements from one row in memory to the next.
    pub(super) leading_dim: Value<'k, u32>,
    /// Elements from one index of the outer reduction to the next.
    pub(super) reduce_stride: Value<'k, u32>,
    /// Whether it can be read by aligned vectors.
    pub(super) vectorized: Pred<'k>,
}

impl<'k> OperandFormat<'k> {
    /// The format of an operand of type `dtype`; declares its scales if it is NF4.
    fn declare(k: &Kernel<'k>, dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::F32,
            DType::Bf16 => Self::Bf16,
            // `GemmParams::with_split` sets the offset and the condition.
            DType::F16 => Self::SplitF16(LoTerm { offset: k.constant(0), exists: None }),
            DType::Nf4 => Self::Nf4(Nf4::declare(k)),
            other => unreachable!("no GEMM reads an operand in {other}"),
        }
    }
}

impl<'k> GlobalOperand<'k> {
    /// A base address, and the index of the first element of this block's plane relative to it.
    ///
    /// The base is the plane. For NF4 it is the whole operand, because its elements index the
    /// scales.
    pub(super) fn start(&self, k: &Kernel<'k>) -> (Value<'k, u64>, Value<'k, u32>) {
        match self.format {
            OperandFormat::Nf4(_) => (self.address, self.plane.cast()),
            format => (self.address + (self.plane << format.bytes().ilog2()), k.constant(0)),
        }
    }

    /// Advances the address of a plane to the next index of the outer reduction.
    pub(super) fn advance_reduction(&self, base: Var<'k, u64>) {
        base.add_assign(self.reduce_stride.mul_wide(self.format.bytes()));
    }
}

/// The output operand c in global memory.
#[derive(Clone, Copy)]
pub(super) struct GlobalOutput<'k> {
    pub(super) plane: Ptr<'k, f32>,
    /// The plane as bf16, and whether c is bf16; `None` in kernels that only write f32.
    pub(super) bf16: Option<(Ptr<'k, u32>, Pred<'k>)>,
    pub(super) bias: Ptr<'k, f32>,
    pub(super) leading_dim: Value<'k, u32>,
    pub(super) alpha: Value<'k, f32>,
    pub(super) accumulate: Pred<'k>,
    pub(super) vectorized: Pred<'k>,
}

/// The parameters, with operands advanced to the plane of this block.
#[derive(Clone, Copy)]
pub(super) struct GemmParams<'k> {
    pub(super) a: GlobalOperand<'k>,
    pub(super) b: GlobalOperand<'k>,
    pub(super) c: GlobalOutput<'k>,
    pub(super) m: Value<'k, u32>,
    /// The row of c from which on no tile starts, in entries that limit rows; at most `m`.
    pub(super) row_limit: Option<Value<'k, u32>>,
    pub(super) n: Value<'k, u32>,
    pub(super) k: Value<'k, u32>,
    /// Length of the outer reduction.
    pub(super) reduce: Value<'k, u32>,
    /// The tensor maps, if a and b are bf16 or split f16.
    pub(super) maps: Option<TensorMaps<'k>>,
    /// The scales and terms of split operands.
    pub(super) split: Option<SplitParams<'k>>,
    /// The added products, in entries that have any.
    pub(super) added: [Option<AddedProduct<'k>>; MAX_ADDED_PRODUCTS],
    /// Partial sums of squares of c, in entries that have them.
    pub(super) squares: Option<SquaresParams<'k>>,
    /// The operands of the epilogue.
    pub(super) epilogue: EpilogueParams<'k>,
}

/// The scales and terms of split operands.
#[derive(Clone, Copy)]
pub(super) struct SplitParams<'k> {
    /// One per row of a.
    a_scales: Ptr<'k, f32>,
    /// One per column of b; `None` if a was split with the scales of b as column scales.
    b_scales: Option<Ptr<'k, f32>>,
    /// Whether b has a lo term. a always has one.
    pub(super) b_has_lo: Pred<'k>,
}

/// The operands of an epilogue besides c.
#[derive(Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "a generator creates few of them, which are `Copy`")]
pub(super) enum EpilogueParams<'k> {
    Linear,
    QkvRope(QkvRopeParams<'k>),
    Glu(GluParams<'k>),
    GluBackward(GluBackwardParams<'k>),
}

/// The operands of an added product.
#[derive(Clone, Copy)]
pub(super) struct AddedProduct<'k> {
    operands: [Ptr<'k, u32>; 2],
    /// Length of its contraction; 0 for no product.
    pub(super) k: Value<'k, u32>,
    pub(super) maps: [TensorMapParam<'k>; 2],
}

/// The tensor maps of the operands.
#[derive(Clone, Copy)]
pub(super) struct TensorMaps<'k> {
    pub(super) a: TensorMapParam<'k>,
    pub(super) b: TensorMapParam<'k>,
    pub(super) c: TensorMapParam<'k>,
    /// Whether c has a tensor map.
    pub(super) writes_c: Pred<'k>,
}

impl<'k> AddedProduct<'k> {
    /// `other` if `condition` holds, else this product.
    pub(super) fn or(self, other: Self, condition: Pred<'k>) -> Self {
        let operands = [0, 1].map(|i| self.operands[i].or(other.operands[i], condition));
        let maps = [0, 1].map(|i| self.maps[i].or(other.maps[i], condition));
        Self { operands, k: condition.select(other.k, self.k), maps }
    }
}

impl<'k> GemmParams<'k> {
    /// Multiplies accumulators of consecutive elements of c, starting at `row` and `column`, by the
    /// scales of split operands.
    pub(super) fn unsplit<const N: usize>(
        &self,
        [row, column]: [Value<'k, u32>; 2],
        sums: [Value<'k, f32>; N],
    ) -> [Value<'k, f32>; N] {
        let Some(SplitParams { a_scales, b_scales, .. }) = self.split else { return sums };
        // Elements past the end are not written, so their scale does not matter.
        let a = a_scales.load(row.min(self.m - 1));
        let mut columns = 0u32..;
        sums.map(|sum| {
            let at = columns.next().expect("columns do not end");
            match b_scales.map(|b| b.load((column + at).min(self.n - 1))) {
                // Multiplies by the smaller scale first, so that no intermediate overflows if the
                // result does not.
                Some(b) => sum * a.min(b) * a.max(b),
                None => sum * a,
            }
        })
    }

    /// Declares the parameters of the entries of `image`, in the order of
    /// [`GemmImage::parameters`].
    pub(super) fn declare(k: &Kernel<'k>, image: &GemmImage) -> Self {
        let params = Self::declare_operands(k, image);
        let params =
            if image.has_split_scales() { params.with_split(image.layout) } else { params };
        let added = match image.adds_products() {
            false => [None; MAX_ADDED_PRODUCTS],
            true => AddedProductParameters::declare_all(&mut Declarations(*k)).map(|product| {
                let AddedProductParameters { a, b, k, a_map, b_map } = product;
                let operands = [a, b].map(|operand| operand.reinterpret());
                Some(AddedProduct { operands, k, maps: [a_map, b_map] })
            }),
        };
        let squares = image.sums_squares().then(|| SquaresParams::declare(k));
        let epilogue = match image.epilogue {
            Epilogue::Linear => EpilogueParams::Linear,
            Epilogue::QkvRope => EpilogueParams::QkvRope(QkvRopeParams::declare(k, added)),
            Epilogue::Glu(activation) => EpilogueParams::Glu(GluParams::declare(k, activation)),
            Epilogue::GluBackward(activation) => {
                EpilogueParams::GluBackward(GluBackwardParams::declare(k, activation))
            }
        };
        let row_limit = image.limits_rows().then(|| {
            let limit = GemmRowLimitParameters::declare(&mut Declarations(*k)).row_limit;
            let rows = k.var(params.m);
            k.when(!limit.is_null(), || rows.update(|rows| rows.min(limit.load(0))));
            rows.get()
        });
        Self { added, squares, epilogue, row_limit, ..params }
    }

    /// Declares the operands, NF4 scales and tensor maps. There are no added products, and the
    /// epilogue is linear.
    fn declare_operands(k: &Kernel<'k>, image: &GemmImage) -> Self {
        let GemmParameters {
            a,
            b,
            c,
            bias,
            m,
            n,
            k: k_len,
            reduce,
            heads,
            b_group,
            lda,
            ldb,
            ldc,
            a_batch,
            a_head,
            a_reduce,
            b_batch,
            b_head,
            b_reduce,
            c_batch,
            c_head,
            alpha,
            flags,
        } = GemmParameters::declare(&mut Declarations(*k));
        let [a_format, b_format] = [image.a, image.b].map(|dtype| OperandFormat::declare(k, dtype));
        let batch = k.ctaid_z() / heads;
        let head = k.ctaid_z() - batch * heads;
        let plane = |[batch_stride, head_stride]: [Value<'k, u32>; 2], head: Value<'k, u32>| {
            batch.mul_wide(batch_stride) + head.mul_wide(head_stride)
        };
        Self {
            a: GlobalOperand {
                format: a_format,
                address: a.address(),
                plane: plane([a_batch, a_head], head),
                leading_dim: lda,
                reduce_stride: a_reduce,
                vectorized: flags.has(GemmFlags::A_VECTORIZED),
            },
            b: GlobalOperand {
                format: b_format,
                address: b.address(),
                plane: plane([b_batch, b_head], head / b_group),
                leading_dim: ldb,
                reduce_stride: b_reduce,
                vectorized: flags.has(GemmFlags::B_VECTORIZED),
            },
            c: GlobalOutput {
                plane: c.reinterpret::<f32>().at(plane([c_batch, c_head], head)),
                bf16: (image.a == DType::Bf16).then(|| {
                    let address = c.address() + (plane([c_batch, c_head], head) << 1);
                    (Ptr::from_address(address), flags.has(GemmFlags::C_BF16))
                }),
                bias,
                leading_dim: ldc,
                alpha,
                accumulate: flags.has(GemmFlags::ACCUMULATE),
                vectorized: flags.has(GemmFlags::C_VECTORIZED),
            },
            m,
            row_limit: None,
            n,
            k: k_len,
            reduce,
            maps: image.has_tensor_maps().then(|| {
                let GemmTensorMaps { a_map, b_map, c_map } =
                    GemmTensorMaps::declare(&mut Declarations(*k));
                let writes_c = flags.has(GemmFlags::C_MAPPED);
                TensorMaps { a: a_map, b: b_map, c: c_map, writes_c }
            }),
            split: None,
            added: [None; MAX_ADDED_PRODUCTS],
            squares: None,
            epilogue: EpilogueParams::Linear,
        }
    }

    /// Declares the parameters of split operands and locates their lo terms.
    fn with_split(self, layout: Layout) -> Self {
        let k = &self.k.kernel();
        let SplitScaleParameters { a_scales, b_scales, b_term_count: b_terms } =
            SplitScaleParameters::declare(&mut Declarations(*k));
        let b_scales = match layout {
            Layout::Nt => Some(b_scales),
            Layout::Nn | Layout::Tn => None,
        };
        // With split-K, `k` is the length of one split.
        let b_rows = if layout == Layout::Nt { self.n } else { self.k * k.nctaid_z() };
        let b_has_lo = b_terms.gt(1);
        let split = |operand: GlobalOperand<'k>, rows: Value<'k, u32>, exists| {
            let offset = rows.mul_wide(operand.leading_dim) << 1;
            let format = OperandFormat::SplitF16(LoTerm { offset, exists });
            GlobalOperand { format, ..operand }
        };
        let (a, b) = (split(self.a, self.m, None), split(self.b, b_rows, Some(b_has_lo)));
        let split = Some(SplitParams { a_scales, b_scales, b_has_lo });
        Self { a, b, split, ..self }
    }

    /// This product with another second operand `b` in the same layout.
    pub(super) fn with_b(&self, b: Ptr<'k, u32>) -> Self {
        let address = b.address();
        Self { b: GlobalOperand { address, ..self.b }, ..*self }
    }

    /// Emits a loop that runs `body` for each added product as a separate product. The operands
    /// have the layouts `majors`.
    pub(super) fn for_each_added(&self, majors: [Major; 2], body: impl FnOnce(Self)) {
        let added: Vec<_> = self.added.into_iter().flatten().collect();
        let Some((first, rest)) = added.split_first() else { return };
        let k = &self.k.kernel();
        k.range(0, added.len() as u32, 1, |index| {
            let product = (1u32..)
                .zip(rest)
                .fold(*first, |product, (next, other)| product.or(*other, index.eq(next)));
            k.when(product.k.gt(0), || body(self.with_product(product, majors)));
        });
    }

    /// An added product as a separate product.
    fn with_product(&self, product: AddedProduct<'k>, [_, b_major]: [Major; 2]) -> Self {
        let AddedProduct { operands: [a, b], k: k_len, .. } = product;
        let k = &k_len.kernel();
        let contiguous = |operand: GlobalOperand<'k>, address: Ptr<'k, u32>, leading_dim| {
            let (address, plane) = (address.address(), k.constant(0));
            GlobalOperand { address, plane, leading_dim, ..operand }
        };
        let b_leading = if b_major == Major::K { k_len } else { self.n };
        Self {
            a: contiguous(self.a, a, k_len),
            b: contiguous(self.b, b, b_leading),
            k: k_len,
            reduce: k.constant(1),
            added: [None; MAX_ADDED_PRODUCTS],
            ..*self
        }
    }

    /// The rows of a and the columns of b for the block whose tile of c starts at `row` and
    /// `column`.
    pub(super) fn block_operands(
        &self,
        [a, b]: [OperandTile; 2],
        [row, column]: [Value<'k, u32>; 2],
    ) -> [BlockOperand<'k>; 2] {
        let Self { m, n, k, .. } = *self;
        [
            BlockOperand { tile: a, operand: self.a, origin: row, bounds: [m, k] },
            BlockOperand { tile: b, operand: self.b, origin: column, bounds: [n, k] },
        ]
    }

    /// Number of tiles of `tile_m` rows along M that are computed.
    pub(super) fn tiles_down(&self, tile_m: u32) -> Value<'k, u32> {
        tiles(self.row_limit.unwrap_or(self.m), tile_m)
    }

    /// Number of tiles of `tile_n` columns along N, over all results. Each result starts at a tile
    /// boundary.
    pub(super) fn tiles_across(&self, tile_n: u32) -> Value<'k, u32> {
        match &self.epilogue {
            EpilogueParams::QkvRope(qkv) => qkv.tiles_across(self, tile_n),
            _ => tiles(self.n, tile_n),
        }
    }

    /// The product that tile `across` along N belongs to, and the first column of the tile.
    pub(super) fn product_of(&self, across: Value<'k, u32>, tile_n: u32) -> (Self, Value<'k, u32>) {
        match &self.epilogue {
            EpilogueParams::QkvRope(qkv) => qkv.product_of(self, across, tile_n),
            _ => (*self, across * tile_n),
        }
    }

    /// The product that this block computes, and the first row and column of its tile of `tile_m` ×
    /// `tile_n`. Ends the block if the tile is not computed.
    pub(super) fn of_block(
        &self,
        k: &Kernel<'k>,
        [tile_m, tile_n]: [u32; 2],
    ) -> (Self, [Value<'k, u32>; 2]) {
        let padded_m = self.m + (tile_m - 1);
        let tiles_m =
            if tile_m.is_power_of_two() { div_const(padded_m, tile_m) } else { padded_m / tile_m };
        let across = k.ctaid_x() / tiles_m;
        let row = (k.ctaid_x() - across * tiles_m) * tile_m;
        if let Some(limit) = self.row_limit {
            k.return_if(row.ge(limit));
        }
        let (product, column) = self.product_of(across, tile_n);
        (product, [row, column])
    }
}

/// The number of tiles of `columns` columns in `n` columns. Does not overflow: extents are below
/// 2^31.
pub(super) fn tiles<'k>(n: Value<'k, u32>, columns: u32) -> Value<'k, u32> {
    (n + (columns - 1)) / columns
}
