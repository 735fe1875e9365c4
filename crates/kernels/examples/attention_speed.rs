//! Benchmarks fused attention and its gradients on a GPU in f32, split f32 (f16 terms) and bf16,
//! after comparing the results with f64 references.
//!
//! ```text
//! attention_speed [--samples N] [--splits N] [--documents N] [--dtype DTYPE] [--sizes SIZES]
//!     [--softcap CAP] [--multiprocessors N] [--simulate] OUT.jsonl
//! ```
//!
//! `--dtype` chooses one of f32, f16 and bf16. `--sizes` is a list of batch x sequence x heads x
//! key heads x head_dim. `--splits` is the number of splits of a group's heads for the gradients of
//! keys and values, a divisor of the group size; the default is the number that a training step
//! uses. `--documents` bounds attention by documents of that many tokens, at least 2. `--softcap`
//! caps scores in bf16. `--multiprocessors` uses only about N SMs of the GPU, in a green context.
//!
//! `--simulate` runs small shapes on the simulated driver: a functional test without meaningful
//! times. A time is the median over samples; a sample is a graph of several launches with the same
//! operands between two events. FLOP counts include only query-key pairs that are not masked: two
//! matrix products forward, five backward.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

#[path = "gemm_speed/device.rs"]
mod device;

use std::fs::File;
use std::io::Write;

use device::{Device, Work};
use half::bf16;
use retrograph_kernels::attention::reference::forward::CausalAttention;
use retrograph_kernels::attention::{first_keys, query_ends};
use retrograph_kernels::ops::{
    AttentionBackwardInputs, AttentionBackwardPreprocess, AttentionBounds, AttentionShape, Cast,
    DType, FusedAttention, FusedAttentionGradKv, FusedAttentionGradQ, Output, Split, SplitKSum,
    SplitMatrix, TensorView,
};
use retrograph_kernels::{KernelError, Launch, View};

type F32 = View<u64, f32>;
type Bf16 = View<u64, bf16>;
type Launches = Result<Vec<Launch<u64>>, KernelError>;

/// The operand types; f16 means split f32.
const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// Operands, results and intermediates, all in the device's pool.
struct Attention {
    compute: DType,
    shape: AttentionShape,
    splits: usize,
    scale: f32,
    softcap: Option<f32>,
    /// q, k, v and the gradient of the output.
    inputs: [F32; 4],
    /// The same in bf16.
    rounded: [Bf16; 4],
    /// The same operands split, for split f32.
    terms: Option<[SplitMatrix<u64>; 4]>,
    out: F32,
    out_bf16: Bf16,
    lse: F32,
    lse_delta: F32,
    grad_q: F32,
    grad_kv: F32,
    partials: F32,
    /// The first key of each query, and the bounds on the device.
    first_keys: Option<Vec<u32>>,
    bounds: Option<AttentionBounds<u64>>,
}

/// The values of the options.
#[derive(Clone, Copy)]
struct Choice {
    compute: DType,
    splits: Option<usize>,
    /// Tokens of a document.
    documents: Option<usize>,
    softcap: Option<f32>,
}

