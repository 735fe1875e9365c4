//! New keys and values into the caches of keys and values, in the type of these.

use half::bf16;

use super::cache::CacheShape;
use crate::checks::Check;
use crate::geometry::linear;
use crate::params::{pointer, u32};
use crate::tensor::Stored;
use crate::{Argument, Kernel, KernelError, Launch, Parameter, Problem, View};

static APPENDED: &[Parameter] = &[
    pointer("keys"),
    pointer("values"),
    pointer("key_cache"),
    pointer("value_cache"),
    pointer("start"),
    pointer("count"),
    u32("elements"),
    u32("width"),
    u32("capacity"),
];

/// Kernel of [`CacheAppend`].
pub static CACHE_APPEND: Kernel = Kernel {
    name: "kv_cache_append",
    image: "kv_cache_append",
    parameters: APPENDED,
    entries: &["kv_cache_append"],
    dispatch: |problem, _| linear("kv_cache_append", problem.sizes[0].div_ceil(256), 256),
};

/// Kernel of [`CacheAppend`] into caches in bf16: a thread has two elements.
pub static CACHE_APPEND_BF16: Kernel = Kernel {
    name: "kv_cache_append_bf16",
    image: "kv_cache_append",
    parameters: APPENDED,
    entries: &["kv_cache_append_bf16"],
    dispatch: |problem, _| linear("kv_cache_append_bf16", problem.sizes[0].div_ceil(512), 256),
};

/// Caches that new keys and values are written into, and their type.
#[derive(Clone, Copy, Debug)]
pub enum CachePair<B> {
    /// Keys and values in f32.
    F32([View<B, f32>; 2]),
    /// Keys and values in bf16: what is written is rounded to the nearest, ties to even.
    Bf16([View<B, bf16>; 2]),
}

impl<B> From<[View<B, f32>; 2]> for CachePair<B> {
    fn from(pair: [View<B, f32>; 2]) -> Self {
        Self::F32(pair)
    }
}

impl<B> From<[View<B, bf16>; 2]> for CachePair<B> {
    fn from(pair: [View<B, bf16>; 2]) -> Self {
        Self::Bf16(pair)
    }
}

impl<B: Copy> CachePair<B> {
    /// Keys and values, for those who read them.
    pub fn stored(self) -> [Stored<B>; 2] {
        match self {
            Self::F32(pair) => pair.map(Stored::F32),
            Self::Bf16(pair) => pair.map(Stored::Bf16),
        }
    }

    /// The first elements of both.
    ///
    /// # Panics
    /// When there are fewer than `len`, as slices do.
    pub fn first(self, len: usize) -> Self {
        match self {
            Self::F32(pair) => Self::F32(pair.map(|view| view.slice(0..len))),
            Self::Bf16(pair) => Self::Bf16(pair.map(|view| view.slice(0..len))),
        }
    }

    /// Both, for those who write some of it.
    pub(crate) fn updated(self) -> [Argument<B>; 2] {
        match self {
            Self::F32(pair) => pair.map(Argument::update),
            Self::Bf16(pair) => pair.map(Argument::update),
        }
    }

    /// Pairs of bf16 are written as one word.
    pub(crate) fn check(self, check: Check, width: usize) -> Result<(), KernelError> {
        let Self::Bf16(pair) = self else { return Ok(()) };
        let rule = "tokens in bf16 have an even number of elements and start at whole words";
        let odd = pair.map(|view| view.byte_range().start % 4).into_iter().max().unwrap_or(0);
        check.rule(width.is_multiple_of(2) && odd == 0, rule, (width, odd))
    }
}

/// Writes the keys and values of new tokens into their caches, from position `start` on. Tokens
/// past `count` and places past the end are left out. Caches in bf16 need an even
/// `kv_heads × head_dim`; NaN stays NaN, and what is greater than every bf16 becomes infinite.
#[derive(Clone, Copy, Debug)]
pub struct CacheAppend<B> {
    /// `[tokens, kv_heads, head_dim]`, read.
    pub keys: View<B, f32>,
    /// `[tokens, kv_heads, head_dim]`, read.
    pub values: View<B, f32>,
    /// `[length, kv_heads, head_dim]` each, written in part.
    pub caches: CachePair<B>,
    /// The position of the first token, one element, read.
    pub start: View<B, u32>,
    /// How many tokens count, one element, read; all without it.
    pub count: Option<View<B, u32>>,
    /// The sizes.
    pub shape: CacheShape,
}

impl<B: Copy> CacheAppend<B> {
    /// Checks the operands and describes the launch.
    pub fn launch(self) -> Result<Launch<B>, KernelError> {
        let Self { keys, values, caches, start, count, shape } = self;
        let check = Check(CACHE_APPEND.name);
        let [key_cache, value_cache] = caches.stored();
        shape.check(check, [("key_cache", key_cache), ("value_cache", value_cache)])?;
        let width = shape.width().max(1);
        caches.check(check, shape.width())?;
        let whole = keys.len().is_multiple_of(width);
        check.rule(whole, "keys and values are whole tokens", (keys.len(), width))?;
        check.length("values", values, keys.len())?;
        check.length("start", start, 1)?;
        if let Some(count) = count {
            check.length("count", count, 1)?;
        }
        let elements = check.size("the number of elements", keys.len())?;
        let width = check.size("the elements of a token", width)?;
        let capacity = check.size("the length", shape.length)?;
        let kernel = match caches {
            CachePair::F32(_) => &CACHE_APPEND,
            CachePair::Bf16(_) => &CACHE_APPEND_BF16,
        };
        let [key_cache, value_cache] = caches.updated();
        let arguments = vec![
            Argument::read(keys),
            Argument::read(values),
            key_cache,
            value_cache,
            Argument::read(start),
            count.map_or(Argument::Null, Argument::read),
            Argument::U32(elements),
            Argument::U32(width),
            Argument::U32(capacity),
        ];
        Ok(Launch { kernel, problem: Problem::from([elements]), arguments })
    }
}
