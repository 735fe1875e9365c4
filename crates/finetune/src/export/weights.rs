//! The tensors of a complete model.

use std::ops::Range;

use super::{ExportError, WeightType};
use crate::config::{LoraConfig, LoraModule, Mode, ModelConfig};
use crate::error::Result;
use crate::parameters::{Parameter, inventory};

/// Minimum rows per thread.
const ROWS_PER_THREAD: usize = 64;

/// Returns the values of a parameter, as f32, row-major.
pub type ValuesOf<'a> = &'a mut dyn FnMut(&Parameter) -> Result<Vec<f32>>;

/// The weights of a model. LoRA updates are merged when a tensor is read.
pub struct ModelWeights<'a> {
    config: ModelConfig,
    lora: Option<LoraConfig>,
    tensors: Vec<Parameter>,
    updates: Vec<Parameter>,
    values: ValuesOf<'a>,
}

impl<'a> ModelWeights<'a> {
    /// Returns weights read through `values`, which is called for each parameter of `mode`.
    pub fn new(config: &ModelConfig, mode: Mode, values: ValuesOf<'a>) -> Self {
        let all = inventory(config, mode);
        let (updates, tensors) = all.into_iter().partition(|one| one.name.contains(".lora_"));
        Self { config: *config, lora: mode.lora(), tensors, updates, values }
    }

    /// Returns the configuration of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The LoRA options, if updates are merged.
    pub fn lora(&self) -> Option<LoraConfig> {
        self.lora
    }

    /// The tensors of the complete model, with names and shapes as in Hugging Face models.
    pub fn tensors(&self) -> &[Parameter] {
        &self.tensors
    }

    /// Returns the tensors as stored in files, in the order of their first parts.
    pub(super) fn stored(&self) -> Vec<StoredTensor> {
        let mut stored: Vec<StoredTensor> = Vec::new();
        for tensor in &self.tensors {
            let name = tensor.stored_name();
            match stored.iter_mut().find(|one| tensor.layout.fused.is_some() && one.name == name) {
                Some(fused) => fused.parts.push(tensor.clone()),
                None => {
                    let (shape, parts) = (tensor.stored_shape(), vec![tensor.clone()]);
                    stored.push(StoredTensor { name, shape, parts });
                }
            }
        }
        stored
    }

    /// The LoRA matrices, in pairs, each followed by the magnitudes of DoRA if it has them.
    pub(crate) fn updates(&self) -> &[Parameter] {
        &self.updates
    }

    /// Reads a tensor and its update, or a LoRA matrix.
    ///
    /// # Errors
    /// The error of the values, or [`ExportError::NotFinite`].
    pub(crate) fn read(&mut self, tensor: &Parameter) -> Result<Tensor> {
        let base = self.finite(tensor)?;
        let width = *tensor.shape.last().unwrap_or(&1);
        let update = match (self.lora, self.pair(&tensor.name)) {
            (Some(lora), Some([a, b])) => {
                let a = self.finite(&a)?.into_iter().map(f64::from).collect();
                let module = tensor.name.strip_suffix(".weight").and_then(LoraModule::parse);
                let module = module.map(|module| LoraModule { fused: self.config.fused, ..module });
                let lora = module.and_then(|module| lora.of(module)).unwrap_or(lora);
                let (b, rank, scale) = (self.finite(&b)?, lora.rank, lora.exact_scale());
                let magnitudes = self.update(&tensor.name, "lora_magnitude_vector");
                let magnitudes = magnitudes.map(|it| self.finite(&it)).transpose()?;
                Some(Update { a, b, rank, scale, magnitudes })
            }
            _ => None,
        };
        let offset = f64::from(tensor.layout.offset);
        Ok(Tensor { name: tensor.name.clone(), base, width, update, offset, factor: 1.0 })
    }

    /// Returns the LoRA matrices of the tensor `name`.
    fn pair(&self, name: &str) -> Option<[Parameter; 2]> {
        Some([self.update(name, "lora_A.weight")?, self.update(name, "lora_B.weight")?])
    }

    /// Returns a part of the update of the tensor `name`.
    fn update(&self, name: &str, part: &str) -> Option<Parameter> {
        let name = format!("{}.{part}", name.strip_suffix(".weight")?);
        self.updates.iter().find(|one| one.name == name).cloned()
    }

    fn finite(&mut self, parameter: &Parameter) -> Result<Vec<f32>> {
        let values = (self.values)(parameter)?;
        let Some(index) = values.iter().position(|value| !value.is_finite()) else {
            return Ok(values);
        };
        let (name, value) = (parameter.name.clone(), values[index]);
        Err(ExportError::NotFinite { name, index, value }.into())
    }
}

/// A tensor of a file, from one parameter or several.
#[derive(Clone, Debug)]
pub(super) struct StoredTensor {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    /// The parameters, in the order of their rows.
    parts: Vec<Parameter>,
}

