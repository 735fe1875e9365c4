//! Products that are added to the first product of a GEMM.

use crate::{Arguments, Bf16, Declare, Parameter, ParameterTypes};

/// The maximum number of products that are added to the first.
pub const MAX_ADDED_PRODUCTS: usize = 5;

/// The parameters of a product that is added to the first, `c += alpha · a · b`. It continues the
/// accumulation of the first product. Operands are bf16, contiguous, and in the layouts of the
/// first product.
///
/// Entries of an image with [`GemmImage::adds_products`](super::GemmImage::adds_products) have
/// [`MAX_ADDED_PRODUCTS`] of them after [`GemmTensorMaps`](super::GemmTensorMaps).
pub struct AddedProductParameters<T: ParameterTypes> {
    /// `m × k` elements, read.
    pub a: T::Pointer<Bf16>,
    /// `k × n` elements, read.
    pub b: T::Pointer<Bf16>,
    /// Length of the contraction; 0 for no product.
    pub k: T::U32,
    /// The map of `a`.
    pub a_map: T::TensorMap,
    /// The map of `b`.
    pub b_map: T::TensorMap,
}

/// The names of a, b, k and both maps of each product.
const NAMES: [[&str; 5]; MAX_ADDED_PRODUCTS] = [
    ["added_a_1", "added_b_1", "added_k_1", "added_a_map_1", "added_b_map_1"],
    ["added_a_2", "added_b_2", "added_k_2", "added_a_map_2", "added_b_map_2"],
    ["added_a_3", "added_b_3", "added_k_3", "added_a_map_3", "added_b_map_3"],
    ["added_a_4", "added_b_4", "added_k_4", "added_a_map_4", "added_b_map_4"],
    ["added_a_5", "added_b_5", "added_k_5", "added_a_map_5", "added_b_map_5"],
];

impl<T: ParameterTypes> AddedProductParameters<T> {
    /// The parameters of all products in order.
    pub const LIST: &'static [Parameter] = &{
        let mut list = [Parameter::u32(""); 5 * MAX_ADDED_PRODUCTS];
        let mut product = 0;
        while product < MAX_ADDED_PRODUCTS {
            let [a, b, k, a_map, b_map] = NAMES[product];
            list[5 * product] = Parameter::pointer(a);
            list[5 * product + 1] = Parameter::pointer(b);
            list[5 * product + 2] = Parameter::u32(k);
            list[5 * product + 3] = Parameter::tensor_map(a_map);
            list[5 * product + 4] = Parameter::tensor_map(b_map);
            product += 1;
        }
        list
    };

    /// Declares the parameters of all products.
    pub fn declare_all(kernel: &mut T) -> [Self; MAX_ADDED_PRODUCTS]
    where
        T: Declare,
    {
        NAMES.map(|[a, b, k, a_map, b_map]| Self {
            a: kernel.pointer(a),
            b: kernel.pointer(b),
            k: kernel.u32(k),
            a_map: kernel.tensor_map(a_map),
            b_map: kernel.tensor_map(b_map),
        })
    }

    /// Returns the arguments of one product in order.
    pub fn into_arguments(self) -> [T::Argument; 5]
    where
        T: Arguments,
    {
        let Self { a, b, k, a_map, b_map } = self;
        [T::pointer(a), T::pointer(b), T::u32(k), T::tensor_map(a_map), T::tensor_map(b_map)]
    }
}
