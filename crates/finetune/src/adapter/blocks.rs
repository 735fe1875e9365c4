//! Layout of LoRA matrices in files.
//!
//! In files of models with fused projections, the update of `qkv_proj` or `gate_up_proj` is one
//! pair of matrices. PEFT trains one A for all parts. Here each part has its own A, so a written
//! pair has the blocks
//!
//! ```text
//! A = [A_q; A_k; A_v]      B = diag(B_q, B_k, B_v)
//! ```
//!
//! and the sum of the ranks as its rank, which is the same update. The metadata of the file lists
//! the trained parts, so reading it back returns the blocks. A pair that PEFT wrote is read as
//! parts that start with the same A.

use crate::config::{LoraTargets, Projection};
use crate::parameters::Parameter;

/// The key in the metadata of the file: the projections with an update, if they are blocks.
pub(super) const TARGETS_KEY: &str = "retrograph.lora_targets";

/// The targets that share the module of `projection` in files.
pub(super) fn stored_parts(
    projection: Projection,
    targets: LoraTargets,
    fused: bool,
) -> Vec<Projection> {
    let parts = projection.fused().filter(|_| fused).map(|(_, parts)| parts);
    let parts = parts.map_or(vec![projection], <[_]>::to_vec);
    parts.into_iter().filter(|part| targets.has(*part)).collect()
}

/// The block of a stored matrix that holds a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The number of the block.
    pub(super) index: usize,
    /// The number of blocks.
    pub(super) count: usize,
}

impl Block {
    /// Returns the block of `parameter`. `blocks` are the targets of a file with blocks; without
    /// them, all parts share one block.
    pub(super) fn of(parameter: &Parameter, blocks: Option<LoraTargets>) -> Self {
        let fused = parameter.layout.fused.map(|fused| fused.projection);
        match fused.zip(blocks) {
            Some((projection, targets)) => {
                let parts = stored_parts(projection, targets, true);
                let index = parts.iter().position(|part| *part == projection).unwrap_or(0);
                Self { index, count: parts.len().max(1) }
            }
            None => Self { index: 0, count: 1 },
        }
    }

    /// Returns the shape of the stored matrix that contains `parameter`.
    pub(super) fn stored_shape(self, parameter: &Parameter) -> Vec<usize> {
        match (Matrix::of(parameter), parameter.shape.as_slice()) {
            (Some(Matrix::A), &[rank, inputs]) => vec![rank * self.count, inputs],
            (Some(Matrix::B), &[_, rank]) => {
                vec![parameter.stored_shape()[0], rank * self.count]
            }
            _ => parameter.stored_shape(),
        }
    }

    /// Copies `values` of `parameter`, without its offset, into the stored matrix `stored`.
    pub(super) fn store(self, parameter: &Parameter, values: &[f32], stored: &mut [f32]) {
        let offset = parameter.layout.offset;
        self.rows(parameter, |row, place| {
            let stored = stored[place].iter_mut();
            stored.zip(&values[row]).for_each(|(stored, value)| *stored = value - offset);
        });
    }

    /// Returns the values of `parameter` from the stored matrix `stored`.
    pub(super) fn load(self, parameter: &Parameter, stored: &[f32]) -> Vec<f32> {
        let mut values = vec![0.0; parameter.len()];
        let offset = parameter.layout.offset;
        self.rows(parameter, |row, place| {
            let values = values[row].iter_mut();
            values.zip(&stored[place]).for_each(|(value, stored)| *value = stored + offset);
        });
        values
    }

    /// Calls `on` with the elements of each row, and their range in the stored matrix.
    fn rows(
        self,
        parameter: &Parameter,
        mut on: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>),
    ) {
        let rows = parameter.shape[0];
        let width = parameter.len() / rows.max(1);
        for row in 0..rows {
            let first = match Matrix::of(parameter) {
                Some(Matrix::A) => (self.index * rows + row) * width,
                Some(Matrix::B) => (parameter.stored_row(row) * self.count + self.index) * width,
                None => parameter.stored_row(row) * width,
            };
            on(row * width..(row + 1) * width, first..first + width);
        }
    }
}

/// A matrix of a LoRA update.
enum Matrix {
    A,
    B,
}

impl Matrix {
    fn of(parameter: &Parameter) -> Option<Self> {
        match parameter.name.strip_suffix(".weight")?.rsplit('.').next()? {
            "lora_A" => Some(Self::A),
            "lora_B" => Some(Self::B),
            _ => None,
        }
    }
}
