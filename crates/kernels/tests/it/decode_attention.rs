//! Decode attention from the projections on: LoRA updates, norms, RoPE, the cache append.

use half::bf16;
use retrograph_kernels::attention::reference::decode::decode_attention;
use retrograph_kernels::norm::reference::rms_norm::rms_norm;
use retrograph_kernels::ops::{
    DecodeAttention, DecodeAttentionCombine, GemmShape, KvCacheShape, LoraUpdate, Output,
    QkNormRope, QkvProjection, rope_tables,
};
use retrograph_kernels::rope::reference::rope;

use crate::cache::{TOLERANCE, shape};
use crate::gemm_case::{Format, rounded};
use crate::harness::Device;
use crate::kv_cache_bf16::{caches, contents};
use crate::products::fprop;
use crate::support::numbers::{Data, Tolerance, all_nan, doubles, filled, same_bits};

const POSITIONS: usize = 1200;
const EPS: f32 = 1e-6;

/// A projection, and its LoRA update.
#[derive(Clone)]
struct Part {
    x: Vec<f32>,
    t: Vec<f32>,
    b: Vec<f32>,
}

#[derive(Clone)]
struct Case {
    shape: KvCacheShape,
    position: usize,
    window: Option<u32>,
    format: Format,
    parts: [Part; 3],
    gammas: [Option<Vec<f32>>; 2],
    past: [Vec<f32>; 2],
    low_scale: f32,
    softcap: Option<f32>,
    /// Sequences like this one that are computed together.
    copies: usize,
}

impl Case {
    fn new(
        data: &mut Data,
        sizes: [usize; 4],
        position: usize,
        rank: usize,
        format: Format,
    ) -> Self {
        let shape = shape(sizes);
        let KvCacheShape { capacity, heads, kv_heads, head_dim } = shape;
        let parts = [heads, kv_heads, kv_heads].map(|heads| Part {
            x: data.uniform(heads * head_dim, 1.0),
            t: data.uniform(rank, 1.0),
            b: data.uniform(heads * head_dim * rank, 1.0),
        });
        let width = kv_heads * head_dim;
        let past = [(); 2].map(|()| {
            let mut past = data.uniform(position.min(capacity) * width, 1.0);
            past.append(&mut filled(f32::NAN, capacity * width - past.len()));
            if format == Format::Bf16 { rounded(&past) } else { past }
        });
        let gammas = [(); 2].map(|()| Some(data.uniform(head_dim, 2.0)));
        Self {
            shape,
            position,
            window: None,
            format,
            parts,
            gammas,
            past,
            low_scale: 0.5,
            softcap: None,
            copies: 1,
        }
    }

    /// The output and both caches.
    fn run(&self, data_of: [bool; 3]) -> [Vec<f32>; 3] {
        run(&vec![self; self.copies], data_of, self.shape.capacity).remove(0)
    }

    fn scale(&self) -> f32 {
        1.0 / (self.shape.head_dim as f32).sqrt()
    }

    /// Query, key and value after LoRA, norm and RoPE.
    fn qkv(&self, data_of: [bool; 3]) -> [Vec<f64>; 3] {
        let head_dim = self.shape.head_dim;
        let (cos, sin) = rope_tables(POSITIONS, head_dim, 100.0);
        let row = self.position * head_dim / 2..(self.position + 1) * head_dim / 2;
        let (cos, sin) = (doubles(&cos[row.clone()]), doubles(&sin[row]));
        [0, 1, 2].map(|at| {
            let Part { x, t, b } = &self.parts[at];
            let mut values = doubles(x);
            if data_of[at] && !t.is_empty() {
                let shape = GemmShape { rows: 1, inputs: t.len(), outputs: x.len() };
                let lora = fprop(&doubles(t), &doubles(b), shape);
                let scaled = lora.iter().map(|lora| lora * f64::from(self.low_scale));
                values.iter_mut().zip(scaled).for_each(|(value, lora)| *value += lora);
            }
            if at == 2 {
                return values;
            }
            if let Some(gamma) = &self.gammas[at] {
                values = rms_norm(&values, &doubles(gamma), EPS.into()).y;
            }
            rope(&values, &cos, &sin, [1, x.len() / head_dim, head_dim], false)
        })
    }

    fn check(&self, data_of: [bool; 3], what: &str) {
        self.check_within(2.0 * TOLERANCE, data_of, what);
    }

