//! Rotary position embedding (RoPE) of queries and keys.

use retrograph_kernels::ops::{AttentionRope, Rope, RopeTensor, TokenPositions};
use retrograph_runtime::{BufferId, Slice};

use super::activation::{Activation, Dtypes};
use super::{Builder, PassConfig};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::spec::AttentionSpec;

/// Rotary tables, `[positions, head_dim / 2]` each. A pass has one table per base, contiguous.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct RopeTables {
    pub(in crate::model) cos: Slice<f32>,
    pub(in crate::model) sin: Slice<f32>,
    /// Rows of one table.
    positions: usize,
}

impl RopeTables {
    /// Declares the tables of a model as external buffers.
    pub(in crate::model) fn declare(
        builder: &mut Builder,
        positions: usize,
        model: &ModelConfig,
    ) -> Self {
        let len = model.rope_table_count() * positions * model.head_dim() / 2;
        let cos = builder.pass.external("rope.cos", len);
        let sin = builder.pass.external("rope.sin", len);
        Self { cos, sin, positions }
    }

    /// Returns table `number`, for heads of width `head_dim`.
    fn table(self, number: usize, head_dim: usize) -> Self {
        let len = self.positions * head_dim / 2;
        let [cos, sin] =
            [self.cos, self.sin].map(|all| all.slice(number * len..(number + 1) * len));
        Self { cos, sin, ..self }
    }

    /// Returns the row of position 0, whose angles are 0, for heads of width `head_dim`.
    fn first_row(self, head_dim: usize) -> Self {
        let [cos, sin] = [self.cos, self.sin].map(|table| table.slice(0..head_dim / 2));
        Self { cos, sin, positions: 1 }
    }
}

/// RoPE of the heads of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct RotaryEmbedding {
    pub(super) tables: RopeTables,
    batch: usize,
    seq: usize,
    head_dim: usize,
    /// Whether every token has position 0: the layer has no RoPE, and heads are unchanged.
    at_zero: bool,
}

/// The direction of a rotation, at the positions of the tokens. The inverse is the gradient.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rotation {
    Forward,
    Inverse,
}

impl RotaryEmbedding {
    pub(super) fn new(config: &PassConfig, tables: RopeTables, spec: &AttentionSpec) -> Self {
        let head_dim = spec.head_dim;
        let at_zero = spec.rope.is_none();
        let tables = match spec.rope {
            None => tables.first_row(head_dim),
            Some(rope) => tables.table(rope.table, head_dim),
        };
        Self { tables, batch: config.batch, seq: config.seq, head_dim, at_zero }
    }

    /// Positions in the tables.
    pub(super) fn positions(&self) -> usize {
        self.tables.positions
    }

    /// Returns the rotation that attention inverts in its gradients; none if every token has
    /// position 0.
    pub(super) fn of_attention(&self, builder: &Builder) -> Option<AttentionRope<BufferId>> {
        let RopeTables { cos, sin, positions } = self.tables;
        let token_positions = builder.sequences.positions();
        (!self.at_zero).then_some(AttentionRope { cos, sin, positions, token_positions })
    }

    /// Appends the rotation of queries and keys, in the dtypes that are read.
    pub(super) fn rotate(
        &self,
        builder: &mut Builder,
        [q, k]: [Slice<f32>; 2],
        dtypes: [Dtypes; 2],
        rotation: Rotation,
    ) -> Result<[Activation; 2]> {
        let Self { tables: RopeTables { cos, sin, .. }, batch, seq, head_dim, at_zero } = *self;
        let (names, inverse) = match rotation {
            Rotation::Forward => (["q", "k"], false),
            Rotation::Inverse => (["grad_q", "grad_k"], true),
        };
        let rotated = [(names[0], q, dtypes[0]), (names[1], k, dtypes[1])]
            .map(|(name, x, dtypes)| Activation::transient(builder, name, x.len(), dtypes));
        let turn = |x: Slice<f32>, out: Activation| RopeTensor {
            x,
            out: out.written(),
            heads: x.len() / (batch * seq * head_dim),
        };
        let tensors = &[turn(q, rotated[0]), turn(k, rotated[1])];
        let positions = self.positions();
        let token_positions = match builder.sequences.positions() {
            _ if at_zero => TokenPositions::Zero,
            Some(positions) => TokenPositions::Each(positions),
            None => TokenPositions::FromZero,
        };
        let rope =
            Rope { tensors, cos, sin, token_positions, positions, batch, seq, head_dim, inverse };
        builder.launch(rope.launch())?;
        Ok(rotated)
    }
}
