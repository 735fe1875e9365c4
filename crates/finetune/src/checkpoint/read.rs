//! Reading a checkpoint file. Everything is checked before the first value is used.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use retrograph_runtime::open_regular;
use safetensors::tensor::{Dtype, Metadata};
use sha2::{Digest, Sha256};

use super::error::CheckpointError;
use super::header::{DIGEST_PLACEHOLDER, FORMAT_VERSION, Header, METADATA_KEY, find_digest};
use super::part::{StatePart, state_order};
use crate::digest::hex;
use crate::error::{Error, Result};
use crate::parameters::Parameter;
use crate::weight_file::{HeadError, read_head};

/// A checkpoint file, verified by its digest.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    file: BufReader<File>,
    header: Header,
    metadata: Metadata,
    data_start: u64,
}

impl Checkpoint {
    /// Opens a file and verifies format, length and digest.
    ///
    /// # Errors
    /// [`CheckpointError::Read`] if it cannot be read, [`CheckpointError::Damaged`] if it is
    /// truncated, altered or not a checkpoint.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |source| CheckpointError::Read { path: PathBuf::from(path), source };
        let damaged = |reason: &str| damaged(path, reason);
        let Head { mut file, length, bytes: head, header, metadata } = open_head(path)?;
        let expected = head.len() as u64 + metadata.data_len() as u64;
        if length != expected {
            return Err(damaged(&format!("it has {length} bytes instead of {expected}")));
        }
        let digest = digest_of(&head, &header.digest, &mut file).map_err(failed)?;
        if digest.as_deref() != Some(header.digest.as_str()) {
            return Err(damaged("its contents do not match its SHA-256 digest"));
        }
        let data_start = head.len() as u64;
        Ok(Self { path: PathBuf::from(path), file, header, metadata, data_start })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that exactly the state of `parameters` is stored, with the same shapes.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] with the first tensor that is missing, unexpected or different.
    pub fn require(&self, parameters: &[&Parameter]) -> Result<()> {
        let tensors = self.metadata.tensors();
        for (index, part) in state_order(parameters.len()) {
            let parameter = parameters[index];
            let name = part.tensor_name(&parameter.name);
            let Some(info) = tensors.get(&name) else {
                return Err(damaged(&self.path, &format!("the tensor `{name}` is missing")));
            };
            if info.dtype != Dtype::F32 || info.shape != parameter.shape {
                let found = format!("{:?} {:?}", info.dtype, info.shape);
                let reason = format!("`{name}` is {found}, not F32 {:?}", parameter.shape);
                return Err(damaged(&self.path, &reason));
            }
        }
        let expected = parameters.len() * StatePart::ALL.len();
        if tensors.len() != expected {
            let reason = format!("it has {} tensors instead of {expected}", tensors.len());
            return Err(damaged(&self.path, &reason));
        }
        Ok(())
    }

    /// Whether there is a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.metadata.info(name).is_some()
    }

    /// Reads the tensor `name`.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] if there is no such tensor, [`CheckpointError::Read`] if
    /// reading fails.
    pub fn tensor(&mut self, name: &str) -> Result<Vec<f32>> {
        let Some(info) = self.metadata.info(name) else {
            return Err(damaged(&self.path, &format!("the tensor `{name}` is missing")));
        };
        let (start, end) = info.data_offsets;
        let mut values = vec![0.0f32; (end - start) / size_of::<f32>()];
        self.file
            .seek(SeekFrom::Start(self.data_start + start as u64))
            .and_then(|_| self.file.read_exact(bytemuck::cast_slice_mut(&mut values)))
            .map_err(|source| CheckpointError::Read { path: self.path.clone(), source })?;
        Ok(values)
    }
}

/// The contents of a file before its first tensor.
struct Head {
    file: BufReader<File>,
    length: u64,
    bytes: Vec<u8>,
    header: Header,
    metadata: Metadata,
}

fn open_head(path: &Path) -> Result<Head> {
    let failed = |source| Error::from(CheckpointError::Read { path: PathBuf::from(path), source });
    let mut file = BufReader::with_capacity(1 << 20, open_regular(path).map_err(failed)?);
    let length = file.get_ref().metadata().map_err(failed)?.len();
    let bytes = read_head(&mut file, length).map_err(|error| match error {
        HeadError::Read(source) => failed(source),
        HeadError::Damaged(reason) => damaged(path, reason),
    })?;
    let (header, metadata) = parse_head(&bytes).map_err(|reason| damaged(path, &reason))?;
    Ok(Head { file, length, bytes, header, metadata })
}

/// Reads the header of the checkpoint at `path`. The tensors are not verified.
pub(super) fn read_header(path: &Path) -> Result<Header> {
    Ok(open_head(path)?.header)
}

fn damaged(path: &Path, reason: &str) -> Error {
    CheckpointError::Damaged { path: PathBuf::from(path), reason: reason.to_owned() }.into()
}

fn parse_head(head: &[u8]) -> Result<(Header, Metadata), String> {
    let metadata: Metadata = serde_json::from_slice(&head[8..])
        .map_err(|error| format!("its header is not a safetensors header: {error}"))?;
    contiguous(&metadata).ok_or("its tensors are not contiguous")?;
    let header =
        metadata.metadata().as_ref().and_then(|entries| entries.get(METADATA_KEY)).ok_or(
            "it is a safetensors file of another program, without the header of a checkpoint",
        )?;
    let header: Header = serde_json::from_str(header)
        .map_err(|error| format!("its checkpoint header is not readable: {error}"))?;
    header.config.validate().map_err(|error| error.to_string())?;
    if header.format != FORMAT_VERSION {
        return Err(format!("its format is version {}, not {FORMAT_VERSION}", header.format));
    }
    if header.next_step as usize != header.losses.len() {
        return Err("its numbers of steps and losses differ".to_owned());
    }
    Ok((header, metadata))
}

/// Returns `Some` if each tensor has the bytes of its shape and starts at the end of the previous
/// one.
fn contiguous(metadata: &Metadata) -> Option<()> {
    let mut offset = 0;
    for name in metadata.offset_keys() {
        let info = metadata.info(&name)?;
        let (start, end) = info.data_offsets;
        let product = |product: usize, &size: &usize| product.checked_mul(size);
        let bytes = info.shape.iter().try_fold(size_of::<f32>(), product)?;
        if start != offset || start.checked_add(bytes) != Some(end) {
            return None;
        }
        offset = end;
    }
    Some(())
}

/// Computes the digest of the file with the placeholder at the offset of the stored digest. Returns
/// `None` if the file does not contain the stored digest.
fn digest_of(
    head: &[u8],
    stored: &str,
    data: &mut BufReader<File>,
) -> std::io::Result<Option<String>> {
    let offset =
        (stored.len() == DIGEST_PLACEHOLDER.len()).then(|| find_digest(head, stored)).flatten();
    let Some(offset) = offset else { return Ok(None) };
    let mut head = head.to_vec();
    head[offset..offset + stored.len()].copy_from_slice(DIGEST_PLACEHOLDER.as_bytes());
    let mut hash = Sha256::new();
    hash.update(&head);
    std::io::copy(data, &mut hash)?;
    Ok(Some(hex(&hash.finalize())))
}
