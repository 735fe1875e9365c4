//! Times attention and its gradients in f32 and in bf16 on a GPU: without stored probabilities, and
//! as products around a softmax. Compares the first with its reference in f64 before.
//!
//! ```text
//! attention_speed [--samples N] [--splits N] [--simulate] OUT.jsonl
//! ```
//!
//! `--splits` cuts groups of heads into that many splits for the gradients of keys and values,
//! which must divide them; without it they are cut as a training step cuts them. `--simulate` runs
//! small shapes on the simulated driver, which shows that the program works and nothing about
//! speed. A time is the median over samples, each of several launches in a row between two events,
//! with the same operands. FLOP are those of the causal half.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

#[path = "gemm_speed/device.rs"]
mod device;

use std::fs::File;
use std::io::Write;

use device::{Device, Work};
use retrograph_kernels::attention::reference::forward::{attention, attention_backward};
use retrograph_kernels::ops::{
    AttentionBackwardInputs, AttentionBackwardPreprocess, AttentionGradK, AttentionGradProbs,
    AttentionGradQ, AttentionGradV, AttentionScores, AttentionShape, AttentionValues, DType,
    FusedAttention, FusedAttentionGradKv, FusedAttentionGradQ, Softmax, SoftmaxBackward, SplitKSum,
};
use retrograph_kernels::{KernelError, Launch, View};

type F32 = View<u64, f32>;
type Launches = Result<Vec<Launch<u64>>, KernelError>;

/// Operands, results and what lies between, all in the device's pool.
struct Attention {
    compute: DType,
    shape: AttentionShape,
    splits: usize,
    scale: f32,
    q: F32,
    k: F32,
    v: F32,
    grad_out: F32,
    out: F32,
    lse: F32,
    lse_delta: F32,
    grad_q: F32,
    grad_kv: F32,
    partials: F32,
    probs: [F32; 2],
}

impl Attention {
    fn new(
        device: &Device,
        (compute, splits): (DType, Option<usize>),
        [batch, seq, heads, kv_heads, head_dim]: [usize; 5],
    ) -> Self {
        let shape = AttentionShape { batch, seq, heads, kv_heads, head_dim };
        let splits = splits.unwrap_or(shape.grad_kv_splits());
        let (mut place, end) = (device.pool, device.pool + device.pool_bytes as u64);
        let mut take = |len: usize| {
            let view = View::new(place, len);
            place += (len * 4).next_multiple_of(256) as u64;
            assert!(place <= end, "{shape:?} does not fit into the pool");
            view
        };
        let (lines, query, key) = (
            batch * heads * seq,
            batch * seq * heads * head_dim,
            batch * seq * kv_heads * head_dim,
        );
        Self {
            compute,
            shape,
            splits,
            scale: 1.0 / (head_dim as f32).sqrt(),
            q: take(query),
            k: take(key),
            v: take(key),
            grad_out: take(query),
            out: take(query),
            lse: take(lines),
            lse_delta: take(2 * lines),
            grad_q: take(query),
            grad_kv: take(2 * key),
            partials: take(2 * key * splits),
            probs: [take(lines * seq), take(lines * seq)],
        }
    }

    fn fused_forward(&self) -> Launches {
        let &Self { compute, shape, scale, q, k, v, out, lse, .. } = self;
        Ok(vec![FusedAttention { q, k, v, out, lse, shape, scale }.launch_in(compute)?])
    }

    fn fused_backward(&self) -> Launches {
        let &Self { compute, shape, scale, q, k, v, out, lse, grad_out, lse_delta, grad_q, .. } =
            self;
        let inputs = AttentionBackwardInputs { q, k, v, grad_out, lse_delta, shape, scale };
        let splits = self.splits;
        let grads = if splits == 1 { self.grad_kv } else { self.partials };
        let mut launches = vec![
            AttentionBackwardPreprocess { out, grad_out, lse, lse_delta, shape }
                .launch_in(compute)?,
            FusedAttentionGradQ { inputs, grad_q }.launch_in(compute)?,
            FusedAttentionGradKv { inputs, grads, splits }.launch_in(compute)?,
        ];
        if splits > 1 {
            launches.push(SplitKSum { partials: grads, out: self.grad_kv, splits }.launch()?);
        }
        Ok(launches)
    }