    /// Checks output and caches. `tolerance` is the absolute tolerance of the output, and half of
    /// it the relative one.
    fn check_within(&self, tolerance: f64, data_of: [bool; 3], what: &str) {
        let found = self.run(data_of);
        same_bits(&found.concat(), &self.run(data_of).concat(), "two splits");
        let [q, key, value] = self.qkv(data_of);
        let width = key.len();
        let place = self.position * width;
        let fits = self.position < self.shape.capacity;
        let mut expected = self.past.each_ref().map(|past| doubles(past));
        let near = Tolerance::relative(TOLERANCE).absolute(TOLERANCE);
        for ((cache, own), found) in expected.iter_mut().zip([key, value]).zip(&found[1..]) {
            if fits {
                let written = &found[place..place + width];
                match self.format {
                    Format::F32 => near.check(written, &own, &format!("{what}: the cache")),
                    // Half an ulp of bf16 more.
                    _ => Tolerance::relative(0.004).absolute(0.002).check(written, &own, what),
                }
                // Attention reads the rounded values.
                cache[place..place + width].copy_from_slice(&doubles(written));
            }
            let before = self.past[0].len().min(place);
            assert!(all_nan(found[before..].get(width..).unwrap_or_default()), "{what}");
        }
        let capacity = (self.position + 1).min(self.shape.capacity);
        let [keys, values] = &expected;
        let start =
            self.window.map_or(0, |window| (self.position + 1).saturating_sub(window as usize));
        let out = decode_attention(&q, keys, values, start..capacity, self.shape, |dot| {
            let score = dot * f64::from(self.scale());
            self.softcap.map(f64::from).map_or(score, |cap| cap * (score / cap).tanh())
        });
        Tolerance::relative(tolerance / 2.0).absolute(tolerance).check(&found[0], &out, what);
    }
}

/// The output and both caches of each sequence, all in one launch. Sequences share everything
/// except their activations, position and caches, which have `cache_positions` positions each.
fn run(sequences: &[&Case], data_of: [bool; 3], cache_positions: usize) -> Vec<[Vec<f32>; 3]> {
    let (device, first) = (Device::new(), sequences[0]);
    let shape = first.shape;
    let all = |part: &dyn Fn(&Case) -> Vec<f32>| {
        device.upload(&sequences.iter().flat_map(|sequence| part(sequence)).collect::<Vec<_>>())
    };
    let qkv = [0, 1, 2].map(|at| {
        let Part { t, b, .. } = &first.parts[at];
        let lora = (data_of[at] && !t.is_empty()).then(|| LoraUpdate {
            t: all(&|sequence| sequence.parts[at].t.clone()),
            b: device.upload(b),
            scale: first.low_scale,
        });
        QkvProjection { x: all(&|sequence| sequence.parts[at].x.clone()), lora }
    });
    let gammas =
        first.gammas.each_ref().map(|gamma| gamma.as_ref().map(|gamma| device.upload(gamma)));
    let (cos, sin) = rope_tables(POSITIONS, shape.head_dim, 100.0);
    let tables = [device.upload(&cos), device.upload(&sin)];
    let norm_rope = QkNormRope { gammas, eps: EPS, tables, positions: POSITIONS };
    let width = shape.kv_heads * shape.head_dim;
    let past = [0, 1].map(|at| {
        let of_sequence = |sequence: &&Case| {
            let past = &sequence.past[at];
            [past.clone(), filled(f32::NAN, cache_positions * width - past.len())].concat()
        };
        sequences.iter().map(of_sequence).collect::<Vec<_>>().concat()
    });
    let caches = caches(&device, first.format, [&past[0], &past[1]], 0);
    let splits = sequences.len() * shape.heads * shape.splits(sequences.len());
    let partials = device.unwritten(splits * shape.head_dim);
    let stats = device.unwritten(splits * 2);
    let len = shape.heads * shape.head_dim;
    let out = device.unwritten(sequences.len() * len);
    let rounded = device.upload(&vec![bf16::NAN; out.len()]);
    let positions: Vec<_> = sequences.iter().map(|sequence| sequence.position as u32).collect();
    let position = device.upload(&positions);
    let Case { window, softcap, .. } = *first;
    let scale = first.scale();
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
        softcap,
    };
    device.run(&attention.launch().unwrap());
    let both = Output::Both(out, rounded);
    let combine = DecodeAttentionCombine { partials, stats, out: both, position, shape, window };
    device.run(&combine.launch().unwrap());
    let [keys, values] = caches.views().map(|cache| contents(&device, cache));
    let out = device.download(out);
    let in_bf16: Vec<_> = out.iter().map(|&x| bf16::from_f32(x).to_bits()).collect();
    let rounded = device.download(rounded).into_iter().map(bf16::to_bits);
    assert_eq!(rounded.collect::<Vec<_>>(), in_bf16);
    let part = |all: &[f32], sequence: usize, len: usize| all[sequence * len..][..len].to_vec();
    let of_sequence = |sequence| {
        let [keys, values] =
            [&keys, &values].map(|all| part(all, sequence, cache_positions * width));
        [part(&out, sequence, len), keys, values]
    };
    (0..sequences.len()).map(of_sequence).collect()
}

