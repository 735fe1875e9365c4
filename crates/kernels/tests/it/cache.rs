//! Attention over a cache against its reference, for one new token and for several.

use half::bf16;
use retrograph_kernels::attention::reference::decode::decode_attention;
use retrograph_kernels::ops::{
    CacheScores, CacheSoftmax, CacheValues, DType, DecodeAttention, DecodeAttentionCombine,
    KvCacheAppend, KvCacheShape, QkNormRope, Rope, RopeTensor, TokenPositions, rope_tables,
};
use retrograph_kernels::rope::reference::rope;
use retrograph_kernels::{KernelError, Launch, View};

use crate::gemm_case::{Format, rounded};
use crate::harness::Device;
use crate::kv_cache_bf16::caches;
use crate::support::numbers::{Data, Tolerance, doubles, same_bits};

/// As for softmax; the weighted sum adds a rounding for each position.
pub(crate) const TOLERANCE: f64 = 2e-5;

pub(crate) fn shape([capacity, heads, kv_heads, head_dim]: [usize; 4]) -> KvCacheShape {
    KvCacheShape { capacity, heads, kv_heads, head_dim }
}

/// The scores of dot products.
pub(crate) fn scaled(scale: f32) -> impl Fn(f64) -> f64 {
    move |dot| dot * f64::from(scale)
}

/// Query, keys and values; positions after the newest are NaN.
#[derive(Clone)]
struct Case {
    format: Format,
    shift: usize,
    shape: KvCacheShape,
    position: usize,
    q: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    window: Option<u32>,
    scale: f32,
}

impl Case {
    fn new(data: &mut Data, sizes: [usize; 4], position: usize) -> Self {
        let shape = shape(sizes);
        let (held, whole) = (position + 1, shape.capacity);
        let width = shape.kv_heads * shape.head_dim;
        let mut filled = || {
            let mut cache = data.uniform(held * width, 2.0);
            cache.resize(whole * width, f32::NAN);
            cache
        };
        let (keys, values) = (filled(), filled());
        let q = data.uniform(shape.heads * shape.head_dim, 2.0);
        let scale = 1.0 / (shape.head_dim as f32).sqrt();
        Self {
            format: Format::F32,
            shift: 0,
            shape,
            position,
            q,
            keys,
            values,
            window: None,
            scale,
        }
    }

    /// The same case with bf16 caches and rounded values.
    fn in_bf16(self) -> Self {
        let (keys, values) = (rounded(&self.keys), rounded(&self.values));
        Self { format: Format::Bf16, keys, values, ..self }
    }

    fn run(&self) -> Vec<f32> {
        let (device, shape, window) = (Device::new(), self.shape, self.window);
        let width = shape.kv_heads * shape.head_dim;
        let place = self.position * width;
        // The newest key and value are the token's own; the cache has NaN at its position.
        let [(keys, k), (values, v)] = [&self.keys, &self.values].map(|cache| {
            let (mut held, mut own) = (cache.clone(), vec![0.0; width]);
            if let Some(row) = held.get_mut(place..place + width) {
                own.copy_from_slice(row);
                row.fill(f32::NAN);
            }
            (held, device.upload(&own))
        });
        let caches = caches(&device, self.format, [&keys, &values], self.shift);
        let splits = shape.heads * shape.splits(1);
        let partials = device.unwritten(splits * shape.head_dim);
        let (stats, out) = (device.unwritten(splits * 2), device.unwritten(self.q.len()));
        let position = device.upload(&[self.position as u32]);
        let half = shape.head_dim / 2;
        let tables = [1.0, 0.0].map(|value| device.upload(&vec![value; half]));
        let norm_rope = QkNormRope { gammas: [None; 2], eps: 0.0, tables, positions: 1 };
        let (qkv, scale) = ([device.upload(&self.q), k, v].map(Into::into), self.scale);
        let attention = DecodeAttention {
            qkv,
            norm_rope,
            caches,
            partials,
            stats,
            position,
            shape,
            window,
            scale,
            softcap: None,
        };
        device.run(&attention.launch().unwrap());
        device.run(
            &DecodeAttentionCombine { partials, stats, out: out.into(), position, shape, window }
                .launch()
                .unwrap(),
        );
        device.download(out)
    }

