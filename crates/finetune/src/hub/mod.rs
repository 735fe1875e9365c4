//! A model directory in Hugging Face format: `config.json` and safetensors files.
//!
//! Opening reads the configuration and the headers of the weights, and compares every tensor with
//! the inventory of the model. A tensor that is missing or unexpected, or has another shape or an
//! unsupported dtype, is an error. This needs no device. Elements are read and converted to the
//! precision of the run when they are uploaded. Nothing is downloaded.
//!
//! ```no_run
//! use retrograph_finetune::hub::ModelDirectory;
//!
//! let model = ModelDirectory::open("models/Qwen2.5-0.5B".as_ref())?;
//! println!("{:?}", model.config());
//! # Ok::<(), retrograph_finetune::Error>(())
//! ```

mod config;
mod error;
mod raw;
mod rope;
mod tensors;
mod window;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use safetensors::tensor::Dtype;
use sha2::{Digest, Sha256};

pub use error::HubError;
pub use tensors::StoredTensor;
pub(crate) use tensors::{INDEX, SINGLE};

use crate::config::{Mode, ModelConfig};
use crate::digest::hex;
use crate::error::{Error, Result};
use crate::json_file::read_json;
use crate::parameters::{Chunk, HEAD, Parameter, inventory};
use crate::tokenizer::{TOKENIZER_FILE, Tokenizer};
use tensors::Tensors;

/// A model on disk, whose tensors match its configuration. Clones share the files.
///
/// Elements are read on demand. If a file has become shorter, reading fails.
#[derive(Clone, Debug)]
pub struct ModelDirectory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    config: ModelConfig,
    /// `config.json`.
    text: Vec<u8>,
    positions: Option<usize>,
    tensors: Tensors,
    digest: OnceLock<String>,
    copied: OnceLock<Vec<CopiedFile>>,
}

/// The name and the content of a file that exported models get from their base model.
pub(crate) type CopiedFile = (String, Vec<u8>);

impl ModelConfig {
    /// Reads a `config.json` in Hugging Face format, without weights.
    ///
    /// # Errors
    /// [`HubError`] with the file or field that cannot be used.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_json(path)
            .map_err(|source| HubError::ReadConfig { path: path.to_owned(), source })?;
        Ok(config::parse(path, &text)?.0)
    }
}