impl Attention {
    fn new(
        device: &Device,
        Choice { compute, splits, documents, softcap }: Choice,
        [batch, seq, heads, kv_heads, head_dim]: [usize; 5],
    ) -> Self {
        let shape = AttentionShape { batch, seq, heads, kv_heads, head_dim };
        let splits = splits.unwrap_or(shape.grad_kv_splits());
        let (mut place, end) = (device.pool, device.pool + device.pool_bytes as u64);
        let mut bytes = |len: usize| {
            let start = place;
            place += len.next_multiple_of(256) as u64;
            assert!(place <= end, "{shape:?} does not fit into the pool");
            start
        };
        let (lines, query, key) = (
            batch * heads * seq,
            batch * seq * heads * head_dim,
            batch * seq * kv_heads * head_dim,
        );
        let lens = [query, key, key, query];
        let mut take = |len: usize| View::new(bytes(len * 4), len);
        let inputs = lens.map(&mut take);
        let [out, lse, lse_delta, grad_q, grad_kv, partials] =
            [query, lines, shape.lse_delta_len(), query, 2 * key, 2 * key * splits].map(&mut take);
        let mut take = |len: usize| View::new(bytes(len * 2), len);
        let (rounded, out_bf16) = (lens.map(&mut take), take(query));
        let scale = 1.0 / (head_dim as f32).sqrt();
        let tokens = batch * seq;
        let count = SplitMatrix::<u64>::MAX_TERMS;
        let mut split = |len| SplitMatrix {
            terms: View::new(bytes(count * len * 2), count * len),
            term_count: count,
            scales: View::new(bytes(tokens * 4), tokens),
        };
        let terms = (compute == DType::F16).then(|| lens.map(&mut split));
        let first_keys = documents.map(|documents| {
            let positions: Vec<u32> = (0..documents as u32).cycle().take(seq).collect();
            first_keys(&positions, None).repeat(batch)
        });
        let bounds = first_keys.as_ref().map(|_| {
            let [first_keys, query_ends] = [(); 2].map(|()| View::new(bytes(tokens * 4), tokens));
            AttentionBounds { first_keys, query_ends }
        });
        Self {
            compute,
            shape,
            splits,
            scale,
            softcap,
            inputs,
            rounded,
            terms,
            out,
            out_bf16,
            lse,
            lse_delta,
            grad_q,
            grad_kv,
            partials,
            first_keys,
            bounds,
        }
    }

    /// Fills the inputs, and rounds them. Then writes the bounds.
    fn fill(&self, device: &Device) -> Result<(), KernelError> {
        device.fill(false);
        for (x, y) in self.inputs.into_iter().zip(self.rounded) {
            time(device, &Cast { x, y }.launch()?, 1);
        }
        if let Some((bounds, keys)) = self.bounds.zip(self.first_keys.as_ref()) {
            let ends: Vec<u32> = keys.chunks(self.shape.seq).flat_map(query_ends).collect();
            write(device, bounds.first_keys, keys);
            write(device, bounds.query_ends, &ends);
        }
        Ok(())
    }

    /// q, k, v and the gradient of the output, in the operand type.
    fn operands(&self) -> [TensorView<u64>; 4] {
        match self.compute {
            DType::F32 | DType::F16 => self.inputs.map(TensorView::F32),
            _ => self.rounded.map(TensorView::Bf16),
        }
    }

    /// The launches that split the first `count` operands, if the kernels read split operands.
    fn split(&self, count: usize) -> Launches {
        let rows = self.shape.batch * self.shape.seq;
        let pairs = self.inputs.into_iter().zip(self.terms.into_iter().flatten()).take(count);
        let split = |(x, out)| {
            Split { x, column_scales: None, out, rows, columns: x.len() / rows }.launch()
        };
        pairs.map(split).collect()
    }

    /// The forward pass. In bf16, a training step writes the output only in bf16.
    fn forward(&self, out: Output<u64>) -> Launches {
        let &Self { shape, scale, softcap, lse, bounds, .. } = self;
        let [q, k, v, _] = self.operands();
        let terms = self.terms.map(|[q, k, v, _]| [q, k, v]);
        let mut launches = self.split(3)?;
        let attention =
            FusedAttention { q, k, v, out, lse, split_f16: terms, bounds, shape, scale, softcap };
        launches.push(attention.launch()?);
        Ok(launches)
    }

