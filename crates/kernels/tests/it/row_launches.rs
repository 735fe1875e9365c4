//! Constructors of the row kernels: rejected operands, and the declared accesses of launches.

use half::bf16;
use retrograph_kernels::ops::{
    AdamW, AdamWTensor, Add, ClipFactor, ClipGrads, ColumnSum, Decay, Embedding, EmbeddingBackward,
    GatedActivation, GluBackward, GradNormPartials, LrSchedule, Mean, Output, ResidualAdd, RmsNorm,
    RmsNormBackward, RmsNormGammaReduce, Silu, SplitMatrix, TensorView, grad_norm_partials_len,
};
use retrograph_kernels::{Access, Argument, Cell, FoundSizes, KernelError, Launch, SmTarget, View};

type F32 = View<&'static str, f32>;
type Gradient = TensorView<&'static str>;

fn view(name: &'static str, len: usize) -> F32 {
    View::new(name, len)
}

/// The operand that the error names.
#[track_caller]
fn refused(launch: Result<Launch<&'static str>, KernelError>) -> String {
    match launch.expect_err("the operands do not fit") {
        KernelError::Length { operand, .. } | KernelError::Constant { operand, .. } => {
            operand.to_owned()
        }
        KernelError::TooLarge { what, .. } => what.to_owned(),
        other => panic!("unexpected: {other}"),
    }
}

/// Buffers by name with their access, tables included.
fn accesses(launch: &Launch<&'static str>) -> Vec<(&'static str, Access)> {
    let buffers = launch.arguments().iter().flat_map(Argument::buffers);
    buffers.map(|buffer| (buffer.buffer, buffer.access)).collect()
}

fn rms_norm() -> RmsNorm<&'static str> {
    let [x, y] = ["x", "y"].map(|name| view(name, 12));
    let (gamma, rstd) = (view("gamma", 4), view("rstd", 3));
    RmsNorm { x, residual: None, gamma, y, rstd, rows: 3, width: 4, eps: 1e-6 }
}

fn rms_norm_backward(grad_out: &[Gradient]) -> RmsNormBackward<'_, &'static str> {
    let [x, grad_input, partials] =
        ["x", "grad_input", "gamma_partials"].map(|name| view(name, 12));
    RmsNormBackward {
        x,
        gamma: view("gamma", 4),
        rstd: view("rstd", 3),
        grad_out,
        grad_input,
        gamma_partials: Some(partials),
        rows: 3,
        width: 4,
        accumulate: false,
    }
}

#[test]
fn norms_check_every_length() {
    rms_norm().launch().unwrap();
    let wrong = |name| view(name, 5);
    assert_eq!(refused(RmsNorm { x: wrong("x"), ..rms_norm() }.launch()), "x");
    assert_eq!(refused(RmsNorm { gamma: wrong("gamma"), ..rms_norm() }.launch()), "gamma");
    assert_eq!(refused(RmsNorm { y: wrong("y"), ..rms_norm() }.launch()), "y");
    assert_eq!(refused(RmsNorm { rstd: wrong("rstd"), ..rms_norm() }.launch()), "rstd");
    for eps in [-1e-6, f32::NAN, f32::INFINITY] {
        assert_eq!(refused(RmsNorm { eps, ..rms_norm() }.launch()), "eps");
    }
    let (whole, short) = (view("sum", 12), wrong("sum"));
    let launch = RmsNorm {
        residual: Some(ResidualAdd { residual: whole.into(), sum: short }),
        ..rms_norm()
    };
    assert_eq!(refused(launch.launch()), "sum");
    let launch = RmsNorm {
        residual: Some(ResidualAdd { residual: short.into(), sum: whole }),
        ..rms_norm()
    };
    assert_eq!(refused(launch.launch()), "residual");
    let grad_out = [TensorView::from(view("grad_out", 12)); 4];
    let backward = || rms_norm_backward(&grad_out[..1]);
    backward().launch().unwrap();
    let partials = Some(wrong("gamma_partials"));
    let launch = RmsNormBackward { gamma_partials: partials, ..backward() }.launch();
    assert_eq!(refused(launch), "gamma_partials");
    let grad_outs = [grad_out[0], wrong("grad_out").into()];
    let launch = RmsNormBackward { grad_out: &grad_outs, ..backward() }.launch();
    assert_eq!(refused(launch), "grad_out");
    let halves = Gradient::from(View::<_, bf16>::new("grad_out", 12));
    rms_norm_backward(&[halves, grad_out[0], halves]).launch().unwrap();
    let split =
        SplitMatrix { terms: View::new("parts", 24), term_count: 2, scales: view("scales", 3) };
    let launch = rms_norm_backward(&[halves, split.into()]).launch();
    assert!(matches!(launch, Err(KernelError::UnsupportedDType { .. })));
    for number in [0, 4] {
        let launch = rms_norm_backward(&grad_out[..number]).launch();
        let Err(KernelError::Shape { found, .. }) = launch else { panic!("{number} gradients") };
        assert_eq!(found, FoundSizes::One(number));
    }
    let reduce = RmsNormGammaReduce {
        partials: view("partials", 12),
        grad_gamma: view("grad_gamma", 3),
        partial_rows: 3,
        width: 4,
    };
    assert_eq!(refused(reduce.launch()), "grad_gamma");
}

