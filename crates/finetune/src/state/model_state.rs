//! Parameters and moments on the device.

use std::ops::Range;

use half::bf16;
use retrograph_kernels::Element;
use retrograph_runtime::{Bindings, Communicator, DeviceBuffer, MemoryPool, Stream};

use super::upload::Uploader;
use super::value::DeviceValue;
use crate::checkpoint::{Checkpoint, StatePart, StateReader};
use crate::error::Result;
use crate::model::ParameterBuffers;
use crate::parameters::{Chunk, Parameter, Sharding};

/// A parameter on the device.
#[derive(Clone, Debug)]
struct Tensor {
    parameter: Parameter,
    value: DeviceValue,
    /// The elements that this rank updates.
    block: Range<usize>,
    /// The first and the second moment of these elements, if the parameter is trained.
    moments: Option<[DeviceBuffer<f32>; 2]>,
}

/// How the state is divided among ranks, and their communicator.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    /// The blocks of each rank.
    pub sharding: Sharding,
    /// Allocates the large parameters whose blocks ranks exchange; `None` for ordinary
    /// memory.
    pub communicator: Option<&'a Communicator>,
}

impl Placement<'_> {
    /// One rank.
    pub const ALONE: Self = Self { sharding: Sharding::NONE, communicator: None };

    /// Whether `parameter` is in memory of the communicator: it has blocks, and at least four times
    /// as many elements as the smallest large parameter. Copy engines exchange one parameter at a
    /// time, so a kernel is faster for many small ones (docs/hardware/2026-11-27-two-h200).
    fn is_exchanged(&self, parameter: &Parameter) -> bool {
        self.communicator.is_some()
            && self.sharding.is_sharded(parameter)
            && parameter.len() >= 4 * self.sharding.large()
    }
}

/// Receives the uploaded bytes, all bytes, and the last parameter.
pub type UploadProgress<'a> = &'a mut dyn FnMut(usize, usize, &str);

/// Every parameter of a model on the device, with the moments of those that are trained.
#[derive(Clone, Debug)]
pub struct ModelState {
    tensors: Vec<Tensor>,
}

