//! The residual stream between the branches that read it and add to it.

use retrograph_runtime::Slice;

use super::builder::Builder;
use crate::error::Result;

/// The residual stream. What the last branch gives is added by the norm that reads it next, where
/// that is a kernel of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Residual {
    pub(super) x: Slice<f32>,
    /// What is still to be added to x.
    pub(super) addend: Option<Slice<f32>>,
}

impl From<Slice<f32>> for Residual {
    fn from(x: Slice<f32>) -> Self {
        Self { x, addend: None }
    }
}

impl Residual {
    /// The stream in one buffer. Where something is still to be added, that is an operation.
    pub(super) fn settle(self, builder: &mut Builder) -> Result<Slice<f32>> {
        match self.addend {
            None => Ok(self.x),
            Some(addend) => builder.sum(self.x, addend),
        }
    }
}