    fn expected(&self) -> Vec<f64> {
        let (q, keys, values) = (doubles(&self.q), doubles(&self.keys), doubles(&self.values));
        let (seen, capacity) = (self.position + 1, self.shape.capacity);
        let first = self.window.map_or(0, |window| seen.saturating_sub(window as usize));
        let positions = first..seen.min(capacity);
        decode_attention(&q, &keys, &values, positions, self.shape, scaled(self.scale))
    }

    fn check(&self, what: &str) -> Vec<f32> {
        let out = self.run();
        let tolerance = Tolerance::relative(TOLERANCE).absolute(TOLERANCE * 2.0);
        let Self { shape, position, .. } = self;
        tolerance.check(&out, &self.expected(), &format!("{shape:?} at {position}: {what}"));
        out
    }
}

#[test]
fn one_token_attends_to_the_used_positions_only() {
    let mut data = Data::new("cache attention");
    for (sizes, positions) in [
        ([1, 1, 1, 2], vec![0]),
        ([64, 2, 2, 16], vec![0, 1, 62, 63]),
        ([130, 6, 2, 6], vec![3, 64, 65, 129]),
        ([256, 4, 1, 128], vec![127, 128, 200]),
        ([70, 3, 3, 130], vec![69]),
        ([65, 2, 1, 256], vec![64]),
        // Splits are longer in a very long cache.
        ([16_500, 1, 1, 4], vec![255, 256, 16_499]),
    ] {
        for position in positions {
            let case = Case::new(&mut data, sizes, position);
            same_bits(&case.check("once"), &case.run(), "two splits");
            let case = case.in_bf16();
            let halves = case.check("in bf16");
            same_bits(&halves, &case.run(), "two splits in bf16");
            let floats = Case { format: Format::F32, ..case.clone() };
            let near = Tolerance::relative(TOLERANCE).absolute(TOLERANCE);
            near.check(&floats.run(), &doubles(&halves), "the same numbers as bf16 and as f32");
            for shift in [0, 1, 2, 4] {
                let shifted = Case { shift, ..floats.clone() };
                same_bits(&floats.run(), &shifted.run(), "another alignment in f32");
                // New keys and values are written in 32-bit words.
                let shift = shift & !1;
                same_bits(&halves, &Case { shift, ..case.clone() }.run(), "another alignment");
            }
        }
    }
}

#[test]
fn a_window_reads_only_the_last_positions() {
    let mut data = Data::new("cache window");
    for (sizes, positions) in [
        ([1, 1, 1, 2], vec![0]),
        ([70, 4, 2, 6], vec![0, 5, 63, 64, 69]),
        ([256, 2, 1, 64], vec![128, 200]),
        ([16_500, 1, 1, 4], vec![256, 16_499]),
    ] {
        for (position, window) in positions.into_iter().flat_map(|position| {
            [1, 2, 7, 64, 65, 129, position + 1].map(|window| (position, window))
        }) {
            let whole = Case::new(&mut data, sizes, position);
            let (mut case, width) = (whole.clone(), sizes[2] * sizes[3]);
            case.window = Some(window as u32);
            let before = (position + 1).saturating_sub(window) * width;
            case.keys[..before].fill(f32::NAN);
            case.values[..before].fill(f32::NAN);
            let found = case.check(&format!("window {window}"));
            same_bits(&found, &case.run(), "two runs");
            if window > position {
                same_bits(&found, &whole.run(), "a window of everything");
            }
            case.in_bf16().check(&format!("window {window} in bf16"));
        }
    }
}

#[test]
fn the_capacity_of_the_cache_changes_no_bit() {
    let mut data = Data::new("cache buckets");
    let small = Case::new(&mut data, [128, 4, 2, 8], 99);
    let extended = |cache: &[f32]| [cache, &vec![f32::NAN; 384 * 16]].concat();
    let (keys, values, q) = (extended(&small.keys), extended(&small.values), small.q.clone());
    let shape = KvCacheShape { capacity: 512, ..small.shape };
    let large = Case { shape, keys, values, q, ..small };
    let back = KvCacheShape { capacity: 128, ..shape };
    let small = Case {
        shape: back,
        keys: large.keys[..128 * 16].to_vec(),
        values: large.values[..128 * 16].to_vec(),
        q: large.q.clone(),
        ..large
    };
    same_bits(&small.run(), &large.check("a larger capacity"), "a cache of 128 and one of 512");
}