#[test]
fn accumulated_outputs_are_declared_as_read() {
    let written = |launch: Launch<_>| {
        accesses(&launch)
            .into_iter()
            .find(|(name, _)| *name == "grad_input")
            .expect("it is there")
            .1
    };
    let grad_out = [view("grad_out", 12).into()];
    let backward = || rms_norm_backward(&grad_out);
    assert_eq!(written(backward().launch().unwrap()), Access::Write);
    let accumulate = RmsNormBackward { accumulate: true, ..backward() };
    assert_eq!(written(accumulate.launch().unwrap()), Access::ReadWrite);
    // An accumulated output is f32.
    let RmsNormBackward { x, gamma, rstd, grad_out, gamma_partials, rows, width, .. } = backward();
    let grad_input: Output<_> = View::<_, bf16>::new("rounded", 12).into();
    let rounded = |accumulate| {
        RmsNormBackward {
            x,
            gamma,
            rstd,
            grad_out,
            grad_input,
            gamma_partials,
            rows,
            width,
            accumulate,
        }
        .launch()
    };
    rounded(false).unwrap();
    assert!(matches!(rounded(true), Err(KernelError::Shape { .. })));
}

#[test]
fn partial_rows_are_few_and_cover_all_rows() {
    for rows in [0, 1, 255, 256, 257, 512, 513, 100_000] {
        let partial = RmsNormBackward::<u64>::partial_rows(rows);
        assert!(partial <= 256 && partial <= rows, "{rows} rows give {partial}");
        assert_eq!(partial == 0, rows == 0);
    }
}

#[test]
fn elementwise_operands_need_equal_lengths() {
    assert_eq!(refused(Silu { x: view("x", 3), y: view("y", 4) }.launch()), "y");
    let (a, b, out) = (view("a", 3), view("b", 4), view("out", 3));
    assert_eq!(refused(Add { a, b, out }.launch()), "b");
    let [gate, up, grad_out, grad_gate] =
        ["gate", "up", "grad_out", "grad_gate"].map(|name| view(name, 3));
    let grad_up = view("grad_up", 2);
    let activation = GatedActivation::Silu;
    let backward = GluBackward { activation, gate, up, grad_out, grad_gate, grad_up };
    assert_eq!(refused(backward.launch()), "grad_up");
}

#[test]
fn sums_check_their_lengths() {
    let (x, out) = (view("x", 6), view("out", 2));
    ColumnSum { x, out, rows: 3, columns: 2, accumulate: false }.launch().unwrap();
    assert_eq!(refused(ColumnSum { x, out, rows: 2, columns: 2, accumulate: false }.launch()), "x");
    assert_eq!(
        refused(ColumnSum { x, out, rows: 2, columns: 3, accumulate: false }.launch()),
        "out"
    );
    let (counted, two) = (View::new("counted", 1), View::new("counted", 2));
    assert_eq!(refused(Mean { x, counted, out }.launch()), "out");
    let out = view("out", 1);
    assert_eq!(refused(Mean { x, counted: two, out }.launch()), "counted");
    Mean { x, counted, out }.launch().unwrap();
}

#[test]
fn embeddings_check_their_lengths() {
    let tokens = View::new("tokens", 5);
    let (table, out) = (view("table", 12), view("out", 20));
    let (hidden, vocab, scale) = (4, 3, 1.0);
    let launch = Embedding { tokens, table, out, hidden, vocab, scale }.launch().unwrap();
    assert_eq!(accesses(&launch)[2], ("out", Access::Write));
    assert_eq!(
        refused(Embedding { tokens, table, out, hidden, vocab: 4, scale }.launch()),
        "table"
    );
    let (grad_out, grad_table) = (view("grad_out", 20), view("grad_table", 12));
    let backward = EmbeddingBackward { tokens, grad_out, grad_table, hidden, vocab, scale };
    assert_eq!(accesses(&backward.launch().unwrap())[2], ("grad_table", Access::ReadWrite));
    let grad_out = view("grad_out", 19);
    assert_eq!(refused(EmbeddingBackward { grad_out, ..backward }.launch()), "grad_out");
    let huge = view("out", 5 * 70_000_000);
    let table = view("table", 70_000_000);
    let hidden = 70_000_000;
    let launch = Embedding { tokens, table, out: huge, hidden, vocab: 1, scale }.launch();
    assert_eq!(refused(launch), "hidden");
}