impl ModelDirectory {
    /// Opens the model in the folder `path`.
    ///
    /// # Errors
    /// [`HubError`] with the file, field or tensor that cannot be used.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Err(HubError::NoDirectory { path: path.to_owned() }.into());
        }
        let file = path.join("config.json");
        let text = read_json(&file).map_err(HubError::read(&file))?;
        let (config, positions) = config::parse(&file, &text)?;
        let tensors = Tensors::open(path)?;
        let path = path.to_owned();
        let (digest, copied) = (OnceLock::new(), OnceLock::new());
        let inner = Inner { path, config, text, positions, tensors, digest, copied };
        inner.require()?;
        Ok(Self(Arc::new(inner)))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns the configuration of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.0.config
    }

    /// Returns `config.json` as it was when the directory was opened.
    pub(crate) fn config_text(&self) -> &[u8] {
        &self.0.text
    }

    /// The files for exported models, once they are read.
    pub(crate) fn copied(&self) -> &OnceLock<Vec<CopiedFile>> {
        &self.0.copied
    }

    /// The context length of the model, if its configuration has one.
    pub fn max_position_embeddings(&self) -> Option<usize> {
        self.0.positions
    }

    /// Opens the tokenizer in the directory. Without one, each byte is a token.
    ///
    /// # Errors
    /// [`HubError`] if a file of the tokenizer cannot be used, or the vocabulary of the model is
    /// too small for its tokens.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        let path = self.path();
        let there = path.join(TOKENIZER_FILE).exists();
        let tokenizer = if there { Tokenizer::open(path)? } else { Tokenizer::bytes() };
        tokenizer.require(path, self.config().vocab)?;
        Ok(tokenizer)
    }

    /// Checks that the model has the configuration `asked`.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] with both configurations.
    pub(crate) fn require_config(&self, asked: &ModelConfig) -> Result<()> {
        let found = self.config();
        if found == asked {
            return Ok(());
        }
        let rule = format!("the configuration of `{}`, {found:?}", self.path().display());
        Err(Error::InvalidConfig { field: "model", value: format!("{asked:?}"), rule })
    }

    /// Checks that a sequence of `seq` tokens fits into the context of the model.
    ///
    /// # Errors
    /// [`HubError::TooLong`] if it does not.
    pub fn require_seq(&self, seq: usize) -> Result<()> {
        match self.0.positions {
            Some(positions) if seq > positions => Err(HubError::TooLong { seq, positions }.into()),
            _ => Ok(()),
        }
    }

    /// Every stored tensor by name, with those that the model does not need.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &StoredTensor)> {
        self.0.tensors.by_name().iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The weight files and their sizes in bytes.
    pub fn files(&self) -> impl Iterator<Item = (&Path, usize)> {
        self.0.tensors.files()
    }

    /// Reads the elements of `parameter` into `values`, as f32, row-major. Returns false if there
    /// is no such tensor, or `values` or the tensor has another length than the parameter.
    ///
    /// # Errors
    /// [`HubError::ReadTensor`] if the file cannot be read, or has become shorter.
    pub fn read(&self, parameter: &Parameter, values: &mut [f32]) -> Result<bool> {
        let name = parameter.stored_name();
        let Some(tensor) = self.0.tensors.by_name().get(&name) else { return Ok(false) };
        if tensor.shape != parameter.stored_shape() || values.len() != parameter.len() {
            return Ok(false);
        }
        self.fill(parameter, 0, Chunk::F32(values))?;
        Ok(true)
    }

    /// Returns the dtype of the tensor `name`.
    pub(crate) fn dtype(&self, name: &str) -> Option<Dtype> {
        self.0.tensors.by_name().get(name).map(|tensor| tensor.dtype)
    }

    /// Whether every matrix is stored in bf16 or f16.
    pub(crate) fn is_16_bit(&self) -> bool {
        let matrices = self.0.tensors.by_name().values().filter(|tensor| tensor.shape.len() == 2);
        matrices.map(|tensor| tensor.dtype).all(|dtype| matches!(dtype, Dtype::BF16 | Dtype::F16))
    }

    /// Whether there is a tensor with the elements of `parameter`.
    pub fn has(&self, parameter: &Parameter) -> bool {
        self.0.tensors.by_name().contains_key(&parameter.stored_name())
    }

    /// Fills `chunk` with the elements of `parameter` from index `first`, with its offset. bf16
    /// elements are copied to a bf16 chunk; other conversions go through f32.
    ///
    /// # Errors
    /// [`HubError::ReadTensor`] if the file cannot be read, or has become shorter.
    ///
    /// # Panics
    /// If there is no such tensor, or it has fewer elements.
    pub(crate) fn fill(&self, parameter: &Parameter, first: usize, chunk: Chunk<'_>) -> Result<()> {
        let (tensors, name) = (&self.0.tensors, parameter.stored_name());
        let tensor = tensors.by_name().get(&name).expect("opening has checked the tensors");
        let whole = "opening has checked the shapes";
        let offset = parameter.layout.offset;
        match chunk {
            Chunk::Bf16(values) if tensor.dtype == Dtype::BF16 && offset == 0.0 => {
                for (piece, stored) in parameter.stored_pieces(first..first + values.len()) {
                    let out = bytemuck::cast_slice_mut(&mut values[piece]);
                    tensors.copy(&name, tensor, stored, out)?;
                }
                Ok(())
            }
            chunk => chunk.try_fill(|values| {
                for (piece, stored) in parameter.stored_pieces(first..first + values.len()) {
                    tensors.read(&name, tensor, stored, &mut values[piece]).expect(whole)?;
                }
                values.iter_mut().for_each(|value| *value += offset);
                Ok(())
            }),
        }
    }

    /// Returns the SHA-256 digest of the names, dtypes, shapes and elements of all tensors, in
    /// hexadecimal. Checkpoints identify their base model by it. It does not depend on the division
    /// into files. The first call reads all weights.
    ///
    /// # Errors
    /// [`HubError::ReadTensor`] if a file cannot be read, or has become shorter.
    pub fn digest(&self) -> Result<&str> {
        if let Some(digest) = self.0.digest.get() {
            return Ok(digest);
        }
        let (tensors, mut hash) = (&self.0.tensors, Sha256::new());
        for (name, tensor) in tensors.by_name() {
            let shape = &tensor.shape;
            hash.update(format!("{name} {:?} {shape:?}\n", tensor.dtype).as_bytes());
            tensors.pieces(name, tensor, &mut |piece| hash.update(piece))?;
        }
        Ok(self.0.digest.get_or_init(|| hex(&hash.finalize())))
    }
}

impl Inner {
    /// Compares the stored tensors with the parameters of the model.
    fn require(&self) -> Result<(), HubError> {
        let stored = self.tensors.by_name();
        let needed = inventory(&self.config, Mode::Full);
        for parameter in &needed {
            let (tensor, expected) = (parameter.stored_name(), parameter.stored_shape());
            let Some(found) = stored.get(&tensor) else {
                let (path, needs) = (self.path.clone(), format!("it in the shape {expected:?}"));
                return Err(HubError::Missing { tensor, path, needs });
            };
            let path = self.tensors.path(found).to_owned();
            if found.shape != expected {
                let found = found.shape.clone();
                return Err(HubError::Shape { tensor, path, found, expected });
            }
            if ![Dtype::F32, Dtype::F16, Dtype::BF16].contains(&found.dtype) {
                let found = format!("{:?}", found.dtype);
                return Err(HubError::ElementType { tensor, path, found });
            }
        }
        let known: std::collections::HashSet<String> =
            needed.iter().map(Parameter::stored_name).collect();
        let extra = stored.iter().find(|(name, _)| {
            !known.contains(name.as_str()) && !ignored(name, self.config.tie_word_embeddings)
        });
        let Some((tensor, found)) = extra else { return Ok(()) };
        let path = self.tensors.path(found).to_owned();
        Err(HubError::Extra { tensor: tensor.clone(), path })
    }
}

/// Returns whether a tensor is redundant: the output projection of a tied model, and rotary
/// frequencies. Some programs store them.
fn ignored(name: &str, tied: bool) -> bool {
    (tied && name == HEAD) || name.ends_with(".rotary_emb.inv_freq")
}
