//! The values of a parameter on the device, by dtype.

use half::{bf16, f16};
use retrograph_kernels::nf4::{self, Nested};
use retrograph_kernels::ops::{Nf4, Nf4Scales, TensorView};
use retrograph_runtime::{Bindings, DeviceBuffer, Slice, Stream};

use crate::error::Result;
use crate::model::Value;

/// The buffers of a parameter. Clones share them.
#[derive(Clone, Debug)]
pub(super) enum DeviceValue {
    F32(DeviceBuffer<f32>),
    Bf16(DeviceBuffer<bf16>),
    /// Master weights and the bf16 copy that products read.
    F32WithBf16(DeviceBuffer<f32>, DeviceBuffer<bf16>),
    /// Frozen weights, and their f16 copy with its scales, which products of many rows read.
    F32WithF16(DeviceBuffer<f32>, DeviceBuffer<f16>, DeviceBuffer<f32>),
    Nf4(DeviceBuffer<u8>, DeviceScales),
}

/// The scales of NF4 codes.
#[derive(Clone, Debug)]
pub(super) enum DeviceScales {
    Plain(DeviceBuffer<f32>),
    /// 8-bit scales, a buffer with their mean and their own scales, and the dequantization map.
    Nested {
        absmax: DeviceBuffer<u8>,
        nested: DeviceBuffer<f32>,
        map: DeviceBuffer<f32>,
    },
}

impl DeviceValue {
    /// Returns the buffer of a trained parameter, which is always f32.
    pub(super) fn floats(&self) -> &DeviceBuffer<f32> {
        match self {
            Self::F32(buffer) | Self::F32WithBf16(buffer, _) => buffer,
            _ => panic!("trained parameters are f32"),
        }
    }

    /// The bf16 copy of master weights.
    pub(super) fn copy(&self) -> Option<&DeviceBuffer<bf16>> {
        match self {
            Self::F32WithBf16(_, copy) => Some(copy),
            _ => None,
        }
    }

    /// Binds the buffers to buffers of a pass with the same dtype.
    pub(super) fn bind(&self, bindings: &mut Bindings, value: &Value) {
        match (self, value.stored()) {
            (
                Self::F32(buffer) | Self::F32WithBf16(buffer, _) | Self::F32WithF16(buffer, ..),
                TensorView::F32(slice),
            ) => {
                bindings.bind(slice, buffer);
            }
            (Self::Bf16(buffer), TensorView::Bf16(slice)) => {
                bindings.bind(slice, buffer);
            }
            (Self::Nf4(buffer, scales), TensorView::Nf4(Nf4 { codes, scales: slices, .. })) => {
                bindings.bind(codes, buffer);
                scales.bind(bindings, slices);
            }
            (held, wanted) => {
                panic!("the pass has {}, and the state has {held:?}", wanted.dtype())
            }
        }
        if let (Some(buffer), Some(slice)) = (self.copy(), value.copy()) {
            bindings.bind(slice, buffer);
        }
        match (self, value.f16()) {
            (Self::F32WithF16(_, parts, scales), Some(copy)) => {
                bindings.bind(copy.terms, parts).bind(copy.scales, scales);
            }
            (held, Some(_)) => panic!("the pass has an f16 copy, and the state has {held:?}"),
            (_, None) => {}
        }
    }

    /// Downloads the values as f32, dequantized as the products read them.
    pub(super) fn download(&self, stream: &Stream, len: usize) -> Result<Vec<f32>> {
        Ok(match self {
            Self::F32(buffer) | Self::F32WithBf16(buffer, _) | Self::F32WithF16(buffer, ..) => {
                buffer.download(stream)?
            }
            Self::Bf16(buffer) => buffer.download(stream)?.into_iter().map(bf16::to_f32).collect(),
            Self::Nf4(codes, scales) => {
                nf4::dequantize(&codes.download(stream)?, &scales.download(stream)?, len)
            }
        })
    }
}

impl DeviceScales {
    fn bind(&self, bindings: &mut Bindings, slices: Nf4Scales<retrograph_runtime::BufferId>) {
        match (self, slices) {
            (Self::Plain(buffer), Nf4Scales::Plain(slice)) => {
                bindings.bind(slice, buffer);
            }
            (
                Self::Nested { absmax, nested, map },
                Nf4Scales::Nested { absmax: bytes, map: values, offset, .. },
            ) => {
                // The mean is the first element of the buffer of the nested scales.
                let whole = Slice::new(offset.buffer(), nested.len());
                bindings.bind(bytes, absmax).bind(whole, nested).bind(values, map);
            }
            _ => panic!("a pass and its state have the same scales"),
        }
    }

    fn download(&self, stream: &Stream) -> Result<Vec<f32>> {
        match self {
            Self::Plain(buffer) => Ok(buffer.download(stream)?),
            Self::Nested { absmax, nested, .. } => {
                let (absmax, nested) = (absmax.download(stream)?, nested.download(stream)?);
                let (offset, nested) = (nested[0], nested[1..].to_vec());
                Ok(Nested { absmax, nested, offset }.scales())
            }
        }
    }
}
