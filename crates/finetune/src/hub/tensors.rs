//! The tensors of safetensors files: where each lies, and its elements as f32.
//!
//! Files are mapped into memory and not read ahead. Every header is checked against its file before
//! the first element is used, so that a download that stopped early is found at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use memmap2::Mmap;
use safetensors::tensor::{Dtype, Metadata, SafeTensorError, SafeTensors};
use serde::Deserialize;

use super::error::HubError;

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
    bytes: Range<usize>,
}

/// All tensors of a model, by name.
#[derive(Debug)]
pub(super) struct Tensors {
    files: Vec<(PathBuf, Mmap)>,
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
        let file = File::open(&path).map_err(HubError::read(&path))?;
        // SAFETY: the map is read-only. Whoever changes the files of a model while it is in use
        // breaks it, as with every program that maps them; the documentation of `ModelDirectory`
        // asks for that not to be done.
        let map = unsafe { Mmap::map(&file) }.map_err(HubError::read(&path))?;
        let (start, metadata) = head(&map).map_err(|why| HubError::damaged(&path, why))?;
        let number = self.files.len();
        for (tensor, info) in metadata.tensors() {
            let (from, to) = info.data_offsets;
            let stored = StoredTensor {
                dtype: info.dtype,
                shape: info.shape.clone(),
                file: number,
                bytes: start + from..start + to,
            };
            if let Some(other) = self.by_name.insert(tensor.clone(), stored) {
                let first = self.files[other.file].0.clone();
                return Err(HubError::Twice { tensor, first, second: path });
            }
        }
        self.files.push((path, map));
        Ok(())
    }

    /// Every tensor, by name.
    pub(super) fn by_name(&self) -> &BTreeMap<String, StoredTensor> {
        &self.by_name
    }

    /// The file of a tensor.
    pub(super) fn path(&self, tensor: &StoredTensor) -> &Path {
        &self.files[tensor.file].0
    }

    /// The files with their sizes.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, usize)> {
        self.files.iter().map(|(path, map)| (path.as_path(), map.len()))
    }

    /// The bytes of a tensor.
    pub(super) fn bytes(&self, tensor: &StoredTensor) -> &[u8] {
        &self.files[tensor.file].1[tensor.bytes.clone()]
    }

    /// Writes the elements of a tensor from `first` on to `values`; `None` for a type that is not
    /// read, or a range outside of the tensor.
    pub(super) fn read(
        &self,
        tensor: &StoredTensor,
        first: usize,
        values: &mut [f32],
    ) -> Option<()> {
        let bytes = self.bytes(tensor);
        match tensor.dtype {
            Dtype::F32 => convert(bytes, first, values, f32::from_le_bytes),
            Dtype::F16 => convert(bytes, first, values, |two| f16::from_le_bytes(two).to_f32()),
            Dtype::BF16 => convert(bytes, first, values, |two| bf16::from_le_bytes(two).to_f32()),
            _ => None,
        }
    }
}

/// Converts elements of `N` bytes from `first` on. They need not be aligned.
fn convert<const N: usize>(
    bytes: &[u8],
    first: usize,
    values: &mut [f32],
    one: impl Fn([u8; N]) -> f32,
) -> Option<()> {
    let (elements, _) = bytes.as_chunks::<N>();
    let elements = elements.get(first..first.checked_add(values.len())?)?;
    values.iter_mut().zip(elements).for_each(|(value, element)| *value = one(*element));
    Some(())
}

/// Where the first tensor of a file starts, and the header before it.
fn head(file: &[u8]) -> Result<(usize, Metadata), String> {
    let length = file.first_chunk::<8>().map(|length| u64::from_le_bytes(*length));
    let length = length.ok_or("it is shorter than the length of its header")?;
    let end = length.checked_add(8).filter(|end| *end <= file.len() as u64);
    end.ok_or("it ends inside its header, or is no safetensors file")?;
    match SafeTensors::read_metadata(file) {
        Ok((length, metadata)) => Ok((length + 8, metadata)),
        Err(SafeTensorError::MetadataIncompleteBuffer) => {
            Err(format!("its {} bytes are not as many as its header describes", file.len()))
        }
        Err(error) => Err(format!("its header is wrong: {error}")),
    }
}
