//! The tensors of a model in one file or several, by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorInfo};
use serde::Deserialize;

use super::error::HubError;
use crate::weight_file::{OpenError, WeightFile, read};

/// The one file of a small model.
const SINGLE: &str = "model.safetensors";
/// What names the files of a large one.
const INDEX: &str = "model.safetensors.index.json";

/// A tensor as it is stored.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its dimensions, outermost first.
    pub shape: Vec<usize>,
    file: usize,
    info: TensorInfo,
}

/// All tensors of a model, by name.
#[derive(Debug)]
pub(super) struct Tensors {
    files: Vec<WeightFile>,
    by_name: BTreeMap<String, StoredTensor>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Tensors {
    /// Opens the weights in `folder`: one file, or those that the index names.
    pub(super) fn open(folder: &Path) -> Result<Self, HubError> {
        let mut tensors = Self { files: Vec::new(), by_name: BTreeMap::new() };
        let index = folder.join(INDEX);
        let single = folder.join(SINGLE);
        if single.exists() || !index.exists() {
            tensors.add(single)?;
            return Ok(tensors);
        }
        let text = std::fs::read_to_string(&index).map_err(HubError::read(&index))?;
        let map: Index =
            serde_json::from_str(&text).map_err(|error| HubError::json(&index, error))?;
        let mut names: Vec<&String> = map.weight_map.values().collect();
        names.sort();
        names.dedup();
        for name in names {
            let plain = Path::new(name).components().count() == 1 && !name.starts_with('.');
            if !plain {
                return Err(HubError::json(&index, format!("`{name}` is not the name of a file")));
            }
            tensors.add(folder.join(name))?;
        }
        for (tensor, name) in &map.weight_map {
            let path = folder.join(name);
            if tensors.by_name.get(tensor).is_none_or(|found| tensors.path(found) != path) {
                let (tensor, needs) = (tensor.clone(), format!("it, as `{INDEX}` says"));
                return Err(HubError::Missing { tensor, path, needs });
            }
        }
        Ok(tensors)
    }

    fn add(&mut self, path: PathBuf) -> Result<(), HubError> {
        let file = WeightFile::open(&path).map_err(|error| match error {
            OpenError::Read(source) => HubError::read(&path)(source),
            OpenError::Damaged(why) => HubError::damaged(&path, why),
        })?;
        for (tensor, info) in file.metadata().tensors() {
            let (dtype, shape) = (info.dtype, info.shape.clone());
            let stored = StoredTensor { dtype, shape, file: self.files.len(), info: info.clone() };
            if let Some(other) = self.by_name.insert(tensor.clone(), stored) {
                let first = self.files[other.file].path().to_owned();
                return Err(HubError::Twice { tensor, first, second: path });
            }
        }
        self.files.push(file);
        Ok(())
    }

    /// Every tensor, by name.
    pub(super) fn by_name(&self) -> &BTreeMap<String, StoredTensor> {
        &self.by_name
    }

    /// The file of a tensor.
    pub(super) fn path(&self, tensor: &StoredTensor) -> &Path {
        self.files[tensor.file].path()
    }

    /// The files with their sizes.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, usize)> {
        self.files.iter().map(|file| (file.path(), file.len()))
    }

    /// The bytes of a tensor.
    pub(super) fn bytes(&self, tensor: &StoredTensor) -> &[u8] {
        self.files[tensor.file].bytes(&tensor.info)
    }

    /// Writes the elements of a tensor from `first` on to `values`; `None` for a type that is not
    /// read, or a range outside of the tensor.
    pub(super) fn read(
        &self,
        tensor: &StoredTensor,
        first: usize,
        values: &mut [f32],
    ) -> Option<()> {
        read(tensor.dtype, self.bytes(tensor), first, values)
    }

    /// Copies the bytes of elements from `first` on; `None` for a range outside of the tensor.
    pub(super) fn copy(&self, tensor: &StoredTensor, first: usize, out: &mut [u8]) -> Option<()> {
        let size = tensor.dtype.bitsize() / 8;
        let start = first.checked_mul(size)?;
        out.copy_from_slice(self.bytes(tensor).get(start..start.checked_add(out.len())?)?);
        Some(())
    }
}
