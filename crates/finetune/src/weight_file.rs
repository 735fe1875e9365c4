//! A safetensors file mapped into memory: where each tensor lies, and its elements.
//!
//! Nothing is read ahead. The header is checked against the length of the file before the first
//! element is used, so that a download that stopped early is found at once.

use std::fs::File;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use memmap2::Mmap;
use safetensors::tensor::{Dtype, Metadata, SafeTensorError, SafeTensors, TensorInfo};

/// Why a file cannot be used.
pub(crate) enum OpenError {
    /// Reading failed.
    Read(std::io::Error),
    /// It is truncated, altered or something else.
    Damaged(String),
}

/// A file whose header was found whole, and which is as long as the header says.
#[derive(Debug)]
pub(crate) struct WeightFile {
    path: PathBuf,
    map: Mmap,
    metadata: Metadata,
    data_start: usize,
}

impl WeightFile {
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let file = File::open(path).map_err(OpenError::Read)?;
        // SAFETY: the map is read-only. Whoever changes a file of weights while it is in use breaks
        // it, as with every program that maps them; the documentation of `ModelDirectory` and of
        // `Adapter` asks for that not to be done.
        let map = unsafe { Mmap::map(&file) }.map_err(OpenError::Read)?;
        let (data_start, metadata) = head(&map).map_err(OpenError::Damaged)?;
        Ok(Self { path: path.to_owned(), map, metadata, data_start })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// What the header says.
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The bytes of a tensor of this file.
    pub(crate) fn bytes(&self, tensor: &TensorInfo) -> &[u8] {
        let (from, to) = tensor.data_offsets;
        &self.map[self.data_start + from..self.data_start + to]
    }
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

/// Writes little-endian elements from `first` on to `values` as f32, which is exact; `None` for a
/// type that is not known here, or a range outside of `bytes`. Elements need not be aligned.
pub(crate) fn read(dtype: Dtype, bytes: &[u8], first: usize, values: &mut [f32]) -> Option<()> {
    match dtype {
        Dtype::F32 => convert(bytes, first, values, f32::from_le_bytes),
        Dtype::F16 => convert(bytes, first, values, |two| f16::from_le_bytes(two).to_f32()),
        Dtype::BF16 => convert(bytes, first, values, |two| bf16::from_le_bytes(two).to_f32()),
        _ => None,
    }
}

/// All elements as f32.
pub(crate) fn decode(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f32>> {
    let mut values = vec![0.0; bytes.len() * 8 / dtype.bitsize()];
    read(dtype, bytes, 0, &mut values)?;
    Some(values)
}

/// Converts elements of `N` bytes from `first` on.
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
