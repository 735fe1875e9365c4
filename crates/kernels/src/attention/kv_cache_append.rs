//! Appends new keys and values to their caches, in the type of the caches.

use half::bf16;
use retrograph_kernel_abi::{Any, attention as abi};

use super::cache::KvCacheShape;
use crate::checks::Check;
use crate::geometry::linear;
use crate::launch::{ArgumentTypes, Pointer};
use crate::{Dispatch, Kernel, KernelError, Launch, Problem, TensorView, View};

/// Kernel of [`KvCacheAppend`] without conversion.
pub static KV_CACHE_APPEND: Kernel =
    Kernel::new("kv_cache_append", &abi::KV_CACHE_APPEND, |problem, _| {
        problem.items().map(|elements| dispatch(abi::KV_CACHE_APPEND.entry(), elements, 1))
    });

/// Kernel of [`KvCacheAppend`] from f32 into caches in bf16.
pub static KV_CACHE_APPEND_BF16: Kernel =
    Kernel::new("kv_cache_append_bf16", &abi::KV_CACHE_APPEND_BF16, |problem, _| {
        let unit = abi::KV_CACHE_APPEND_BF16_ELEMENTS;
        problem.items().map(|elements| dispatch(abi::KV_CACHE_APPEND_BF16.entry(), elements, unit))
    });

/// One thread for each `unit` elements.
fn dispatch(entry: &'static str, elements: u32, unit: u32) -> Dispatch {
    let threads = abi::KV_CACHE_APPEND_THREADS;
    linear(entry, elements.div_ceil(unit * threads), threads)
}

/// A cache of keys and one of values, of the same type.
#[derive(Clone, Copy, Debug)]
pub enum KvCache<B> {
    /// Keys and values in f32.
    F32([View<B, f32>; 2]),
    /// Keys and values in bf16; appended ones are rounded to the nearest, ties to even.
    Bf16([View<B, bf16>; 2]),
}

impl<B> From<[View<B, f32>; 2]> for KvCache<B> {
    fn from(views: [View<B, f32>; 2]) -> Self {
        Self::F32(views)
    }
}

impl<B> From<[View<B, bf16>; 2]> for KvCache<B> {
    fn from(views: [View<B, bf16>; 2]) -> Self {
        Self::Bf16(views)
    }
}

impl<B: Copy> KvCache<B> {
    /// Keys and values, as tensors to read.
    pub fn views(self) -> [TensorView<B>; 2] {
        match self {
            Self::F32(views) => views.map(TensorView::F32),
            Self::Bf16(views) => views.map(TensorView::Bf16),
        }
    }

    /// The elements `range` of both.
    ///
    /// # Panics
    /// If `range` is not inside the caches.
    pub fn slice(self, range: std::ops::Range<usize>) -> Self {
        match self {
            Self::F32(views) => Self::F32(views.map(|view| view.slice(range.clone()))),
            Self::Bf16(views) => Self::Bf16(views.map(|view| view.slice(range.clone()))),
        }
    }

    /// Pointers to both caches, of which the kernel writes a part.
    pub(crate) fn pointers(self) -> [Pointer<B, Any>; 2] {
        match self {
            Self::F32(views) => views.map(|view| Pointer::update(view).any()),
            Self::Bf16(views) => views.map(|view| Pointer::update(view).any()),
        }
    }

    /// Checks bf16 rows: the kernel writes two elements as one 32-bit word.
    pub(crate) fn check_words(self, check: Check, width: usize) -> Result<(), KernelError> {
        let Self::Bf16(views) = self else { return Ok(()) };
        let rule = "tokens in bf16 must start at multiples of 4 bytes and have an even number of \
                    elements";
        let starts = views.map(|view| view.byte_range().start);
        let odd = starts.into_iter().find(|start| start % 4 != 0);
        let holds = width.is_multiple_of(2) && odd.is_none();
        check.rule(holds, rule, [odd.unwrap_or(starts[0]), width])
    }
}

