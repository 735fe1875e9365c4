//! bf16 caches: appending, and products that read them.

use half::bf16;
use retrograph_kernels::attention::reference::decode::decode_attention;
use retrograph_kernels::ops::{
    CacheScores, CacheSoftmax, CacheValues, DType, KvCache, KvCacheAppend, KvCacheShape, TensorView,
};

use crate::cache::{TOLERANCE, scaled, shape};
use crate::gemm_case::{Format, rounded, to_bf16};
use crate::harness::Device;
use crate::support::numbers::{Data, Tolerance, doubles, same_bits};
use crate::support::reference::from_bf16_bits;

/// Keys and values on the device, each after `shift` other elements.
pub(crate) fn caches(
    device: &Device,
    format: Format,
    pair: [&[f32]; 2],
    shift: usize,
) -> KvCache<u64> {
    let padded = pair.map(|values| [&vec![f32::NAN; shift], values].concat());
    let range = |values: &[f32]| shift..values.len();
    match format {
        Format::F32 => padded.map(|values| device.upload(&values).slice(range(&values))).into(),
        _ => {
            let upload = |values: Vec<f32>| device.upload(&to_bf16(&values)).slice(range(&values));
            padded.map(upload).into()
        }
    }
}

/// The numbers in a cache.
pub(crate) fn contents(device: &Device, cache: TensorView<u64>) -> Vec<f32> {
    match cache {
        TensorView::F32(view) => device.download(view),
        TensorView::Bf16(view) => from_bf16_bits(bytemuck::cast_slice(&device.download(view))),
        other => unreachable!("no cache is stored in {}", other.dtype()),
    }
}

#[test]
fn a_bf16_cache_holds_rounded_values_and_products_read_it() {
    let mut data = Data::new("cache bf16");
    for (sizes, start, tokens, count) in [
        ([1, 1, 1, 2], 0, 1, 1),
        ([16, 4, 2, 6], 0, 5, 5),
        ([40, 2, 1, 8], 7, 16, 11),
        ([130, 3, 3, 66], 120, 8, 8),
        ([300, 2, 1, 4], 100, 40, 33),
        // The last rows exceed the capacity.
        ([20, 3, 3, 4], 17, 8, 3),
    ] {
        let shape = shape(sizes);
        let KvCacheShape { capacity, heads, kv_heads, head_dim } = shape;
        let width = kv_heads * head_dim;
        let past = [(); 2].map(|()| rounded(&data.uniform(capacity * width, 1.0)));
        let new = [(); 2].map(|()| data.uniform(tokens * width, 1.0));
        let q = data.uniform(tokens * heads * head_dim, 1.0);
        let device = Device::new();
        let pair = caches(&device, Format::Bf16, [&past[0], &past[1]], 2);
        let [keys, values] = [0, 1].map(|i| device.upload(&new[i]).into());
        let (first, kept) = (device.upload(&[start as u32]), device.upload(&[count as u32]));
        let append =
            KvCacheAppend { keys, values, caches: pair, start: first, count: Some(kept), shape };
        device.run(&append.launch().unwrap());
        let [keys, values] = [0, 1].map(|i| device.upload(&to_bf16(&new[i])).into());
        let in_bf16 = caches(&device, Format::Bf16, [&past[0], &past[1]], 2);
        device.run(&KvCacheAppend { keys, values, caches: in_bf16, ..append }.launch().unwrap());
        for (rounding, copying) in pair.views().into_iter().zip(in_bf16.views()) {
            let [rounding, copying] = [rounding, copying].map(|cache| contents(&device, cache));
            same_bits(&rounding, &copying, "rounded by the kernel, and before");
        }
        let expected = [0, 1].map(|i| {
            let (mut all, new) = (past[i].clone(), rounded(&new[i][..count * width]));
            all[start * width..(start + count) * width].copy_from_slice(&new);
            let tile_end = (start + tokens).next_multiple_of(128).min(capacity);
            all[(start + count) * width..tile_end * width].fill(0.0);
            all
        });
        for (cache, expected) in pair.views().into_iter().zip(&expected) {
            same_bits(&contents(&device, cache), expected, "what was appended");
        }

        let outs = [pair.views(), expected.clone().map(|cache| device.upload(&cache).into())].map(
            |[keys, values]| {
                let (queries, scale) = (tokens, 0.5);
                let scores = device.unwritten(heads * tokens * capacity);
                let (query, out) = (device.upload(&q), device.unwritten(q.len()));
                let product = CacheScores { q: query, keys, scores, queries, shape, scale };
                device.run(&product.launch_in(DType::Bf16).unwrap());
                let start = first;
                let softmax = CacheSoftmax {
                    values: scores,
                    start,
                    heads,
                    queries,
                    width: capacity,
                    window: None,
                };
                device.run(&softmax.launch().unwrap());
                let product = CacheValues { probs: scores, values, out, queries, shape };
                device.run(&product.launch_in(DType::Bf16).unwrap());
                device.download(out)
            },
        );
        same_bits(&outs[0], &outs[1], "caches in bf16 and in f32 with the same numbers");
        let row = heads * head_dim;
        for token in 0..count {
            let q = doubles(&rounded(&q[token * row..][..row]));
            let [keys, values] = [0, 1].map(|i| doubles(&expected[i]));
            let positions = 0..start + token + 1;
            let expected = decode_attention(&q, &keys, &values, positions, shape, scaled(0.5));
            // Probabilities are also rounded to bf16, with a relative error of up to 2⁻⁸, half an
            // ulp. No value is above 1.
            let tolerance = Tolerance::relative(0.0).absolute(1.0 / 256.0 + TOLERANCE);
            tolerance.check(&outs[0][token * row..][..row], &expected, &format!("token {token}"));
        }
    }
}

#[test]
fn special_values_survive_rounding_to_a_bf16_cache() {
    let device = Device::new();
    let new = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -0.0, 1e-30, 1e30, 1e-40];
    let caches: KvCache<u64> = [(); 2].map(|()| device.upload(&[bf16::ZERO; 16])).into();
    let (rows, start) = (device.upload(&new).into(), device.upload(&[1u32]));
    let shape = shape([2, 1, 1, 8]);
    let append = KvCacheAppend { keys: rows, values: rows, caches, start, count: None, shape };
    device.run(&append.launch().unwrap());
    for cache in caches.views() {
        let found = contents(&device, cache);
        assert!(found[..8].iter().all(|&value| value == 0.0));
        assert!(found[8].is_nan());
        same_bits(&found[9..], &rounded(&new)[1..], "what is a number");
    }
    assert_eq!(rounded(&new)[3], f32::INFINITY, "what is greater than every bf16");
}
