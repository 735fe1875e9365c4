//! A model directory as Hugging Face lays it out: `config.json` and safetensors files.
//!
//! Opening reads the configuration and the headers of the weights, and compares every tensor with
//! the inventory of the model: what is missing, left over, of another shape or of a type that is
//! not read is an error that names it, before any device is involved. Elements are read when they
//! are uploaded, and become what the precision of the run says.
//!
//! ```no_run
//! use retrograph_finetune::hub::ModelDirectory;
//!
//! let model = ModelDirectory::open("models/Qwen2.5-0.5B".as_ref())?;
//! println!("{:?}", model.config());
//! # Ok::<(), retrograph_finetune::Error>(())
//! ```
//!
//! Absent on purpose: downloading.

mod config;
mod error;
mod tensors;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use safetensors::tensor::Dtype;
use sha2::{Digest, Sha256};

pub use error::HubError;
pub use tensors::StoredTensor;

use crate::config::{Mode, ModelConfig};
use crate::digest::hex;
use crate::error::{Error, Result};
use crate::json_file::read_json;
use crate::parameters::{Chunk, HEAD, inventory};
use crate::tokenizer::{TOKENIZER_FILE, Tokenizer};
use tensors::Tensors;

/// A model on disk whose every tensor was found as the configuration says. Clones share the files.
///
/// Elements are read when they are asked for. A file that became shorter meanwhile is an error that
/// names the file and the tensor.
#[derive(Clone, Debug)]
pub struct ModelDirectory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    config: ModelConfig,
    positions: Option<usize>,
    tensors: Tensors,
    digest: OnceLock<String>,
}

impl ModelDirectory {
    /// Opens the model in the folder `path`.
    ///
    /// # Errors
    /// [`HubError`] with the file, field or tensor that cannot be used.
    pub fn open(path: &Path) -> Result<Self> {
        let file = path.join("config.json");
        let text = read_json(&file).map_err(HubError::read(&file))?;
        let (config, positions) = config::parse(&file, &text)?;
        let tensors = Tensors::open(path)?;
        let path = path.to_owned();
        let inner = Inner { path, config, positions, tensors, digest: OnceLock::new() };
        inner.require()?;
        Ok(Self(Arc::new(inner)))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The dimensions and parts of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.0.config
    }

    /// The longest sequence that the model knows, where its configuration says so.
    pub fn positions(&self) -> Option<usize> {
        self.0.positions
    }

