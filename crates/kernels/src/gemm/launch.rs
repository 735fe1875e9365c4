//! The launch of a matrix product: checks and arguments.
//!
//! `c = alpha · Σ_r a_r · b_r (+ bias) (+ c)`, batched over batches and heads. The outer reduction
//! over r has length `reduce`.

use half::bf16;
use retrograph_kernel_abi::Any;
use retrograph_kernel_abi::gemm::{
    AddedProductParameters, GemmFlags, GemmImage, GemmParameters, GemmRowLimitParameters,
    GemmSquaresParameters, GemmTensorMaps, Layout, MAX_ADDED_PRODUCTS, Nf4ScaleParameters,
    SplitScaleParameters, TENSOR_MAP_BOX, WGMMA_BLOCK_K,
};
use retrograph_kernel_abi::nf4::Nf4Scales;
use retrograph_ptx::TensorMapType;

use super::GemmProblem;
use super::kernels::GemmKernels;
use super::operand::{GemmSizes, Operand};
use super::split::SplitMatrix;
use super::tensor_map::tensor_map;
use crate::checks::Check;
use crate::geometry::{MAX_EXTENT, MAX_GRID_YZ};
use crate::launch::{ArgumentTypes, Pointer};
use crate::tensor::NF4_BLOCK;
use crate::{Argument, DType, KernelError, Launch, Problem, TensorView, View};

/// Split-K lengths of split operands are a multiple of this, the stage length of their kernels.
pub(super) const SPLIT_K_UNIT: usize = WGMMA_BLOCK_K as usize;

/// The operands of an added product, contiguous and in the layouts of the first product.
#[derive(Clone, Copy)]
pub(super) struct AddedProduct<B> {
    /// The first operand, with its number of columns in memory.
    pub(super) a: (View<B, bf16>, usize),
    /// The second operand, with its number of columns in memory.
    pub(super) b: (View<B, bf16>, usize),
    /// Length of the contraction.
    pub(super) k: usize,
    /// Columns of the result.
    pub(super) n: usize,
}

impl<B: Copy> AddedProduct<B> {
    /// Both operands with their strides.
    pub(super) fn operands(&self) -> [Operand<B>; 2] {
        [self.a, self.b].map(|(view, columns)| Operand::contiguous(TensorView::Bf16(view), columns))
    }
}

/// A product whose operand lengths were checked.
pub(crate) struct Gemm<B> {
    pub(crate) kernels: GemmKernels,
    pub(crate) compute: DType,
    pub(crate) a: Operand<B>,
    pub(crate) b: Operand<B>,
    /// f32, or bf16 if a is.
    pub(crate) c: Operand<B>,
    pub(crate) bias: Option<View<B, f32>>,
    pub(crate) sizes: GemmSizes,
    pub(crate) alpha: f32,
    pub(crate) accumulate: bool,
}

impl<B: Copy> Gemm<B> {
    /// One product of contiguous matrices: a, b and c, each with its number of columns in memory.
    /// It has no bias and does not accumulate, and alpha is 1.
    pub(super) fn contiguous(
        kernels: GemmKernels,
        compute: DType,
        operands: [(TensorView<B>, usize); 3],
        sizes: [usize; 3],
    ) -> Self {
        let [a, b, c] = operands.map(|(view, columns)| Operand::contiguous(view, columns));
        let (sizes, bias, alpha, accumulate) = (GemmSizes::single(sizes), None, 1.0, false);
        Self { kernels, compute, a, b, c, bias, sizes, alpha, accumulate }
    }

    /// Checks that the kernel can index the operands, and describes the launch.
    pub(crate) fn launch(self) -> Result<Launch<B>, KernelError> {
        self.launch_with(&[], Vec::new())
    }