#[test]
fn special_scores_behave_as_in_softmax() {
    let mut data = Data::new("cache special");
    // A split whose scores are all −∞ has no weight; NaN and ∞ only affect their head.
    let mut hidden = Case::new(&mut data, [192, 1, 1, 2], 150);
    hidden.q = vec![1.0, 0.0];
    (0..64).for_each(|position| hidden.keys[position * 2] = f32::NEG_INFINITY);
    hidden.check("a run without weight");
    hidden.in_bf16().check("a run without weight in bf16");
    for value in [f32::NAN, f32::INFINITY] {
        let mut case = Case::new(&mut data, [192, 2, 2, 4], 150);
        case.q.fill(1.0);
        case.keys[100 * 8 + 1] = value;
        case.check("a special key");
        case.in_bf16().check("a special key in bf16");
    }
    for scale in [1e-30, 1e30] {
        let mut case = Case::new(&mut data, [80, 2, 1, 4], 70);
        case.values.iter_mut().for_each(|value| *value *= scale);
        let tolerance = Tolerance::relative(TOLERANCE).absolute(TOLERANCE * f64::from(scale) * 2.0);
        tolerance.check(&case.run(), &case.expected(), "values far from one");
        let case = case.in_bf16();
        tolerance.check(&case.run(), &case.expected(), "values far from one in bf16");
    }
}

#[test]
fn new_tokens_are_appended_and_attend_up_to_themselves() {
    let mut data = Data::new("cache prefill");
    for (sizes, start, tokens, count, window) in [
        ([16, 4, 2, 6], 0, 5, 5, None),
        ([40, 2, 1, 8], 7, 16, 11, None),
        // The last rows exceed the capacity.
        ([20, 3, 3, 4], 17, 8, 3, None),
        ([40, 2, 1, 8], 7, 16, 11, Some(1)),
        ([40, 4, 2, 8], 7, 16, 11, Some(9)),
        ([40, 2, 1, 8], 0, 16, 16, Some(100)),
    ] {
        let shape = shape(sizes);
        let KvCacheShape { capacity, heads, kv_heads, head_dim } = shape;
        let width = kv_heads * head_dim;
        let [past_k, past_v] = [(); 2].map(|()| data.uniform(start * width, 1.0));
        let [new_k, new_v] = [(); 2].map(|()| data.uniform(tokens * width, 1.0));
        let q = data.uniform(tokens * heads * head_dim, 1.0);
        let device = Device::new();
        let padded = |past: &[f32]| {
            let mut cache = past.to_vec();
            cache.resize(capacity * width, f32::NAN);
            device.upload(&cache)
        };
        let pair @ [key_cache, value_cache] = [padded(&past_k), padded(&past_v)];
        let (first, kept) = (device.upload(&[start as u32]), device.upload(&[count as u32]));
        let (keys, values) = (device.upload(&new_k), device.upload(&new_v));
        let (caches, start_at, count_at) = (pair.into(), first, Some(kept));
        let append = KvCacheAppend {
            keys: keys.into(),
            values: values.into(),
            caches,
            start: start_at,
            count: count_at,
            shape,
        };
        device.run(&append.launch().unwrap());
        let held = |past: &[f32], new: &[f32]| {
            let mut all = [past, &new[..count * width]].concat();
            all.resize(capacity * width, 0.0);
            all
        };
        let (all_k, all_v) = (held(&past_k, &new_k), held(&past_v, &new_v));
        same_bits(&device.download(key_cache), &all_k, "keys");
        same_bits(&device.download(value_cache), &all_v, "values");

        let scores = device.unwritten(heads * tokens * capacity);
        let (query, out) = (device.upload(&q), device.unwritten(q.len()));
        let (queries, scale) = (tokens, 0.5);
        let product = CacheScores { q: query, keys: key_cache, scores, queries, shape, scale };
        device.run(&product.launch().unwrap());
        let softmax =
            CacheSoftmax { values: scores, start: first, heads, queries, width: capacity, window };
        device.run(&softmax.launch().unwrap());
        let values = CacheValues { probs: scores, values: value_cache, out, queries, shape };
        device.run(&values.launch().unwrap());
        let out = device.download(out);
        let row = heads * head_dim;
        for token in 0..count {
            let q = doubles(&q[token * row..][..row]);
            let (keys, values) = (doubles(&all_k), doubles(&all_v));
            let seen = start + token + 1;
            let first = window.map_or(0, |window| seen.saturating_sub(window as usize));
            let expected = decode_attention(&q, &keys, &values, first..seen, shape, scaled(scale));
            let tolerance = Tolerance::relative(TOLERANCE).absolute(TOLERANCE);
            tolerance.check(&out[token * row..][..row], &expected, &format!("token {token}"));
        }
    }
}

