//! How files store a parameter: the tensor with its rows, the order of the rows, and the offset.
//!
//! Files of models with fused projections have `qkv_proj` and `gate_up_proj`; the device has a
//! matrix for each projection. The kernels of RoPE rotate element `i` of a head with element
//! `i + head_dim / 2`. If RoPE rotates only the first `rotary_dim` elements, files pair `i` with
//! `i + rotary_dim / 2`; the rows of queries and keys are then reordered in each head, which
//! changes no product of a query and a key.

use crate::config::Projection;
use crate::spec::LayerSpec;

/// The layout of a parameter in files.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Layout {
    /// The fused matrix of which the parameter is a part.
    pub fused: Option<Fused>,
    /// The heads whose elements have another order in files.
    pub heads: Option<PartialHeads>,
    /// The offset that the device adds to the values in files.
    pub offset: f32,
}

/// A part of a fused matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fused {
    /// The projection.
    pub projection: Projection,
    /// Its first row in the fused matrix.
    pub first_row: usize,
    /// Rows of the fused matrix.
    pub rows: usize,
}

/// Number of heads that RoPE rotates partly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialHeads {
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements that are rotated: the first ones in files.
    pub rotary_dim: usize,
}

impl Layout {
    /// Returns the layout of the rows of a projection.
    pub(super) fn of(spec: &LayerSpec, projection: Projection) -> Self {
        let fused = projection.fused().filter(|_| spec.fused).map(|(_, parts)| {
            let outputs = |part: &Projection| spec.projection(*part)[1];
            let before = parts.iter().take_while(|part| **part != projection);
            Fused {
                projection,
                first_row: before.map(outputs).sum(),
                rows: parts.iter().map(outputs).sum(),
            }
        });
        let rotated = matches!(projection, Projection::Q | Projection::K);
        let heads = rotated.then(|| Self::of_heads(spec).heads).flatten();
        Self { fused, heads, offset: 0.0 }
    }

    /// Returns the layout of the elements of query and key heads.
    pub(super) fn of_heads(spec: &LayerSpec) -> Self {
        let head_dim = spec.attention.head_dim;
        let partial = spec.attention.rope.filter(|rope| rope.rotary_dim != head_dim);
        let heads = partial.map(|rope| PartialHeads { head_dim, rotary_dim: rope.rotary_dim });
        Self { fused: None, heads, offset: 0.0 }
    }

    /// Returns the layout of a LoRA matrix A: its rows have no order, and all parts of a fused
    /// matrix share one.
    pub(super) fn of_lora_a(self) -> Self {
        Self { heads: None, ..self }
    }
}

impl PartialHeads {
    /// Returns the row of a file that has row `row`.
    pub(super) fn stored(self, row: usize) -> usize {
        let Self { head_dim, rotary_dim } = self;
        let (half, pairs) = (head_dim / 2, rotary_dim / 2);
        let (first, element) = (row / head_dim * head_dim, row % head_dim);
        first
            + match (element / half, element % half) {
                (side, pair) if pair < pairs => side * pairs + pair,
                (side, pair) => rotary_dim + side * (half - pairs) + pair - pairs,
            }
    }

    /// Returns the row that is row `stored` in a file.
    pub(super) fn loaded(self, stored: usize) -> usize {
        let Self { head_dim, rotary_dim } = self;
        let (half, pairs) = (head_dim / 2, rotary_dim / 2);
        let (first, element) = (stored / head_dim * head_dim, stored % head_dim);
        first
            + match element.checked_sub(rotary_dim) {
                None => element / pairs * half + element % pairs,
                Some(rest) => {
                    let fixed = half - pairs;
                    rest / fixed * half + pairs + rest % fixed
                }
            }
    }

    /// Returns how many rows from `row` on are consecutive in files.
    pub(super) fn consecutive(self, row: usize) -> usize {
        let (half, pairs) = (self.head_dim / 2, self.rotary_dim / 2);
        let pair = row % half;
        if pair < pairs { pairs - pair } else { half - pair }
    }
}
