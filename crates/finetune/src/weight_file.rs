//! Reading safetensors files.
//!
//! Opening compares the header with the length of the file, so an incomplete download fails
//! immediately. Elements are read on demand and not memory-mapped: if the file becomes shorter,
//! reading fails instead of the process being killed by a signal.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use retrograph_runtime::open_regular;
use safetensors::tensor::{Dtype, Metadata, SafeTensorError, SafeTensors, TensorInfo};

/// Maximum bytes of a header; a larger one means that the file is damaged.
const MAX_HEAD: u64 = 100_000_000;
/// Bytes of a piece that is read and converted.
const PIECE: usize = 1 << 20;

/// Why a file cannot be used.
pub(crate) enum OpenError {
    /// Reading failed.
    Read(io::Error),
    /// The file is truncated, altered or has another format.
    Damaged(String),
}

/// An open file whose length matches its header.
#[derive(Debug)]
pub(crate) struct WeightFile {
    path: PathBuf,
    file: File,
    len: u64,
    metadata: Metadata,
    data_start: u64,
}

impl WeightFile {
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let mut file = open_regular(path).map_err(OpenError::Read)?;
        let len = file.metadata().map_err(OpenError::Read)?.len();
        let head = read_head(&mut file, len).map_err(|error| match error {
            HeadError::Read(error) => OpenError::Read(error),
            HeadError::Damaged(reason) => OpenError::Damaged(reason.to_owned()),
        })?;
        let metadata = parse(&head).map_err(OpenError::Damaged)?;
        let data_start = head.len() as u64;
        if data_start + metadata.data_len() as u64 != len {
            let reason = format!("its length, {len} bytes, does not match its header");
            return Err(OpenError::Damaged(reason));
        }
        Ok(Self { path: path.to_owned(), file, len, metadata, data_start })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// The header.
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Reads all bytes of a tensor of this file.
    pub(crate) fn bytes(&self, tensor: &TensorInfo) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size(tensor)];
        self.read(tensor, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads bytes of a tensor from byte `first`.
    ///
    /// # Panics
    /// If the tensor has fewer bytes.
    pub(crate) fn read(&self, tensor: &TensorInfo, first: usize, out: &mut [u8]) -> io::Result<()> {
        let end = first.checked_add(out.len());
        assert!(end.is_some_and(|end| end <= size(tensor)), "the range is inside the tensor");
        let offset = self.data_start + (tensor.data_offsets.0 + first) as u64;
        read_exact_at(&self.file, out, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(error.kind(), "the file became shorter while it was in use")
            }
            _ => error,
        })
    }

    /// Calls `on` with the bytes of a tensor, one piece after another.
    pub(crate) fn pieces(&self, tensor: &TensorInfo, on: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut piece = vec![0; size(tensor).min(PIECE)];
        let mut first = 0;
        while first < size(tensor) {
            let count = piece.len().min(size(tensor) - first);
            self.read(tensor, first, &mut piece[..count])?;
            on(&piece[..count]);
            first += count;
        }
        Ok(())
    }

    /// Reads the elements of a tensor from index `first` into `values` as f32, which is exact;
    /// `None` for an unsupported dtype or a range outside the tensor.
    pub(crate) fn read_values(
        &self,
        tensor: &TensorInfo,
        first: usize,
        values: &mut [f32],
    ) -> Option<io::Result<()>> {
        let width = match tensor.dtype {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::BF16 => 2,
            _ => return None,
        };
        first.checked_add(values.len()).filter(|end| *end <= size(tensor) / width)?;
        if tensor.dtype == Dtype::F32 && cfg!(target_endian = "little") {
            return Some(self.read(tensor, first * width, bytemuck::cast_slice_mut(values)));
        }
        let mut bytes = vec![0; (values.len() * width).min(PIECE)];
        for (number, values) in values.chunks_mut(PIECE / width).enumerate() {
            let bytes = &mut bytes[..values.len() * width];
            let start = first * width + number * PIECE;
            if let Err(error) = self.read(tensor, start, bytes) {
                return Some(Err(error));
            }
            convert_all(tensor.dtype, bytes, values)?;
        }
        Some(Ok(()))
    }
}

/// Bytes of a tensor.
fn size(tensor: &TensorInfo) -> usize {
    tensor.data_offsets.1 - tensor.data_offsets.0
}

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut out: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                out = &mut out[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Why the head of a file cannot be read.
pub(crate) enum HeadError {
    /// Reading failed.
    Read(io::Error),
    /// The bytes are not the head of a safetensors file.
    Damaged(&'static str),
}

/// Reads the bytes before the first tensor of a file of `length` bytes.
pub(crate) fn read_head(file: &mut impl Read, length: u64) -> Result<Vec<u8>, HeadError> {
    if length < 8 {
        return Err(HeadError::Damaged(
            "it is shorter than 8 bytes, the length field of its header",
        ));
    }
    let mut size = [0; 8];
    file.read_exact(&mut size).map_err(HeadError::Read)?;
    let json = u64::from_le_bytes(size);
    if json > MAX_HEAD || json > length - 8 {
        let reason = "it ends inside its header, or is not a safetensors file";
        return Err(HeadError::Damaged(reason));
    }
    let mut head = size.to_vec();
    head.resize(8 + json as usize, 0);
    file.read_exact(&mut head[8..]).map_err(HeadError::Read)?;
    Ok(head)
}

/// Parses the head of a file, and checks that offsets and shapes match.
fn parse(head: &[u8]) -> Result<Metadata, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("its header is wrong: {error}");
    match SafeTensors::read_metadata(head) {
        // The library checks the header, and then reports that the data is missing.
        Ok(_) | Err(SafeTensorError::MetadataIncompleteBuffer) => {}
        Err(error) => return Err(wrong(&error)),
    }
    serde_json::from_slice(&head[8..]).map_err(|error| wrong(&error))
}

/// Converts all elements to f32; `None` for an unsupported dtype. Elements need not be aligned.
pub(crate) fn decode(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f32>> {
    let mut values = vec![0.0; bytes.len() * 8 / dtype.bitsize()];
    convert_all(dtype, bytes, &mut values)?;
    Some(values)
}

/// Converts one little-endian element per value; `None` for an unsupported dtype.
fn convert_all(dtype: Dtype, bytes: &[u8], values: &mut [f32]) -> Option<()> {
    match dtype {
        Dtype::F32 => convert(bytes, values, f32::from_le_bytes),
        Dtype::F16 => convert(bytes, values, |two| f16::from_le_bytes(two).to_f32()),
        Dtype::BF16 => convert(bytes, values, |two| bf16::from_le_bytes(two).to_f32()),
        _ => return None,
    }
    Some(())
}

fn convert<const N: usize>(bytes: &[u8], values: &mut [f32], one: impl Fn([u8; N]) -> f32) {
    let (elements, _) = bytes.as_chunks::<N>();
    values.iter_mut().zip(elements).for_each(|(value, element)| *value = one(*element));
}