#[test]
fn positions_start_at_the_device_scalar() {
    let mut data = Data::new("rope start");
    let ([seq, heads, head_dim], positions) = ([3, 2, 6], 12);
    let x = data.uniform(seq * heads * head_dim, 1.0);
    let (cos, sin) = rope_tables(positions, head_dim, 100.0);
    // With the second start, the last tokens are past the end of the tables.
    for start in [4, 11_usize] {
        let device = Device::new();
        let out = device.unwritten(x.len());
        let tensors = [RopeTensor { x: device.upload(&x), out: out.into(), heads }];
        let launch = Rope {
            tensors: &tensors,
            cos: device.upload(&cos),
            sin: device.upload(&sin),
            token_positions: TokenPositions::From(device.upload(&[start as u32])),
            positions,
            batch: 1,
            seq,
            head_dim,
            inverse: false,
        };
        device.run(&launch.launch().unwrap());
        let row = |token: usize| (start + token).min(positions - 1) * head_dim / 2;
        let rows = |table: &[f32]| -> Vec<f64> {
            let rows = (0..seq).flat_map(|token| table[row(token)..][..head_dim / 2].to_vec());
            rows.map(f64::from).collect()
        };
        let expected = rope(&doubles(&x), &rows(&cos), &rows(&sin), [seq, heads, head_dim], false);
        Tolerance::relative(0.0).absolute(1e-6).check(&device.download(out), &expected, "rope");
    }
}