    /// [`Gemm::launch`] with added products, which need bf16 operands and no batches, and with
    /// `further` arguments for the epilogue.
    pub(super) fn launch_with(
        self,
        added: &[Option<AddedProduct<B>>],
        further: Vec<Argument<B>>,
    ) -> Result<Launch<B>, KernelError> {
        let kernel =
            self.kernels.select(self.compute, [self.a.view.dtype(), self.b.view.dtype()])?;
        let check = Check(kernel.name);
        let GemmSizes { m, n, k, batches, heads, .. } = self.sizes;
        let planes = check.product("batch × heads", &[batches, heads])?;
        let planes = check.at_most("batch × heads", planes, MAX_GRID_YZ)?;
        let extent = |name, size| check.at_most(name, size, MAX_EXTENT);
        let (m, n, k) = (extent("m", m)?, extent("n", n)?, extent("k", k)?);
        self.check_elements(check)?;
        let row_sizes = self.row_sizes();
        if let Some(nf4) = self.b.view.nf4() {
            nf4.check(check, &row_sizes[1])?;
        }
        let c = self.result()?;
        let vectorized = [(self.a.view, row_sizes[0]), (self.b.view, row_sizes[1])]
            .map(|(operand, sizes)| operand.is_vectorizable(&sizes));
        self.check_vectors(check, row_sizes)?;
        let flags = GemmFlags::NONE
            .with(GemmFlags::ACCUMULATE, self.accumulate)
            .with(GemmFlags::A_VECTORIZED, vectorized[0])
            .with(GemmFlags::B_VECTORIZED, vectorized[1])
            .with(GemmFlags::C_VECTORIZED, self.c.view.is_vectorizable(&row_sizes[2]))
            .with(GemmFlags::C_BF16, self.c.view.dtype() == DType::Bf16);
        let maps = self.tensor_maps(&row_sizes);
        let flags = flags.with(GemmFlags::C_MAPPED, maps.c_map.is_some());
        let vectorized = vectorized == [true; 2];
        let tensor_maps = maps.a_map.is_some();
        let image = self.kernels.image(kernel);
        let mut arguments = self.arguments(check, image, [m, n, k], c, flags, maps)?;
        if image.adds_products() {
            arguments.extend(self.added_arguments(check, added)?);
        }
        if image.sums_squares() && further.is_empty() {
            // The entries always have this parameter.
            let none = GemmSquaresParameters::<ArgumentTypes<B>> { squares: Pointer::null() };
            arguments.extend(none.into_arguments());
        }
        if image.limits_rows() {
            // `Launch::row_limit` sets it.
            let none = GemmRowLimitParameters::<ArgumentTypes<B>> { row_limit: Pointer::null() };
            arguments.extend(none.into_arguments());
        }
        arguments.extend(further);
        let problem =
            GemmProblem { m, n, k, planes, vectorized, tensor_maps, ..GemmProblem::default() };
        Ok(Launch { kernel, problem: Problem::Gemm(problem), arguments })
    }

    /// Returns the arguments in the order of the kernel's parameters.
    fn arguments(
        &self,
        check: Check,
        image: &GemmImage,
        [m, n, k]: [u32; 3],
        c: Pointer<B, Any>,
        flags: GemmFlags,
        maps: GemmTensorMaps<ArgumentTypes<B>>,
    ) -> Result<Vec<Argument<B>>, KernelError> {
        let GemmSizes { reduce, heads, b_group, .. } = self.sizes;
        let (a_strides, b_strides, c_strides) = (self.a.strides, self.b.strides, self.c.strides);
        let parameters = GemmParameters::<ArgumentTypes<B>> {
            a: self.a.view.pointer(),
            b: self.b.view.pointer(),
            c,
            bias: Pointer::read_optional(self.bias),
            m,
            n,
            k,
            reduce: check.size("the length of the outer reduction", reduce)?,
            heads: check.size("heads", heads)?,
            b_group: check.size("the number of heads that share an operand", b_group)?,
            lda: check.size("the leading dimension of a", a_strides.leading)?,
            ldb: check.size("the leading dimension of b", b_strides.leading)?,
            ldc: check.size("the leading dimension of c", c_strides.leading)?,
            a_batch: check.size("the batch stride of a", a_strides.batch)?,
            a_head: check.size("the head stride of a", a_strides.head)?,
            a_reduce: check.size("the reduction stride of a", a_strides.reduce)?,
            b_batch: check.size("the batch stride of b", b_strides.batch)?,
            b_head: check.size("the head stride of b", b_strides.head)?,
            b_reduce: check.size("the reduction stride of b", b_strides.reduce)?,
            c_batch: check.size("the batch stride of c", c_strides.batch)?,
            c_head: check.size("the head stride of c", c_strides.head)?,
            alpha: self.alpha,
            flags,
        };
        let mut arguments = parameters.into_arguments();
        if let Some(nf4) = self.b.view.nf4() {
            let Nf4Scales { absmax, nested, map, offset } = nf4.scale_pointers();
            let scales = Nf4ScaleParameters::<ArgumentTypes<B>> {
                b_absmax: absmax,
                b_nested: nested,
                b_map: map,
                b_offset: offset,
            };
            arguments.extend(scales.into_arguments());
        }
        if image.has_tensor_maps() {
            arguments.extend(maps.into_arguments());
        }
        if let Some((a, b)) = self.a.view.split().zip(self.b.view.split()) {
            arguments.extend(self.split_scales(check, a, b)?.into_arguments());
        }
        Ok(arguments)
    }