#[test]
fn sequences_have_the_same_bits_alone_and_in_a_batch() {
    let mut data = Data::new("cache sequences");
    for (sizes, positions, rank) in [
        ([64, 4, 2, 16], vec![0, 63, 17], 4),
        ([130, 6, 2, 6], vec![129, 64, 0, 128, 3], 3),
        ([70, 3, 3, 130], vec![69, 5], 0),
        // The cache of the second sequence is full.
        ([20, 2, 1, 4], vec![7, 25], 2),
    ] {
        for format in [Format::F32, Format::Bf16] {
            let mut sequences: Vec<_> = positions
                .iter()
                .map(|&position| Case::new(&mut data, sizes, position, rank, format))
                .collect();
            let shared = sequences[0].parts.each_ref().map(|part| part.b.clone());
            let gammas = sequences[0].gammas.clone();
            for sequence in &mut sequences {
                sequence.gammas.clone_from(&gammas);
                sequence.parts.iter_mut().zip(&shared).for_each(|(part, b)| part.b.clone_from(b));
            }
            let all: Vec<_> = sequences.iter().collect();
            for more in [0, 9] {
                let (capacity, width) = (sizes[0], sizes[2] * sizes[3]);
                let together = run(&all, [true; 3], capacity + more);
                for (sequence, found) in sequences.iter().zip(together) {
                    let what = format!("{sizes:?} at {} of {more} more", sequence.position);
                    let [out, caches @ ..] = found;
                    let caches = caches.map(|cache| {
                        let (cache, rest) = cache.split_at(capacity * width);
                        assert!(all_nan(rest), "{what}");
                        cache.to_vec()
                    });
                    let [keys, values] = caches;
                    let found = [out, keys, values];
                    same_bits(&found.concat(), &sequence.run([true; 3]).concat(), &what);
                }
            }
        }
    }
}

#[test]
fn a_token_enters_the_cache_and_attends_to_itself() {
    let mut data = Data::new("cache token");
    for (sizes, position, rank) in [
        ([1, 1, 1, 2], 0, 1),
        ([64, 4, 2, 16], 0, 4),
        ([64, 4, 2, 16], 63, 16),
        ([130, 6, 2, 6], 64, 3),
        ([130, 6, 2, 6], 129, 20),
        ([200, 4, 1, 128], 150, 16),
        ([70, 3, 3, 130], 69, 33),
        // The cache is full: the token attends to the tokens in it.
        ([20, 2, 1, 4], 25, 2),
        // With this many splits, a block has several heads of a group.
        ([8_448, 7, 1, 128], 150, 16),
        ([8_448, 9, 1, 6], 128, 3),
        ([8_448, 3, 1, 512], 71, 0),
        ([2_304, 12, 4, 34], 140, 5),
        // Splits of 256 positions.
        ([16_640, 16, 4, 20], 299, 4),
    ] {
        for format in [Format::F32, Format::Bf16] {
            let mut case = Case::new(&mut data, sizes, position, rank, format);
            case.check([true; 3], &format!("{sizes:?} at {position} {format:?} rank {rank}"));
            case.check([true, false, true], "some updates");
            case.gammas = [None, None];
            case.check([false; 3], "without norms and updates");
        }
    }
}

#[test]
fn scores_with_a_cap_match_the_reference() {
    let mut data = Data::new("cache softcap");
    for (sizes, position) in [
        ([64, 4, 2, 16], 0),
        ([64, 4, 2, 16], 63),
        ([130, 6, 2, 6], 129),
        ([200, 4, 1, 128], 150),
        ([70, 8, 4, 256], 69),
        // The cache is full: the token attends to the tokens in it.
        ([20, 2, 1, 4], 25),
        ([16_640, 16, 4, 20], 299),
    ] {
        for format in [Format::F32, Format::Bf16] {
            let mut case = Case::new(&mut data, sizes, position, 4, format);
            // Scores are far below, near and far above the cap.
            for (cap, size_of_q) in [(50.0, 1.0), (0.7, 1.0), (1.5, 40.0)] {
                case.softcap = Some(cap);
                case.parts[0].x.iter_mut().for_each(|q| *q *= size_of_q);
                case.check([true; 3], &format!("{sizes:?} at {position} {format:?} cap {cap}"));
                case.window = Some(33);
            }
        }
    }
}

