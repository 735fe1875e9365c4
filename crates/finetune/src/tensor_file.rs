//! Safetensors files of adapters, checkpoints and merged models.
//!
//! They are written tensor by tensor: the writer of the library `safetensors` needs the whole file
//! in memory. Errors of reading are [`AdapterError`]s.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::tensor::{Dtype, TensorInfo};
use serde_json::{Map, Value, json};

use crate::adapter::AdapterError;
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
pub(crate) fn write<E: From<AdapterError>>(
    path: &Path,
    metadata: Value,
    entries: &[Entry],
    data: &mut dyn FnMut(usize) -> Result<Vec<u8>, E>,
) -> Result<(), E> {
    let failed = |source| AdapterError::Write { path: PathBuf::from(path), source };
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
            OpenError::Read(source) => AdapterError::Read { path: PathBuf::from(path), source },
            OpenError::Damaged(why) => AdapterError::damaged(path, why),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the names of the tensors, in the order of the file.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.metadata().offset_keys()
    }

    /// Returns the metadata of the file.
    pub(crate) fn file_metadata(&self) -> Value {
        json!(self.0.metadata().metadata().clone().unwrap_or_default())
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

/// Encodes elements in `dtype`, which [`decode`] must support, little-endian. Each is rounded once
/// to nearest, ties to even.
pub(crate) fn encode(dtype: Dtype, values: impl Iterator<Item = f64>) -> Vec<u8> {
    match dtype {
        Dtype::BF16 => values.flat_map(|x| bf16::from_f32(odd(x)).to_le_bytes()).collect(),
        Dtype::F16 => values.flat_map(|x| f16::from_f32(odd(x)).to_le_bytes()).collect(),
        _ => values.flat_map(|x| (x as f32).to_le_bytes()).collect(),
    }
}

/// Rounds `x` to odd. A second rounding to fewer bits then equals a single rounding of `x` (Boldo
/// and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
fn odd(x: f64) -> f32 {
    let nearest = x as f32;
    let bits = nearest.to_bits();
    if f64::from(nearest) == x || !nearest.is_finite() || bits & 1 == 1 {
        return nearest;
    }
    let outwards = f64::from(nearest).abs() < x.abs();
    f32::from_bits(if outwards { bits + 1 } else { bits - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_once_and_ties_go_to_even() {
        let one = |dtype, x: f64| decode(dtype, &encode(dtype, [x].into_iter())).unwrap()[0];
        // Half a unit of the last place above 1 is a tie; a hair more, which f32 does not have,
        // is not.
        for (dtype, half_unit) in [(Dtype::BF16, 2f64.powi(-8)), (Dtype::F16, 2f64.powi(-11))] {
            let hair = 2f64.powi(-40);
            let above = (1.0 + 2.0 * half_unit) as f32;
            assert_eq!(one(dtype, 1.0 + half_unit), 1.0);
            assert_eq!(one(dtype, 1.0 + half_unit + hair), above);
            assert_eq!(one(dtype, 1.0 + half_unit - hair), 1.0);
            assert_eq!(one(dtype, -1.0 - half_unit - hair), -above);
            let tie = 1.0 + 3.0 * half_unit;
            assert_eq!(one(dtype, tie), (1.0 + 4.0 * half_unit) as f32);
            assert_eq!(one(dtype, tie - hair), above);
            assert_eq!(one(dtype, 1e300), f32::INFINITY);
            assert!(one(dtype, f64::NAN).is_nan());
        }
        assert_eq!(one(Dtype::F32, 0.1), 0.1f32);
        assert_eq!(decode(Dtype::I32, &[0; 4]), None);
    }

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
        let data =
            [encode(Dtype::F32, (0..4).map(f64::from)), encode(Dtype::BF16, [0.5; 3].into_iter())];
        let notes = json!({ "format": "pt" });
        let bytes = &mut |index: usize| Ok::<_, AdapterError>(data[index].clone());
        write(&path, notes.clone(), &entries, bytes).unwrap();
        let file = TensorFile::open(&path).unwrap();
        assert_eq!(file.names(), ["z", "a"]);
        assert_eq!(file.file_metadata(), notes);
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
