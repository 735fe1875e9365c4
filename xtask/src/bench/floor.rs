//! The rows of a case, and the minimum time of their work (the floor).
//!
//! The floor is the larger of FLOP / peak and bytes / bandwidth. FLOP count matrix products and
//! the causal half of attention; forward is one product, each gradient another. Bytes of a step
//! count its weights: each weight is read in forward and in backward, and AdamW reads and writes
//! each trained weight with its gradient and moments. Activations are not counted.

use serde::{Deserialize, Serialize};

use super::cases::{Case, Dtype, Mode, RANK, Shape};
use super::commands::joined;

/// The sustained rates of a GPU.
struct Ceilings {
    device: &'static str,
    bytes_per_second: f64,
    bf16_flops: f64,
    f32_flops: f64,
    f32_bf16_flops: f64,
}

impl Ceilings {
    /// A Hopper GPU: its bandwidth in a copy, and its rate of products in short bursts.
    const fn hopper(device: &'static str, bytes_per_second: f64, bf16_flops: f64) -> Self {
        // Data sheet: 989 TFLOP/s in f16. Three products of f16 parts have the accuracy of one f32
        // product; two suffice if one operand is exactly bf16.
        let (f32_flops, f32_bf16_flops) = (989e12 / 3.0, 989e12 / 2.0);
        Self { device, bytes_per_second, bf16_flops, f32_flops, f32_bf16_flops }
    }
}

/// Measured, except for the rates of f32.
const CEILINGS: &[Ceilings] = &[
    Ceilings::hopper("NVIDIA H200", 4.15e12, 790e12),
    Ceilings::hopper("NVIDIA H100 80GB HBM3", 2.96e12, 822e12),
];

/// The arithmetic of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Arithmetic {
    Bf16,
    F32,
    /// Products of f32 with bf16, with the accuracy of f32.
    F32Bf16Weights,
}

impl Arithmetic {
    fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::F32Bf16Weights => Self::F32Bf16Weights,
            Dtype::Bf16 | Dtype::Bf16Gradients | Dtype::Nf4 => Self::Bf16,
        }
    }
}

/// A row of the table, and its work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) row: String,
    pub(crate) arithmetic: Arithmetic,
    pub(crate) flop: f64,
    pub(crate) bytes: f64,
}

/// The minimum time of a row on a device.
pub(crate) struct Floor {
    pub(crate) ms: f64,
    /// Whether reading and writing takes longer than the products.
    pub(crate) is_memory: bool,
}

impl Row {
    fn bf16(row: String, flop: f64, bytes: f64) -> Self {
        Self { row, arithmetic: Arithmetic::Bf16, flop, bytes }
    }

    /// The floor on a device, if its ceilings are known.
    pub(crate) fn floor(&self, device: &str) -> Option<Floor> {
        let ceilings = CEILINGS.iter().find(|ceilings| device == ceilings.device)?;
        let peak = match self.arithmetic {
            Arithmetic::Bf16 => ceilings.bf16_flops,
            Arithmetic::F32 => ceilings.f32_flops,
            Arithmetic::F32Bf16Weights => ceilings.f32_bf16_flops,
        };
        let (compute, memory) = (self.flop / peak, self.bytes / ceilings.bytes_per_second);
        Some(Floor { ms: compute.max(memory) * 1e3, is_memory: memory > compute })
    }
}

/// The rows that a case fills.
pub(crate) fn rows(case: &Case) -> Vec<Row> {
    match case {
        Case::Step { shape, mode, dtype, size } => {
            let (flop, bytes) = step(shape, *mode, *dtype, *size);
            vec![Row { row: case.name(), arithmetic: Arithmetic::of(*dtype), flop, bytes }]
        }
        Case::Prefill { shape, dtype, tokens, .. } => {
            let (linear, head) = (linear_weights(shape), head_weights(shape));
            let arithmetic = Arithmetic::of(*dtype);
            let bytes_per_element = if arithmetic == Arithmetic::F32 { 4.0 } else { 2.0 };
            let bytes = bytes_per_element * (linear + head + cached(shape, *tokens)) as f64;
            let products = 2.0 * (tokens * linear + head) as f64;
            let attention =
                2.0 * (tokens * tokens * shape.layers * shape.heads * shape.head_dim) as f64;
            vec![Row { row: case.name(), arithmetic, flop: products + attention, bytes }]
        }
        Case::Decode { shape, batch, position, .. } => {
            let weights = linear_weights(shape) + head_weights(shape);
            let bytes = 2.0 * (weights + batch * cached(shape, *position)) as f64;
            vec![Row::bf16(case.name(), 2.0 * (batch * weights) as f64, bytes)]
        }
        Case::Products { rows, layers } => {
            let of_layer = |&layer| PRODUCTS.map(|op| product(op, *rows, layer));
            layers.iter().flat_map(of_layer).collect()
        }
        Case::Attention { sizes } => {
            sizes.iter().flat_map(|&size| PASSES.map(|pass| attention(pass, size))).collect()
        }
    }
}

/// Elements of the KV cache of some tokens.
fn cached(shape: &Shape, tokens: usize) -> usize {
    2 * shape.layers * tokens * shape.kv_heads * shape.head_dim
}

const PRODUCTS: [&str; 3] = ["fprop", "dgrad", "wgrad"];
const PASSES: [&str; 2] = ["forward", "backward"];