#[test]
fn operands_that_do_not_fit_are_refused_by_name() {
    let floats = |name: &'static str, len| View::<&str, f32>::new(name, len);
    let words = |name: &'static str, len| View::<&str, u32>::new(name, len);
    let shape = shape([8, 4, 2, 6]);
    let (cache, position) = (floats("cache", 96), words("position", 1));
    let append = KvCacheAppend {
        keys: floats("keys", 24).into(),
        values: floats("values", 24).into(),
        caches: [cache; 2].into(),
        start: position,
        count: None,
        shape,
    };
    assert!(append.launch().is_ok());
    let error = |launch: Result<Launch<&str>, KernelError>| launch.unwrap_err().to_string();
    let ragged = KvCacheAppend { keys: floats("keys", 25).into(), ..append };
    assert!(error(ragged.launch()).contains("whole tokens"));
    let short = KvCacheAppend { caches: [cache, floats("cache", 95)].into(), ..append };
    assert!(error(short.launch()).contains("value_cache"));
    let groups = KvCacheAppend { shape: KvCacheShape { heads: 3, ..shape }, ..append };
    assert!(error(groups.launch()).contains("kv_heads"));

    let halves = |len| View::<&str, bf16>::new("halves", len);
    let wide = KvCacheAppend { caches: [halves(96); 2].into(), ..append };
    assert!(wide.launch().is_ok());
    let rounded = KvCacheAppend { keys: halves(24).into(), values: halves(24).into(), ..wide };
    assert!(rounded.launch().is_ok());
    let odd = KvCacheAppend { values: halves(25).slice(1..25).into(), ..rounded };
    assert!(error(odd.launch()).contains("multiples of 4 bytes"));
    for mixed in [
        KvCacheAppend { caches: [cache; 2].into(), ..rounded },
        KvCacheAppend { keys: floats("keys", 24).into(), ..rounded },
    ] {
        assert!(error(mixed.launch()).contains("both in bf16"));
    }
    let odd = KvCacheAppend { caches: [halves(96), halves(97).slice(1..97)].into(), ..append };
    assert!(error(odd.launch()).contains("multiples of 4 bytes"));
    let narrow = KvCacheShape { kv_heads: 1, head_dim: 3, ..shape };
    let odd = KvCacheAppend { caches: [halves(24); 2].into(), shape: narrow, ..append };
    assert!(error(odd.launch()).contains("even number"));

    let (q, out) = (floats("q", 24), floats("out", 24));
    let (partials, stats) = (floats("partials", 24), floats("stats", 8));
    let tables = [floats("cos", 3); 2];
    let norm_rope = QkNormRope { gammas: [None; 2], eps: 0.0, tables, positions: 1 };
    let kv = floats("kv", 12);
    let one = DecodeAttention {
        qkv: [q, kv, kv].map(Into::into),
        norm_rope,
        caches: [cache; 2].into(),
        partials,
        stats,
        position,
        shape,
        window: None,
        scale: 1.0,
        softcap: None,
    };
    assert!(one.launch().is_ok());
    let odd = floats("stats", 9).slice(1..9);
    assert!(error(DecodeAttention { stats: odd, ..one }.launch()).contains("multiple of 8"));
    let batch = DecodeAttention {
        qkv: [floats("q", 48), floats("kv", 24), floats("kv", 24)].map(Into::into),
        caches: [floats("caches", 2 * 10 * 12); 2].into(),
        partials: floats("partials", 48),
        stats: floats("stats", 16),
        position: View::new("positions", 2),
        ..one
    };
    assert!(batch.launch().is_ok());
    let caches = |keys, values| [floats("caches", keys), floats("caches", values)].into();
    let short = DecodeAttention { caches: caches(2 * 7 * 12, 2 * 7 * 12), ..batch };
    assert!(error(short.launch()).contains("as many positions as the capacity"));
    for (keys, values) in [(2 * 10 * 12 + 12, 2 * 10 * 12 + 12), (2 * 10 * 12, 2 * 9 * 12)] {
        let odd = DecodeAttention { caches: caches(keys, values), ..batch };
        assert!(error(odd.launch()).contains("whole positions of each sequence"));
    }
    for cap in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let capped = DecodeAttention { softcap: Some(cap), ..one };
        assert!(error(capped.launch()).contains("softcap"), "{cap}");
    }
    let none = DecodeAttention { position: View::new("positions", 0), ..one };
    assert!(error(none.launch()).contains("a position for each sequence"));
    let short = DecodeAttention { position: View::new("positions", 2), ..one };
    assert!(short.launch().is_err());
    let sum =
        DecodeAttentionCombine { partials, stats, out: out.into(), position, shape, window: None };
    assert!(sum.launch().is_ok());
    let short = DecodeAttentionCombine { out: floats("out", 23).into(), ..sum };
    assert!(error(short.launch()).contains("out"));

    let (scores, queries) = (floats("scores", 4 * 3 * 8), 3);
    let q = floats("q", 3 * 24);
    let product = CacheScores { q, keys: cache, scores, queries, shape, scale: 1.0 };
    assert!(product.launch().is_ok());
    assert!(error(CacheScores { queries: 2, ..product }.launch()).contains("`q`"));
    let stored = CacheScores { q, keys: halves(96), scores, queries, shape, scale: 1.0 };
    assert!(error(stored.launch()).contains("bf16"), "there is no product in f32 with bf16");
    assert!(stored.launch_in(DType::Bf16).is_ok());
    let softmax =
        CacheSoftmax { values: scores, start: position, heads: 4, queries, width: 8, window: None };
    assert!(softmax.launch().is_ok());
    assert!(error(CacheSoftmax { width: 7, ..softmax }.launch()).contains("values"));
    let values = CacheValues { probs: scores, values: cache, out: q, queries, shape };
    assert!(values.launch().is_ok());
    assert!(error(CacheValues { values: q, ..values }.launch()).contains("values"));
}
