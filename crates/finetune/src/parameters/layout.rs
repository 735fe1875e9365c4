//! How files store a parameter: the tensor that has its rows, and their order.
//!
//! Files of models with fused projections have `qkv_proj` and `gate_up_proj`; the device has a
//! matrix for each projection. The kernels of RoPE rotate element `i` of a head with element
//! `i + head_dim / 2`. If RoPE rotates only the first `rotary_dim` elements, files pair `i` with
//! `i + rotary_dim / 2`; the rows of queries and keys are then reordered in each head, which
//! changes no product of a query and a key.

use std::ops::Range;

use super::Parameter;
use crate::config::Projection;
use crate::spec::LayerSpec;

/// The place of a parameter in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The fused matrix of which the parameter is a part.
    pub fused: Option<Fused>,
    /// The heads whose elements have another order in files.
    pub heads: Option<PartialHeads>,
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

/// Heads of which RoPE rotates a part.
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
        Self { fused, heads }
    }

    /// Returns the layout of the elements of query and key heads.
    pub(super) fn of_heads(spec: &LayerSpec) -> Self {
        let head_dim = spec.attention.head_dim;
        let partial = spec.attention.rope.filter(|rope| rope.rotary_dim != head_dim);
        let heads = partial.map(|rope| PartialHeads { head_dim, rotary_dim: rope.rotary_dim });
        Self { fused: None, heads }
    }

    /// Returns the layout of a LoRA matrix A: its rows have no order, and all parts of a fused
    /// matrix share one.
    pub(super) fn of_lora_a(self) -> Self {
        Self { heads: None, ..self }
    }
}

impl PartialHeads {
    /// Returns the row of a file that has row `row`.
    fn stored(self, row: usize) -> usize {
        let Self { head_dim, rotary_dim } = self;
        let (half, pairs) = (head_dim / 2, rotary_dim / 2);
        let (first, element) = (row / head_dim * head_dim, row % head_dim);
        first
            + match (element / half, element % half) {
                (side, pair) if pair < pairs => side * pairs + pair,
                (side, pair) => rotary_dim + side * (half - pairs) + pair - pairs,
            }
    }

    /// Returns the row that row `stored` of a file has.
    fn loaded(self, stored: usize) -> usize {
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
    fn consecutive(self, row: usize) -> usize {
        let (half, pairs) = (self.head_dim / 2, self.rotary_dim / 2);
        let pair = row % half;
        if pair < pairs { pairs - pair } else { half - pair }
    }
}

impl Parameter {
    /// Returns the name of the tensor in files.
    pub fn stored_name(&self) -> String {
        let fused = self.layout.fused.and_then(|fused| Some((fused, fused.projection.fused()?)));
        match fused {
            Some((part, (module, _))) => self.name.replace(part.projection.module(), module),
            None => self.name.clone(),
        }
    }

    /// Returns the shape of the tensor in files.
    pub fn stored_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        if let (Some(fused), Some(rows)) = (self.layout.fused, shape.first_mut()) {
            *rows = fused.rows;
        }
        shape
    }

    /// Returns the row of the tensor in files that has row `row`.
    pub fn stored_row(&self, row: usize) -> usize {
        let first = self.layout.fused.map_or(0, |fused| fused.first_row);
        first + self.layout.heads.map_or(row, |heads| heads.stored(row))
    }

    /// Returns the row that row `row` of this parameter's part of the tensor in files has.
    pub(crate) fn loaded_row(&self, row: usize) -> usize {
        self.layout.heads.map_or(row, |heads| heads.loaded(row))
    }

    /// Divides the range `elements` into pieces that are consecutive in files. Returns each piece,
    /// relative to the start of the range, with its first element in the tensor of the file.
    pub(crate) fn stored_pieces(&self, elements: Range<usize>) -> Vec<(Range<usize>, usize)> {
        let width = self.shape.iter().skip(1).product::<usize>().max(1);
        let (mut pieces, mut at) = (Vec::new(), elements.start);
        while at < elements.end {
            let (row, column) = (at / width, at % width);
            let end = match self.layout.heads {
                Some(heads) => elements.end.min((row + heads.consecutive(row)) * width),
                None => elements.end,
            };
            let piece = at - elements.start..end - elements.start;
            pieces.push((piece, self.stored_row(row) * width + column));
            at = end;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Mode, ModelConfig, Preset};
    use crate::parameters::inventory;

    fn parameter(name: &str) -> Parameter {
        let model = ModelConfig {
            head_dim: Some(8),
            heads: 4,
            kv_heads: 2,
            rotary_dim: Some(4),
            fused: true,
            ..Preset::Tiny.model()
        };
        let all = inventory(&model, Mode::Full);
        all.into_iter().find(|one| one.name.contains(name)).unwrap()
    }

    #[test]
    fn pairs_of_a_partly_rotated_head_are_half_a_head_apart() {
        let q = parameter("0.self_attn.q_proj.weight");
        let rows: Vec<usize> = (0..16).map(|row| q.stored_row(row)).collect();
        assert_eq!(rows, [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]);
        assert!((0..32).all(|row| q.loaded_row(q.stored_row(row)) == row));
        let v = parameter("0.self_attn.v_proj.weight");
        assert_eq!((v.stored_row(0), v.stored_row(15)), (32 + 16, 32 + 16 + 15));
        let up = parameter("1.mlp.up_proj.weight");
        assert_eq!(up.stored_name(), "model.layers.1.mlp.gate_up_proj.weight");
        assert_eq!((up.stored_shape(), up.stored_row(3)), (vec![352, 64], 176 + 3));
    }

    #[test]
    fn pieces_of_any_range_have_every_element_once() {
        let k = parameter("0.self_attn.k_proj.weight");
        let width = 64;
        for (first, end) in [(0, k.len()), (5, 5), (70, 71), (100, 900), (k.len() - 3, k.len())] {
            let pieces = k.stored_pieces(first..end);
            let found: Vec<usize> =
                pieces.iter().flat_map(|(piece, stored)| *stored..stored + piece.len()).collect();
            let expected: Vec<usize> = (first..end)
                .map(|element| k.stored_row(element / width) * width + element % width)
                .collect();
            assert_eq!(found, expected);
            assert!(pieces.iter().map(|(piece, _)| piece.len()).sum::<usize>() == end - first);
        }
    }
}