    /// The backward pass. A training step splits all operands again.
    fn backward(&self, out: TensorView<u64>) -> Launches {
        let &Self { shape, scale, softcap, lse, lse_delta, grad_q, splits, bounds, terms, .. } =
            self;
        let [q, k, v, grad_out] = self.operands();
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
        let grads = if splits == 1 { self.grad_kv } else { self.partials };
        let mut launches = self.split(4)?;
        launches.extend([
            AttentionBackwardPreprocess { out, grad_out, lse, lse_delta, shape }.launch()?,
            FusedAttentionGradQ { inputs, grad_q: grad_q.into(), rope: None }.launch()?,
            FusedAttentionGradKv { inputs, grads: grads.into(), splits, rope: None }.launch()?,
        ]);
        if splits > 1 {
            launches.push(SplitKSum { partials: grads, out: self.grad_kv, splits }.launch()?);
        }
        Ok(launches)
    }

    /// The output as a training step writes it.
    fn output(&self) -> (Output<u64>, TensorView<u64>) {
        match self.compute {
            DType::F32 | DType::F16 => (self.out.into(), self.out.into()),
            _ => (self.out_bf16.into(), self.out_bf16.into()),
        }
    }

    /// The largest allowed distance from the reference.
    fn most(&self) -> f64 {
        match self.compute {
            DType::F32 | DType::F16 => 5e-6,
            _ => 0.01,
        }
    }

    /// Runs it once and compares with the reference.
    fn verify(&self, device: &Device) -> Result<(), Box<dyn std::error::Error>> {
        self.fill(device)?;
        let forward = self.forward(self.out.into())?;
        for launch in forward.into_iter().chain(self.backward(self.out.into())?) {
            time(device, &launch, 1);
        }
        let doubles = |view: F32| read(device, view).into_iter().map(f64::from).collect::<Vec<_>>();
        let factors = |view: F32| match self.compute {
            DType::F32 | DType::F16 => doubles(view),
            _ => {
                let values = read(device, view).into_iter();
                values.map(|x| half::bf16::from_f32(x).to_f64()).collect()
            }
        };
        let [q, k, v, grad_out] = self.inputs.map(factors);
        let (shape, scale) = (self.shape, self.scale.into());
        let (softcap, first_keys) = (self.softcap.map(f64::from), self.first_keys.as_deref());
        let attention = CausalAttention { shape, scale, softcap, first_keys };
        let expected = attention.forward([&q, &k, &v]);
        let grads = attention.backward([&q, &k, &v], &grad_out);
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
    // SAFETY: the vector has `bytes` bytes, and the call returns after the copy.
    let code = unsafe { (device.table.cuMemcpyDtoH_v2)(to, from, bytes) };
    assert_eq!(code, retrograph_driver_sys::CUresult::CUDA_SUCCESS, "cuMemcpyDtoH_v2");
    values
}

/// Writes the elements of a view.
fn write(device: &Device, view: View<u64, u32>, values: &[u32]) {
    let to = view.buffer() + view.byte_range().start as u64;
    let (from, bytes) = (values.as_ptr().cast(), 4 * values.len());
    // SAFETY: the view has `bytes` bytes, and the call returns after they have been read. The
    // stream of the launches does not wait for the copy, so the host does.
    let codes = unsafe {
        [(device.table.cuMemcpyHtoD_v2)(to, from, bytes), (device.table.cuCtxSynchronize)()]
    };
    assert_eq!(codes, [retrograph_driver_sys::CUresult::CUDA_SUCCESS; 2], "cuMemcpyHtoD_v2");
}

/// Returns the seconds that a launch takes.
fn time(device: &Device, launch: &Launch<u64>, samples: usize) -> f64 {
    let launches = std::slice::from_ref(launch);
    let dispatch = launch.dispatch(device.target).for_multiprocessors(device.multiprocessors);
    let batch = if samples > 1 { 16 } else { 1 };
    device.time(&Work { launches, dispatch, batch, samples, sustained: None })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut samples, mut splits, mut simulate, mut path) = (15, None, false, None);
    let (mut dtypes, mut only, mut documents) = (DTYPES.to_vec(), None, None);
    let (mut softcap, mut multiprocessors) = (None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--samples" => samples = arguments.next().ok_or("--samples needs a number")?.parse()?,
            "--splits" => {
                splits = Some(arguments.next().ok_or("--splits needs a number")?.parse()?)
            }
            "--documents" => {
                let tokens: usize =
                    arguments.next().ok_or("--documents needs a number")?.parse()?;
                documents = Some(tokens.max(2));
            }
            "--dtype" => {
                let name = arguments.next().ok_or("--dtype needs f32, f16 or bf16")?;
                dtypes.retain(|dtype| dtype.name() == name);
            }
            "--sizes" => only = Some(parse_sizes(&arguments.next().ok_or("--sizes: a list")?)?),
            "--softcap" => {
                softcap = Some(arguments.next().ok_or("--softcap needs a number")?.parse()?);
                dtypes.retain(|dtype| *dtype == DType::Bf16);
            }
            "--multiprocessors" => {
                let count = arguments.next().ok_or("--multiprocessors needs a number")?;
                multiprocessors = Some(count.parse()?);
            }
            "--simulate" => simulate = true,
            flag if flag.starts_with("--") => return Err(format!("no option {flag}").into()),
            _ => path = Some(argument),
        }
    }
    let mut out = File::create(path.ok_or("usage: attention_speed [OPTIONS] OUT")?)?;
    let device = Device::open(simulate, multiprocessors)?;
    println!("{device}");
    let (checked, timed) = if simulate {
        (vec![[1, 37, 2, 1, 64]], vec![[1, 70, 2, 1, 64]])
    } else {
        let checked = vec![[2, 193, 12, 2, 128], [1, 130, 14, 2, 64], [1, 70, 4, 2, 96]];
        let sizes = [[1, 32], [4, 128], [3, 384], [4, 512], [2, 1024], [1, 2048], [4, 2048]];
        let of_1_5b = sizes.map(|[batch, seq]| [batch, seq, 12, 2, 128]);
        let others =
            [[1, 2048, 32, 8, 128], [1, 8192, 32, 8, 128], [4, 512, 14, 2, 64], [4, 512, 8, 8, 96]];
        (checked, only.unwrap_or_else(|| of_1_5b.into_iter().chain(others).collect()))
    };
    for compute in dtypes {
        let choice = Choice { compute, splits, documents, softcap };
        let wide = (compute == DType::Bf16 && !simulate).then_some([1, 130, 4, 2, 256]);
        for &sizes in checked.iter().chain(&wide) {
            Attention::new(&device, choice, sizes).verify(&device)?;
        }
        for &sizes in &timed {
            Attention::new(&device, choice, sizes).report(&device, samples, &mut out)?;
        }
    }
    Ok(())
}