    /// Checks the split operands `a` and `b`, and returns their scales.
    fn split_scales(
        &self,
        check: Check,
        a: &SplitMatrix<B>,
        b: &SplitMatrix<B>,
    ) -> Result<SplitScaleParameters<ArgumentTypes<B>>, KernelError> {
        let rule = "only the second operand of a product can be split into a single term";
        let both = a.term_count == SplitMatrix::<B>::MAX_TERMS;
        check.rule(both, rule, a.term_count)?;
        let unsplit = self.without_split_k();
        let (rows, [a_row, b_row, _]) = (unsplit.stored_rows(), unsplit.row_sizes());
        a.check(check, ["the terms of a", "the scales of a"], [rows[0], a_row[0]])?;
        b.check(check, ["the terms of b", "the scales of b"], [rows[1], b_row[0]])?;
        let GemmSizes { k, batches, .. } = self.sizes;
        let rule = "the split-K length of split operands must be a multiple of 64 elements";
        check.rule(batches == 1 || k.is_multiple_of(SPLIT_K_UNIT), rule, k)?;
        let b_scales = Some(b.scales).filter(|_| self.kernels.layout() == Layout::Nt);
        Ok(SplitScaleParameters {
            a_scales: Pointer::read(a.scales),
            b_scales: Pointer::read_optional(b_scales),
            b_term_count: b.term_count as u32,
        })
    }

    /// Returns the arguments of the added products. Unused products have an empty contraction.
    fn added_arguments(
        &self,
        check: Check,
        added: &[Option<AddedProduct<B>>],
    ) -> Result<Vec<Argument<B>>, KernelError> {
        let rule = "a launch has at most five added products";
        check.rule(added.len() <= MAX_ADDED_PRODUCTS, rule, added.len())?;
        let mut arguments = Vec::new();
        for index in 0..MAX_ADDED_PRODUCTS {
            let product = match added.get(index) {
                Some(Some(product)) => self.added_product(check, product)?,
                _ => Self::no_product(),
            };
            arguments.extend(product.into_arguments());
        }
        Ok(arguments)
    }

    fn no_product() -> AddedProductParameters<ArgumentTypes<B>> {
        let (a, b) = (Pointer::null(), Pointer::null());
        AddedProductParameters { a, b, k: 0, a_map: None, b_map: None }
    }

    fn added_product(
        &self,
        check: Check,
        added: &AddedProduct<B>,
    ) -> Result<AddedProductParameters<ArgumentTypes<B>>, KernelError> {
        if added.k == 0 {
            return Ok(Self::no_product());
        }
        let AddedProduct { k, n, .. } = *added;
        let product = Self { sizes: GemmSizes { k, n, ..self.sizes }, ..*self };
        let (operands, row_sizes) = (added.operands(), product.row_sizes_of(added.operands()));
        for (operand, row_sizes) in operands.iter().zip(&row_sizes) {
            operand.view.check_vectors(check, row_sizes)?;
        }
        let rows = product.stored_rows();
        let box_rows = product.box_rows();
        let [a_map, b_map] = [0, 1]
            .map(|i| tensor_map(product.sizes, operands[i], rows[i], row_sizes[i], box_rows[i]));
        Ok(AddedProductParameters {
            a: Pointer::read(added.a.0),
            b: Pointer::read(added.b.0),
            k: check.at_most("k of an added product", added.k, MAX_EXTENT)?,
            a_map,
            b_map,
        })
    }

    /// The same product without split-K, which has one plane per split.
    fn without_split_k(&self) -> Self {
        let GemmSizes { k, batches, .. } = self.sizes;
        Self { sizes: GemmSizes { k: k * batches, batches: 1, ..self.sizes }, ..*self }
    }

