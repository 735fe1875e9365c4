//! Uploads weights through pinned memory. While one chunk is copied, the next is read, computed or
//! quantized.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use retrograph_kernels::Element;
use retrograph_kernels::nf4::{self, Nested};
use retrograph_kernels::ops::{NF4_BLOCK, NotInF16, split_rows};
use retrograph_runtime::{Communicator, DeviceBuffer, Event, MemoryPool, PinnedBuffer, Stream};

use super::value::{DeviceScales, DeviceValue};
use crate::error::{Error, Result};
use crate::parameters::{Chunk, Parameter, Storage};

/// Elements of the dequantization map of nested scales.
const MAP: usize = 256;

/// Elements of a chunk: 16 MiB of f32, enough for full copy bandwidth, and whole NF4 blocks.
const CHUNK: usize = 4 << 20;

/// Pinned chunks: one is copied while the other is filled.
const SLOTS: usize = 2;

/// Fills a chunk of a parameter, given the index of its first element.
pub(super) type Fill<'a> = &'a mut dyn FnMut(usize, Chunk<'_>) -> Result<()>;

/// Pinned memory, the stream of its copies, and their target.
///
/// The target is one allocation for all parameters. The driver allocates in units of 2 MiB, so one
/// allocation per matrix would waste hundreds of megabytes.
#[derive(Debug)]
pub(super) struct Uploader<'a> {
    stream: &'a Stream,
    pool: MemoryPool,
    slots: Vec<(PinnedBuffer<f32>, Event)>,
    next: usize,
    /// The dequantization map of nested scales, once uploaded.
    map: Option<DeviceBuffer<f32>>,
}

impl<'a> Uploader<'a> {
    /// Returns an uploader with memory for all `parameters`, of the communicator if there is one.
    pub(super) fn new(
        stream: &'a Stream,
        parameters: &[Parameter],
        communicator: Option<&Communicator>,
    ) -> Result<Self> {
        let context = stream.context();
        let largest = parameters.iter().map(Parameter::len).max().unwrap_or(0);
        let bytes = pooled_bytes(parameters);
        let pool = match communicator {
            Some(communicator) => MemoryPool::of(communicator.allocate(bytes.div_ceil(4))?),
            None => MemoryPool::new(context, bytes)?,
        };
        let slot = |_| {
            let pinned = PinnedBuffer::zeroed(context, largest.min(CHUNK))?;
            Ok((pinned, Event::untimed(context)?))
        };
        let slots = (0..SLOTS).map(slot).collect::<Result<_>>()?;
        Ok(Self { stream, pool, slots, next: 0, map: None })
    }

    /// Uploads the values of `parameter`, which `fill` computes. The copies may still be in flight
    /// when this returns.
    pub(super) fn upload(&mut self, parameter: &Parameter, fill: Fill<'_>) -> Result<DeviceValue> {
        let len = parameter.len();
        match parameter.storage {
            Storage::F32 => {
                let fill = &mut |first, chunk: &mut [f32]| fill(first, Chunk::F32(chunk));
                Ok(DeviceValue::F32(self.copy(len, CHUNK, fill)?))
            }
            Storage::Bf16 => {
                let fill = &mut |first, chunk: &mut [bf16]| fill(first, Chunk::Bf16(chunk));
                Ok(DeviceValue::Bf16(self.copy(len, CHUNK, fill)?))
            }
            Storage::F32WithBf16 => self.with_copy(len, fill),
            Storage::F32WithF16 { rows, terms } => self.with_f16(parameter, [rows, terms], fill),
            Storage::Nf4 { double } => self.quantize(parameter, double, fill),
        }
    }

    /// Uploads `len` elements and their bf16 copy, with the same rounding as the optimizer.
    fn with_copy(&mut self, len: usize, fill: Fill<'_>) -> Result<DeviceValue> {
        let (master, copy) = (self.pool.uninit(len)?, self.pool.uninit(len)?);
        let mut rounded = Vec::new();
        for (first, count) in chunks(len, CHUNK) {
            rounded.resize(count, bf16::ZERO);
            self.send(&master, first, count, |chunk| {
                fill(first, Chunk::F32(chunk))?;
                rounded.convert_from_f32_slice(chunk);
                Ok(())
            })?;
            self.send(&copy, first, count, |chunk| {
                chunk.copy_from_slice(&rounded);
                Ok(())
            })?;
        }
        Ok(DeviceValue::F32WithBf16(master, copy))
    }

