//! One problem of fused attention: its operands, its results, and their error bounds.

use half::{bf16, f16};
use retrograph_kernels::View;
use retrograph_kernels::attention::reference::forward::CausalAttention;
use retrograph_kernels::attention::{self, query_ends};
use retrograph_kernels::ops::{
    AttentionBackwardInputs, AttentionBackwardPreprocess, AttentionBounds, AttentionRope,
    AttentionShape, DType, FusedAttention, FusedAttentionGradKv, FusedAttentionGradQ, Output,
    Split, SplitKSum, SplitMatrix, TensorView,
};

use crate::bounds::within;
use crate::gemm_case::{rounded, to_bf16};
use crate::harness::Device;
use crate::support::numbers::{Data, doubles};
use crate::support::reference::{add, dot, not_rounded};

/// The relative error bounds of operands and weights.
#[derive(Clone, Copy)]
struct Errors {
    /// The rounding error of an operand.
    rounding: f64,
    /// The error of weights from scores that tensor cores have summed.
    weights: f64,
}

impl Errors {
    /// In f32, scores of 10 are sums of a few dozen numbers, each with an error of 2⁻²⁴ of the sum.
    fn of(compute: DType) -> Self {
        match compute {
            DType::F32 | DType::F16 => Self { rounding: 1e-6, weights: 1e-5 },
            _ => Self { rounding: 1.0 / 256.0, weights: 1e-4 },
        }
    }
}

/// A tensor in the operand type.
pub(crate) fn upload(device: &Device, compute: DType, tensor: &[f32]) -> TensorView<u64> {
    match compute {
        DType::F32 | DType::F16 => device.upload(tensor).into(),
        _ => device.upload(&to_bf16(tensor)).into(),
    }
}

/// Splits a tensor of `rows` tokens.
fn split(device: &Device, tensor: TensorView<u64>, rows: usize) -> SplitMatrix<u64> {
    let TensorView::F32(x) = tensor else { panic!("only f32 is split") };
    let count = SplitMatrix::<u64>::MAX_TERMS;
    let terms = device.upload(&vec![f16::MAX; count * x.len()]);
    let out = SplitMatrix { terms, term_count: count, scales: device.unwritten(rows) };
    let columns = x.len().checked_div(rows).unwrap_or(0);
    device.run(&Split { x, column_scales: None, out, rows, columns }.launch().unwrap());
    out
}

/// Checks that the second tensor is the first one rounded.
fn check_rounded(device: &Device, exact: View<u64, f32>, rounded: View<u64, bf16>) {
    let (exact, rounded) = (device.download(exact), device.download(rounded));
    if let Some(i) = not_rounded(&exact, bytemuck::cast_slice(&rounded)) {
        panic!("{i}: {} to {}", exact[i], rounded[i]);
    }
}

pub(crate) fn shape([batch, seq, heads, kv_heads, head_dim]: [usize; 5]) -> AttentionShape {
    AttentionShape { batch, seq, heads, kv_heads, head_dim }
}

/// Tables of RoPE, `[positions, head_dim ÷ 2]`, and the positions of the tokens.
pub(crate) struct RopeCase {
    pub(crate) cos: Vec<f32>,
    pub(crate) sin: Vec<f32>,
    pub(crate) positions: usize,
    pub(crate) token_positions: Option<Vec<u32>>,
}

/// The operand types in tests: f32, split f32, and bf16.
pub(crate) const FORMS: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// Whether kernels support operands of this type and shape.
pub(crate) fn is_supported(compute: DType, shape: AttentionShape) -> bool {
    let in_terms = compute == DType::F16;
    shape.can_be_fused(compute) && (!in_terms || [64, 96, 128].contains(&shape.head_dim))
}

/// Operands and the softmax scale.
pub(crate) struct Case {
    /// The operand type; f16 for split f32.
    pub(crate) compute: DType,
    pub(crate) shape: AttentionShape,
    pub(crate) scale: f32,
    /// The cap of the scores.
    pub(crate) softcap: Option<f32>,
    /// The first key of each query.
    pub(crate) first_keys: Option<Vec<u32>>,
    /// The rotation that the gradients of q and k undo.
    pub(crate) rope: Option<RopeCase>,
    /// The maximum number of persistent blocks.
    pub(crate) blocks: u32,
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
    pub(crate) grad_out: Vec<f32>,
}

