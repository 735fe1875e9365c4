//! Programs against the PTX manual: one small kernel for each family of instructions.

mod async_copies;
mod atomics;
mod bits;
mod bulk;
mod bulk_products;
mod bytes;
mod calls;
mod clusters;
mod compiled;
mod control;
mod conversions;
mod cross;
mod device_memory;
mod faults;
mod floats;
mod grids;
mod halves;
mod matrix;
mod memory;
mod narrow;
mod races;
mod residency;
mod rounding;
mod tensor_maps;
mod tf32;
mod warpgroup;
mod workspaces;

use retrograph_ptx::parse;
use retrograph_ptx_exec::memory::Memory;
use retrograph_ptx_exec::{DecodeError, Fault, HostIsa, Launch, LaunchStats, Program, launch};

/// A kernel `k` with parameters `out` and `in` (pointers, in `%rd1` and `%rd2`), the index of the
/// thread in `%r0`, the addresses of its four-byte elements in `%rd3` and `%rd4`, of its
/// eight-byte elements in `%rd5` and `%rd6`, and `body` after that.
fn kernel(body: &str) -> String {
    kernel_with("", body)
}

/// [`kernel`] with declarations.
fn kernel_with(declarations: &str, body: &str) -> String {
    format!(
        ".version 8.1
        .target sm_90
        .address_size 64
        .visible .entry k(.param .u64 out, .param .u64 in) {{
        .reg .pred %p<10>;
        .reg .b16 %h<10>;
        .reg .b32 %r<40>;
        .reg .f32 %f<20>;
        .reg .b64 %rd<40>;
        .reg .f64 %d<10>;
        {declarations}
        ld.param.u64 %rd1, [out];
        ld.param.u64 %rd2, [in];
        mov.u32 %r1, %ctaid.x;
        mov.u32 %r2, %ntid.x;
        mov.u32 %r3, %tid.x;
        mad.lo.u32 %r0, %r1, %r2, %r3;
        mad.wide.u32 %rd3, %r0, 4, %rd1;
        mad.wide.u32 %rd4, %r0, 4, %rd2;
        mad.wide.u32 %rd5, %r0, 8, %rd1;
        mad.wide.u32 %rd6, %r0, 8, %rd2;
        {body}
        ret;
        }}"
    )
}

fn decode(text: &str) -> Result<Program, DecodeError> {
    let module = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Program::decode(&module, "k", &|_| None)
}

/// A memory with an output of `out_bytes` and the given input, and the parameters for them.
struct Bench {
    memory: Memory,
    out: u64,
    out_bytes: usize,
    params: Vec<u8>,
}

impl Bench {
    fn new(input: &[u8], out_bytes: usize) -> Self {
        let memory = Memory::new(1 << 30);
        let out = memory.alloc(out_bytes as u64).unwrap();
        let source = memory.alloc((input.len() as u64).max(1)).unwrap();
        memory.write(source, input).unwrap();
        let params = [out.to_le_bytes(), source.to_le_bytes()].concat();
        Self { memory, out, out_bytes, params }
    }

    fn launch(&self, program: &Program, request: Launch<'_>) -> Result<LaunchStats, Fault> {
        launch(program, &Launch { parameters: &self.params, ..request }, &self.memory)
    }

    fn output(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.out_bytes];
        self.memory.read(self.out, &mut bytes).unwrap();
        bytes
    }
}

