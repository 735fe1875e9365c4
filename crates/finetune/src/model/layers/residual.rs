//! The residual stream between the branches that read it and add to it.

use retrograph_runtime::Slice;

use super::Builder;
use super::activation::Activation;
use crate::error::Result;

/// The residual stream. The norm that reads it next also adds the output of the last branch.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Residual {
    pub(super) x: Slice<f32>,
    /// The output of the last layer, not yet added to x.
    pub(super) addend: Option<Activation>,
}

impl From<Slice<f32>> for Residual {
    fn from(x: Slice<f32>) -> Self {
        Self { x, addend: None }
    }
}

impl Residual {
    /// Returns the stream in one buffer. Appends an addition if an output is pending.
    pub(in crate::model) fn settle(self, builder: &mut Builder) -> Result<Slice<f32>> {
        match self.addend {
            None => Ok(self.x),
            Some(addend) => builder.sum(self.x, addend.f32()?),
        }
    }
}