impl ModelState {
    /// Uploads values of `parameters`; moments start at zero. `fill` receives a parameter, the
    /// index of the first element of a chunk, and the chunk.
    ///
    /// # Errors
    /// The error of `fill`, or if the device has too little memory or fails.
    pub fn from_values(
        stream: &Stream,
        parameters: &[Parameter],
        fill: impl FnMut(&Parameter, usize, Chunk<'_>) -> Result<()>,
        progress: UploadProgress<'_>,
    ) -> Result<Self> {
        Self::sharded(stream, parameters, Placement::ALONE, fill, progress)
    }

    /// Like [`ModelState::from_values`], but only with the moments of the blocks that this rank
    /// updates. Large parameters with blocks are in memory of the communicator.
    ///
    /// # Errors
    /// As [`ModelState::from_values`].
    pub fn sharded(
        stream: &Stream,
        parameters: &[Parameter],
        placement: Placement<'_>,
        mut fill: impl FnMut(&Parameter, usize, Chunk<'_>) -> Result<()>,
        progress: UploadProgress<'_>,
    ) -> Result<Self> {
        let total = parameters.iter().map(Parameter::bytes).sum();
        let sharding = placement.sharding;
        let (exchanged, others): (Vec<Parameter>, Vec<Parameter>) =
            parameters.iter().cloned().partition(|parameter| placement.is_exchanged(parameter));
        let mut uploader = Uploader::new(stream, &others, None)?;
        let mut of_exchanged = match placement.communicator {
            Some(communicator) if !exchanged.is_empty() => {
                Some(Uploader::new(stream, &exchanged, Some(communicator))?)
            }
            _ => None,
        };
        let moments = moments(stream, parameters, sharding)?;
        let mut done = 0;
        let mut tensors = Vec::with_capacity(parameters.len());
        for parameter in parameters {
            let fill = &mut |first, chunk: Chunk<'_>| fill(parameter, first, chunk);
            let uploader = match &mut of_exchanged {
                Some(of_exchanged) if placement.is_exchanged(parameter) => of_exchanged,
                _ => &mut uploader,
            };
            let value = uploader.upload(parameter, fill)?;
            let block = sharding.block(parameter);
            let moments = match moments.as_ref().filter(|_| parameter.trainable) {
                Some(pool) => Some([pool.zeroed(block.len())?, pool.zeroed(block.len())?]),
                None => None,
            };
            done += parameter.bytes();
            progress(done, total, &parameter.name);
            tensors.push(Tensor { parameter: parameter.clone(), value, block, moments });
        }
        stream.synchronize()?;
        Ok(Self { tensors })
    }

    /// Returns the state of `parameters`, without moments. Trained parameters are uploaded from
    /// `values`; others are shared with this state, which must have them in the same dtype.
    ///
    /// # Errors
    /// The error of `values`, or if the device has too little memory or fails.
    ///
    /// # Panics
    /// If this state lacks a parameter that is not trained.
    pub(crate) fn with_trained(
        &self,
        stream: &Stream,
        parameters: &[Parameter],
        values: &mut dyn FnMut(&Parameter) -> Result<Vec<f32>>,
    ) -> Result<Self> {
        let trained = parameters.iter().filter(|parameter| parameter.trainable).cloned();
        // A trainable parameter would have moments.
        let trained: Vec<_> =
            trained.map(|parameter| Parameter { trainable: false, ..parameter }).collect();
        let mut whole = Vec::new();
        let fill = |parameter: &Parameter, first: usize, chunk: Chunk<'_>| {
            if first == 0 {
                whole = values(parameter)?;
            }
            chunk.fill(|values| values.copy_from_slice(&whole[first..][..values.len()]));
            Ok(())
        };
        let uploaded = Self::from_values(stream, &trained, fill, &mut |_, _, _| ())?;
        let tensor = |parameter: &Parameter| {
            let from = if parameter.trainable { &uploaded } else { self };
            let found = from.tensors.iter().find(|one| one.parameter.name == parameter.name);
            found.expect("the state has every parameter of the model").clone()
        };
        Ok(Self { tensors: parameters.iter().map(tensor).collect() })
    }

    /// Loads the moments of every trained parameter from a checkpoint, which must have been checked
    /// with [`Checkpoint::require`].
    ///
    /// # Errors
    /// If the checkpoint cannot be read or the device fails.
    pub fn load_moments(&self, stream: &Stream, checkpoint: &mut Checkpoint) -> Result<()> {
        for tensor in self.trained() {
            for part in [StatePart::ExpAvg, StatePart::ExpAvgSq] {
                let values = checkpoint.tensor(&part.tensor_name(&tensor.parameter.name))?;
                tensor.part(part).upload(stream, &values[tensor.block.clone()])?;
            }
        }
        Ok(())
    }

    /// Copies the state that a step changes. Frozen weights are shared.
    ///
    /// # Errors
    /// If the device has too little memory or fails.
    pub fn duplicate(&self, stream: &Stream) -> Result<Self> {
        let mut tensors = self.tensors.clone();
        for tensor in &mut tensors {
            if let Some([first, second]) = &tensor.moments {
                tensor.moments = Some([duplicate(stream, first)?, duplicate(stream, second)?]);
                let values = duplicate(stream, tensor.value.floats())?;
                tensor.value = match tensor.value.copy() {
                    None => DeviceValue::F32(values),
                    Some(copy) => DeviceValue::F32WithBf16(values, duplicate(stream, copy)?),
                };
            }
        }
        Ok(Self { tensors })
    }

    /// Binds the parameters of a pass, which has the same order, and its moments.
    pub fn bind(&self, bindings: &mut Bindings, parameters: &[ParameterBuffers]) {
        for (tensor, buffers) in self.tensors.iter().zip(parameters) {
            debug_assert_eq!(tensor.parameter.name, buffers.parameter.name);
            tensor.value.bind(bindings, &buffers.value);
            if let (Some([first, second]), Some(trained)) = (&tensor.moments, &buffers.trained) {
                bindings.bind(trained.exp_avg, first);
                bindings.bind(trained.exp_avg_sq, second);
            }
        }
    }

    /// The trained parameters, in order.
    pub fn trained_parameters(&self) -> Vec<&Parameter> {
        self.trained().map(|tensor| &tensor.parameter).collect()
    }

    /// The parameters, in order.
    pub fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.tensors.iter().map(|tensor| &tensor.parameter)
    }

