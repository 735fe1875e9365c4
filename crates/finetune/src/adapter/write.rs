//! Writing an adapter.

use std::path::Path;

use safetensors::tensor::Dtype;
use serde_json::json;

use super::blocks::{Block, TARGETS_KEY};
use super::config::AdapterConfig;
use super::{AdapterError, CONFIG, PREFIX, WEIGHTS};
use crate::config::{LoraConfig, LoraModule};
use crate::error::Error;
use crate::files::{FileError, NewDirectory, require_free};
use crate::parameters::{EMBEDDING as EMBEDDING_WEIGHT, HEAD as HEAD_WEIGHT, Parameter};
use crate::tensor_file::{self, Entry};

/// Files that a new adapter may replace.
const OURS: [&str; 2] = [CONFIG, WEIGHTS];

/// The destination of an adapter.
#[derive(Clone, Copy, Debug)]
pub struct AdapterOutput<'a> {
    /// The directory.
    pub folder: &'a Path,
    /// The directory or the hub name of the base model.
    pub base: Option<&'a str>,
}

impl AdapterOutput<'_> {
    /// Checks that the directory holds nothing but an adapter. Call it before training.
    ///
    /// # Errors
    /// [`FileError::Occupied`], or if the directory cannot be read.
    pub fn require_free(&self) -> Result<(), FileError> {
        require_free(self.folder, &OURS)
    }
}

/// Writes the trained parameters among `parameters`, all parameters of a LoRA run, with `values`
/// for each. Replaces an existing adapter atomically, when the new one is complete.
///
/// # Errors
/// [`FileError::Occupied`], [`FileError::Write`], [`AdapterError::TrainedNotFinite`], or the
/// error of `values`. An existing adapter is then unchanged, except in a directory that can only be
/// filled (see [`files`](crate::files)) if a file cannot be renamed in it.
pub fn write_adapter(
    output: AdapterOutput<'_>,
    lora: LoraConfig,
    parameters: &[&Parameter],
    values: &mut dyn FnMut(&Parameter) -> Result<Vec<f32>, Error>,
) -> Result<(), Error> {
    let new = NewDirectory::create(output.folder, &OURS)?;
    let tied = lora.embeddings && parameters.iter().all(|one| one.name != HEAD_WEIGHT);
    let parameters: Vec<_> =
        parameters.iter().copied().filter(|parameter| parameter.trainable).collect();
    let config = AdapterConfig { lora, base: output.base.map(str::to_owned), tied };
    let fused = parameters.iter().any(|parameter| parameter.layout.fused.is_some());
    let updates = parameters.iter().filter_map(|one| one.name.strip_suffix(".lora_A.weight"));
    let modules = updates.filter_map(LoraModule::parse).map(|one| LoraModule { fused, ..one });
    let text = config.to_json(&modules.collect::<Vec<_>>());
    write_text(&new.path().join(CONFIG), &format!("{text:#}\n"))?;
    let blocks = fused.then_some(lora.targets);
    let mut tensors = stored(&parameters);
    if tied {
        // PEFT reads the token embeddings of a tied model twice.
        let table = parameters.iter().copied().filter(|one| one.name == EMBEDDING_WEIGHT);
        tensors.push((HEAD_WEIGHT.to_owned(), table.collect()));
    }
    let entry = |(name, parts): &(String, Vec<&Parameter>)| Entry {
        name: format!("{PREFIX}{name}"),
        dtype: Dtype::F32,
        shape: Block::of(parts[0], blocks).stored_shape(parts[0]),
    };
    let entries: Vec<Entry> = tensors.iter().map(entry).collect();
    let data = &mut |index: usize| -> Result<Vec<u8>, Error> {
        let mut whole = vec![0.0f32; entries[index].shape.iter().product()];
        for part in &tensors[index].1 {
            Block::of(part, blocks).store(part, &finite(part, values(part)?)?, &mut whole);
        }
        Ok(bytemuck::cast_slice(&whole).to_vec())
    };
    let mut metadata = json!({ "format": "pt" });
    if let Some(targets) = blocks {
        metadata[TARGETS_KEY] = json!(targets.to_string());
    }
    tensor_file::write(&new.path().join(WEIGHTS), metadata, &entries, data)?;
    Ok(new.publish()?)
}

/// Returns the names of the tensors in the file, with the parameters that form each tensor.
fn stored<'a>(parameters: &[&'a Parameter]) -> Vec<(String, Vec<&'a Parameter>)> {
    let mut stored: Vec<(String, Vec<&Parameter>)> = Vec::new();
    for parameter in parameters {
        let name = parameter.stored_name();
        let fused = parameter.layout.fused.is_some();
        match stored.iter_mut().find(|(known, _)| fused && *known == name) {
            Some((_, parts)) => parts.push(parameter),
            None => stored.push((name, vec![parameter])),
        }
    }
    stored
}

fn finite(parameter: &Parameter, values: Vec<f32>) -> Result<Vec<f32>, AdapterError> {
    match values.iter().find(|value| !value.is_finite()) {
        None => Ok(values),
        Some(&value) => {
            let name = parameter.name.clone();
            Err(AdapterError::TrainedNotFinite { name, value })
        }
    }
}

fn write_text(path: &Path, text: &str) -> Result<(), FileError> {
    let write = || {
        std::fs::write(path, text)?;
        std::fs::File::open(path)?.sync_all()
    };
    write().map_err(|source| FileError::Write { path: path.to_owned(), source })
}
