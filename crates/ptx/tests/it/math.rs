//! The float functions against f64, by a small evaluator of the generated instructions.
//!
//! `ex2.approx` is evaluated as the correctly rounded result, so that the errors here come from
//! the functions around it; the hardware adds up to 2 ulp of its own.

use std::collections::HashMap;

use retrograph_ptx::ast::{
    Entry, Immediate, Instruction, Modifier, Opcode, Operand, RegisterId, Statement, Type,
};
use retrograph_ptx::build::{Kernel, Value};

/// A kernel that applies a function to one number.
fn kernel(function: impl for<'k> Fn(Value<'k, f32>) -> Value<'k, f32>) -> Entry {
    Kernel::build("apply", |k| {
        let x = k.pointer::<f32>("x");
        x.store(0, function(x.load(0)));
    })
}

/// Runs a kernel of [`kernel`].
fn run(entry: &Entry, x: f32) -> f32 {
    let mut registers = HashMap::new();
    let mut result = None;
    for statement in &entry.body {
        let Statement::Instruction(instruction) = statement else { panic!("{statement:?}") };
        match (instruction.opcode, instruction.modifiers.has(Modifier::Global)) {
            (Opcode::Ld, true) => set(&mut registers, instruction, x.to_bits()),
            (Opcode::St, true) => result = Some(read(&registers, &instruction.operands[1])),
            (Opcode::Ld | Opcode::Cvta | Opcode::Ret, _) => {}
            _ => {
                let value = evaluate(&registers, instruction);
                set(&mut registers, instruction, value);
            }
        }
    }
    f32::from_bits(result.expect("the kernel stores its result"))
}

fn set(registers: &mut HashMap<RegisterId, u32>, instruction: &Instruction, value: u32) {
    let Operand::Register(register) = instruction.operands[0] else { panic!("{instruction:?}") };
    registers.insert(register, value);
}

fn read(registers: &HashMap<RegisterId, u32>, operand: &Operand) -> u32 {
    match operand {
        Operand::Register(register) => registers[register],
        Operand::Immediate(Immediate::F32(bits)) => *bits,
        Operand::Immediate(Immediate::Integer(value)) => *value as u32,
        _ => panic!("{operand:?}"),
    }
}

fn evaluate(registers: &HashMap<RegisterId, u32>, instruction: &Instruction) -> u32 {
    let bits = |index: usize| read(registers, &instruction.operands[index]);
    let float = |index: usize| f32::from_bits(bits(index));
    match (instruction.opcode, instruction.types[0]) {
        (Opcode::Mov, _) => bits(1),
        (Opcode::Add, Type::U32) => bits(1).wrapping_add(bits(2)),
        (Opcode::Sub, Type::U32) => bits(1).wrapping_sub(bits(2)),
        (Opcode::And, _) => bits(1) & bits(2),
        (Opcode::Shr, Type::S32) => ((bits(1) as i32) >> bits(2)) as u32,
        (Opcode::Cvt, Type::F32) => (bits(1) as i32 as f32).to_bits(),
        (Opcode::Selp, _) => bits(if bits(3) != 0 { 1 } else { 2 }),
        (Opcode::Setp, Type::F32) => {
            let (a, b) = (float(1), float(2));
            let comparisons =
                [(Modifier::Lt, a < b), (Modifier::Gt, a > b), (Modifier::Eq, a == b)];
            let found = comparisons.iter().find(|(word, _)| instruction.modifiers.has(*word));
            u32::from(found.expect("a comparison").1)
        }
        (opcode, Type::F32) => {
            let value = match opcode {
                Opcode::Add => float(1) + float(2),
                Opcode::Sub => float(1) - float(2),
                Opcode::Mul => float(1) * float(2),
                Opcode::Div => float(1) / float(2),
                Opcode::Fma => float(1).mul_add(float(2), float(3)),
                Opcode::Min => float(1).min(float(2)),
                Opcode::Max => float(1).max(float(2)),
                Opcode::Neg => -float(1),
                Opcode::Abs => float(1).abs(),
                Opcode::Rcp => 1.0 / float(1),
                Opcode::Sqrt => float(1).sqrt(),
                Opcode::Copysign => float(2).copysign(float(1)),
                Opcode::Ex2 => f64::from(float(1)).exp2() as f32,
                _ => panic!("{instruction:?}"),
            };
            value.to_bits()
        }
        _ => panic!("{instruction:?}"),
    }
}

/// The distance of `found` from `exact` in units of the last place of `exact`.
fn ulps(found: f32, exact: f64) -> f64 {
    let exponent = exact.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor();
    (f64::from(found) - exact).abs() / (exponent - 23.0).exp2()
}

