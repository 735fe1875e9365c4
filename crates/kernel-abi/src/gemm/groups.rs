//! The groups of parameters of a GEMM entry.

use super::{
    AddedProductParameters, Epilogue, GemmGluBackwardParameters, GemmGluParameters, GemmImage,
    GemmParameters, GemmQkvRopeParameters, GemmRowLimitParameters, GemmSquaresParameters,
    GemmTensorMaps, Layout, Nf4ScaleParameters, SplitScaleParameters,
};
use crate::{DType, Parameter};

impl GemmImage {
    /// Whether the entries have [`Nf4ScaleParameters`]: b is NF4.
    pub const fn has_nf4_scales(&self) -> bool {
        matches!(self.b, DType::Nf4)
    }

    /// Whether the entries have [`GemmTensorMaps`]: a and b are both bf16 or both split.
    pub const fn has_tensor_maps(&self) -> bool {
        matches!((self.a, self.b), (DType::Bf16, DType::Bf16)) || self.has_split_scales()
    }

    /// Whether the entries have [`SplitScaleParameters`]: a and b are split.
    pub const fn has_split_scales(&self) -> bool {
        matches!((self.a, self.b), (DType::F16, DType::F16))
    }

    /// Whether the entries have [`AddedProductParameters`]: products of bf16 activations and bf16
    /// weights, except the forward pass of gated linear units.
    pub const fn adds_products(&self) -> bool {
        matches!((self.a, self.b), (DType::Bf16, DType::Bf16))
            && !matches!(self.layout, Layout::Tn)
            && !matches!(self.epilogue, Epilogue::Glu(_))
    }

    /// Whether the entries have [`GemmSquaresParameters`]: weight gradients of bf16 operands.
    pub const fn sums_squares(&self) -> bool {
        matches!((self.a, self.b, self.layout), (DType::Bf16, DType::Bf16, Layout::Tn))
    }

    /// Whether the entries have [`GemmRowLimitParameters`]: products of activations and weights
    /// that are both bf16 or both split, and only write the product.
    pub const fn limits_rows(&self) -> bool {
        self.has_tensor_maps()
            && !matches!(self.layout, Layout::Tn)
            && matches!(self.epilogue, Epilogue::Linear)
    }

    /// The groups of parameters in the order of the entries. Sources and launches have the same
    /// order.
    const fn groups(&self) -> [&'static [Parameter]; 8] {
        const NONE: &[Parameter] = &[];
        [
            GemmParameters::<()>::LIST,
            if self.has_nf4_scales() { Nf4ScaleParameters::<()>::LIST } else { NONE },
            if self.has_tensor_maps() { GemmTensorMaps::<()>::LIST } else { NONE },
            if self.has_split_scales() { SplitScaleParameters::<()>::LIST } else { NONE },
            if self.adds_products() { AddedProductParameters::<()>::LIST } else { NONE },
            if self.sums_squares() { GemmSquaresParameters::<()>::LIST } else { NONE },
            if self.limits_rows() { GemmRowLimitParameters::<()>::LIST } else { NONE },
            match self.epilogue {
                Epilogue::Linear => NONE,
                Epilogue::QkvRope => GemmQkvRopeParameters::<()>::LIST,
                Epilogue::Glu(_) => GemmGluParameters::<()>::LIST,
                Epilogue::GluBackward(_) => GemmGluBackwardParameters::<()>::LIST,
            },
        ]
    }

    /// The number of parameters in all groups.
    pub(super) const fn parameter_count(&self) -> usize {
        let (groups, mut count, mut group) = (self.groups(), 0, 0);
        while group < groups.len() {
            count += groups[group].len();
            group += 1;
        }
        count
    }

    /// The parameters of all groups; `LEN` is their number.
    pub(super) const fn parameter_list<const LEN: usize>(&self) -> [Parameter; LEN] {
        let (groups, mut list, mut len, mut group) =
            (self.groups(), [Parameter::u32(""); LEN], 0, 0);
        while group < groups.len() {
            let mut index = 0;
            while index < groups[group].len() {
                list[len] = groups[group][index];
                len += 1;
                index += 1;
            }
            group += 1;
        }
        assert!(len == LEN, "the list has every parameter");
        list
    }
}