/// The outputs of the kernels.
pub(crate) struct Results {
    pub(crate) out: Vec<f32>,
    pub(crate) lse: Vec<f32>,
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
}

impl Case {
    pub(crate) fn new(data: &mut Data, compute: DType, sizes: [usize; 5]) -> Self {
        let shape = shape(sizes);
        let tokens = shape.batch * shape.seq;
        let (query, key) =
            (tokens * shape.heads * shape.head_dim, tokens * shape.kv_heads * shape.head_dim);
        let scale = 1.0 / (shape.head_dim as f32).sqrt();
        let [q, grad_out] = [(); 2].map(|()| data.uniform(query, 2.0));
        let [k, v] = [(); 2].map(|()| data.uniform(key, 2.0));
        Self {
            compute,
            shape,
            scale,
            softcap: None,
            first_keys: None,
            rope: None,
            blocks: u32::MAX,
            q,
            k,
            v,
            grad_out,
        }
    }

    /// Runs forward and backward pass, the group in `splits`.
    pub(crate) fn run(&self, splits: usize) -> Results {
        self.run_on(&Device::new(), splits)
    }

    pub(crate) fn run_on(&self, device: &Device, splits: usize) -> Results {
        let Self { compute, shape, scale, softcap, .. } = *self;
        let [q, k, v, grad_out] = [&self.q, &self.k, &self.v, &self.grad_out]
            .map(|tensor| upload(device, compute, tensor));
        let lines = shape.batch * shape.heads * shape.seq;
        let (out, lse) = (device.unwritten(q.len()), device.unwritten(lines));
        let lse_delta = device.unwritten(shape.lse_delta_len());
        let grad_q = device.unwritten(q.len());
        let out_bf16 = device.upload(&vec![bf16::MAX; q.len()]);
        let output = if splits == 1 { Output::Both(out, out_bf16) } else { out.into() };
        let bounds = self.first_keys.as_ref().map(|first_keys| {
            let ends = first_keys.chunks(shape.seq).flat_map(query_ends);
            let query_ends = device.upload(&ends.collect::<Vec<_>>());
            AttentionBounds { first_keys: device.upload(first_keys), query_ends }
        });
        let terms = (compute == DType::F16)
            .then(|| [q, k, v, grad_out].map(|it| split(device, it, shape.batch * shape.seq)));
        let forward_terms = terms.map(|[q, k, v, _]| [q, k, v]);
        let forward = FusedAttention {
            q,
            k,
            v,
            out: output,
            lse,
            split_f16: forward_terms,
            bounds,
            shape,
            scale,
            softcap,
        };
        device.run_in_blocks(&forward.launch().unwrap(), self.blocks);
        if splits == 1 {
            check_rounded(device, out, out_bf16);
        }
        let out_read = if splits == 1 || compute != DType::Bf16 {
            out.into()
        } else {
            let rounded: Vec<_> = device.download(out).into_iter().map(bf16::from_f32).collect();
            device.upload(&rounded).into()
        };
        let preprocess =
            AttentionBackwardPreprocess { out: out_read, grad_out, lse, lse_delta, shape };
        device.run(&preprocess.launch().unwrap());
        let inputs = AttentionBackwardInputs {
            q,
            k,
            v,
            grad_out,
            lse_delta,
            split_f16: terms,
            bounds,
            shape,
            scale,
            softcap,
        };
        let rope = self.rope.as_ref().map(|rope| AttentionRope {
            cos: device.upload(&rope.cos),
            sin: device.upload(&rope.sin),
            positions: rope.positions,
            token_positions: rope.token_positions.as_ref().map(|tokens| device.upload(tokens)),
        });
        let grad_q_bf16 = device.upload(&vec![bf16::MAX; q.len()]);
        let output = Output::Both(grad_q, grad_q_bf16);
        let backward = FusedAttentionGradQ { inputs, grad_q: output, rope };
        device.run_in_blocks(&backward.launch().unwrap(), self.blocks);
        check_rounded(device, grad_q, grad_q_bf16);
        let partials = device.unwritten(splits * 2 * k.len());
        let partials_bf16 = device.upload(&vec![bf16::MAX; splits * 2 * k.len()]);
        let grads = Output::Both(partials, partials_bf16);
        let grad_kv = FusedAttentionGradKv { inputs, grads, splits, rope };
        device.run(&grad_kv.launch().unwrap());
        check_rounded(device, partials, partials_bf16);
        let grads = if splits == 1 {
            partials
        } else {
            let out = device.unwritten(2 * k.len());
            device.run(&SplitKSum { partials, out, splits }.launch().unwrap());
            out
        };
        let grads = device.download(grads);
        let (grad_k, grad_v) = grads.split_at(k.len());
        Results {
            out: device.download(out),
            lse: device.download(lse),
            q: device.download(grad_q),
            k: grad_k.to_vec(),
            v: grad_v.to_vec(),
        }
    }

