//! Reading an adapter. Everything is checked before the first value is used.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::blocks::{Block, TARGETS_KEY, stored_parts};
use super::config::AdapterConfig;
use super::{AdapterError, CONFIG, EMBEDDING, HEAD, MAGNITUDES, NORMS, PREFIX, WEIGHTS};
use crate::config::{LoraConfig, LoraModule, LoraTargets};
use crate::files::FileError;
use crate::json_file::read_json;
use crate::parameters::{HEAD as HEAD_WEIGHT, Parameter};
use crate::tensor_file::TensorFile;

/// An adapter on disk. Matrices are read on demand.
#[derive(Debug)]
pub struct Adapter {
    path: PathBuf,
    config: AdapterConfig,
    file: TensorFile,
    /// The targets of a file whose fused updates are blocks.
    blocks: Option<LoraTargets>,
}

impl Adapter {
    /// Opens the adapter in `folder`. Checks that its options are supported, and that each target
    /// module has a pair of matrices of the configured rank.
    ///
    /// # Errors
    /// An [`AdapterError`] with the file and the reason.
    pub fn open(folder: &Path) -> Result<Self, AdapterError> {
        let path = folder.join(CONFIG);
        let text =
            read_json(&path).map_err(|source| FileError::Read { path: path.clone(), source })?;
        let mut config = AdapterConfig::parse(&path, &text)?;
        let file = TensorFile::open(&folder.join(WEIGHTS))?;
        let blocks = file.metadata(TARGETS_KEY).map(str::parse::<LoraTargets>).transpose();
        let blocks =
            blocks.map_err(|error| AdapterError::damaged(file.path(), error.to_string()))?;
        if let Some(targets) = blocks {
            config
                .divide(targets, &updated(&file))
                .map_err(|reason| AdapterError::damaged(&path, reason))?;
        }
        let adapter = Self { path: folder.to_owned(), config, file, blocks };
        adapter.check()?;
        Ok(adapter)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Rank, scale, targets, and whether norms are trained.
    pub fn lora(&self) -> LoraConfig {
        self.config.lora
    }

    /// The directory or the hub name of the base model, if the adapter has it.
    pub fn base(&self) -> Option<&str> {
        self.config.base.as_deref()
    }

    /// Checks that the adapter has the options `lora`.
    ///
    /// # Errors
    /// [`AdapterError::Options`] with both sets of options.
    pub fn require_options(&self, lora: LoraConfig) -> Result<(), AdapterError> {
        if self.lora() == lora {
            return Ok(());
        }
        let (saved, asked) = (format!("{:?}", self.lora()), format!("{lora:?}"));
        Err(AdapterError::Options { saved, asked })
    }

    /// Checks that exactly the trainable `parameters` are stored, with the same shapes.
    ///
    /// # Errors
    /// An [`AdapterError`] with the first tensor that is missing, unexpected or different.
    pub fn require<'a>(
        &self,
        parameters: impl IntoIterator<Item = &'a Parameter>,
    ) -> Result<(), AdapterError> {
        let mut left: BTreeSet<String> = self.file.names().into_iter().collect();
        let mut has_head = false;
        for parameter in parameters {
            has_head |= parameter.name == HEAD_WEIGHT;
            if !parameter.trainable {
                continue;
            }
            let name = format!("{PREFIX}{}", parameter.stored_name());
            let shape = Block::of(parameter, self.blocks).stored_shape(parameter);
            self.require_shape(&name, &shape)?;
            left.remove(&name);
        }
        if self.lora().embeddings && !has_head {
            self.require_tied()?;
            // PEFT stores the token embeddings of a tied model twice.
            left.remove(&format!("{PREFIX}{HEAD_WEIGHT}"));
        }
        match left.pop_first() {
            None => Ok(()),
            Some(name) => Err(self.unexpected(name, "the model has no such parameter")),
        }
    }

    /// Reads the values of a trained parameter.
    ///
    /// # Errors
    /// [`AdapterError::MissingTensor`] for a parameter of the base model, or if the file cannot be
    /// read.
    pub fn values(&mut self, parameter: &Parameter) -> Result<Vec<f32>, AdapterError> {
        let stored = self.file.values(&format!("{PREFIX}{}", parameter.stored_name()))?;
        Ok(Block::of(parameter, self.blocks).load(parameter, &stored))
    }