    /// Uploads a matrix and its f16 copy, chunks of whole rows at a time.
    fn with_f16(
        &mut self,
        parameter: &Parameter,
        [rows, terms]: [usize; 2],
        fill: Fill<'_>,
    ) -> Result<DeviceValue> {
        let len = parameter.len();
        let columns = len / rows.max(1);
        let (master, copy) = (self.pool.uninit(len)?, self.pool.uninit(terms * len)?);
        let (mut scratch, mut scales) = (Vec::new(), Vec::with_capacity(rows));
        for (first, count) in chunks(len, CHUNK / columns.max(1) * columns) {
            scratch.resize(terms * count, f16::ZERO);
            let mut split = Ok(Vec::new());
            self.send(&master, first, count, |chunk| {
                fill(first, Chunk::F32(chunk))?;
                split = split_all(chunk, columns, &mut scratch, terms);
                Ok(())
            })?;
            let shares = split.map_err(|error| Error::NotInF16 {
                parameter: parameter.name.clone(),
                index: first + error.index,
                value: error.value,
            })?;
            for term in 0..terms {
                self.send(&copy, term * len + first, count, |chunk| {
                    for (at, share) in &shares {
                        let len = share.len() * columns;
                        let source = &scratch[terms * at + term * len..][..len];
                        chunk[*at..][..len].copy_from_slice(source);
                    }
                    Ok(())
                })?;
            }
            scales.extend(shares.into_iter().flat_map(|(_, scales)| scales));
        }
        Ok(DeviceValue::F32WithF16(master, copy, self.whole(&scales)?))
    }

    fn quantize(
        &mut self,
        parameter: &Parameter,
        double: bool,
        fill: Fill<'_>,
    ) -> Result<DeviceValue> {
        let (len, mut scales, mut wide) = (parameter.len(), Vec::new(), Vec::new());
        let fill = &mut |byte: usize, codes: &mut [u8]| {
            let first = 2 * byte;
            wide.resize((2 * codes.len()).min(len - first), 0.0);
            fill(first, Chunk::F32(&mut wide))?;
            let absmax = quantize_all(&wide, codes).map_err(|error| Error::NotQuantizable {
                parameter: parameter.name.clone(),
                index: first + error.index,
                value: error.value,
            })?;
            scales.extend(absmax);
            Ok(())
        };
        let codes = self.copy(len.div_ceil(2), CHUNK / 2, fill)?;
        if !double {
            let scales = self.whole(&scales)?;
            return Ok(DeviceValue::Nf4(codes, DeviceScales::Plain(scales)));
        }
        let Nested { absmax, nested, offset } = Nested::new(&scales);
        let map = match self.map.clone() {
            Some(map) => map,
            None => self.whole(&nf4::dynamic_map())?,
        };
        self.map = Some(map.clone());
        let nested = self.whole(&[&[offset], nested.as_slice()].concat())?;
        let absmax = self.whole(&absmax)?;
        Ok(DeviceValue::Nf4(codes, DeviceScales::Nested { absmax, nested, map }))
    }

    /// Uploads `values` to a new buffer.
    fn whole<T: Element>(&self, values: &[T]) -> Result<DeviceBuffer<T>> {
        let buffer = self.pool.uninit(values.len())?;
        buffer.upload(self.stream, values)?;
        Ok(buffer)
    }

    /// Uploads `len` elements to a new buffer, in chunks of at most `most`. `fill` receives the
    /// index of the first element of a chunk, and the chunk.
    fn copy<T: Element>(
        &mut self,
        len: usize,
        most: usize,
        fill: &mut dyn FnMut(usize, &mut [T]) -> Result<()>,
    ) -> Result<DeviceBuffer<T>> {
        let buffer = self.pool.uninit(len)?;
        for (first, count) in chunks(len, most) {
            self.send(&buffer, first, count, |chunk| fill(first, chunk))?;
        }
        Ok(buffer)
    }