/// The name of the row of a product of a layer.
pub(crate) fn product_name(op: &str, [rows, inputs, outputs]: [usize; 3]) -> String {
    format!("{op}-bf16-{rows}x{inputs}x{outputs}")
}

fn product(op: &str, rows: usize, [inputs, outputs]: [usize; 2]) -> Row {
    let elements = rows * inputs + inputs * outputs + rows * outputs;
    let flop = 2.0 * rows as f64 * inputs as f64 * outputs as f64;
    Row::bf16(product_name(op, [rows, inputs, outputs]), flop, 2.0 * elements as f64)
}

/// The name of the row of a pass of attention.
pub(crate) fn attention_name(pass: &str, size: [usize; 5]) -> String {
    format!("attention-{pass}-bf16-{}", joined(&size))
}

fn attention(pass: &str, size: [usize; 5]) -> Row {
    let [batch, seq, heads, kv_heads, head_dim] = size;
    // Products, and tensors of queries and of keys: q, o; k, v, and their gradients.
    let (products, tensors) = if pass == "forward" { (2.0, 2) } else { (5.0, 4) };
    let elements = batch * seq * head_dim * tensors * (heads + kv_heads);
    let flop = products * attention_product([batch, seq], heads, head_dim);
    Row::bf16(attention_name(pass, size), flop, 2.0 * elements as f64)
}

/// FLOP of one product of the causal half.
fn attention_product([batch, seq]: [usize; 2], heads: usize, head_dim: usize) -> f64 {
    (batch * heads * head_dim) as f64 * (seq * (seq + 1)) as f64
}

/// Inputs and outputs of q, k, v, o, gate, up and down.
fn projections(shape: &Shape) -> [[usize; 2]; 7] {
    let Shape { hidden, intermediate, head_dim, .. } = *shape;
    let (q, kv) = (shape.heads * head_dim, shape.kv_heads * head_dim);
    let attention = [[hidden, q], [hidden, kv], [hidden, kv], [q, hidden]];
    let mlp = [[hidden, intermediate], [hidden, intermediate], [intermediate, hidden]];
    let [q, k, v, o] = attention;
    let [gate, up, down] = mlp;
    [q, k, v, o, gate, up, down]
}

fn linear_weights(shape: &Shape) -> usize {
    let layer: usize = projections(shape).iter().map(|[inputs, outputs]| inputs * outputs).sum();
    shape.layers * layer
}

fn head_weights(shape: &Shape) -> usize {
    shape.vocab * shape.hidden
}

/// LoRA weights of a model.
fn lora_weights(shape: &Shape, mode: Mode) -> usize {
    let [q, k, v, o, gate, up, down] = projections(shape);
    let adapted = match mode {
        Mode::Lora => vec![q, v],
        Mode::LoraAll => vec![q, k, v, o, gate, up, down],
        Mode::Full => vec![],
    };
    let layer: usize = adapted.iter().map(|[inputs, outputs]| RANK * (inputs + outputs)).sum();
    shape.layers * layer
}

/// FLOP and bytes of a step.
fn step(shape: &Shape, mode: Mode, dtype: Dtype, size: [usize; 2]) -> (f64, f64) {
    let tokens = (size[0] * size[1]) as f64;
    let (linear, head) = (linear_weights(shape) as f64, head_weights(shape) as f64);
    let lora = lora_weights(shape, mode) as f64;
    // Frozen weights have no gradient.
    let (products, trained) = match mode {
        Mode::Full => (3.0, linear + head),
        Mode::Lora | Mode::LoraAll => (2.0, lora),
    };
    let attended = attention_product(size, shape.heads, shape.head_dim);
    let flop = 2.0 * tokens * (products * (linear + head) + 3.0 * lora)
        + 7.0 * shape.layers as f64 * attended;
    let (linear_bytes, head_bytes) = match dtype {
        Dtype::F32 => (4.0, 4.0),
        Dtype::F32Bf16Weights | Dtype::Bf16 | Dtype::Bf16Gradients => (2.0, 2.0),
        // 4 bits, and a scale in f32 for each 64.
        Dtype::Nf4 => (0.5 + 4.0 / 64.0, 2.0),
    };
    // The gradient is written and read; weight and moments, in f32, are read and written.
    let gradient_bytes = if dtype == Dtype::Bf16Gradients { 2.0 } else { 4.0 };
    let optimizer = 2.0 * (gradient_bytes + 3.0 * 4.0) * trained;
    (flop, 2.0 * (linear * linear_bytes + head * head_bytes) + optimizer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_batch_computes_and_one_token_reads() {
        let named = |name: &str| {
            let all = super::super::cases::all();
            let case = all.into_iter().find(|case| case.name() == name).unwrap();
            rows(&case).remove(0).floor("NVIDIA H200").unwrap()
        };
        let step = named("lora-bf16-1.5B-4x512");
        // 1.54e9 weights: two products of 2 · 2048 · 1.54e9 FLOP, and attention.
        assert!(!step.is_memory && (15.9..17.0).contains(&step.ms), "{}", step.ms);
        // 3.09 GB at 4.15 TB/s.
        let token = named("decode-bf16-1.5B-1x512of1024");
        assert!(token.is_memory && (0.74..0.76).contains(&token.ms), "{}", token.ms);
    }

    #[test]
    fn an_unknown_device_has_no_floor() {
        assert!(Row::bf16("row".to_owned(), 1.0, 1.0).floor("another GPU").is_none());
    }
}