    /// Checks that the token embeddings of a tied model are still its output projection.
    fn require_tied(&self) -> Result<(), AdapterError> {
        if self.config.tied {
            return Ok(());
        }
        Err(AdapterError::Option {
            path: self.path.join(CONFIG),
            key: "ensure_weight_tying".to_owned(),
            value: "false".to_owned(),
            rule: "the model ties its token embeddings and output projection; train with true",
        })
    }

    /// Checks that the configuration allows every tensor, and that matrices come in pairs of its
    /// rank.
    fn check(&self) -> Result<(), AdapterError> {
        let lora = self.lora();
        for name in self.file.names() {
            let Some(inner) = name.strip_prefix(PREFIX) else {
                return Err(
                    self.unexpected(name, "its name does not begin with `base_model.model.`")
                );
            };
            let module = inner.strip_suffix(".weight").unwrap_or(inner);
            let (module, partner) = match module.rsplit_once('.') {
                Some((module, "lora_A")) => (module, Some("lora_B")),
                Some((module, "lora_B")) => (module, Some("lora_A")),
                Some((module, MAGNITUDES)) => {
                    self.check_magnitudes(&name, module)?;
                    continue;
                }
                _ => (module, None),
            };
            let last = module.rsplit('.').next().unwrap_or(module);
            let Some(partner) = partner else {
                let whole = match last {
                    EMBEDDING => lora.embeddings,
                    HEAD => lora.head || self.config.tied,
                    _ => lora.norms && NORMS.contains(&last),
                };
                if !whole {
                    return Err(self.unexpected(name, "its module is not in `modules_to_save`"));
                }
                continue;
            };
            let Some(rank) = self.stored_rank(module) else {
                return Err(self.unexpected(name, "its module is not in `target_modules`"));
            };
            self.file.info(&format!("{PREFIX}{module}.{partner}.weight"))?;
            let shape = self.file.info(&name)?.shape.clone();
            let side = usize::from(partner == "lora_A");
            if shape.len() != 2 || shape[side] != rank {
                let mut expected = shape;
                expected.resize(2, rank);
                expected[side] = rank;
                self.require_shape(&name, &expected)?;
            }
        }
        if !self.file.names().iter().any(|name| name.ends_with(".lora_A.weight")) {
            return Err(AdapterError::damaged(self.file.path(), "it has no LoRA matrix"));
        }
        Ok(())
    }

    /// Checks that the configuration allows the magnitudes `name` of a module.
    fn check_magnitudes(&self, name: &str, module: &str) -> Result<(), AdapterError> {
        let reason = match self.stored_rank(module) {
            None => "its module is not in `target_modules`",
            Some(_) if !self.lora().dora => "`use_dora` is not true",
            Some(_) => return Ok(()),
        };
        Err(self.unexpected(name.to_owned(), reason))
    }

    /// Returns the rank of the matrices of the module `name` in the file, if it has an update.
    fn stored_rank(&self, name: &str) -> Option<usize> {
        let module = LoraModule::parse(name)?;
        let lora = self.stored_lora(module)?;
        let parts = match self.blocks {
            Some(targets) => stored_parts(module.projection, targets, module.fused).len(),
            None => 1,
        };
        Some(lora.rank * parts)
    }

    /// Returns the options of a module in the file. A fused module has the options of its parts.
    fn stored_lora(&self, module: LoraModule) -> Option<LoraConfig> {
        let parts = module.projection.fused().filter(|_| module.fused);
        let parts = parts.map_or(&[][..], |(_, parts)| parts);
        let parts = parts.iter().map(|part| LoraModule { projection: *part, ..module });
        std::iter::once(module).chain(parts).find_map(|part| self.lora().of(part))
    }

    fn require_shape(&self, name: &str, expected: &[usize]) -> Result<(), AdapterError> {
        let found = &self.file.info(name)?.shape;
        if found == expected {
            return Ok(());
        }
        Err(AdapterError::Shape {
            path: self.file.path().to_owned(),
            name: name.to_owned(),
            found: found.clone(),
            expected: expected.to_vec(),
        })
    }

    fn unexpected(&self, name: String, reason: &'static str) -> AdapterError {
        AdapterError::UnexpectedTensor { path: self.file.path().to_owned(), name, reason }
    }
}

/// Returns the modules with an update in a file; for fused matrices, the modules of their parts.
fn updated(file: &TensorFile) -> Vec<LoraModule> {
    let names = file.names();
    let modules = names.iter().filter_map(|name| {
        LoraModule::parse(name.strip_prefix(PREFIX)?.strip_suffix(".lora_A.weight")?)
    });
    modules.collect()
}
