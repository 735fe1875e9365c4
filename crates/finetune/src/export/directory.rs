//! A model directory in Hugging Face format: configuration, weights in shards, tokenizer, card.

use std::path::Path;

use safetensors::tensor::Dtype;
use serde_json::{Map, Value, json};

use super::copied::{self, GENERATION};
use super::weights::StoredTensor;
use super::{ExportError, ModelWeights, OnProgress, Progress, WeightType, card, config, tokenizer};
use crate::error::{Error, Result};
use crate::files::{FileError, NewDirectory, require_free};
use crate::hub::{INDEX, ModelDirectory, SINGLE};
use crate::tensor_file::{self, Entry};
use crate::tokenizer::TOKENIZER_FILE;

/// Default maximum bytes of a weight file.
pub const MAX_SHARD_BYTES: u64 = 5_000_000_000;

/// The destination of a model.
#[derive(Clone, Copy, Debug)]
pub struct ModelOutput<'a> {
    /// The directory, which must be empty or not exist.
    pub folder: &'a Path,
    /// The base model: configuration, tokenizer, chat template, license and other
    /// [files of a model](super::read_files_of) are copied.
    /// Without a base model, the output gets a tokenizer whose tokens are bytes.
    pub base: Option<&'a ModelDirectory>,
    /// The stored type. With `None`, each tensor keeps its type in the base model; without a base
    /// model it is f32.
    pub dtype: Option<WeightType>,
    /// Maximum bytes of a weight file. A larger tensor gets its own file.
    pub max_shard_bytes: u64,
    /// Items of the model card.
    pub facts: &'a [String],
}

impl ModelOutput<'_> {
    /// Checks that the directory is empty or does not exist. Call it before long work.
    ///
    /// # Errors
    /// [`FileError::Occupied`], or if the directory cannot be read.
    pub fn require_free(&self) -> Result<(), FileError> {
        require_free(self.folder, &[])
    }

    /// Returns the stored type of a tensor.
    fn stored(&self, name: &str) -> WeightType {
        self.dtype.unwrap_or_else(|| {
            let found = self.base.and_then(|base| base.dtype(name));
            found.and_then(WeightType::of).unwrap_or(WeightType::F32)
        })
    }
}

/// A written model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// Tensors.
    pub tensors: usize,
    /// Weight files.
    pub files: usize,
    /// Bytes of all tensors.
    pub bytes: u64,
}

/// Writes `weights` to the directory of `output`, which appears when it is complete.
///
/// # Errors
/// [`FileError::Occupied`], an [`ExportError`], the error of the weights, or if the directory
/// cannot be written. Nothing is left then.
pub fn write_model(
    weights: &mut ModelWeights<'_>,
    output: ModelOutput<'_>,
    on: OnProgress<'_>,
) -> Result<Written> {
    if let Some(dtype) = output.dtype.filter(|dtype| dtype.safetensors().is_none()) {
        let (format, supported) = ("a model directory", "f32, bf16 or f16, or another format");
        return Err(ExportError::Type { format, dtype: dtype.name(), supported }.into());
    }
    let new = NewDirectory::create(output.folder, &[])?;
    let folder = new.path();
    let config = match output.base {
        Some(base) => config::of_base(base, output.dtype)?,
        None => config::of_model(weights.config(), output.dtype.unwrap_or(WeightType::F32))?,
    };
    write_json(&folder.join("config.json"), &config)?;
    match output.base {
        Some(base) => {
            for (name, bytes) in copied::files_of(base)? {
                write_file(&folder.join(name), bytes)?;
            }
        }
        None => {
            write_json(&folder.join(TOKENIZER_FILE), &tokenizer::json())?;
            write_json(&folder.join("tokenizer_config.json"), &tokenizer::settings())?;
            write_json(&folder.join(GENERATION), &json!({ "do_sample": false }))?;
        }
    }
    let written = write_shards(weights, folder, output, on)?;
    let title = output.folder.file_name().unwrap_or_default().to_string_lossy();
    let card = card::text(&title, output.base, output.facts);
    write_file(&folder.join(card::CARD), card.as_bytes())?;
    new.publish()?;
    Ok(written)
}

/// Writes the weight files, and their index if there are several.
fn write_shards(
    weights: &mut ModelWeights<'_>,
    folder: &Path,
    output: ModelOutput<'_>,
    on: OnProgress<'_>,
) -> Result<Written> {
    let tensors = weights.stored();
    let bytes = |tensor: &StoredTensor| output.stored(&tensor.name).bytes(tensor.len()) as u64;
    let total: u64 = tensors.iter().map(bytes).sum();
    let shards = shards(&tensors, &bytes, output.max_shard_bytes);
    let (mut done, mut map) = (0, Map::new());
    for (number, shard) in shards.iter().enumerate() {
        let name = match shards.len() {
            1 => SINGLE.to_owned(),
            all => format!("model-{:05}-of-{all:05}.safetensors", number + 1),
        };
        let entry = |tensor: &StoredTensor| Entry {
            name: tensor.name.clone(),
            dtype: output.stored(&tensor.name).safetensors().unwrap_or(Dtype::F32),
            shape: tensor.shape.clone(),
        };
        let entries: Vec<Entry> = shard.iter().map(entry).collect();
        let data = &mut |index: usize| -> Result<Vec<u8>> {
            let tensor = &shard[index];
            if !on(Progress { done, total, name: &tensor.name }) {
                return Err(ExportError::Stopped.into());
            }
            done += bytes(tensor);
            tensor.encode(weights, output.stored(&tensor.name))
        };
        tensor_file::write(&folder.join(&name), json!({ "format": "pt" }), &entries, data)?;
        map.extend(shard.iter().map(|tensor| (tensor.name.clone(), json!(name))));
    }
    on(Progress { done, total, name: "" });
    if shards.len() > 1 {
        let index = json!({ "metadata": { "total_size": total }, "weight_map": map });
        write_json(&folder.join(INDEX), &index)?;
    }
    Ok(Written { tensors: tensors.len(), files: shards.len(), bytes: total })
}

/// Divides tensors, in order, into shards of at most `most` bytes, or of one larger tensor.
fn shards<'a>(
    tensors: &'a [StoredTensor],
    bytes: &dyn Fn(&StoredTensor) -> u64,
    most: u64,
) -> Vec<&'a [StoredTensor]> {
    let (mut shards, mut first, mut size) = (Vec::new(), 0, 0u64);
    for (index, tensor) in tensors.iter().enumerate() {
        let next = bytes(tensor);
        if index > first && size.saturating_add(next) > most {
            shards.push(&tensors[first..index]);
            (first, size) = (index, 0);
        }
        size += next;
    }
    shards.push(&tensors[first..]);
    shards
}

fn write_json(path: &Path, value: &Value) -> Result<(), Error> {
    write_file(path, format!("{value:#}\n").as_bytes())
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(path, bytes)
        .and_then(|()| std::fs::File::open(path)?.sync_all())
        .map_err(|source| FileError::Write { path: path.to_owned(), source }.into())
}