impl StoredTensor {
    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Reads and encodes all elements.
    pub(super) fn encode(
        &self,
        weights: &mut ModelWeights<'_>,
        dtype: WeightType,
    ) -> Result<Vec<u8>> {
        self.encode_in(&Conversion::default(), weights, dtype)
    }

    /// Reads and encodes all elements; `conversion` returns the conversion of each part.
    pub(super) fn encode_in(
        &self,
        conversion: &Conversion,
        weights: &mut ModelWeights<'_>,
        dtype: WeightType,
    ) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(dtype.bytes(self.len()));
        for part in &self.parts {
            let order = |row| part.loaded_row((conversion.order)(row));
            bytes.extend(weights.read(part)?.converted(conversion).encode(dtype, &order)?);
        }
        Ok(bytes)
    }
}

/// How a format differs from Hugging Face files.
pub(super) struct Conversion {
    /// Row `i` of a tensor is row `order(i)` of the Hugging Face tensor.
    pub(super) order: Box<dyn Fn(usize) -> usize + Sync>,
    /// The factor of all elements.
    pub(super) factor: f64,
    /// Whether norms that multiply by `1 + w` are stored as `1 + w` instead of `w`.
    pub(super) unit_offset: bool,
}

impl Default for Conversion {
    /// Returns the conversion for Hugging Face files: none.
    fn default() -> Self {
        Self { order: Box::new(|row| row), factor: 1.0, unit_offset: false }
    }
}

/// A tensor with its update: `base + scale · b · a`, with `base: [rows, width]`,
/// `a: [rank, width]`, `b: [rows, rank]`. With magnitudes, each row is scaled to its magnitude.
pub(crate) struct Tensor {
    name: String,
    base: Vec<f32>,
    width: usize,
    update: Option<Update>,
    /// Subtracted from the values before they are written.
    offset: f64,
    /// The factor of the written values.
    factor: f64,
}

struct Update {
    a: Vec<f64>,
    b: Vec<f32>,
    rank: usize,
    scale: f64,
    /// The trained magnitudes of DoRA: the row norms of the tensor with its update.
    magnitudes: Option<Vec<f32>>,
}

impl Tensor {
    /// Returns the tensor with the values of `conversion`. The row order is applied when encoding.
    pub(super) fn converted(self, conversion: &Conversion) -> Self {
        let offset = if conversion.unit_offset { 0.0 } else { self.offset };
        Self { offset, factor: conversion.factor, ..self }
    }

    /// Computes a row.
    fn row(&self, index: usize, out: &mut [f64]) {
        out.fill(0.0);
        let base = &self.base[index * self.width..][..self.width];
        let Some(Update { a, b, rank, scale, magnitudes }) = &self.update else {
            let stored = |base: f32| (f64::from(base) - self.offset) * self.factor;
            out.iter_mut().zip(base).for_each(|(out, &base)| *out = stored(base));
            return;
        };
        for (&b, a) in b[index * rank..][..*rank].iter().zip(a.chunks_exact(self.width)) {
            let b = f64::from(b);
            out.iter_mut().zip(a).for_each(|(sum, a)| *sum += b * a);
        }
        let merged = |base: f32, sum: f64| f64::from(base) + scale * sum;
        out.iter_mut().zip(base).for_each(|(sum, &base)| *sum = merged(base, *sum));
        let factor = magnitudes.as_ref().map_or(1.0, |magnitudes| {
            f64::from(magnitudes[index]) / out.iter().map(|x| x * x).sum::<f64>().sqrt()
        });
        out.iter_mut().for_each(|x| *x *= factor * self.factor);
    }

    /// Encodes all elements. Row `i` of the result is row `order(i)` of the tensor. Uses one thread
    /// per CPU core.
    pub(crate) fn encode(
        &self,
        dtype: WeightType,
        order: &(dyn Fn(usize) -> usize + Sync),
    ) -> Result<Vec<u8>, ExportError> {
        let rows = self.base.len() / self.width.max(1);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let share = rows.div_ceil(cores).max(ROWS_PER_THREAD);
        let part = |first: usize| self.part(first..rows.min(first + share), dtype, order);
        let parts = std::thread::scope(|scope| {
            let part = &part;
            let starts = (0..rows).step_by(share);
            let threads: Vec<_> = starts.map(|first| scope.spawn(move || part(first))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().expect("encoding does not panic")
            };
            threads.into_iter().map(join).collect::<Result<Vec<Vec<u8>>, _>>()
        })?;
        Ok(parts.concat())
    }

    fn part(
        &self,
        rows: Range<usize>,
        dtype: WeightType,
        order: &dyn Fn(usize) -> usize,
    ) -> Result<Vec<u8>, ExportError> {
        let mut bytes = Vec::with_capacity(rows.len() * dtype.bytes(self.width));
        let mut row = vec![0.0; self.width];
        for index in rows.map(order) {
            self.row(index, &mut row);
            dtype.encode(&row, &mut bytes).map_err(|column| ExportError::Overflow {
                name: self.name.clone(),
                index: index * self.width + column,
                value: row[column],
                dtype: dtype.name(),
            })?;
        }
        Ok(bytes)
    }
}