    /// The tokenizer beside the weights; bytes are tokens where there is none.
    ///
    /// # Errors
    /// [`HubError`] when a file of the tokenizer cannot be used, or the model does not know all of
    /// its tokens.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        let path = self.path();
        let there = path.join(TOKENIZER_FILE).exists();
        let tokenizer = if there { Tokenizer::open(path)? } else { Tokenizer::bytes() };
        tokenizer.require(path, self.config().vocab)?;
        Ok(tokenizer)
    }

    /// Checks that the model has the dimensions and parts that are asked for.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] with both when it has others.
    pub(crate) fn require_config(&self, asked: &ModelConfig) -> Result<()> {
        let found = self.config();
        if found == asked {
            return Ok(());
        }
        let rule = format!("that of `{}`, {found:?}", self.path().display());
        Err(Error::InvalidConfig { field: "model", value: format!("{asked:?}"), rule })
    }

    /// Checks that a sequence of `seq` tokens fits into the model's context.
    ///
    /// # Errors
    /// [`HubError::TooLong`] when it does not.
    pub fn require_seq(&self, seq: usize) -> Result<()> {
        match self.0.positions {
            Some(positions) if seq > positions => Err(HubError::TooLong { seq, positions }.into()),
            _ => Ok(()),
        }
    }

    /// Every stored tensor by name, also those that the model does not need.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &StoredTensor)> {
        self.0.tensors.by_name().iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The weight files with their sizes in bytes.
    pub fn files(&self) -> impl Iterator<Item = (&Path, usize)> {
        self.0.tensors.files()
    }

    /// Writes the elements of the tensor `name` from element `first` on to `values`, as f32 and
    /// row-major. False if there is no such tensor, or it has fewer elements.
    ///
    /// # Errors
    /// [`HubError::ReadTensor`] when the file cannot be read, or became shorter.
    pub fn read(&self, name: &str, first: usize, values: &mut [f32]) -> Result<bool> {
        let tensors = &self.0.tensors;
        let Some(tensor) = tensors.by_name().get(name) else { return Ok(false) };
        let Some(read) = tensors.read((name, tensor), first, values) else { return Ok(false) };
        Ok(read.map(|()| true)?)
    }

    /// Whether there is a tensor `name`.
    pub fn has(&self, name: &str) -> bool {
        self.0.tensors.by_name().contains_key(name)
    }

    /// Fills `chunk` with the elements of the tensor `name` from `first` on. What is bf16 there and
    /// here is copied; everything else goes through f32.
    ///
    /// # Errors
    /// [`HubError::ReadTensor`] when the file cannot be read, or became shorter.
    ///
    /// # Panics
    /// Where there is no such tensor, or it has fewer elements.
    pub(crate) fn fill(&self, name: &str, first: usize, chunk: Chunk<'_>) -> Result<()> {
        let tensors = &self.0.tensors;
        let tensor = tensors.by_name().get(name).expect("the model was found to have the tensor");
        let whole = "the tensor was found to have its shape";
        match chunk {
            Chunk::Bf16(values) if tensor.dtype == Dtype::BF16 => {
                tensors.copy((name, tensor), first, bytemuck::cast_slice_mut(values))?;
                Ok(())
            }
            chunk => chunk.try_fill(|values| {
                Ok(tensors.read((name, tensor), first, values).expect(whole)?)
            }),
        }
    }

    /// SHA-256 of the names, types, shapes and elements of all tensors, in hexadecimal digits: what
    /// a checkpoint that lacks the frozen weights names them by. It does not depend on how they are
    /// divided among files. The first call reads everything.
    ///
    /// # Errors
    /// [`HubError::ReadTensor`] when a file cannot be read, or became shorter.
    pub fn digest(&self) -> Result<&str> {
        if let Some(digest) = self.0.digest.get() {
            return Ok(digest);
        }
        let (tensors, mut hash) = (&self.0.tensors, Sha256::new());
        for (name, tensor) in tensors.by_name() {
            let shape = &tensor.shape;
            hash.update(format!("{name} {:?} {shape:?}\n", tensor.dtype).as_bytes());
            tensors.pieces((name, tensor), &mut |piece| hash.update(piece))?;
        }
        Ok(self.0.digest.get_or_init(|| hex(&hash.finalize())))
    }
}

impl Inner {
    /// Compares what is stored with what the model needs.
    fn require(&self) -> Result<(), HubError> {
        let stored = self.tensors.by_name();
        let needed = inventory(&self.config, Mode::Full);
        for parameter in &needed {
            let tensor = parameter.name.clone();
            let expected = parameter.shape.clone();
            let Some(found) = stored.get(&tensor) else {
                let (path, needs) = (self.path.clone(), format!("it with the shape {expected:?}"));
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
        let known: std::collections::HashSet<&str> =
            needed.iter().map(|parameter| parameter.name.as_str()).collect();
        let extra = stored
            .iter()
            .find(|(name, _)| !known.contains(name.as_str()) && !ignored(name, self.config.tied));
        let Some((tensor, found)) = extra else { return Ok(()) };
        let path = self.tensors.path(found).to_owned();
        Err(HubError::Extra { tensor: tensor.clone(), path })
    }
}

/// Tensors that some programs store though they follow from others: the output projection of a
/// model that ties it to the token table, and the rotary frequencies.
fn ignored(name: &str, tied: bool) -> bool {
    (tied && name == HEAD) || name.ends_with(".rotary_emb.inv_freq")
}
