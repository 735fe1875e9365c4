//! The modules that LoRA can update.

use std::fmt;

use crate::config::Projection;

/// A linear layer of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoraModule {
    /// The transformer layer, counted from 0.
    pub layer: usize,
    /// The projection.
    pub projection: Projection,
    /// Whether files store the projection as part of a fused matrix.
    pub fused: bool,
}

impl LoraModule {
    /// Reads the name of a module, such as `model.layers.3.self_attn.q_proj`. A fused matrix is
    /// read as its first part.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (layer, path) = name.strip_prefix("model.layers.")?.split_once('.')?;
        let layer = layer.parse().ok()?;
        let modules = Projection::ALL
            .iter()
            .copied()
            .flat_map(|projection| [false, true].map(|fused| Self { layer, projection, fused }));
        modules.into_iter().find(|module| module.path() == path)
    }

    /// The name of the last part of the module in files, for example `q_proj`.
    pub(crate) fn last(self) -> &'static str {
        let fused = self.projection.fused().filter(|_| self.fused);
        fused.map_or(self.projection.module(), |(module, _)| module)
    }

    /// The name within the layer, for example `self_attn.q_proj`.
    fn path(self) -> String {
        self.projection.path().replace(self.projection.module(), self.last())
    }
}

impl fmt::Display for LoraModule {
    /// Writes the name in files, for example `model.layers.3.self_attn.q_proj`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model.layers.{}.{}", self.layer, self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_read_as_they_are_written() {
        for &projection in Projection::ALL {
            let module = LoraModule { layer: 11, projection, fused: false };
            assert_eq!(LoraModule::parse(&module.to_string()), Some(module));
        }
        let fused = |projection| LoraModule { layer: 0, projection, fused: true }.to_string();
        assert_eq!(fused(Projection::V), "model.layers.0.self_attn.qkv_proj");
        assert_eq!(fused(Projection::Down), "model.layers.0.mlp.down_proj");
        let module = LoraModule::parse("model.layers.0.mlp.gate_up_proj").unwrap();
        assert_eq!((module.projection, module.fused), (Projection::Gate, true));
        for wrong in
            ["model.layers.x.mlp.up_proj", "layers.1.mlp.up_proj", "model.layers.1.up_proj"]
        {
            assert_eq!(LoraModule::parse(wrong), None);
        }
    }
}
