//! Merging an adapter into the weights of its base model.
//!
//! Each updated matrix becomes `W + scale · B · A`, computed in f64 in a fixed order and rounded
//! once to the dtype of `W`. All other tensors keep their bytes, and shards keep their names. Files
//! other than weights are copied.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use safetensors::tensor::Dtype;
use serde_json::Value;

use super::AdapterError;
use super::read::{Adapter, require_finite};
use crate::json_file::read_json;
use crate::new_directory::NewDirectory;
use crate::tensor_file::{self, Entry, TensorFile, encode};
use crate::weight_file::decode;

/// The weights of a model in one file.
const SINGLE: &str = "model.safetensors";
/// The index of the weight files of a sharded model.
const INDEX: &str = "model.safetensors.index.json";
/// Extensions of weights in other formats. They are not copied: they lack the adapter.
const OTHER_WEIGHTS: [&str; 9] =
    ["bin", "ckpt", "gguf", "h5", "msgpack", "onnx", "pt", "pth", "safetensors"];

/// The result of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Matrices with an update.
    pub updated: usize,
    /// Replaced norms.
    pub replaced: usize,
    /// Tensors of the model.
    pub tensors: usize,
    /// Weight files.
    pub files: usize,
}

/// Merges `adapter` into the model in the directory `model`, and writes the result to the directory
/// `out`, which must be empty or not exist. `out` appears when it is complete. Setting `stop` ends
/// the merge before the next tensor.
///
/// # Errors
/// An [`AdapterError`] with the file and the tensor, or [`AdapterError::Stopped`]. `out` is then
/// unchanged.
pub fn merge(
    model: &Path,
    adapter: &mut Adapter,
    out: &Path,
    stop: &AtomicBool,
) -> Result<Merged, AdapterError> {
    let new = NewDirectory::create(out, &[])?;
    let names = weight_files(model)?;
    let files = names
        .iter()
        .map(|name| TensorFile::open(&model.join(name)))
        .collect::<Result<Vec<_>, _>>()?;
    let changes = Changes::of(adapter);
    let tensors = changes.require(adapter, (model, &files))?;
    for (name, file) in names.iter().zip(&files) {
        write_merged(file, &new.path().join(name), (adapter, &changes), stop)?;
    }
    copy_others(model, new.path())?;
    new.publish()?;
    let (updated, replaced) = (changes.updates.len(), changes.norms.len());
    Ok(Merged { updated, replaced, tensors, files: names.len() })
}

/// Returns the names of the weight files of a model, each once.
fn weight_files(model: &Path) -> Result<Vec<String>, AdapterError> {
    if model.join(SINGLE).is_file() {
        return Ok(vec![SINGLE.to_owned()]);
    }
    let path = model.join(INDEX);
    let text =
        read_json(&path).map_err(|source| AdapterError::Read { path: path.clone(), source })?;
    let index: Value = serde_json::from_slice(&text)
        .map_err(|error| AdapterError::damaged(&path, format!("it is not JSON: {error}")))?;
    let map = index["weight_map"].as_object();
    let map = map.ok_or_else(|| AdapterError::damaged(&path, "it has no `weight_map`"))?;
    let mut names = BTreeSet::new();
    for name in map.values() {
        let name = name.as_str().unwrap_or_default();
        // A name with folders would be written outside of the output directory, too.
        if Path::new(name).file_name() != Some(name.as_ref()) {
            return Err(AdapterError::damaged(
                &path,
                format!("`{name}` is not a file in the same directory"),
            ));
        }
        names.insert(name.to_owned());
    }
    Ok(names.into_iter().collect())
}

/// The changes of an adapter, by tensor names of the base model.
struct Changes {
    /// The module of each updated weight.
    updates: BTreeMap<String, String>,
    norms: BTreeSet<String>,
}

impl Changes {
    fn of(adapter: &Adapter) -> Self {
        let (modules, norms) = adapter.modules();
        let update = |module: String| (format!("{module}.weight"), module);
        Self {
            updates: modules.into_iter().map(update).collect(),
            norms: norms.into_iter().collect(),
        }
    }

    /// Checks that every changed tensor exists and has a shape that fits. Returns the number of
    /// tensors of the model.
    fn require(
        &self,
        adapter: &Adapter,
        (model, files): (&Path, &[TensorFile]),
    ) -> Result<usize, AdapterError> {
        let mut place = BTreeMap::new();
        for file in files {
            place.extend(file.names().into_iter().map(|name| (name, file)));
        }
        for name in self.updates.keys().chain(&self.norms) {
            let Some(file) = place.get(name) else {
                let (path, name) = (model.to_owned(), name.clone());
                return Err(AdapterError::MissingTensor { path, name });
            };
            let info = file.info(name)?;
            if !matches!(info.dtype, Dtype::F32 | Dtype::BF16 | Dtype::F16) {
                let (path, found) = (file.path().to_owned(), info.dtype.to_string());
                return Err(AdapterError::Type { path, name: name.clone(), found });
            }
            let expected = match self.updates.get(name) {
                Some(module) => {
                    let a = adapter.shape(&format!("{module}.lora_A.weight"))?;
                    let b = adapter.shape(&format!("{module}.lora_B.weight"))?;
                    vec![b[0], a[1]]
                }
                None => adapter.shape(name)?.to_vec(),
            };
            if info.shape != expected {
                let (path, found) = (file.path().to_owned(), info.shape.clone());
                return Err(AdapterError::Shape { path, name: name.clone(), found, expected });
            }
        }
        Ok(place.len())
    }
}