    fn stored_forward(&self) -> Launches {
        let &Self { compute, shape, scale, q, k, v, out, probs: [scores, probs], .. } = self;
        let (rows, width) = (shape.batch * shape.heads * shape.seq, shape.seq);
        Ok(vec![
            AttentionScores { q, k, scores, shape, scale }.launch_in(compute)?,
            Softmax { input: scores, output: probs, rows, width, causal: true }.launch()?,
            AttentionValues { probs, v, out, shape }.launch_in(compute)?,
        ])
    }

    fn stored_backward(&self) -> Launches {
        let &Self { compute, shape, scale, q, k, v, grad_out, grad_q, .. } = self;
        let [other, probs] = self.probs;
        let (rows, width, len) = (shape.batch * shape.heads * shape.seq, shape.seq, k.len());
        let [grad_k, grad_v] = [0..len, len..2 * len].map(|range| self.grad_kv.slice(range));
        // AttentionGradients of probabilities and of scores share their place, which the times do
        // not mind.
        let (grad_probs, grad_scores) = (other, other);
        let softmax = SoftmaxBackward {
            probs,
            grad_out: other,
            grad_input: other,
            rows,
            width,
            causal: true,
        };
        Ok(vec![
            AttentionGradProbs { grad_out, v, grad_probs, shape }.launch_in(compute)?,
            AttentionGradV { probs, grad_out, grad_v, shape }.launch_in(compute)?,
            softmax.launch()?,
            AttentionGradQ { grad_scores, k, grad_q, shape, scale }.launch_in(compute)?,
            AttentionGradK { grad_scores, q, grad_k, shape, scale }.launch_in(compute)?,
        ])
    }

    /// How far results may be from the reference.
    fn most(&self) -> f64 {
        match self.compute {
            DType::F32 => 5e-6,
            _ => 0.01,
        }
    }

    /// Runs it once and compares with the reference.
    fn verify(&self, device: &Device) -> Result<(), Box<dyn std::error::Error>> {
        for launch in self.fused_forward()?.into_iter().chain(self.fused_backward()?) {
            time(device, &launch, 1);
        }
        let doubles = |view: F32| read(device, view).into_iter().map(f64::from).collect::<Vec<_>>();
        let factors = |view: F32| match self.compute {
            DType::F32 => doubles(view),
            _ => {
                let values = read(device, view).into_iter();
                values.map(|x| half::bf16::from_f32(x).to_f64()).collect()
            }
        };
        let [q, k, v, grad_out] = [self.q, self.k, self.v, self.grad_out].map(factors);
        let (shape, scale) = (self.shape, self.scale.into());
        let expected = attention([&q, &k, &v], shape, scale);
        let grads = attention_backward([&q, &k, &v], &grad_out, shape, scale);
        let len = k.len();
        for (name, view, expected) in [
            ("out", self.out, expected.out),
            ("lse", self.lse, expected.lse),
            ("grad_q", self.grad_q, grads.q),
            ("grad_k", self.grad_kv.slice(0..len), grads.k),
            ("grad_v", self.grad_kv.slice(len..2 * len), grads.v),
        ] {
            let pairs = || doubles(view).into_iter().zip(&expected);
            let error: f64 = pairs().map(|(found, expected)| (found - expected).powi(2)).sum();
            let length: f64 = expected.iter().map(|x| x * x).sum();
            let distance = (error / length).sqrt();
            let (compute, most) = (self.compute.name(), self.most());
            println!("{shape:?} {compute} {name}: {distance:.1e} from its reference");
            if distance.is_nan() || distance > most {
                return Err(format!("{name} is wrong").into());
            }
        }
        Ok(())
    }
}