#[test]
fn lists_become_tables_of_chunks() {
    let tensors = [view("a", 20_000), view("b", 0), view("c", 3)];
    let partials = View::new("partials", grad_norm_partials_len(&[20_000, 0, 3]));
    assert_eq!(partials.len(), 3);
    let launch = GradNormPartials { tensors: &tensors, partials }.launch().unwrap();
    assert_eq!(launch.dispatch(SmTarget::arch_specific(90)).grid, [3, 1, 1]);
    let Argument::Table(cells) = &launch.arguments()[0] else { panic!("the first is a table") };
    let words = |first| {
        let word = |cell: &Cell<_>| match cell {
            Cell::Word(word) => *word,
            Cell::Address(_) => panic!("only the first of three cells is an address"),
        };
        cells.iter().skip(first).step_by(3).map(word).collect::<Vec<_>>()
    };
    // The number of elements, and whether they are bf16.
    assert_eq!([words(1), words(2)], [[16_384, 3_616, 3], [0; 3]]);
    let expected = ["a", "a", "c"].map(|name| (name, Access::Read));
    assert_eq!(accesses(&launch)[..3], expected);
    let scale = view("scale", 1);
    let clip = ClipGrads { tensors: &tensors, scale }.launch().unwrap();
    assert_eq!(accesses(&clip)[..3], expected.map(|(name, _)| (name, Access::ReadWrite)));
    let none = ClipGrads { tensors: &[], scale }.launch().unwrap();
    assert!(none.dispatch(SmTarget::arch_specific(90)).is_empty());
    let partials = View::new("partials", 2);
    assert_eq!(refused(GradNormPartials { tensors: &tensors, partials }.launch()), "partials");
}

#[test]
fn clipping_needs_a_positive_norm() {
    for max_norm in [0.0, -1.0, f32::NAN] {
        let partials = View::new("partials", 2);
        let (scale, norm) = (view("scale", 1), view("norm", 1));
        let clip_factor = ClipFactor { partials, max_norm, scale, norm, guard: None };
        assert_eq!(refused(clip_factor.launch()), "max_norm");
    }
}

#[test]
fn adamw_checks_its_tensors_and_constants() {
    let [param, grad, first, second] =
        ["param", "grad", "first", "second"].map(|name| view(name, 8));
    let copy = Some(View::new("copy", 8));
    let tensors = [AdamWTensor {
        param,
        grad: grad.into(),
        exp_avg: first,
        exp_avg_sq: second,
        copy,
        weight_decay: 0.1,
    }];
    let adamw = AdamW {
        tensors: &tensors,
        scalars: view("scalars", 3),
        halt: None,
        grad_scale: None,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
    };
    let accesses = accesses(&adamw.launch().unwrap());
    let [read, update] = [Access::Read, Access::ReadWrite];
    let expected = [("param", update), ("grad", read), ("first", update), ("second", update)];
    assert_eq!(accesses[..4], expected);
    // A halted step writes nothing.
    assert_eq!(accesses[4], ("copy", update));
    assert_eq!(refused(AdamW { beta1: 1.0, ..adamw }.launch()), "beta1");
    assert_eq!(refused(AdamW { beta2: f64::NAN, ..adamw }.launch()), "beta2");
    assert_eq!(refused(AdamW { eps: -1.0, ..adamw }.launch()), "eps");
    assert_eq!(refused(AdamW { scalars: view("scalars", 2), ..adamw }.launch()), "scalars");
    let grad_scale = Some(view("grad_scale", 2));
    assert_eq!(refused(AdamW { grad_scale, ..adamw }.launch()), "grad_scale");
    let short = [AdamWTensor { grad: view("grad", 7).into(), ..tensors[0] }];
    assert_eq!(refused(AdamW { tensors: &short, ..adamw }.launch()), "grad");
    let short = [AdamWTensor { copy: Some(View::new("copy", 7)), ..tensors[0] }];
    assert_eq!(refused(AdamW { tensors: &short, ..adamw }.launch()), "copy");
    let decay = [AdamWTensor { weight_decay: f32::INFINITY, ..tensors[0] }];
    assert_eq!(refused(AdamW { tensors: &decay, ..adamw }.launch()), "weight_decay");
    let short = [AdamWTensor { exp_avg_sq: view("second", 7), ..adamw.tensors[0] }];
    assert_eq!(refused(AdamW { tensors: &short, ..adamw }.launch()), "exp_avg_sq");
    let schedule = LrSchedule {
        step: View::new("step", 1),
        scalars: view("scalars", 3),
        peak_lr: f64::NAN,
        min_lr: 0.0,
        warmup_steps: 1,
        decay_start: 1,
        total_steps: 2,
        decay: Decay::Linear,
        beta1: 0.9,
        beta2: 0.999,
    };
    assert_eq!(refused(schedule.launch()), "peak_lr");
}
