//! The tensors of a model, in one file or several.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorInfo};
use serde::Deserialize;

use super::error::HubError;
use crate::json_file::read_json;
use crate::weight_file::{OpenError, WeightFile};

/// The weights of a model in one file.
pub(crate) const SINGLE: &str = "model.safetensors";
/// The index of the weight files of a sharded model.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// A stored tensor.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    /// Its dtype.
    pub dtype: Dtype,
    /// Its shape, outermost dimension first.
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
    /// Opens the weights in `folder`: one file, or the files of the index.
    pub(super) fn open(folder: &Path) -> Result<Self, HubError> {
        let mut tensors = Self { files: Vec::new(), by_name: BTreeMap::new() };
        let index = folder.join(INDEX);
        let single = folder.join(SINGLE);
        if single.exists() || !index.exists() {
            tensors.add(single)?;
            return Ok(tensors);
        }
        let text = read_json(&index).map_err(HubError::read(&index))?;
        let map: Index =
            serde_json::from_slice(&text).map_err(|error| HubError::json(&index, error))?;
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
                let (tensor, needs) = (tensor.clone(), format!("it there, according to `{INDEX}`"));
                return Err(HubError::Missing { tensor, path, needs });
            }
        }
        Ok(tensors)
    }

    fn add(&mut self, path: PathBuf) -> Result<(), HubError> {
        let file = WeightFile::open(&path).map_err(|error| match error {
            OpenError::Read(source) => HubError::read(&path)(source),
            OpenError::Damaged(reason) => HubError::damaged(&path, reason),
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

    /// The files and their sizes in bytes.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, usize)> {
        self.files.iter().map(|file| (file.path(), file.len()))
    }

    /// Calls `on` with the bytes of the tensor `name`, one piece after another.
    pub(super) fn pieces(
        &self,
        name: &str,
        tensor: &StoredTensor,
        on: &mut dyn FnMut(&[u8]),
    ) -> Result<(), HubError> {
        let read = self.files[tensor.file].pieces(&tensor.info, on);
        read.map_err(|source| self.unreadable(name, tensor, source))
    }

    /// Reads the elements of the tensor `name` from index `first` into `values`; `None` for an
    /// unsupported dtype or a range outside the tensor.
    pub(super) fn read(
        &self,
        name: &str,
        tensor: &StoredTensor,
        first: usize,
        values: &mut [f32],
    ) -> Option<Result<(), HubError>> {
        let read = self.files[tensor.file].read_values(&tensor.info, first, values)?;
        Some(read.map_err(|source| self.unreadable(name, tensor, source)))
    }

    /// Copies the bytes of elements of the tensor `name` from index `first`, which must exist.
    pub(super) fn copy(
        &self,
        name: &str,
        tensor: &StoredTensor,
        first: usize,
        out: &mut [u8],
    ) -> Result<(), HubError> {
        let start = first * (tensor.dtype.bitsize() / 8);
        let read = self.files[tensor.file].read(&tensor.info, start, out);
        read.map_err(|source| self.unreadable(name, tensor, source))
    }

    fn unreadable(&self, name: &str, tensor: &StoredTensor, source: std::io::Error) -> HubError {
        HubError::ReadTensor { tensor: name.to_owned(), path: self.path(tensor).to_owned(), source }
    }
}