/// The greatest error over `count` numbers spread from `low` to `high`, which have one sign.
fn worst(entry: &Entry, exact: fn(f64) -> f64, low: f32, high: f32, count: u32) -> (f64, f32) {
    let (low, high) = (low.to_bits(), high.to_bits());
    let (low, high) = (low.min(high), low.max(high));
    let numbers = (0..count).map(|i| {
        let step = u64::from(high - low) * u64::from(i) / u64::from(count - 1);
        f32::from_bits(low + step as u32)
    });
    let errors = numbers.map(|x| (ulps(run(entry, x), exact(f64::from(x))), x));
    errors.fold((0.0, 0.0), |worst, error| if error.0 > worst.0 { error } else { worst })
}

#[test]
fn exp_adds_little_to_the_error_of_its_instruction() {
    let entry = kernel(|x| x.exp());
    // Half an ulp is the instruction's rounding, as it is evaluated here.
    // Positive, negative with normal results, and negative with denormal results.
    for (low, high, count) in
        [(1e-30, 88.72, 20_000), (-1e-30, -87.3, 20_000), (-87.3, -103.9, 5_000)]
    {
        let (error, x) = worst(&entry, f64::exp, low, high, count);
        assert!(error <= 0.5 + 1.25, "exp({x:e}): {error} ulp");
    }
}

#[test]
fn exp_is_right_at_its_limits() {
    let entry = kernel(|x| x.exp());
    assert_eq!(run(&entry, 0.0), 1.0);
    assert_eq!(run(&entry, -0.0), 1.0);
    assert_eq!(run(&entry, f32::INFINITY), f32::INFINITY);
    assert_eq!(run(&entry, f32::NEG_INFINITY), 0.0);
    assert!(run(&entry, f32::NAN).is_nan());
    for large in [88.73, 89.0, 104.0, 128.0, 1e4, 1e38, f32::MAX] {
        assert_eq!(run(&entry, large), f32::INFINITY, "exp({large})");
    }
    for low in [-104.0, -105.0, -128.0, -1e4, -1e38, f32::MIN] {
        assert_eq!(run(&entry, low), 0.0, "exp({low})");
    }
}

#[test]
fn exp_is_monotonic() {
    let entry = kernel(|x| x.exp());
    let mut last = 0.0;
    for step in -8800..8800 {
        let value = run(&entry, step as f32 * 0.01);
        assert!(value > last, "at {}", step as f32 * 0.01);
        last = value;
    }
}

#[test]
fn ln_is_within_two_ulp() {
    let entry = kernel(|x| x.ln());
    let ranges = [
        (f32::from_bits(1), f32::MIN_POSITIVE, 10_000),
        (f32::MIN_POSITIVE, f32::MAX, 40_000),
        (0.5, 2.0, 40_000),
        (0.999, 0.999_999_94, 10_000),
        (1.000_000_1, 1.001, 10_000),
    ];
    for (low, high, count) in ranges {
        let (error, x) = worst(&entry, f64::ln, low, high, count);
        assert!(error <= 2.0, "ln({x:e}): {error} ulp");
    }
}

#[test]
fn ln_is_right_at_its_limits() {
    let entry = kernel(|x| x.ln());
    assert_eq!(run(&entry, 1.0), 0.0);
    assert_eq!(run(&entry, 0.0), f32::NEG_INFINITY);
    assert_eq!(run(&entry, -0.0), f32::NEG_INFINITY);
    assert_eq!(run(&entry, f32::INFINITY), f32::INFINITY);
    for out in [-1.0, -1e-45, f32::NEG_INFINITY, f32::NAN] {
        assert!(run(&entry, out).is_nan(), "ln({out})");
    }
}

#[test]
fn tanh_is_within_its_error_bounds() {
    let entry = kernel(|x| x.tanh());
    let (error, x) = worst(&entry, f64::tanh, 0.3, 20.0, 20_000);
    assert!(error <= 4.0, "tanh({x:e}): {error} ulp");
    for step in -300..=300 {
        let x = step as f32 * 0.001;
        let error = (f64::from(run(&entry, x)) - f64::from(x).tanh()).abs();
        assert!(error <= 1.2e-7, "tanh({x}): {error:e}");
    }
    assert_eq!(run(&entry, 0.0), 0.0);
    assert_eq!(run(&entry, f32::INFINITY), 1.0);
    assert_eq!(run(&entry, f32::NEG_INFINITY), -1.0);
    assert!(run(&entry, f32::NAN).is_nan());
}
