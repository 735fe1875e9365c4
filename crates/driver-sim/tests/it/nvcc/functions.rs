//! Device functions, jump tables and stacks.

use super::{Bench, Launch, SEEDS, value};

fn collatz(mut n: u32) -> i32 {
    let mut steps = 0;
    while n != 1 {
        n = if n & 1 == 1 { 3 * n + 1 } else { n / 2 };
        steps += 1;
    }
    steps
}

#[test]
fn calls_of_functions() {
    let x: Vec<i32> = (0..70).map(|i| 1 + i * 37 % 113).collect();
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/calls.ptx"), seed);
        let (from, sums) = (bench.upload(&x), bench.upload(&[0f64; 70]));
        let steps = bench.upload(&[0i32; 70]);
        let parameters = vec![value(from), value(sums), value(steps), value(70i32)];
        let (grid, block) = ([3, 1, 1], [32, 1, 1]);
        bench.launch(Launch { kernel: c"calls", grid, block, shared: 0, parameters });
        let (sums, steps) = (bench.download::<f64>(sums, 70), bench.download::<i32>(steps, 70));
        for (i, &x) in x.iter().enumerate() {
            let terms = (0..=i % 4).map(|j| f64::from(x) / (j + 1) as f64);
            let sum = terms.fold(0.5, |sum, term| sum + term);
            assert_eq!(sums[i], sum / (i % 4 + 1) as f64, "thread {i}");
            let (low, high) = (x.min(collatz(x as u32)), x.max(collatz(x as u32)));
            assert_eq!(steps[i], high * 1000 + low, "thread {i}");
        }
    }
}

/// The result of `interpreter.cu` for one input.
fn interpret(code: &[i32], input: i32) -> i32 {
    let mut stack: Vec<i32> = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let word = code[at];
        let mut pop = || stack.pop().unwrap();
        let value = match word & 15 {
            0 => word >> 4,
            1 => input,
            op @ 2..=6 => {
                let (b, a) = (pop(), pop());
                match op {
                    2 => a.wrapping_add(b),
                    3 => a.wrapping_sub(b),
                    4 => a.wrapping_mul(b),
                    5 => a / b,
                    _ => i32::from(a < b),
                }
            }
            7 => *stack.last().unwrap(),
            8 => -pop(),
            9 => {
                let (b, a) = (pop(), pop());
                stack.push(b);
                a
            }
            10 => {
                if pop() != 0 {
                    at += (word >> 4) as usize;
                }
                at += 1;
                continue;
            }
            _ => pop() ^ word,
        };
        stack.push(value);
        at += 1;
    }
    stack.pop().unwrap()
}

#[test]
fn a_jump_table() {
    // ((input * 3 - 7) / 2 ^ 0x5b), negated if the input is less than 10, swapped with 5.
    let push = |n: i32| n << 4;
    let code = [
        1,
        push(3),
        4,
        push(7),
        3,
        push(2),
        5,
        0x5b,
        1,
        push(10),
        6,
        10 | 1 << 4,
        8,
        push(5),
        9,
        3,
        7,
        2,
    ];
    let input: Vec<i32> = (-20..44).collect();
    for seed in SEEDS {
        let bench = Bench::new(include_str!("../../nvcc/interpreter.ptx"), seed);
        let (program, from) = (bench.upload(&code), bench.upload(&input));
        let to = bench.upload(&[0i32; 64]);
        let parameters = vec![value(program), value(code.len() as i32), value(from), value(to)];
        let (grid, block) = ([2, 1, 1], [32, 1, 1]);
        bench.launch(Launch { kernel: c"interpreter", grid, block, shared: 0, parameters });
        let wanted: Vec<i32> = input.iter().map(|&input| interpret(&code, input)).collect();
        assert_eq!(bench.download::<i32>(to, 64), wanted);
    }
}
