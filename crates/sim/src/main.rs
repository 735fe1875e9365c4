//! The program, which is also the shared library. All code is in the library of this package.

#![cfg_attr(libcuda, no_main)]

#[cfg(libcuda)]
use retrograph_sim as _;

#[cfg(not(libcuda))]
#[expect(clippy::print_stderr, reason = "a program that cannot do its work says so")]
fn main() -> std::process::ExitCode {
    eprintln!("error: the simulated libcuda needs Linux with glibc, on x86_64 or aarch64");
    std::process::ExitCode::FAILURE
}
