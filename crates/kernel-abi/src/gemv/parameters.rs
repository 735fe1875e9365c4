//! The parameters of matrix-vector products: grouped by layer for sources and launches, and in the
//! order of the kernel signature.

use crate::nf4::Nf4Scales;
use crate::parameters::{flags, parameters};
use crate::{Any, Arguments, DType, Declare, ParameterTypes};

/// The most layers of a launch, and the most LoRA matrices.
pub const MAX_LAYERS: usize = 3;

flags! {
    /// The flags of [`GemvParameters`].
    pub struct GemvFlags {
        /// y is added to.
        ACCUMULATE = 1;
        /// x and the matrices are read in aligned vectors.
        VECTORIZED = 2;
    }
}

/// The parameters of every entry, grouped by layer.
pub struct GemvParameters<T: ParameterTypes> {
    /// `inputs` elements, read.
    pub x: T::Pointer<f32>,
    /// `inputs` gains of the norm, read, or null.
    pub gamma: T::Pointer<f32>,
    /// The layers.
    pub layers: [GemvLayer<T>; MAX_LAYERS],
    /// The LoRA matrices.
    pub lora: [GemvLora<T>; MAX_LAYERS],
    /// Weights of the next launch, which are prefetched, or null.
    pub prefetch: T::Pointer<Any>,
    /// Bytes to prefetch.
    pub prefetch_bytes: T::U32,
    /// Elements of x.
    pub inputs: T::U32,
    /// Added to the mean of squares of the norm.
    pub eps: T::F32,
    /// The scale of the products.
    pub alpha: T::F32,
    /// The flags.
    pub flags: T::Flags<GemvFlags>,
}

/// A layer; its pointers are null if it is absent.
pub struct GemvLayer<T: ParameterTypes> {
    /// `outputs × inputs` elements or codes, read.
    pub w: T::Pointer<Any>,
    /// The scales of w in kernels with weights in NF4.
    pub scales: Option<Nf4Scales<T>>,
    /// `outputs` elements, read, or null.
    pub bias: T::Pointer<f32>,
    /// `outputs` elements, written or added to, or null.
    pub y: T::Pointer<f32>,
    /// Rows of w.
    pub outputs: T::U32,
}

/// A LoRA matrix A; its pointers are null if it is absent.
pub struct GemvLora<T: ParameterTypes> {
    /// `rank × inputs` elements, read.
    pub a: T::Pointer<f32>,
    /// `rank` products with x, written.
    pub t: T::Pointer<f32>,
    /// Rows of a.
    pub rank: T::U32,
}