    /// The operands as the kernels multiply them: q, k, v and the gradient of the output. Split
    /// infinities are NaN.
    pub(crate) fn operands(&self) -> [Vec<f64>; 4] {
        let finite = |x: f64| if x.is_finite() { x } else { f64::NAN };
        [&self.q, &self.k, &self.v, &self.grad_out].map(|tensor| match self.compute {
            DType::F32 | DType::F16 => doubles(tensor).into_iter().map(finite).collect(),
            _ => doubles(&rounded(tensor)),
        })
    }

    /// Compares with the references, each element within its own bound.
    pub(crate) fn check(&self, results: &Results, what: &str) {
        self.check_all(&[results], what);
    }

    /// As [`Case::check`], for several runs, because references take longer than most runs.
    pub(crate) fn check_all(&self, runs: &[&Results], what: &str) {
        let (compute, Expected { values, bounds }) = (self.compute, self.expected());
        for (run, results) in runs.iter().enumerate() {
            let what = format!("{compute:?} {what} {:?}, run {run}", self.shape);
            for (name, found, expected, bounds) in [
                ("out", &results.out, &values.out, &bounds.out),
                ("lse", &results.lse, &values.lse, &bounds.lse),
                ("grad_q", &results.q, &values.q, &bounds.q),
                ("grad_k", &results.k, &values.k, &bounds.k),
                ("grad_v", &results.v, &values.v, &bounds.v),
            ] {
                within(found, expected, bounds, &format!("{what}: {name}"));
            }
        }
    }

    /// The expected results with their error bounds.
    pub(crate) fn expected(&self) -> Expected {
        let [q, k, v, grad_out] = self.operands();
        Expected::new(Errors::of(self.compute), [&q, &k, &v, &grad_out], self.attention())
    }

    /// The reference of the library.
    pub(crate) fn attention(&self) -> CausalAttention<'_> {
        let (softcap, first_keys) = (self.softcap.map(f64::from), self.first_keys.as_deref());
        CausalAttention { shape: self.shape, scale: self.scale.into(), softcap, first_keys }
    }
}

impl Results {
    pub(crate) fn all(&self) -> Vec<f32> {
        [&*self.out, &*self.lse, &*self.q, &*self.k, &*self.v].concat()
    }
}

/// A number for each element of the results.
pub(crate) struct Elements {
    pub(crate) out: Vec<f64>,
    pub(crate) lse: Vec<f64>,
    pub(crate) q: Vec<f64>,
    pub(crate) k: Vec<f64>,
    pub(crate) v: Vec<f64>,
}

impl Elements {
    /// All of these numbers, and no log-sum-exps.
    fn all(number: f64, [q, k, v]: [usize; 3]) -> Self {
        let [out, q, k, v] = [q, q, k, v].map(|len| vec![number; len]);
        Self { out, lse: Vec::new(), q, k, v }
    }
}

/// The expected results, by the formulas of [`CausalAttention`], and their error bounds.
pub(crate) struct Expected {
    pub(crate) values: Elements,
    pub(crate) bounds: Elements,
}