/// Parses sizes such as `4x512x12x2x128,1x2048x12x2x128`.
fn parse_sizes(text: &str) -> Result<Vec<[usize; 5]>, String> {
    let size = |text: &str| {
        let numbers: Option<Vec<_>> = text.split('x').map(|part| part.parse().ok()).collect();
        numbers?.try_into().ok()
    };
    let sizes: Option<_> = text.split(',').map(size).collect();
    sizes.ok_or_else(|| format!("`{text}` is not a list of sizes such as 4x512x12x2x128"))
}

impl Attention {
    /// Times every launch.
    fn report(
        &self,
        device: &Device,
        samples: usize,
        out: &mut File,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let AttentionShape { batch, seq, heads, kv_heads, head_dim } = self.shape;
        let sizes = [batch, seq, heads, kv_heads, head_dim];
        // FLOP of one matrix product.
        let pairs: usize = match &self.first_keys {
            None => batch * seq * (seq + 1) / 2,
            Some(keys) => (0..batch * seq).map(|i| i % seq + 1 - keys[i] as usize).sum(),
        };
        let flop = (2 * heads * head_dim * pairs) as f64;
        self.fill(device)?;
        let (written, read) = self.output();
        for (what, products, launches) in
            [("forward", 2.0, self.forward(written)?), ("backward", 5.0, self.backward(read)?)]
        {
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
