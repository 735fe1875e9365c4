//! The rotary tables on the device.

use retrograph_runtime::{DeviceBuffer, Stream};

use crate::config::ModelConfig;
use crate::error::Result;

/// Cosines and sines of RoPE on the device.
#[derive(Clone, Debug)]
pub(crate) struct RotaryTables {
    pub(crate) cos: DeviceBuffer<f32>,
    pub(crate) sin: DeviceBuffer<f32>,
}

impl RotaryTables {
    /// Uploads the tables of `model` for the first `positions` positions.
    pub(crate) fn new(stream: &Stream, model: &ModelConfig, positions: usize) -> Result<Self> {
        let (cos, sin) = model.rope_tables(positions);
        let cos = DeviceBuffer::from_slice(stream, &cos)?;
        let sin = DeviceBuffer::from_slice(stream, &sin)?;
        Ok(Self { cos, sin })
    }
}
