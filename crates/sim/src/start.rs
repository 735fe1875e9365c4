//! The entry point of the shared library, which makes it a program as well.
//!
//! `build.rs` links the program as a shared library. Such a file lacks two things that the C
//! compiler adds to programs: the path of the loader, and the code that calls `main`. glibc is a
//! program in the same way.

use std::ffi::{c_char, c_int};

/// The path of the program loader in the ABI of the architecture.
#[cfg(target_arch = "x86_64")]
const LOADER: &[u8; 28] = b"/lib64/ld-linux-x86-64.so.2\0";
#[cfg(target_arch = "aarch64")]
const LOADER: &[u8; 28] = b"/lib/ld-linux-aarch64.so.1\0\0";

#[used]
#[unsafe(link_section = ".interp")]
static INTERPRETER: [u8; 28] = *LOADER;

// At the entry of a program the stack holds the number of arguments and then the arguments; the
// first register holds a function for `__libc_start_main` to run at exit. The stack must be aligned
// to 16 bytes at calls.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl retrograph_sim_start",
    ".hidden retrograph_sim_start",
    "retrograph_sim_start:",
    "xor ebp, ebp",
    "mov r9, rdx",
    "mov rsi, [rsp]",
    "lea rdx, [rsp + 8]",
    "and rsp, -16",
    "push rax",
    "push rsp",
    "xor r8d, r8d",
    "xor ecx, ecx",
    "lea rdi, [rip + {main}]",
    "call [rip + __libc_start_main@GOTPCREL]",
    "hlt",
    main = sym main,
);
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl retrograph_sim_start",
    ".hidden retrograph_sim_start",
    "retrograph_sim_start:",
    "mov x29, #0",
    "mov x30, #0",
    "mov x5, x0",
    "ldr x1, [sp]",
    "add x2, sp, #8",
    "mov x6, sp",
    "adrp x0, {main}",
    "add x0, x0, :lo12:{main}",
    "mov x3, #0",
    "mov x4, #0",
    "bl __libc_start_main",
    "brk #1000",
    main = sym main,
);

unsafe extern "C" {
    fn retrograph_sim_start();
}

/// Keeps the entry point, to which only an argument of the linker refers.
#[used]
static START: unsafe extern "C" fn() = retrograph_sim_start;

/// Called by the C library, like `main` of a C program.
extern "C" fn main(_: c_int, _: *const *const c_char) -> c_int {
    crate::program::run()
}
