//! Kernels compiled by `nvcc`, against the same code on the CPU.
//!
//! `tests/nvcc` has the sources and their PTX from `cargo xtask nvcc-kernels`; the first lines of
//! each PTX file name the compiler version.

mod arithmetic;
mod blocks;
mod functions;
mod halves;
mod tensor;
mod warps;

use std::ffi::{CStr, CString, c_void};

use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

/// A simulated device with one of the modules.
struct Bench {
    machine: Machine,
    module: CUmodule,
}

/// The arguments of a kernel.
struct Launch<'a> {
    kernel: &'a CStr,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    /// The bytes of each parameter.
    parameters: Vec<Vec<u8>>,
}

/// Numbers that can be converted to and from bytes.
trait Number: Copy {
    const BYTES: usize;
    fn put(self, to: &mut Vec<u8>);
    fn get(from: &[u8]) -> Self;
}

macro_rules! number {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            const BYTES: usize = size_of::<$ty>();
            fn put(self, to: &mut Vec<u8>) {
                to.extend(self.to_le_bytes());
            }
            fn get(from: &[u8]) -> Self {
                Self::from_le_bytes(from.try_into().expect("as many bytes as the number has"))
            }
        }
    )*};
}
number!(u8, u16, u32, i32, u64, i64, f32, f64);

/// The bytes of a parameter.
fn value<T: Number>(value: T) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.put(&mut bytes);
    bytes
}

impl Bench {
    /// Loads a module; `seed` is the seed of the order of blocks and warps.
    fn new(ptx: &str, seed: u64) -> Self {
        let machine = Machine::seeded(seed);
        let image = CString::new(ptx).expect("PTX is text");
        let module = machine.load(&image).unwrap_or_else(|code| {
            panic!("{code:?}: {:?}", machine.simulator.diagnostics());
        });
        Self { machine, module }
    }

    /// Device memory that holds `list`.
    fn upload<T: Number>(&self, list: &[T]) -> u64 {
        let mut bytes = Vec::new();
        list.iter().for_each(|&number| number.put(&mut bytes));
        let mut address = 0;
        let code = cu!(self.machine, cuMemAlloc_v2(&mut address, bytes.len()));
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        let from = bytes.as_ptr().cast::<c_void>();
        let code = cu!(self.machine, cuMemcpyHtoD_v2(address, from, bytes.len()));
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        address
    }

    fn download<T: Number>(&self, address: u64, count: usize) -> Vec<T> {
        let mut bytes = vec![0u8; count * T::BYTES];
        let to = bytes.as_mut_ptr().cast::<c_void>();
        let code = cu!(self.machine, cuMemcpyDtoH_v2(to, address, bytes.len()));
        assert_eq!(code, CUresult::CUDA_SUCCESS, "{:?}", self.machine.simulator.diagnostics());
        bytes.chunks_exact(T::BYTES).map(T::get).collect()
    }

    fn launch(&self, launch: Launch<'_>) {
        self.launch_as(launch, false);
    }

    fn launch_as(&self, launch: Launch<'_>, is_cooperative: bool) {
        let mut function = CUfunction::NULL;
        let name = launch.kernel.as_ptr();
        let code = cu!(self.machine, cuModuleGetFunction(&mut function, self.module, name));
        assert_eq!(code, CUresult::CUDA_SUCCESS, "{:?}", self.machine.simulator.diagnostics());
        let mut parameters = launch.parameters;
        let mut list: Vec<*mut c_void> =
            parameters.iter_mut().map(|bytes| bytes.as_mut_ptr().cast()).collect();
        let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
        let (list, none) = (list.as_mut_ptr(), std::ptr::null_mut());
        let (shared, stream) = (launch.shared, CUstream::NULL);
        let code = match is_cooperative {
            true => cu!(
                self.machine,
                cuLaunchCooperativeKernel(function, gx, gy, gz, bx, by, bz, shared, stream, list)
            ),
            false => cu!(
                self.machine,
                cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, list, none)
            ),
        };
        assert_eq!(code, CUresult::CUDA_SUCCESS, "{:?}", self.machine.simulator.diagnostics());
    }
}

/// Pseudorandom numbers between −`range` and `range`.
fn numbers(count: usize, range: f32) -> Vec<f32> {
    let mut state = 0x1234_5678u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * range
    };
    (0..count).map(next).collect()
}

/// Pseudorandom integers.
fn integers(count: usize) -> Vec<u32> {
    numbers(count, 1.0).iter().map(|x| x.to_bits().wrapping_mul(0x9e37_79b9)).collect()
}

#[track_caller]
fn near(found: f32, wanted: f64, tolerance: f64) {
    let error = (f64::from(found) - wanted).abs();
    let bound = tolerance * wanted.abs().max(1.0);
    assert!(error <= bound, "{found} instead of {wanted}");
}

/// The order of blocks and warps must not matter.
const SEEDS: [u64; 2] = [0, 7];