impl Expected {
    /// Weights have a relative error; `delta` and gradients of probabilities have an error relative
    /// to the sums of absolute values. Later results are linear in them.
    fn new(
        Errors { rounding, weights }: Errors,
        [q, k, v, grad_out]: [&[f64]; 4],
        attention: CausalAttention<'_>,
    ) -> Self {
        let CausalAttention { shape, first_keys, .. } = attention;
        let AttentionShape { seq, heads, kv_heads, head_dim, .. } = shape;
        let relative = rounding + weights;
        let [mut values, mut bounds] =
            [0.0, 1e-7].map(|number| Elements::all(number, [q.len(), k.len(), v.len()]));
        let absolute = |tensor: &[f64]| -> Vec<f64> { tensor.iter().map(|x| x.abs()).collect() };
        let [abs_q, abs_k, abs_v, abs_grad] = [q, k, v, grad_out].map(absolute);
        for i in 0..shape.batch * heads * seq {
            let (batch, head, token) = (i / seq / heads, i / seq % heads, i % seq);
            let row = ((batch * seq + token) * heads + head) * head_dim;
            let first = first_keys.map_or(0, |keys| keys[batch * seq + token] as usize);
            let key =
                |j: usize| ((batch * seq + j) * kv_heads + head / (heads / kv_heads)) * head_dim;
            let sums = |a: &[f64], b: &[f64]| -> Vec<f64> {
                let a = &a[row..][..head_dim];
                (first..=token).map(|j| dot(a, &b[key(j)..][..head_dim])).collect()
            };
            let scores: Vec<_> = sums(q, k).iter().map(|s| attention.score(*s)).collect();
            let (scores, slopes): (Vec<_>, Vec<_>) =
                scores.into_iter().map(|[score, slope]| (score, slope)).unzip();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let terms: Vec<_> = scores.iter().map(|score| (score - max).exp()).collect();
            let total: f64 = terms.iter().sum();
            let lse = max * std::f64::consts::LOG2_E + total.log2();
            values.lse.push(lse);
            bounds.lse.push(weights + 1e-6 * lse.abs());
            let grad_probs = sums(grad_out, v);
            let magnitudes = sums(&abs_grad, &abs_v);
            let probs: Vec<_> = terms.iter().map(|term| term / total).collect();
            let mean = dot(&probs, &grad_probs);
            // `delta` uses the output of the forward pass.
            let off = dot(&probs, &magnitudes);
            for j in first..=token {
                let (prob, start, slope) = (probs[j - first], key(j), slopes[j - first]);
                let grad_score = prob * (grad_probs[j - first] - mean);
                let error = relative * 2.0 * grad_score.abs()
                    + prob * (2.0 * relative * off + weights * magnitudes[j - first]);
                // Near 0, the derivative of a cap has an absolute error.
                let off_slope = attention.softcap.map_or(0.0, |_| 1e-6 * attention.scale);
                let error =
                    slope * error + off_slope * (grad_score.abs() + prob * magnitudes[j - first]);
                let (query, key) = (row..row + head_dim, start..start + head_dim);
                add(&mut values.out[query.clone()], prob, &v[key.clone()]);
                add(&mut values.q[query.clone()], slope * grad_score, &k[key.clone()]);
                add(&mut values.k[key.clone()], slope * grad_score, &q[query.clone()]);
                add(&mut values.v[key.clone()], prob, &grad_out[query.clone()]);
                add(&mut bounds.out[query.clone()], relative * prob, &abs_v[key.clone()]);
                add(&mut bounds.q[query.clone()], error, &abs_k[key.clone()]);
                add(&mut bounds.k[key.clone()], error, &abs_q[query.clone()]);
                add(&mut bounds.v[key], relative * prob, &abs_grad[query]);
            }
        }
        Self { values, bounds }
    }
}

#[test]
fn expected_results_are_those_of_the_library() {
    let mut data = Data::new("references of attention");
    for (sizes, window, softcap) in [
        ([2, 9, 4, 2, 8], None, None),
        ([1, 17, 1, 1, 4], Some(5), None),
        ([1, 9, 2, 1, 8], None, Some(0.75)),
    ] {
        let keys = window.map(|window| {
            let sequence = attention::first_keys(&Vec::from_iter(0..sizes[1] as u32), Some(window));
            sequence.repeat(sizes[0])
        });
        let case = Case { first_keys: keys, softcap, ..Case::new(&mut data, DType::F32, sizes) };
        let ([q, k, v, grad_out], attention) = (case.operands(), case.attention());
        let (values, forward) = (case.expected().values, attention.forward([&q, &k, &v]));
        let grads = attention.backward([&q, &k, &v], &grad_out);
        for (name, found, expected) in [
            ("out", &values.out, &forward.out),
            ("lse", &values.lse, &forward.lse),
            ("grad_q", &values.q, &grads.q),
            ("grad_k", &values.k, &grads.k),
            ("grad_v", &values.v, &grads.v),
        ] {
            assert_eq!(found.len(), expected.len(), "{name}");
            let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-12;
            assert!(found.iter().zip(expected).all(near), "{name} of {sizes:?}");
        }
    }
}