    /// Downloads the values of the parameter `name` as f32; `None` if there is no such parameter.
    ///
    /// # Errors
    /// If the device fails.
    pub fn values(&self, stream: &Stream, name: &str) -> Result<Option<Vec<f32>>> {
        let found = self.tensors.iter().find(|tensor| tensor.parameter.name == name);
        found.map(|tensor| tensor.value.download(stream, tensor.parameter.len())).transpose()
    }

    /// Downloads the name and the bf16 copy, as f32, of each trained parameter that has one.
    pub(crate) fn copies<'a>(
        &'a self,
        stream: &'a Stream,
    ) -> impl Iterator<Item = Result<(String, Vec<f32>)>> {
        let copied = self.trained().filter_map(|it| Some((&it.parameter.name, it.value.copy()?)));
        copied.map(|(name, copy)| {
            let values = copy.download(stream)?.into_iter().map(bf16::to_f32).collect();
            Ok((format!("{name}.bf16"), values))
        })
    }

    /// The values and bf16 copies of the parameters of which this rank updates a block.
    pub(crate) fn sharded_values(
        &self,
    ) -> impl Iterator<Item = (&DeviceBuffer<f32>, Option<&DeviceBuffer<bf16>>)> {
        let sharded = self.trained().filter(|tensor| tensor.block.len() < tensor.parameter.len());
        sharded.map(|tensor| (tensor.value.floats(), tensor.value.copy()))
    }

    /// Returns a reader of the state of trained parameters.
    pub fn reader<'a>(&'a self, stream: &'a Stream) -> DeviceReader<'a> {
        DeviceReader { tensors: self.trained().collect(), stream }
    }

    /// Frees the moments, which only training needs.
    pub fn without_moments(mut self) -> Self {
        self.tensors.iter_mut().for_each(|tensor| tensor.moments = None);
        self
    }

    fn trained(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().filter(|tensor| tensor.moments.is_some())
    }
}

/// Allocates memory for the moments of the trained `parameters`, separate from the parameters, so
/// that it can be freed after training.
fn moments(
    stream: &Stream,
    parameters: &[Parameter],
    sharding: Sharding,
) -> Result<Option<MemoryPool>> {
    let trained = parameters.iter().filter(|parameter| parameter.trainable);
    let bytes = |parameter: &Parameter| {
        MemoryPool::bytes_taken(sharding.block(parameter).len() * size_of::<f32>())
    };
    match trained.map(|parameter| 2 * bytes(parameter)).sum() {
        0 => Ok(None),
        bytes => Ok(Some(MemoryPool::new(stream.context(), bytes)?)),
    }
}

/// Returns a buffer with the same elements.
fn duplicate<T: Element>(stream: &Stream, buffer: &DeviceBuffer<T>) -> Result<DeviceBuffer<T>> {
    Ok(DeviceBuffer::from_slice(stream, &buffer.download(stream)?)?)
}

impl Tensor {
    /// Returns a part of the state of a trained parameter.
    fn part(&self, part: StatePart) -> &DeviceBuffer<f32> {
        let [first, second] = self
            .moments
            .as_ref()
            .expect("only trained parameters are listed, and these have moments");
        match part {
            StatePart::Parameter => self.value.floats(),
            StatePart::ExpAvg => first,
            StatePart::ExpAvgSq => second,
        }
    }
}

/// A reader of state on the device, in stream order.
#[derive(Debug)]
pub struct DeviceReader<'a> {
    tensors: Vec<&'a Tensor>,
    stream: &'a Stream,
}

impl DeviceReader<'_> {
    /// The elements that this rank updates of a parameter that is sharded, and its length.
    pub(crate) fn block(&self, index: usize) -> Option<(Range<usize>, usize)> {
        let Tensor { parameter, block, .. } = self.tensors[index];
        (block.len() < parameter.len()).then(|| (block.clone(), parameter.len()))
    }

    /// The buffer of a part: of a moment, this rank's elements.
    pub(crate) fn buffer(&self, index: usize, part: StatePart) -> &DeviceBuffer<f32> {
        self.tensors[index].part(part)
    }
}

impl StateReader for DeviceReader<'_> {
    fn read(&mut self, index: usize, part: StatePart) -> Result<Vec<f32>> {
        Ok(self.tensors[index].part(part).download(self.stream)?)
    }
}
