//! Checks the benchmark without a GPU: each of our commands runs in a small form on the simulated
//! driver, and every script accepts its arguments. Times are dropped.

use super::cases::Case;
use super::measure;
use super::programs::Programs;

pub(crate) fn run(cases: &[Case], programs: &Programs) -> anyhow::Result<()> {
    programs.compile_scripts()?;
    let mut ran: Vec<Case> = Vec::new();
    for case in cases {
        measure::check_peer(case, programs)?;
        let tiny = case.tiny();
        // Many cases differ only in sizes.
        if !ran.contains(&tiny) {
            measure::check(&tiny, programs)?;
            println!("{} runs on the simulated driver", tiny.name());
            ran.push(tiny);
        }
    }
    println!("the commands of {} cases are valid", cases.len());
    Ok(())
}