    /// Uploads `count` elements to `buffer` from the element `first` on. They fit into a slot.
    fn send<T: Element>(
        &mut self,
        buffer: &DeviceBuffer<T>,
        first: usize,
        count: usize,
        fill: impl FnOnce(&mut [T]) -> Result<()>,
    ) -> Result<()> {
        let (pinned, free) = &mut self.slots[self.next];
        free.synchronize()?;
        let staging: &mut [T] = bytemuck::cast_slice_mut(pinned);
        let chunk = &mut staging[..count];
        fill(chunk)?;
        assert!(first + count <= buffer.len(), "the chunk is inside the buffer");
        let target = buffer.address() + (first * size_of::<T>()) as u64;
        let bytes: &[u8] = bytemuck::cast_slice(chunk);
        let stream = self.stream.outside_capture("uploading a parameter")?;
        // SAFETY: the range is inside the buffer. The slot is not written until the event after its
        // copy has completed, and freeing device or pinned memory waits for the context.
        unsafe { stream.memcpy_htod(target, bytes.as_ptr(), bytes.len()) }?;
        free.record(&stream)?;
        self.next = (self.next + 1) % SLOTS;
        Ok(())
    }
}

/// The first element and the length of each chunk of at most `most` of `len` elements.
fn chunks(len: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len).step_by(most).map(move |first| (first, most.min(len - first)))
}

/// Returns the bytes of a pool for `parameters`.
pub(crate) fn pooled_bytes(parameters: &[Parameter]) -> usize {
    let quantized = |one: &Parameter| matches!(one.storage, Storage::Nf4 { double: true });
    let map = if parameters.iter().any(quantized) { MAP * size_of::<f32>() } else { 0 };
    let buffers = parameters.iter().flat_map(|one| one.storage.buffers(one.len()));
    map + buffers.map(MemoryPool::bytes_taken).sum::<usize>()
}

/// Writes the codes of `values` and returns their scales.
pub(super) fn quantize_all(values: &[f32], codes: &mut [u8]) -> Result<Vec<f32>, nf4::NotFinite> {
    let results = on_all_cores(values, NF4_BLOCK * 256, codes, NF4_BLOCK * 128, quantize);
    let mut scales = Vec::with_capacity(values.len().div_ceil(NF4_BLOCK));
    for (first, result) in results {
        let moved = |error: nf4::NotFinite| nf4::NotFinite { index: first + error.index, ..error };
        scales.extend(result.map_err(moved)?);
    }
    Ok(scales)
}

fn quantize(values: &[f32], codes: &mut [u8]) -> Result<Vec<f32>, nf4::NotFinite> {
    let quantized = nf4::quantize(values)?;
    codes.copy_from_slice(&quantized.codes);
    Ok(quantized.absmax)
}

/// Splits rows of `columns` values, in shares of whole rows. Returns the first value of each share
/// with its scales; its terms are in `copy` from that value on, times `terms`.
fn split_all(
    values: &[f32],
    columns: usize,
    copy: &mut [f16],
    terms: usize,
) -> Result<Vec<(usize, Vec<f32>)>, NotInF16> {
    let unit = columns.max(1);
    let split = |values: &[f32], copy: &mut [f16]| split_rows(values, unit, copy);
    let shares = on_all_cores(values, unit, copy, terms * unit, split).into_iter();
    let moved = |first, error: NotInF16| NotInF16 { index: first + error.index, ..error };
    shares.map(|(first, found)| Ok((first, found.map_err(|error| moved(first, error))?))).collect()
}

/// Calls `convert` for a share of `values` and of `out` on one thread per CPU core. Shares are
/// whole units, except the last. Returns the first value of each share with its result, in order.
pub(super) fn on_all_cores<T: Send, R: Send>(
    values: &[f32],
    unit: usize,
    out: &mut [T],
    out_unit: usize,
    convert: impl Fn(&[f32], &mut [T]) -> R + Sync,
) -> Vec<(usize, R)> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let units = values.len().div_ceil(unit).div_ceil(cores).max(1);
    let shares = values.chunks(units * unit).zip(out.chunks_mut(units * out_unit)).enumerate();
    let convert = &convert;
    std::thread::scope(|scope| {
        let threads: Vec<_> = shares
            .map(|(number, (values, out))| {
                (number * units * unit, scope.spawn(move || convert(values, out)))
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, R>| {
            thread.join().expect("conversions do not panic")
        };
        threads.into_iter().map(|(first, thread)| (first, join(thread))).collect()
    })
}