/// Tensor cores multiply queries and weights in three parts. Two parts of the weights are off by up
/// to 4e-6 in the first case, and two parts of the queries by 3e-5 in the second.
#[test]
fn products_with_a_bf16_cache_have_the_precision_of_f32() {
    let mut data = Data::new("cache precision");
    for (sizes, position, size_of_q, tolerance) in
        [([64, 8, 1, 128], 2, 1.0, 1.2e-6), ([64, 8, 1, 128], 60, 20.0, 1e-5)]
    {
        for _ in 0..4 {
            let mut case = Case::new(&mut data, sizes, position, 0, Format::Bf16);
            case.gammas = [None, None];
            case.parts[0].x.iter_mut().for_each(|q| *q *= size_of_q);
            case.check_within(tolerance, [false; 3], &format!("{sizes:?} at {position}"));
        }
    }
}

#[test]
fn the_heads_of_a_block_change_no_bit() {
    let mut data = Data::new("cache heads of a block");
    for (heads, head_dim, position) in
        [(2, 64, 63), (3, 6, 129), (6, 128, 100), (8, 130, 64), (11, 16, 70), (5, 256, 5)]
    {
        for format in [Format::F32, Format::Bf16] {
            let case = Case::new(&mut data, [1024, heads, 1, head_dim], position, 4, format);
            let alone = case.run([true; 3]).concat();
            // The more sequences there are, the more heads a block has.
            for blocks in 1..=heads {
                let sequences = vec![&case; 132_usize.div_ceil(case.shape.splits(1) * blocks)];
                for found in run(&sequences, [true; 3], case.shape.capacity) {
                    let what =
                        format!("{heads} heads of {head_dim} in {blocks} blocks, {format:?}");
                    same_bits(&found.concat(), &alone, &what);
                }
            }
        }
    }
}

#[test]
fn the_splits_of_a_block_change_no_bit() {
    let mut data = Data::new("cache splits of a block");
    for format in [Format::F32, Format::Bf16] {
        let first = Case::new(&mut data, [1024, 2, 1, 8], 1023, 4, format);
        // The more sequences there are, the more splits a block has, and the longer they are: three
        // of 16, and all of four.
        for (window, [few, many]) in
            [(None, [7, 60]), (None, [130, 1600]), (Some(90), [7, 60]), (Some(600), [130, 1600])]
        {
            // The cache of the last sequence is full.
            let cases = [1023, 639, 640, 900, 63, 0, 1100].map(|position| {
                let other = Case::new(&mut data, [1024, 2, 1, 8], position, 4, format);
                let parts = [0, 1, 2]
                    .map(|at| Part { b: first.parts[at].b.clone(), ..other.parts[at].clone() });
                Case { parts, window, gammas: first.gammas.clone(), ..other }
            });
            let of = |count| {
                let sequences: Vec<_> = cases.iter().cycle().take(count).collect();
                run(&sequences, [true; 3], first.shape.capacity)
            };
            let few = of(few);
            for (index, found) in of(many).into_iter().enumerate() {
                let what = format!("{index} of {many}, window {window:?}, {format:?}");
                same_bits(&found.concat(), &few[index % cases.len()].concat(), &what);
            }
        }
    }
}

/// Splits have 128 positions for 64 sequences of a key head, and 256 for more.
#[test]
fn longer_splits_of_many_sequences_match_the_reference() {
    let mut data = Data::new("cache splits of many sequences");
    for (copies, window, format) in [
        (64, None, Format::F32),
        (64, Some(150), Format::Bf16),
        (130, None, Format::Bf16),
        (130, Some(200), Format::F32),
    ] {
        for position in [63, 127, 256, 299, 320] {
            let case = Case::new(&mut data, [300, 3, 1, 16], position, 4, format);
            let case = Case { copies, window, ..case };
            case.check([true; 3], &format!("{position} of {copies}, {window:?}, {format:?}"));
        }
    }
}

#[test]
fn head_norms_stay_accurate_if_squares_overflow_or_underflow() {
    let mut data = Data::new("cache token far from one");
    for scale in [1e-30, 1e25] {
        let mut case = Case::new(&mut data, [66, 2, 1, 32], 65, 4, Format::F32);
        for part in &mut case.parts[..2] {
            part.x = data.uniform(part.x.len(), scale);
        }
        let [q, key, _] = case.qkv([false; 3]);
        if scale > 1.0 {
            case.check([false; 3], "large");
        } else {
            assert!(q.iter().chain(&key).all(|value| value.abs() < 1e-20));
            case.check([false; 3], "small");
        }
    }
}
