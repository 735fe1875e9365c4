//! Writing an adapter.

use std::path::Path;

use safetensors::tensor::Dtype;
use serde_json::json;

use super::config::AdapterConfig;
use super::{AdapterError, CONFIG, PREFIX, WEIGHTS};
use crate::config::LoraConfig;
use crate::error::Error;
use crate::new_directory::{NewDirectory, require_free};
use crate::parameters::Parameter;
use crate::tensor_file::{self, Entry};

/// Files that a new adapter may replace.
const OURS: [&str; 2] = [CONFIG, WEIGHTS];

/// The destination of an adapter.
#[derive(Clone, Copy, Debug)]
pub struct AdapterOutput<'a> {
    /// The directory.
    pub folder: &'a Path,
    /// The directory or the hub name of the base model.
    pub base: Option<&'a str>,
}

impl AdapterOutput<'_> {
    /// Checks that the directory holds nothing but an adapter. Call it before training.
    ///
    /// # Errors
    /// [`AdapterError::Occupied`], or if the directory cannot be read.
    pub fn require_free(&self) -> Result<(), AdapterError> {
        require_free(self.folder, &OURS)
    }
}

/// Writes the trained `parameters` of a LoRA run, with `values` for each. An existing adapter is
/// replaced at once, when the new one is complete.
///
/// # Errors
/// [`AdapterError::Occupied`], [`AdapterError::Write`], [`AdapterError::TrainedNotFinite`], or the
/// error of `values`. An existing adapter is then unchanged.
pub fn write_adapter(
    output: AdapterOutput<'_>,
    lora: LoraConfig,
    parameters: &[&Parameter],
    values: &mut dyn FnMut(&Parameter) -> Result<Vec<f32>, Error>,
) -> Result<(), Error> {
    let new = NewDirectory::create(output.folder, &OURS)?;
    let config = AdapterConfig { lora, base: output.base.map(str::to_owned) };
    write_text(&new.path().join(CONFIG), &format!("{:#}\n", config.to_json()))?;
    let entry = |parameter: &&Parameter| Entry {
        name: format!("{PREFIX}{}", parameter.name),
        dtype: Dtype::F32,
        shape: parameter.shape.clone(),
    };
    let entries: Vec<Entry> = parameters.iter().map(entry).collect();
    let data = &mut |index: usize| -> Result<Vec<u8>, Error> {
        let values = values(parameters[index])?;
        if let Some(&value) = values.iter().find(|value| !value.is_finite()) {
            let name = parameters[index].name.clone();
            return Err(AdapterError::TrainedNotFinite { name, value }.into());
        }
        Ok(bytemuck::cast_slice(&values).to_vec())
    };
    tensor_file::write(&new.path().join(WEIGHTS), json!({ "format": "pt" }), &entries, data)?;
    Ok(new.publish()?)
}

fn write_text(path: &Path, text: &str) -> Result<(), AdapterError> {
    let write = || {
        std::fs::write(path, text)?;
        std::fs::File::open(path)?.sync_all()
    };
    write().map_err(|source| AdapterError::Write { path: path.to_owned(), source })
}
