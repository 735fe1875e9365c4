//! Fused attention of new tokens over a cache, against its reference.

use half::bf16;
use retrograph_kernels::attention::reference::decode::decode_attention;
use retrograph_kernels::ops::{DType, KvCacheShape, Output, PrefillAttention, TensorView};
use retrograph_kernels::{KernelError, Launch, View};

use crate::bounds::within;
use crate::cache::{scaled, shape};
use crate::fused_attention_case::upload;
use crate::gemm_case::{Format, rounded};
use crate::harness::Device;
use crate::kv_cache_bf16::caches;
use crate::support::model::cap;
use crate::support::numbers::{Data, doubles, same_bits};
use crate::support::reference::not_rounded;

/// New tokens and a cache. Keys after the newest are NaN.
#[derive(Clone)]
struct Case {
    format: Format,
    shape: KvCacheShape,
    start: usize,
    queries: usize,
    window: Option<u32>,
    scale: f32,
    softcap: Option<f32>,
    /// The maximum number of persistent blocks.
    blocks: u32,
    q: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Case {
    fn new(
        data: &mut Data,
        format: Format,
        sizes: [usize; 4],
        [start, queries]: [usize; 2],
    ) -> Self {
        let shape = shape(sizes);
        let KvCacheShape { capacity, heads, kv_heads, head_dim } = shape;
        let width = kv_heads * head_dim;
        let mut numbers = |count: usize| {
            let numbers = data.uniform(count, 2.0);
            if format == Format::Bf16 { rounded(&numbers) } else { numbers }
        };
        let q = numbers(queries * heads * head_dim);
        let (mut keys, values) = (numbers(capacity * width), numbers(capacity * width));
        let end = (start + queries).min(capacity) * width;
        keys[end..].fill(f32::NAN);
        let scale = 1.0 / (head_dim as f32).sqrt();
        Self {
            format,
            shape,
            start,
            queries,
            window: None,
            scale,
            softcap: None,
            blocks: u32::MAX,
            q,
            keys,
            values,
        }
    }

    /// Queries before the capacity.
    fn defined(&self) -> usize {
        self.queries.min(self.shape.capacity - self.start)
    }

    /// Returns the output of the queries before the capacity.
    fn run(&self) -> Vec<f32> {
        let Self { format, shape, queries, window, scale, softcap, .. } = *self;
        let device = Device::new();
        let dtype = if format == Format::Bf16 { DType::Bf16 } else { DType::F32 };
        let out = device.unwritten(self.q.len());
        let out_bf16 = device.upload(&vec![bf16::MAX; self.q.len()]);
        let attention = PrefillAttention {
            q: upload(&device, dtype, &self.q),
            caches: caches(&device, format, [&self.keys, &self.values], 0),
            out: Output::Both(out, out_bf16),
            start: device.upload(&[self.start as u32]),
            queries,
            window,
            shape,
            scale,
            softcap,
        };
        device.run_in_blocks(&attention.launch().unwrap(), self.blocks);
        let (mut exact, halves) = (device.download(out), device.download(out_bf16));
        exact.truncate(self.defined() * shape.heads * shape.head_dim);
        let halves = &bytemuck::cast_slice(&halves)[..exact.len()];
        assert_eq!(not_rounded(&exact, halves), None, "bf16 of f32");
        exact
    }

    /// The expected output, and the error bound of each element.
    fn expected(&self) -> (Vec<f64>, Vec<f64>) {
        let KvCacheShape { heads, head_dim, .. } = self.shape;
        let row = heads * head_dim;
        let (keys, values) = (doubles(&self.keys), doubles(&self.values));
        let absolute: Vec<_> = values.iter().map(|value| value.abs()).collect();
        // Weights in bf16 are rounded with a relative error of up to 2⁻⁸, half an ulp. In f32, a
        // score of 10 is a sum of a few dozen numbers, each with an error of 2⁻²⁴ of the sum.
        let relative = if self.format == Format::Bf16 { 1.0 / 256.0 + 1e-4 } else { 2e-5 };
        let (mut expected, mut bounds) = (Vec::new(), Vec::new());
        for query in 0..self.defined() {
            let q = doubles(&self.q[query * row..][..row]);
            let end = self.start + query + 1;
            let first = self.window.map_or(0, |window| end.saturating_sub(window as usize));
            let (shape, scale) = (self.shape, scaled(self.scale));
            let score = |dot| cap(scale(dot), self.softcap.map(f64::from));
            expected.extend(decode_attention(&q, &keys, &values, first..end, shape, score));
            let magnitudes = decode_attention(&q, &keys, &absolute, first..end, shape, score);
            bounds.extend(magnitudes.iter().map(|magnitude| relative * magnitude + 1e-30));
        }
        (expected, bounds)
    }

    fn check(&self, what: &str) -> Vec<f32> {
        let (found, (expected, bounds)) = (self.run(), self.expected());
        let Self { format, shape, start, queries, window, .. } = self;
        let what = format!("{what}: {format:?} {shape:?} {start}+{queries}, window {window:?}");
        within(&found, &expected, &bounds, &what);
        same_bits(&found, &self.run(), "two runs");
        found
    }
}

const FORMATS: [Format; 2] = [Format::F32, Format::Bf16];

#[test]
fn new_tokens_attend_to_the_cache_up_to_themselves() {
    let mut data = Data::new("prefill attention");
    for format in FORMATS {
        for (sizes, runs) in [
            ([1, 1, 1, 8], vec![[0, 1]]),
            ([40, 4, 2, 8], vec![[0, 16], [7, 16], [30, 16]]),
            ([131, 3, 3, 40], vec![[0, 131], [37, 64], [130, 1]]),
            ([300, 2, 1, 64], vec![[0, 128], [128, 128], [1, 130], [127, 2], [250, 64]]),
            ([150, 3, 1, 96], vec![[0, 33], [129, 7]]),
            ([260, 2, 2, 128], vec![[0, 16], [100, 160], [256, 16]]),
            ([70, 1, 1, 120], vec![[5, 60]]),
            ([150, 2, 1, 256], vec![[0, 64], [70, 80]]),
            ([70, 3, 3, 136], vec![[5, 60]]),
        ] {
            if format == Format::F32 && sizes[3] > 128 {
                continue;
            }
            for tokens in runs {
                Case::new(&mut data, format, sizes, tokens).check("fused");
            }
        }
    }
}

#[test]
fn a_window_hides_earlier_positions() {
    let mut data = Data::new("prefill attention window");
    for format in FORMATS {
        for (sizes, tokens) in [
            ([40, 2, 1, 8], [7, 16]),
            ([300, 2, 1, 64], [0, 300]),
            ([400, 2, 1, 64], [200, 150]),
            ([300, 1, 1, 128], [129, 140]),
            ([200, 1, 1, 256], [70, 100]),
        ] {
            if format == Format::F32 && sizes[3] > 128 {
                continue;
            }
            let whole = Case::new(&mut data, format, sizes, tokens);
            let before = whole.run();
            for window in [1, 2, 63, 64, 65, 128, 129, 200, 1000] {
                let mut case = Case { window: Some(window as u32), ..whole.clone() };
                let hidden = (tokens[0] + 1).saturating_sub(window) * sizes[2] * sizes[3];
                case.keys[..hidden].fill(f32::NAN);
                let found = case.check("window");
                if window >= tokens[0] + tokens[1] {
                    same_bits(&found, &before, "a window of everything");
                }
            }
        }
    }
}

#[test]
fn scores_with_a_cap_match_the_reference() {
    let mut data = Data::new("prefill attention cap");
    for (sizes, tokens) in [
        ([40, 4, 2, 8], [7, 16]),
        ([300, 2, 1, 64], [1, 130]),
        ([150, 3, 1, 96], [129, 7]),
        ([260, 2, 2, 128], [100, 150]),
        ([70, 1, 1, 120], [5, 60]),
        ([150, 2, 1, 256], [70, 80]),
        ([70, 3, 3, 136], [5, 60]),
    ] {
        let plain = Case::new(&mut data, Format::Bf16, sizes, tokens);
        let capped = |cap| Case { softcap: Some(cap), ..plain.clone() };
        // Scores of up to a few units, in the series and beyond it, and then of hundreds.
        let curved = capped(0.5).check("curved");
        assert_ne!(curved, plain.run(), "the cap has no effect");
        capped(50.0).check("nearly linear");
        Case { scale: 30.0, ..capped(50.0) }.check("saturated");
        Case { window: Some(33), ..capped(2.0) }.check("in a window");
        // The smallest cap makes all scores equal, the largest one changes none.
        capped(f32::MIN_POSITIVE).check("none left");
        capped(f32::MAX).check("all left");
        let mut special = capped(2.0);
        let [position, width] = [tokens[0] + 2, sizes[2] * sizes[3]];
        special.keys[position * width] = f32::NAN;
        let found = special.run();
        let row = sizes[1] * sizes[3];
        let of_first_head = |query: usize| &found[query * row..][..sizes[3]];
        assert!(of_first_head(2).iter().all(|x| x.is_nan()), "NaN is lost");
        assert!(of_first_head(1).iter().all(|x| x.is_finite()), "NaN is later");
    }
}

#[test]
fn neither_capacity_nor_blocks_nor_pieces_of_whole_tiles_change_a_bit() {
    let mut data = Data::new("prefill attention pieces");
    for (format, head_dim) in
        [(Format::F32, 64), (Format::Bf16, 64), (Format::Bf16, 40), (Format::Bf16, 256)]
    {
        let whole = Case::new(&mut data, format, [400, 2, 1, head_dim], [0, 300]);
        let found = whole.run();
        let extended = |cache: &[f32], value| [cache, &vec![value; 100 * head_dim]].concat();
        let large = Case {
            shape: KvCacheShape { capacity: 500, ..whole.shape },
            keys: extended(&whole.keys, f32::NAN),
            values: extended(&whole.values, 1.0),
            ..whole.clone()
        };
        same_bits(&found, &large.run(), "a larger capacity");
        for blocks in [1, 4] {
            same_bits(&found, &Case { blocks, ..whole.clone() }.run(), "fewer blocks");
        }
        let row = 2 * head_dim;
        for [start, end] in [[0, 128], [128, 300]] {
            let q = whole.q[start * row..end * row].to_vec();
            let piece = Case { start, queries: end - start, q, ..whole.clone() };
            same_bits(&found[start * row..end * row], &piece.run(), "a piece");
        }
    }
}

#[test]
fn special_values_reach_those_that_attend_to_them() {
    let mut data = Data::new("prefill attention special");
    for format in FORMATS {
        for head_dim in [8, 64] {
            let plain = Case::new(&mut data, format, [300, 2, 2, head_dim], [100, 180]);
            for value in [f32::NAN, f32::INFINITY] {
                let mut case = plain.clone();
                let position = 150;
                case.keys[position * 2 * head_dim] = value;
                case.q.iter_mut().for_each(|q| *q = q.abs() + 0.5);
                let found = case.run();
                let of_head =
                    |query: usize, head| &found[(query * 2 + head) * head_dim..][..head_dim];
                for query in 0..180 {
                    assert!(of_head(query, 1).iter().all(|x| x.is_finite()), "{query}: other head");
                    let attends = 100 + query >= position;
                    let all_nan = of_head(query, 0).iter().all(|x| x.is_nan());
                    assert!(all_nan || !attends, "{query}: {value} was lost");
                    let is_far = 100 + query < 128;
                    assert!(!all_nan || !is_far, "{query}: {value} is later");
                }
            }
            for scale in [1e-30, 1e30] {
                let mut case = plain.clone();
                case.values.iter_mut().for_each(|value| *value *= scale);
                if format == Format::Bf16 {
                    case.values = rounded(&case.values);
                }
                case.check("values far from one");
            }
        }
    }
}

#[test]
fn operands_that_do_not_fit_are_refused_by_name() {
    let floats = |name: &'static str, len| View::<&str, f32>::new(name, len);
    let halves = |name: &'static str, len| View::<&str, bf16>::new(name, len);
    let shape = shape([8, 4, 2, 8]);
    let (q, out, cache) = (floats("q", 96), floats("out", 96), floats("cache", 128));
    let attention = PrefillAttention {
        q: q.into(),
        caches: [cache; 2].into(),
        out,
        start: View::new("start", 1),
        queries: 3,
        window: None,
        shape,
        scale: 1.0,
        softcap: None,
    };
    assert!(attention.launch().is_ok());
    let error = |launch: Result<Launch<&str>, KernelError>| launch.unwrap_err().to_string();
    assert!(error(PrefillAttention { queries: 4, ..attention }.launch()).contains("`q`"));
    let short = PrefillAttention { out: floats("out", 95), ..attention };
    assert!(error(short.launch()).contains("`out`"));
    let short = PrefillAttention { caches: [cache, floats("cache", 120)].into(), ..attention };
    assert!(error(short.launch()).contains("`values`"));
    let mixed = PrefillAttention { caches: [halves("cache", 128); 2].into(), ..attention };
    assert!(error(mixed.launch()).contains("in one type"));
    let two = PrefillAttention { start: View::new("start", 2), ..attention };
    assert!(error(two.launch()).contains("`start`"));
    let odd = PrefillAttention { q: floats("q", 97).slice(1..97).into(), ..attention };
    assert!(error(odd.launch()).contains("multiples of 16 bytes"));
    let infinite = PrefillAttention { scale: f32::INFINITY, ..attention };
    assert!(infinite.launch().is_err());
    let capped = PrefillAttention { softcap: Some(2.0), ..attention };
    assert!(error(capped.launch()).contains("capped scores need operands in bf16"));
    let blind = PrefillAttention { window: Some(0), ..attention };
    assert!(error(blind.launch()).contains("at least one position"));
    let empty = PrefillAttention {
        q: floats("q", 0).into(),
        out: floats("out", 0),
        queries: 0,
        ..attention
    };
    assert!(empty.launch().is_ok());
    let in_bf16 = PrefillAttention {
        q: TensorView::Bf16(halves("q", 96)),
        caches: [halves("cache", 128); 2].into(),
        ..attention
    };
    assert!(in_bf16.launch().is_ok());
    assert!(PrefillAttention { softcap: Some(2.0), ..in_bf16 }.launch().is_ok());
    for softcap in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let launch = PrefillAttention { softcap: Some(softcap), ..in_bf16 }.launch();
        assert!(error(launch).contains("softcap"), "{softcap}");
    }
    assert!(shape.can_prefill_fused(DType::Bf16));
    for (head_dim, in_f32, in_bf16) in [
        (4, true, false),
        (12, true, false),
        (136, false, true),
        (256, false, true),
        (264, false, false),
    ] {
        let wide = KvCacheShape { head_dim, ..shape };
        let found = [DType::F32, DType::Bf16].map(|dtype| wide.can_prefill_fused(dtype));
        assert_eq!(found, [in_f32, in_bf16], "{head_dim}");
    }
}
