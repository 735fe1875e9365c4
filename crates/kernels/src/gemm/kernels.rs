//! The GEMM kernels, and their selection by element types.

use retrograph_kernel_abi::gemm::{GemmImage, Layout};

use crate::{DType, Kernel, KernelError};

/// Defines one kernel per GEMM image, and the set of these kernels and of other ones.
macro_rules! gemm_kernels {
    (
        $(#[$set_doc:meta])*
        $set:ident $(and [$(($other:expr, $other_image:ident)),*])?;
        $($(#[$doc:meta])* $constant:ident = $name:literal in $image:ident;)*
    ) => {
        $(
            $(#[$doc])*
            pub static $constant: $crate::Kernel = {
                use retrograph_kernel_abi::gemm::$image as IMAGE;
                $crate::Kernel {
                    name: $name,
                    image: IMAGE.name,
                    parameters: IMAGE.parameters,
                    entries: IMAGE.entries,
                    dispatch: |problem, target| {
                        let problem = problem.gemm()?;
                        Some($crate::gemm::heuristic::dispatch(problem, target, &IMAGE))
                    },
                }
            };
        )*
        $(#[$set_doc])*
        pub(crate) const $set: $crate::gemm::kernels::GemmKernels =
            $crate::gemm::kernels::GemmKernels(&[
                $($(($other, &retrograph_kernel_abi::gemm::$other_image),)*)?
                $((&$constant, &retrograph_kernel_abi::gemm::$image),)*
            ]);
    };
}

pub(crate) use gemm_kernels;

/// The kernels of one formula, with their images. The first one has f32 operands and computes in
/// f32.
#[derive(Clone, Copy)]
pub(crate) struct GemmKernels(pub(crate) &'static [(&'static Kernel, &'static GemmImage)]);

impl GemmKernels {
    /// The kernel name for error messages.
    pub(crate) fn name(self) -> &'static str {
        self.0[0].0.name
    }

    /// The layout of the operands.
    pub(crate) fn layout(self) -> Layout {
        self.0[0].1.layout
    }

    /// The image of one of these kernels.
    pub(crate) fn image(self, kernel: &'static Kernel) -> &'static GemmImage {
        let found = self.0.iter().find(|(other, _)| other.image == kernel.image);
        found.expect("the kernel is one of these").1
    }

    /// Selects the kernel that multiplies in `compute` with operands of types `a` and `b`.
    pub(crate) fn select(
        self,
        compute: DType,
        [a, b]: [DType; 2],
    ) -> Result<&'static Kernel, KernelError> {
        let fits = |image: &GemmImage| (image.compute, image.a, image.b) == (compute, a, b);
        let found = self.0.iter().find(|(_, image)| fits(image));
        let kernel = found.map(|(kernel, _)| *kernel);
        kernel.ok_or(KernelError::UnsupportedDType {
            kernel: self.name(),
            compute,
            dtype: if a == DType::F32 { b } else { a },
            help: "compute in bf16 or store the operand as f32; a first operand in bf16 needs a \
                   second one in bf16 or NF4",
        })
    }
}

gemm_kernels! {
    /// `y = x·wᵀ`.
    FPROP_KERNELS;
    /// `y = α·x·wᵀ (+ bias) (+ y)` in f32.
    FPROP = "gemm_fprop" in NT;
    /// [`FPROP`] with w in NF4.
    FPROP_NF4 = "gemm_fprop_nf4" in NT_NF4;
    /// [`FPROP`] computed in bf16.
    FPROP_BF16 = "gemm_fprop_bf16" in BF16_NT;
    /// [`FPROP`] computed in bf16 with w in bf16.
    FPROP_BF16_BF16 = "gemm_fprop_bf16_bf16" in BF16_NT_BF16;
    /// [`FPROP`] computed in bf16 with w in NF4.
    FPROP_BF16_NF4 = "gemm_fprop_bf16_nf4" in BF16_NT_NF4;
    /// [`FPROP`] computed in bf16 with x and w in bf16.
    FPROP_MULTISTAGE = "gemm_fprop_multistage" in MULTISTAGE_NT;
    /// [`FPROP`] computed in bf16 with x in bf16 and w in NF4.
    FPROP_MULTISTAGE_NF4 = "gemm_fprop_multistage_nf4" in MULTISTAGE_NT_NF4;
    /// [`FPROP`] with split x and w.
    FPROP_SPLIT = "gemm_fprop_split" in NT_SPLIT;
}

gemm_kernels! {
    /// `dx = dy·w`.
    DGRAD_KERNELS;
    /// `dx = α·dy·w (+ dx)` in f32.
    DGRAD = "gemm_dgrad" in NN;
    /// [`DGRAD`] with w in NF4.
    DGRAD_NF4 = "gemm_dgrad_nf4" in NN_NF4;
    /// [`DGRAD`] computed in bf16.
    DGRAD_BF16 = "gemm_dgrad_bf16" in BF16_NN;
    /// [`DGRAD`] computed in bf16 with w in bf16.
    DGRAD_BF16_BF16 = "gemm_dgrad_bf16_bf16" in BF16_NN_BF16;
    /// [`DGRAD`] computed in bf16 with w in NF4.
    DGRAD_BF16_NF4 = "gemm_dgrad_bf16_nf4" in BF16_NN_NF4;
    /// [`DGRAD`] computed in bf16 with dy and w in bf16.
    DGRAD_MULTISTAGE = "gemm_dgrad_multistage" in MULTISTAGE_NN;
    /// [`DGRAD`] computed in bf16 with dy in bf16 and w in NF4.
    DGRAD_MULTISTAGE_NF4 = "gemm_dgrad_multistage_nf4" in MULTISTAGE_NN_NF4;
    /// [`DGRAD`] with split dy and w; dy is split with the scales of w as column scales.
    DGRAD_SPLIT = "gemm_dgrad_split" in NN_SPLIT;
}

gemm_kernels! {
    /// `dw = dyᵀ·x`.
    WGRAD_KERNELS;
    /// `dw = α·dyᵀ·x (+ dw)` in f32.
    WGRAD = "gemm_wgrad" in TN;
    /// [`WGRAD`] computed in bf16.
    WGRAD_BF16 = "gemm_wgrad_bf16" in BF16_TN;
    /// [`WGRAD`] computed in bf16 with dy and x in bf16.
    WGRAD_MULTISTAGE = "gemm_wgrad_multistage" in MULTISTAGE_TN;
}

gemm_kernels! {
    /// Queries, keys and values.
    QKV_ROPE_FPROP_KERNELS;
    /// Queries, keys and values of the same tokens, queries and keys rotated by RoPE, in bf16.
    QKV_ROPE_FPROP = "gemm_qkv_rope_fprop" in QKV_ROPE_NT;
}

gemm_kernels! {
    /// Gate, up and `silu(gate) · up`.
    SWIGLU_FPROP_KERNELS;
    /// `gate = x·w_gateᵀ`, `up = x·w_upᵀ` and `silu(gate) · up`, all in bf16.
    SWIGLU_FPROP = "gemm_swiglu_fprop" in SWIGLU_NT;
}

gemm_kernels! {
    /// Gate, up and `gelu(gate) · up`.
    GEGLU_FPROP_KERNELS;
    /// `gate = x·w_gateᵀ`, `up = x·w_upᵀ` and `gelu(gate) · up`, all in bf16.
    GEGLU_FPROP = "gemm_geglu_fprop" in GEGLU_NT;
}

gemm_kernels! {
    /// The gradients of gate and up.
    SWIGLU_DGRAD_KERNELS;
    /// The gradients of gate and up of a layer with the input `silu(gate) · up`, in bf16.
    SWIGLU_DGRAD = "gemm_swiglu_dgrad" in SWIGLU_BACKWARD_NN;
}

gemm_kernels! {
    /// The gradients of gate and up.
    GEGLU_DGRAD_KERNELS;
    /// The gradients of gate and up of a layer with the input `gelu(gate) · up`, in bf16.
    GEGLU_DGRAD = "gemm_geglu_dgrad" in GEGLU_BACKWARD_NN;
}