/// Writes one weight file with its changes.
fn write_merged(
    file: &TensorFile,
    path: &Path,
    (adapter, changes): (&mut Adapter, &Changes),
    stop: &AtomicBool,
) -> Result<(), AdapterError> {
    let entry = |name: String| -> Result<Entry, AdapterError> {
        let info = file.info(&name)?;
        Ok(Entry { dtype: info.dtype, shape: info.shape.clone(), name })
    };
    let entries = file.names().into_iter().map(entry).collect::<Result<Vec<_>, _>>()?;
    let metadata = file.file_metadata();
    let data = &mut |index: usize| -> Result<Vec<u8>, AdapterError> {
        let Entry { name, dtype, shape } = &entries[index];
        if stop.load(Ordering::Relaxed) {
            return Err(AdapterError::Stopped);
        }
        let bytes = file.bytes(name)?;
        // `decode` knows every dtype that can be infinite or NaN.
        let base = decode(*dtype, &bytes).unwrap_or_default();
        require_finite((file.path(), name), &base)?;
        if changes.norms.contains(name) {
            let values = adapter.finite(name)?;
            let values = values.into_iter().map(f64::from).collect();
            return encode_finite(file.path(), &entries[index], values);
        }
        let Some(module) = changes.updates.get(name) else { return Ok(bytes) };
        let a = adapter.finite(&format!("{module}.lora_A.weight"))?;
        let b = adapter.finite(&format!("{module}.lora_B.weight"))?;
        let lora = adapter.lora();
        let sum = Sum { base: &base, a: &a, b: &b, width: shape[1], rank: lora.rank };
        encode_finite(file.path(), &entries[index], sum.rows(lora.exact_scale()))
    };
    tensor_file::write(path, metadata, &entries, data)
}

/// Encodes the values of a tensor in its dtype. Fails if one overflows.
fn encode_finite(
    path: &Path,
    Entry { name, dtype, .. }: &Entry,
    values: Vec<f64>,
) -> Result<Vec<u8>, AdapterError> {
    let bytes = encode(*dtype, values.iter().copied());
    let rounded = decode(*dtype, &bytes).expect("dtypes were checked before anything was written");
    let Some(index) = rounded.iter().position(|value| !value.is_finite()) else { return Ok(bytes) };
    let (path, name, value) = (path.to_owned(), name.clone(), values[index]);
    Err(AdapterError::Overflow { path, name, index, value, dtype: dtype.to_string() })
}

/// `base + scale · b · a`, with `base: [outputs, width]`, `a: [rank, width]`, `b: [outputs, rank]`.
struct Sum<'a> {
    base: &'a [f32],
    a: &'a [f32],
    b: &'a [f32],
    width: usize,
    rank: usize,
}

impl Sum<'_> {
    fn rows(&self, scale: f64) -> Vec<f64> {
        let a: Vec<f64> = self.a.iter().copied().map(f64::from).collect();
        let mut out = Vec::with_capacity(self.base.len());
        let mut row = vec![0.0; self.width];
        for (base, b) in self.base.chunks_exact(self.width).zip(self.b.chunks_exact(self.rank)) {
            row.fill(0.0);
            for (&b, a) in b.iter().zip(a.chunks_exact(self.width)) {
                let b = f64::from(b);
                row.iter_mut().zip(a).for_each(|(sum, a)| *sum += b * a);
            }
            out.extend(base.iter().zip(&row).map(|(&base, sum)| f64::from(base) + scale * sum));
        }
        out
    }
}

/// Copies all files that are not weights: configuration, tokenizer, licence, and the index.
fn copy_others(model: &Path, new: &Path) -> Result<(), AdapterError> {
    let failed = |path: PathBuf| |source| AdapterError::Read { path, source };
    for entry in std::fs::read_dir(model).map_err(failed(model.to_owned()))? {
        let path = entry.map_err(failed(model.to_owned()))?.path();
        let (Some(name), true) = (path.file_name(), path.is_file()) else { continue };
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| OTHER_WEIGHTS.contains(&extension)) {
            continue;
        }
        // The index of a model in one file is stale.
        if name == INDEX && model.join(SINGLE).is_file() {
            continue;
        }
        let copy = new.join(name);
        std::fs::copy(&path, &copy)
            .and_then(|_| std::fs::File::open(&copy)?.sync_all())
            .map_err(|source| AdapterError::Write { path: copy.clone(), source })?;
    }
    Ok(())
}
