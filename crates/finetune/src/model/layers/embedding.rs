//! Token embedding.

use retrograph_kernels::ops::{Embedding as Gather, EmbeddingBackward};
use retrograph_runtime::Slice;

use super::Builder;
use crate::error::Result;
use crate::model::builder::Weight;
use crate::model::exchange::Rows;
use crate::model::gradient::Gradient;
use crate::parameters::EMBEDDING;
use crate::spec::ModelSpec;

/// The token table.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Embedding {
    table: Weight,
    vocab: usize,
    hidden: usize,
    /// Whether the table is also the output projection.
    tied: bool,
    /// The factor of embedded tokens.
    scale: f32,
}

impl Embedding {
    pub(super) fn new(builder: &Builder, spec: &ModelSpec) -> Self {
        let ModelSpec { vocab, hidden, tie_word_embeddings: tied, embedding_scale: scale, .. } =
            *spec;
        Self { table: builder.table(EMBEDDING), vocab, hidden, tied, scale }
    }

    /// Appends the rows of the table that belong to `tokens`.
    pub(in crate::model) fn forward(
        &self,
        builder: &mut Builder,
        tokens: Slice<u32>,
    ) -> Result<Slice<f32>> {
        builder.scope("embedding");
        let (Self { hidden, vocab, scale, .. }, table) = (*self, self.table.value);
        let out = builder.transient("out", tokens.len() * hidden);
        builder.launch(Gather { tokens, table, out, hidden, vocab, scale }.launch())?;
        Ok(out)
    }

    /// Adds `grad_out`, the gradient of the embedded tokens, to the gradient of the table. A tied
    /// table already has a gradient from the output projection; other tables start from zero.
    pub(in crate::model) fn backward(
        &self,
        builder: &mut Builder,
        tokens: Slice<u32>,
        grad_out: Slice<f32>,
    ) -> Result<()> {
        let Some(grad_table) = self.table.grad.map(Gradient::f32) else { return Ok(()) };
        builder.scope("embedding backward");
        if !self.tied && !builder.accumulates() {
            builder.pass.fill(grad_table, 0)?;
        }
        let Self { hidden, vocab, scale, .. } = *self;
        let rows = builder.rows_of_all_ranks(Rows { tokens, grad: grad_out })?;
        let (tokens, grad_out) = (rows.tokens, rows.grad);
        let gradient = EmbeddingBackward { tokens, grad_out, grad_table, hidden, vocab, scale };
        builder.launch(gradient.launch())
    }
}