    /// Returns the tensor maps of a and b, if both have a 16-bit one. If so, also the map of c,
    /// unless the product accumulates.
    fn tensor_maps(&self, row_sizes: &[[usize; 5]; 3]) -> GemmTensorMaps<ArgumentTypes<B>> {
        // The planes of the map of a split operand are its terms; kernels offset the contraction.
        let inputs = match self.a.view {
            TensorView::Split(_) => &self.without_split_k(),
            _ => self,
        };
        let (rows, input_sizes) = (inputs.stored_rows(), inputs.row_sizes());
        let operands = [self.a, self.b];
        let box_rows = self.box_rows();
        let [a, b] = [0, 1]
            .map(|i| tensor_map(inputs.sizes, operands[i], rows[i], input_sizes[i], box_rows[i]));
        let c = tensor_map(self.sizes, self.c, self.sizes.m, row_sizes[2], TENSOR_MAP_BOX[1]);
        let c = c.filter(|_| !self.accumulate);
        match (a, b) {
            (Some(a), Some(b))
                if a.layout.dtype == b.layout.dtype && a.layout.dtype != TensorMapType::F32 =>
            {
                GemmTensorMaps { a_map: Some(a), b_map: Some(b), c_map: c }
            }
            _ => GemmTensorMaps { a_map: None, b_map: None, c_map: None },
        }
    }

    /// Rows of a box of a and of b; see [`GemmTensorMaps`].
    fn box_rows(&self) -> [u32; 2] {
        let whole = TENSOR_MAP_BOX[1];
        match self.kernels.layout() {
            Layout::Nt | Layout::Nn => [self.sizes.m.clamp(1, whole as usize) as u32, whole],
            Layout::Tn => [whole; 2],
        }
    }

    /// Rows of a and b in memory.
    fn stored_rows(&self) -> [usize; 2] {
        let GemmSizes { m, n, k, .. } = self.sizes;
        match self.kernels.layout() {
            Layout::Nt => [m, n],
            Layout::Nn => [m, k],
            Layout::Tn => [k, k],
        }
    }

    /// Checks that every plane of an operand has fewer than 2³² elements.
    fn check_elements(&self, check: Check) -> Result<(), KernelError> {
        let [a_rows, b_rows] = self.stored_rows();
        for (name, rows, strides) in [
            ("the number of elements of a", a_rows, self.a.strides),
            ("the number of elements of b", b_rows, self.b.strides),
            ("the number of elements of c", self.sizes.m, self.c.strides),
        ] {
            check.size(name, check.product(name, &[rows, strides.leading])?)?;
        }
        Ok(())
    }

    /// Checks that bf16 or split operands can be read in vectors of 16 bytes.
    fn check_vectors(
        &self,
        check: Check,
        [a_sizes, b_sizes, _]: [[usize; 5]; 3],
    ) -> Result<(), KernelError> {
        if !matches!(self.a.view, TensorView::Bf16(_) | TensorView::Split(_)) {
            return Ok(());
        }
        self.a.view.check_vectors(check, &a_sizes)?;
        self.b.view.check_vectors(check, &b_sizes)?;
        if self.b.view.dtype() == DType::Nf4 {
            let ragged = b_sizes.into_iter().find(|size| size % NF4_BLOCK != 0);
            let rule = "NF4 rows must consist of whole blocks of 64 elements if the other operand \
                        is bf16";
            ragged.map_or(Ok(()), |size| check.rule(false, rule, size))?;
        }
        Ok(())
    }

    /// The pointer to c.
    fn result(&self) -> Result<Pointer<B, Any>, KernelError> {
        match (self.c.view, self.a.view) {
            (TensorView::F32(c), _) => Ok(Pointer::output(c, self.accumulate).any()),
            (TensorView::Bf16(c), TensorView::Bf16(_)) if !self.accumulate => {
                Ok(Pointer::write(c).any())
            }
            (c, _) => Err(KernelError::UnsupportedDType {
                kernel: self.kernels.name(),
                compute: self.compute,
                dtype: c.dtype(),
                help: "write the result in f32; a result in bf16 needs a first operand in bf16 \
                       and cannot be accumulated",
            }),
        }
    }

    /// The length of a row in memory and all strides, for a, b and c. Vectorized access needs
    /// multiples of the vector length.
    fn row_sizes(&self) -> [[usize; 5]; 3] {
        let [a, b] = self.row_sizes_of([self.a, self.b]);
        [a, b, self.c.strides.with_row(self.sizes.n)]
    }

    /// [`Gemm::row_sizes`] of the given a and b.
    fn row_sizes_of(&self, operands: [Operand<B>; 2]) -> [[usize; 5]; 2] {
        let GemmSizes { m, n, k, .. } = self.sizes;
        let rows = match self.kernels.layout() {
            Layout::Nt => [k, k],
            Layout::Nn => [k, n],
            Layout::Tn => [m, n],
        };
        [0, 1].map(|i| operands[i].strides.with_row(rows[i]))
    }
}
