//! Safetensors files of adapters, checkpoints and exported models.
//!
//! They are written tensor by tensor, because the writer of the crate `safetensors` needs the whole
//! file in memory.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorInfo};
use serde_json::{Map, Value, json};

use crate::adapter::AdapterError;
use crate::files::FileError;
use crate::weight_file::{OpenError, WeightFile, decode};

/// A tensor to write.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
}

/// Returns the bytes before the first tensor: length, JSON and padding. Tensors follow in this
/// order.
pub(crate) fn head(metadata: Value, entries: impl IntoIterator<Item = Entry>) -> Vec<u8> {
    let mut json = Map::new();
    json.insert("__metadata__".to_owned(), metadata);
    let mut offset = 0;
    for Entry { name, dtype, shape } in entries {
        let end = offset + shape.iter().product::<usize>() * dtype.bitsize() / 8;
        let dtype = dtype.to_string();
        json.insert(name, json!({ "dtype": dtype, "shape": shape, "data_offsets": [offset, end] }));
        offset = end;
    }
    let mut text = Value::Object(json).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut head = (text.len() as u64).to_le_bytes().to_vec();
    head.append(&mut text);
    head
}

/// Writes and synchronizes a file; tensor `i` has the bytes `data(i)`.
pub(crate) fn write<E: From<FileError>>(
    path: &Path,
    metadata: Value,
    entries: &[Entry],
    data: &mut dyn FnMut(usize) -> Result<Vec<u8>, E>,
) -> Result<(), E> {
    let failed = |source| FileError::Write { path: PathBuf::from(path), source };
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(failed)?);
    file.write_all(&head(metadata, entries.iter().cloned())).map_err(failed)?;
    for index in 0..entries.len() {
        file.write_all(&data(index)?).map_err(failed)?;
    }
    let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
    Ok(file.sync_all().map_err(failed)?)
}

/// A weight file whose errors are [`AdapterError`]s.
#[derive(Debug)]
pub(crate) struct TensorFile(WeightFile);

impl TensorFile {
    pub(crate) fn open(path: &Path) -> Result<Self, AdapterError> {
        WeightFile::open(path).map(Self).map_err(|error| match error {
            OpenError::Read(source) => FileError::Read { path: PathBuf::from(path), source }.into(),
            OpenError::Damaged(reason) => AdapterError::damaged(path, reason),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the names of the tensors, in the order of the file.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.metadata().offset_keys()
    }

    /// Returns the metadata `key`, if the file has it.
    pub(crate) fn metadata(&self, key: &str) -> Option<&str> {
        self.0.metadata().metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// Returns dtype and shape of a tensor.
    pub(crate) fn info(&self, name: &str) -> Result<&TensorInfo, AdapterError> {
        let missing = || {
            let path = self.path().to_owned();
            AdapterError::MissingTensor { path, name: name.to_owned() }
        };
        self.0.metadata().info(name).ok_or_else(missing)
    }

    /// Reads the bytes of a tensor.
    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<u8>, AdapterError> {
        self.0.bytes(self.info(name)?).map_err(|source| AdapterError::ReadTensor {
            path: self.path().to_owned(),
            name: name.to_owned(),
            source,
        })
    }

    /// Reads a tensor of F32, BF16 or F16 as f32.
    pub(crate) fn values(&self, name: &str) -> Result<Vec<f32>, AdapterError> {
        let dtype = self.info(name)?.dtype;
        decode(dtype, &self.bytes(name)?).ok_or_else(|| AdapterError::Type {
            path: self.path().to_owned(),
            name: name.to_owned(),
            found: dtype.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_round_trips_and_a_truncated_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.safetensors");
        let entry = |name: &str, dtype, shape: &[usize]| Entry {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
        };
        let entries = [entry("z", Dtype::F32, &[2, 2]), entry("a", Dtype::BF16, &[3])];
        let data = [
            bytemuck::cast_slice(&[0f32, 1.0, 2.0, 3.0]).to_vec(),
            bytemuck::cast_slice(&[half::bf16::from_f32(0.5); 3]).to_vec(),
        ];
        let notes = json!({ "format": "pt" });
        let bytes = &mut |index: usize| Ok::<_, AdapterError>(data[index].clone());
        write(&path, notes.clone(), &entries, bytes).unwrap();
        let file = TensorFile::open(&path).unwrap();
        assert_eq!(file.names(), ["z", "a"]);
        assert_eq!(json!(file.0.metadata().metadata().clone().unwrap()), notes);
        assert_eq!(file.values("z").unwrap(), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(file.values("a").unwrap(), [0.5; 3]);
        assert!(file.values("b").unwrap_err().to_string().contains("`b`"));
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(safetensors::SafeTensors::deserialize(&whole).unwrap().len(), 2);
        for len in [0, 7, 30, whole.len() - 1] {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(matches!(TensorFile::open(&path), Err(AdapterError::Damaged { .. })));
        }
    }
}