/// Writes the keys and values of new tokens into their caches, from position `start` on.
///
/// Tokens from `count` on become 0, as do the positions after the last token up to the next
/// multiple of 128: [`PrefillAttention`](crate::attention::PrefillAttention) multiplies by the rest
/// of its last tile. Tokens past the capacity are skipped. Keys and values are f32, or
/// both bf16 if the caches are. Caches in bf16 need an even `kv_heads × head_dim`. NaN stays NaN;
/// numbers beyond the range of bf16 become infinite.
#[derive(Clone, Copy, Debug)]
pub struct KvCacheAppend<B> {
    /// `[tokens, kv_heads, head_dim]`, read.
    pub keys: TensorView<B>,
    /// `[tokens, kv_heads, head_dim]`, read.
    pub values: TensorView<B>,
    /// `[capacity, kv_heads, head_dim]` each, partly written.
    pub caches: KvCache<B>,
    /// `[1]`, read: the position of the first token.
    pub start: View<B, u32>,
    /// `[1]`, read: the number of tokens to append; all if `None`.
    pub count: Option<View<B, u32>>,
    /// The sizes.
    pub shape: KvCacheShape,
}

impl<B: Copy> KvCacheAppend<B> {
    /// Checks the operands and describes the launch.
    ///
    /// # Errors
    /// If the length of a cache does not match the shape, keys and values are not whole tokens or
    /// not equally many, their types do not match, tokens in bf16 are not aligned to 4 bytes, or
    /// `start` or `count` does not have one element.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { keys, values, caches, start, count, shape } = self;
        let check = Check(KV_CACHE_APPEND.name);
        let [key_cache, value_cache] = caches.views();
        shape.check(check, [("key_cache", key_cache), ("value_cache", value_cache)])?;
        let width = shape.width().max(1);
        caches.check_words(check, shape.width())?;
        let whole = keys.len().is_multiple_of(width);
        check.rule(whole, "keys and values must be whole tokens", [keys.len(), width])?;
        check.elements("values", values.len(), keys.len())?;
        check.length("start", start, 1)?;
        if let Some(count) = count {
            check.length("count", count, 1)?;
        }
        let elements = check.size("the number of elements", keys.len())?;
        // The rest of a tile starts at any position.
        let rest = width * (abi::WGMMA_ROWS as usize - 1);
        let written = if keys.is_empty() { 0 } else { keys.len().saturating_add(rest) };
        let written = check.size("the number of elements with the rest of a tile", written)?;
        let width = check.size("the elements of a token", width)?;
        let capacity = check.size("the capacity", shape.capacity)?;
        let (kernel, per_word) = match (keys, values, caches) {
            (TensorView::F32(_), TensorView::F32(_), KvCache::F32(_)) => (&KV_CACHE_APPEND, 1),
            (TensorView::F32(_), TensorView::F32(_), KvCache::Bf16(_)) => {
                (&KV_CACHE_APPEND_BF16, 1)
            }
            (TensorView::Bf16(k), TensorView::Bf16(v), KvCache::Bf16(_)) => {
                KvCache::Bf16([k, v]).check_words(check, shape.width())?;
                (&KV_CACHE_APPEND, 2)
            }
            _ => {
                let (compute, dtype) = (key_cache.dtype(), keys.dtype());
                let help = "give keys and values in f32, or both in bf16 for caches in bf16";
                return Err(KernelError::UnsupportedDType {
                    kernel: check.0,
                    compute,
                    dtype,
                    help,
                });
            }
        };
        let [elements, written, width] = [elements, written, width].map(|count| count / per_word);
        let [key_cache, value_cache] = caches.pointers();
        let parameters = abi::KvCacheAppendParameters::<ArgumentTypes<B>> {
            keys: keys.pointer(),
            values: values.pointer(),
            key_cache,
            value_cache,
            start: Pointer::read(start),
            count: Pointer::read_optional(count),
            elements,
            width,
            capacity,
        };
        let arguments = parameters.into_arguments();
        Ok(Launch { kernel, problem: Problem::Items(written), arguments })
    }
}