/// Defines the parameters in order, with scales of each layer or without, and their conversions
/// from and to [`GemvParameters`].
macro_rules! in_order {
    ($name:ident, $([$($scale:ident: $element:ty),*]),*) => {
        in_order! { @define $name, $([$($scale: $element),*] [$($scale)*]),* }
    };
    (
        @define $name:ident,
        [$($scale0:ident: $element0:ty),*] $scales0:tt,
        [$($scale1:ident: $element1:ty),*] $scales1:tt,
        [$($scale2:ident: $element2:ty),*] $scales2:tt
    ) => {
        parameters! {
            /// The parameters in order.
            #[expect(missing_docs, reason = "GemvParameters documents them")]
            pub struct $name {
                x: pointer<f32>,
                gamma: pointer<f32>,
                w0: pointer<Any>,
                bias0: pointer<f32>,
                y0: pointer<f32>,
                $($scale0: pointer<$element0>,)*
                w1: pointer<Any>,
                bias1: pointer<f32>,
                y1: pointer<f32>,
                $($scale1: pointer<$element1>,)*
                w2: pointer<Any>,
                bias2: pointer<f32>,
                y2: pointer<f32>,
                $($scale2: pointer<$element2>,)*
                a0: pointer<f32>,
                t0: pointer<f32>,
                a1: pointer<f32>,
                t1: pointer<f32>,
                a2: pointer<f32>,
                t2: pointer<f32>,
                prefetch: pointer<Any>,
                inputs: u32,
                outputs0: u32,
                outputs1: u32,
                outputs2: u32,
                rank0: u32,
                rank1: u32,
                rank2: u32,
                eps: f32,
                alpha: f32,
                flags: flags<GemvFlags>,
                prefetch_bytes: u32,
            }
        }

        impl<T: ParameterTypes> $name<T> {
            fn group(self) -> GemvParameters<T> {
                GemvParameters {
                    x: self.x,
                    gamma: self.gamma,
                    layers: [
                        GemvLayer {
                            w: self.w0,
                            scales: in_order!(@group self $scales0),
                            bias: self.bias0,
                            y: self.y0,
                            outputs: self.outputs0,
                        },
                        GemvLayer {
                            w: self.w1,
                            scales: in_order!(@group self $scales1),
                            bias: self.bias1,
                            y: self.y1,
                            outputs: self.outputs1,
                        },
                        GemvLayer {
                            w: self.w2,
                            scales: in_order!(@group self $scales2),
                            bias: self.bias2,
                            y: self.y2,
                            outputs: self.outputs2,
                        },
                    ],
                    lora: [
                        GemvLora { a: self.a0, t: self.t0, rank: self.rank0 },
                        GemvLora { a: self.a1, t: self.t1, rank: self.rank1 },
                        GemvLora { a: self.a2, t: self.t2, rank: self.rank2 },
                    ],
                    prefetch: self.prefetch,
                    prefetch_bytes: self.prefetch_bytes,
                    inputs: self.inputs,
                    eps: self.eps,
                    alpha: self.alpha,
                    flags: self.flags,
                }
            }

            fn ungroup(parameters: GemvParameters<T>) -> Self {
                let GemvParameters { x, gamma, prefetch, prefetch_bytes, .. } = parameters;
                let GemvParameters { layers, lora, inputs, eps, alpha, flags, .. } = parameters;
                let [layer0, layer1, layer2] = layers;
                let [lora0, lora1, lora2] = lora;
                in_order!(@ungroup layer0 $scales0);
                in_order!(@ungroup layer1 $scales1);
                in_order!(@ungroup layer2 $scales2);
                Self {
                    x,
                    gamma,
                    w0: layer0.w,
                    bias0: layer0.bias,
                    y0: layer0.y,
                    $($scale0,)*
                    w1: layer1.w,
                    bias1: layer1.bias,
                    y1: layer1.y,
                    $($scale1,)*
                    w2: layer2.w,
                    bias2: layer2.bias,
                    y2: layer2.y,
                    $($scale2,)*
                    a0: lora0.a,
                    t0: lora0.t,
                    a1: lora1.a,
                    t1: lora1.t,
                    a2: lora2.a,
                    t2: lora2.t,
                    prefetch,
                    inputs,
                    outputs0: layer0.outputs,
                    outputs1: layer1.outputs,
                    outputs2: layer2.outputs,
                    rank0: lora0.rank,
                    rank1: lora1.rank,
                    rank2: lora2.rank,
                    eps,
                    alpha,
                    flags,
                    prefetch_bytes,
                }
            }
        }
    };
    (@group $from:ident []) => { None };
    (@group $from:ident [$absmax:ident $nested:ident $map:ident $offset:ident]) => {
        Some(Nf4Scales {
            absmax: $from.$absmax,
            nested: $from.$nested,
            map: $from.$map,
            offset: $from.$offset,
        })
    };
    (@ungroup $layer:ident []) => {};
    (@ungroup $layer:ident [$absmax:ident $nested:ident $map:ident $offset:ident]) => {
        let scales = $layer.scales.expect("layers of a launch with weights in NF4 have scales");
        let ($absmax, $nested) = (scales.absmax, scales.nested);
        let ($map, $offset) = (scales.map, scales.offset);
    };
}

in_order!(Unscaled, [], [], []);
in_order!(
    Scaled,
    [w0_absmax: Any, w0_nested: f32, w0_map: f32, w0_offset: f32],
    [w1_absmax: Any, w1_nested: f32, w1_map: f32, w1_offset: f32],
    [w2_absmax: Any, w2_nested: f32, w2_map: f32, w2_offset: f32]
);

impl<T: ParameterTypes> GemvParameters<T> {
    /// Declares every parameter of a kernel whose weights are `dtype`.
    pub fn declare(kernel: &mut T, dtype: DType) -> Self
    where
        T: Declare,
    {
        match dtype {
            DType::Nf4 => Scaled::declare(kernel).group(),
            _ => Unscaled::declare(kernel).group(),
        }
    }

    /// Returns the arguments of a launch whose weights are `dtype`, in order.
    ///
    /// # Panics
    /// If `dtype` is NF4 and a layer has no scales.
    pub fn into_arguments(self, dtype: DType) -> Vec<T::Argument>
    where
        T: Arguments,
    {
        match dtype {
            DType::Nf4 => Scaled::ungroup(self).into_arguments(),
            _ => Unscaled::ungroup(self).into_arguments(),
        }
    }
}
