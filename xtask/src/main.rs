//! Development tasks: `cargo xtask <verb>`, one file per verb.

mod bench;
mod ci;
mod circles;
mod clients;
mod codegen;
mod conformance;
mod dependencies;
mod ecosystem;
mod examples;
mod mutants;
mod mutate;
mod nvcc_kernels;
mod packages;
mod prewarm;
mod ptxas;
mod release;
mod tidy;
mod toolchain;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Development tasks of the workspace")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Compare our times with PyTorch's on a machine with a GPU.
    Bench(bench::Arguments),
    /// Run one job of the CI, or all of them in order.
    Ci(ci::Arguments),
    /// Run test suites of other projects on the simulator's libcuda.so.1.
    Clients(clients::Arguments),
    /// Write the PTX of every kernel to kernels-ptx/golden, or check that it is current.
    Codegen(codegen::Arguments),
    /// Record driver calls on hardware, or replay the recordings on the simulator.
    Conformance(conformance::Arguments),
    /// Mutate the simulator's sources and check that its tests fail.
    Mutate(mutate::Arguments),
    /// Compile the CUDA kernels of the simulator's tests with nvcc.
    NvccKernels(nvcc_kernels::Arguments),
    /// Check that all kernels assemble, stay within their budget, and are warm when launched.
    #[command(alias = "ptxas")]
    Prewarm(prewarm::Arguments),
    /// Compile kernels for the process that started this one.
    #[command(hide = true)]
    CompileWorker(prewarm::WorkerArguments),
    /// Mutate PTX texts and compare the verdicts of the parser and of ptxas.
    PtxMutants(mutants::Arguments),
    /// Check a release, or write its version, tag it and publish it.
    Release(release::Arguments),
    /// Check the rules of the tree: dependencies, names, file sizes, documents.
    Tidy,
    /// Fetch ptxas, the CUDA headers and libclang, pinned, into target/toolchain.
    Toolchain,
}

fn main() -> ExitCode {
    match run(Cli::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Bench(arguments) => bench::run(&arguments),
        Verb::Ci(arguments) => ci::run(&arguments),
        Verb::Clients(arguments) => clients::run(&arguments),
        Verb::Codegen(arguments) => codegen::run(&arguments),
        Verb::Conformance(arguments) => conformance::run(&arguments),
        Verb::Mutate(arguments) => mutate::run(&arguments),
        Verb::NvccKernels(arguments) => nvcc_kernels::run(&arguments),
        Verb::PtxMutants(arguments) => mutants::run(&arguments),
        Verb::Prewarm(arguments) => prewarm::run(&arguments),
        Verb::CompileWorker(arguments) => prewarm::worker(&arguments),
        Verb::Release(arguments) => release::run(&arguments),
        Verb::Tidy => tidy::run(),
        Verb::Toolchain => toolchain::run(),
    }
}
