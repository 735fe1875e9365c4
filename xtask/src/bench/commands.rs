//! The commands of a case: ours and the peer's.

use std::path::Path;

use super::cases::{Case, Dtype, Mode, RANK, Shape};

/// How cases are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Fewer samples, and fewer variants of the peer.
    pub(crate) quick: bool,
    /// Only the compiled variants of the peer's steps.
    pub(crate) compiled_only: bool,
    /// Only our programs.
    pub(crate) without_peers: bool,
}

impl Settings {
    fn samples(self) -> usize {
        if self.quick { 5 } else { 20 }
    }
}

/// Where our program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Gpu(Settings),
    /// On the simulated driver, with the fewest steps that yield a result.
    Simulator,
}

impl Place {
    fn samples(self) -> String {
        match self {
            Self::Gpu(settings) => settings.samples(),
            Self::Simulator => 2,
        }
        .to_string()
    }
}

/// A program or a script, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) program: &'static str,
    pub(crate) arguments: Vec<String>,
}

impl Call {
    fn new(program: &'static str, arguments: &[&str]) -> Self {
        Self { program, arguments: Vec::new() }.with(arguments)
    }

    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    fn and(mut self, arguments: impl IntoIterator<Item = String>) -> Self {
        self.arguments.extend(arguments);
        self
    }
}

/// Our command, which writes its results to `out`.
pub(crate) fn ours(case: &Case, place: Place, out: &Path) -> Call {
    let out = out.display().to_string();
    match case {
        Case::Step { shape, mode, dtype, size } => bench(place, shape, &out)
            .and(mode_options(*mode))
            .with(dtype_options(*dtype))
            .with(&["--sizes", &joined(size), "--energy"]),
        // The benchmark of decoding also measures the prefill of its prompt.
        Case::Prefill { shape, dtype, tokens, capacity } => bench(place, shape, &out)
            .with(dtype_options(*dtype))
            .with(&["--decode", &joined(&[*tokens, *capacity])]),
        Case::Decode { shape, batch, position, capacity } => bench(place, shape, &out)
            .with(dtype_options(Dtype::Bf16))
            .with(&["--decode", &joined(&[*position, *capacity]), "--batch", &batch.to_string()]),
        Case::Products { rows, layers } => example("gemm_speed", place)
            .with(&[
                "--bf16",
                "--bf16-activations",
                "--bf16-results",
                "--weights",
                "bf16",
                "--chosen",
            ])
            .with(&["--rows", &rows.to_string(), "--layers", &list(layers), &out]),
        Case::Attention { sizes } => example("attention_speed", place).with(&[
            "--dtype",
            "bf16",
            "--sizes",
            &list(sizes),
            &out,
        ]),
    }
}

/// `retrograph bench` of a shape and one strategy.
fn bench(place: Place, shape: &Shape, out: &str) -> Call {
    let (device, warm_up) = match place {
        Place::Gpu(_) => ("cuda:0", "3"),
        Place::Simulator => ("sim", "1"),
    };
    Call::new("retrograph", &["bench", "--device", device, "--warm-up", warm_up])
        .with(&["--strategies", "manual", "--compile", "processes"])
        .with(&["--steps", &place.samples(), "--json", out])
        .with(if shape.config.is_none() { &["--preset", "qwen2.5-1.5b"] } else { &[] })
        .and(shape.options())
}

fn example(program: &'static str, place: Place) -> Call {
    let call = Call::new(program, &["--samples", &place.samples()]);
    if place == Place::Simulator { call.with(&["--simulate"]) } else { call }
}

/// The options of a mode, which our program and the script share.
fn mode_options(mode: Mode) -> Vec<String> {
    let rank = RANK.to_string();
    let options = match mode {
        Mode::Lora => &["--mode", "lora", "--lora-targets", "q,v", "--rank", &rank][..],
        Mode::LoraAll => &["--mode", "lora", "--lora-targets", "all", "--rank", &rank],
        Mode::Full => &["--mode", "full"],
    };
    options.iter().map(|&option| option.to_owned()).collect()
}

/// The options of a data type. The script has no NF4, and its autocast rounds gradients to bf16
/// and stores them in f32.
fn dtype_options(dtype: Dtype) -> &'static [&'static str] {
    match dtype {
        Dtype::F32 => &["--dtype", "f32"],
        Dtype::F32Bf16Weights => &["--dtype", "f32", "--bf16-weights"],
        Dtype::Bf16 => &["--dtype", "bf16"],
        Dtype::Bf16Gradients => &["--dtype", "bf16", "--gradient-dtype", "bf16"],
        Dtype::Nf4 => &["--dtype", "bf16", "--quantize", "nf4"],
    }
}

/// The peer's script, or why there is none.
pub(crate) fn peer(case: &Case, settings: Settings) -> Result<Call, &'static str> {
    let call = match case {
        Case::Step { dtype: Dtype::Nf4, .. } => return Err("PyTorch has no NF4"),
        Case::Step { shape, mode, dtype, size } => {
            let variants = match settings {
                Settings { quick: true, .. } => Some("captured,compiled".to_owned()),
                Settings { compiled_only: true, .. } => Some(compiled_variants(shape).join(",")),
                _ => None,
            };
            let variants = variants.map(|names| ["--variants".to_owned(), names]);
            Call::new("step.py", &["--size", &joined(size)])
                .and(shape.options())
                .and(mode_options(*mode))
                .with(dtype_options(match dtype {
                    Dtype::Bf16Gradients => Dtype::Bf16,
                    Dtype::F32Bf16Weights => Dtype::F32,
                    other => *other,
                }))
                .and(variants.into_iter().flatten())
        }
        Case::Prefill { shape, dtype, tokens, capacity } => Call::new("prefill.py", &[])
            .and(shape.options())
            .with(dtype_options(*dtype))
            .with(&["--prefill", &joined(&[*tokens, *capacity])]),
        Case::Decode { shape, batch, position, capacity } => Call::new("decode.py", &[])
            .and(shape.options())
            .with(&["--decode", &joined(&[*position, *capacity]), "--batch", &batch.to_string()]),
        Case::Products { rows, layers } => {
            Call::new("gemm.py", &["--rows", &rows.to_string(), "--layers", &list(layers)])
        }
        Case::Attention { sizes } => Call::new("attention.py", &["--sizes", &list(sizes)]),
    };
    Ok(call.with(&["--samples", &settings.samples().to_string()]))
}

/// The compiled variants of the peer's steps.
fn compiled_variants(shape: &Shape) -> &'static [&'static str] {
    match shape.config {
        None => &["compiled", "compiled-merged"],
        Some(_) => &["compiled-merged", "compiled-merged-products"],
    }
}

/// The calls of the peer's script that fill the compiler's cache for a case.
pub(crate) fn compilations(case: &Case, settings: Settings) -> Vec<Call> {
    match (peer(case, settings), case) {
        (Ok(call), Case::Step { shape, .. }) => compiled_variants(shape)
            .iter()
            .take(if settings.quick { 1 } else { usize::MAX })
            .map(|variant| call.clone().with(&["--variants", variant, "--compile-only"]))
            .collect(),
        _ => Vec::new(),
    }
}

/// Numbers as in `4x512`.
pub(crate) fn joined(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

fn list<const N: usize>(sizes: &[[usize; N]]) -> String {
    sizes.iter().map(|size| joined(size)).collect::<Vec<_>>().join(",")
}