/// The elements of a view.
fn read(device: &Device, view: F32) -> Vec<f32> {
    let mut values = vec![0.0_f32; view.len()];
    let from = view.buffer() + view.byte_range().start as u64;
    let (to, bytes) = (values.as_mut_ptr().cast(), view.len() * 4);
    // SAFETY: the vector has as many bytes, and the call returns when they have arrived.
    let code = unsafe { (device.table.cuMemcpyDtoH_v2)(to, from, bytes) };
    assert_eq!(code, retrograph_driver_sys::CUresult::CUDA_SUCCESS, "cuMemcpyDtoH_v2");
    values
}

/// Seconds that a launch takes.
fn time(device: &Device, launch: &Launch<u64>, samples: usize) -> f64 {
    let (launches, dispatch) = (std::slice::from_ref(launch), launch.dispatch(device.target));
    device.time(&Work { launches, dispatch, batch: if samples > 1 { 16 } else { 1 }, samples })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut samples, mut splits, mut simulate, mut path) = (15, None, false, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--samples" => samples = arguments.next().ok_or("--samples needs a number")?.parse()?,
            "--splits" => {
                splits = Some(arguments.next().ok_or("--splits needs a number")?.parse()?)
            }
            "--simulate" => simulate = true,
            _ => path = Some(argument),
        }
    }
    let mut out = File::create(path.ok_or("usage: attention_speed [OPTIONS] OUT")?)?;
    let device = Device::open(simulate)?;
    println!("{} images for {}", device.name, device.target);
    let (checked, timed) = if simulate {
        (vec![[1, 37, 2, 1, 16]], vec![[1, 70, 2, 1, 32]])
    } else {
        let wide = |batch, seq| [batch, seq, 12, 2, 128];
        let narrow = [4, 512, 14, 2, 64];
        (vec![[2, 193, 12, 2, 128], [1, 130, 14, 2, 64]], vec![wide(4, 512), wide(1, 2048), narrow])
    };
    for compute in [DType::F32, DType::Bf16] {
        for &sizes in &checked {
            Attention::new(&device, (compute, splits), sizes).verify(&device)?;
        }
        for &sizes in &timed {
            Attention::new(&device, (compute, splits), sizes)
                .report((&device, samples), &mut out)?;
        }
    }
    Ok(())
}

impl Attention {
    /// Times every launch.
    fn report(
        &self,
        (device, samples): (&Device, usize),
        out: &mut File,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let AttentionShape { batch, seq, heads, kv_heads, head_dim } = self.shape;
        let sizes = [batch, seq, heads, kv_heads, head_dim];
        // Of one product of the causal half.
        let flop = (batch * heads * head_dim * seq * (seq + 1)) as f64;
        for (what, products, launches) in [
            ("fused forward", 2.0, self.fused_forward()?),
            ("fused backward", 5.0, self.fused_backward()?),
            ("stored forward", 2.0, self.stored_forward()?),
            ("stored backward", 5.0, self.stored_backward()?),
        ] {
            let times: Vec<f64> =
                launches.iter().map(|launch| time(device, launch, samples)).collect();
            let total: f64 = times.iter().sum();
            let tera = products * flop / total / 1e12;
            let what = format!("{} {what}", self.compute.name());
            println!("{sizes:?} {what:20} {:9.2} us {tera:8.1} TFLOP/s", total * 1e6);
            for (launch, seconds) in launches.iter().zip(&times) {
                let (entry, micros) = (launch.dispatch(device.target).entry, seconds * 1e6);
                println!("    {entry:40} {micros:9.2} us");
                let fields = format!("\"sizes\":{sizes:?},\"pass\":\"{what}\"");
                writeln!(out, "{{{fields},\"entry\":\"{entry}\",\"us\":{micros:.3}}}")?;
            }
        }
        Ok(())
    }
}
