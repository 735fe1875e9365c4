//! The KV cache of a layer on the device.

use half::bf16;
use retrograph_kernels::DType;
use retrograph_kernels::ops::KvCache;
use retrograph_runtime::{Bindings, Context, DeviceBuffer, Stream};

use crate::config::is_bf16;
use crate::error::Result;
use crate::model::LayerCache;

/// Keys and values of a layer, `[batch, capacity, kv_heads, head_dim]` each.
#[derive(Debug)]
pub(super) enum CacheBuffers {
    F32([DeviceBuffer<f32>; 2]),
    Bf16([DeviceBuffer<bf16>; 2]),
}

impl CacheBuffers {
    /// Allocates `elements` keys and as many values.
    pub(super) fn new(context: &Context, dtype: DType, elements: usize) -> Result<Self> {
        Ok(match is_bf16("cache_dtype", dtype)? {
            false => {
                let zeroed = || DeviceBuffer::zeroed(context, elements);
                Self::F32([zeroed()?, zeroed()?])
            }
            true => {
                let zeroed = || DeviceBuffer::zeroed(context, elements);
                Self::Bf16([zeroed()?, zeroed()?])
            }
        })
    }

    /// Bytes of both.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::F32(pair) => pair.iter().map(DeviceBuffer::bytes).sum(),
            Self::Bf16(pair) => pair.iter().map(DeviceBuffer::bytes).sum(),
        }
    }

    /// Returns address and length of both in 32-bit words. A token has an even number of elements,
    /// so bf16 also fills whole words.
    pub(super) fn words(&self) -> [(u64, usize); 2] {
        match self {
            Self::F32(pair) => pair.each_ref().map(|buffer| (buffer.address(), buffer.len())),
            Self::Bf16(pair) => pair.each_ref().map(|buffer| (buffer.address(), buffer.len() / 2)),
        }
    }

    /// Binds the buffers to buffers of a pass with the same dtype.
    pub(super) fn bind(&self, bindings: &mut Bindings, declared: &LayerCache) {
        match (self, declared) {
            (Self::F32([keys, values]), KvCache::F32([key_slice, value_slice])) => {
                bindings.bind(*key_slice, keys).bind(*value_slice, values);
            }
            (Self::Bf16([keys, values]), KvCache::Bf16([key_slice, value_slice])) => {
                bindings.bind(*key_slice, keys).bind(*value_slice, values);
            }
            _ => panic!("a pass and its cache have the same dtype"),
        }
    }

    /// Downloads a range of keys and values as f32.
    pub(super) fn download(
        &self,
        stream: &Stream,
        range: std::ops::Range<usize>,
    ) -> Result<[Vec<f32>; 2]> {
        Ok(match self {
            Self::F32([keys, values]) => {
                let floats =
                    |buffer: &DeviceBuffer<f32>| buffer.download_range(stream, range.clone());
                [floats(keys)?, floats(values)?]
            }
            Self::Bf16([keys, values]) => {
                let floats = |buffer: &DeviceBuffer<bf16>| -> Result<Vec<f32>> {
                    let values = buffer.download_range(stream, range.clone())?;
                    Ok(values.into_iter().map(bf16::to_f32).collect())
                };
                [floats(keys)?, floats(values)?]
            }
        })
    }
}