/// Runs one block of a kernel with 64 bytes of input and returns its fault.
fn fault_of(text: &str, block: u32, out_bytes: usize) -> Fault {
    let bench = Bench::new(&[0; 64], out_bytes);
    let program = decode(text).unwrap_or_else(|error| panic!("{error}"));
    let launch = Launch { block: [block, 1, 1], step_limit: 1 << 20, ..Launch::default() };
    bench.launch(&program, launch).unwrap_err()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Runs the kernel with `threads` threads and every interpreter that the host supports, checks that
/// the results agree, and returns the output.
fn run_text(text: &str, threads: u32, input: &[u8], out_bytes: usize) -> Vec<u8> {
    run_grid(text, 1, threads, input, out_bytes)
}

/// [`run_text`] with several blocks, on up to two host threads.
fn run_grid(text: &str, blocks: u32, threads: u32, input: &[u8], out_bytes: usize) -> Vec<u8> {
    let program = decode(text).unwrap_or_else(|error| panic!("{error}"));
    let outputs: Vec<Vec<u8>> = HostIsa::supported()
        .into_iter()
        .map(|isa| {
            let bench = Bench::new(input, out_bytes);
            let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
            let request = Launch { grid, block, threads: 2, isa: Some(isa), ..Launch::default() };
            bench.launch(&program, request).unwrap_or_else(|fault| panic!("{fault}"));
            bench.output()
        })
        .collect();
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]), "interpreters differ");
    outputs.into_iter().next().unwrap()
}

/// Runs `body` on each element of a large input. The words of an element are in `%r10`, `%r11` and
/// so on; the words of the result are in `%r20`, `%r21` and so on.
fn sweep<const IN: usize, const OUT: usize>(body: &str, input: &[[u32; IN]]) -> Vec<[u32; OUT]> {
    const BLOCK: usize = 256;
    let blocks = input.len().div_ceil(BLOCK);
    let threads = blocks * BLOCK;
    let mut bytes = bytes_of(input.as_flattened());
    bytes.resize(4 * IN * threads, 0);
    let each = |count: usize, what: &dyn Fn(usize) -> String| -> String {
        (0..count).map(what).collect::<Vec<_>>().join(" ")
    };
    let text = kernel(&format!(
        "mad.wide.u32 %rd38, %r0, {}, %rd1; mad.wide.u32 %rd39, %r0, {}, %rd2;
        {}
        {body}
        {}",
        4 * OUT,
        4 * IN,
        each(IN, &|i| format!("ld.global.b32 %r{}, [%rd39+{}];", 10 + i, 4 * i)),
        each(OUT, &|i| format!("st.global.b32 [%rd38+{}], %r{};", 4 * i, 20 + i)),
    ));
    let out = run_grid(&text, blocks as u32, BLOCK as u32, &bytes, 4 * OUT * threads);
    words(&out).as_chunks::<OUT>().0[..input.len()].to_vec()
}

/// The next number of a linear congruential generator; its upper bits are the random ones.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state
}

/// Runs `body` on each pair of words in `%r7` and `%r8`; the results are in `%r9`.
fn binary(body: &str, input: &[(u32, u32)]) -> Vec<u32> {
    let flat: Vec<u32> = input.iter().flat_map(|&(a, b)| [a, b]).collect();
    let text = kernel(&format!(
        "ld.global.v2.b32 {{%r7, %r8}}, [%rd6];
        {body}
        st.global.b32 [%rd3], %r9;"
    ));
    words(&run_text(&text, input.len() as u32, &bytes_of(&flat), 4 * input.len()))
}

/// Runs `body` on each pair of floats in `%f7` and `%f8`; the results are in `%f9`, as bits.
fn binary_f32(body: &str, input: &[(f32, f32)]) -> Vec<u32> {
    let bits: Vec<(u32, u32)> = input.iter().map(|(a, b)| (a.to_bits(), b.to_bits())).collect();
    let body = format!("mov.b32 %f7, %r7; mov.b32 %f8, %r8; {body} mov.b32 %r9, %f9;");
    binary(&body, &bits)
}

/// Runs `body` on each pair of 64-bit words in `%rd7` and `%rd8`; the results are in `%rd9`.
fn binary_wide(body: &str, input: &[(u64, u64)]) -> Vec<u64> {
    let flat: Vec<u8> =
        input.iter().flat_map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()]).flatten().collect();
    let text = kernel(&format!(
        "shl.b64 %rd10, %rd6, 0;
        mad.wide.u32 %rd10, %r0, 16, %rd2;
        ld.global.v2.b64 {{%rd7, %rd8}}, [%rd10];
        {body}
        st.global.b64 [%rd5], %rd9;"
    ));
    let out = run_text(&text, input.len() as u32, &flat, 8 * input.len());
    out.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}
