//! `--gpus N`: starts a process for each GPU of this host, and watches them.

use std::io::Read;
use std::net::Ipv4Addr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use retrograph_finetune::{Coordinator, Error, GroupError, GroupOptions};

use super::Status;
use crate::error::CliError;

/// Interval between checks of the processes.
const POLL: Duration = Duration::from_millis(20);
/// Time after the first failure until the remaining processes are killed.
const GRACE: Duration = Duration::from_secs(10);
/// Maximum bytes of a process's error output that are kept.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// A process of the run.
struct Process {
    rank: usize,
    child: Child,
    /// Reads the error output, except of rank 0, which prints it.
    errors: Option<JoinHandle<String>>,
    status: Option<ExitStatus>,
}

/// Starts `count` processes with the arguments of this one, and returns the status of the run. Rank
/// 0 prints; `stop` asks all to stop.
pub(crate) fn launch(count: usize, stop: &AtomicBool) -> Result<Status, CliError> {
    let coordinator = Coordinator::listen((Ipv4Addr::LOCALHOST, 0), count, GroupOptions::default())
        .map_err(Error::from)?;
    let mut processes = Vec::new();
    for rank in 0..count {
        match start(rank, count, &coordinator) {
            Ok(process) => processes.push(process),
            Err(error) => {
                processes.iter_mut().for_each(Process::kill);
                return Err(CliError::Ranks(format!("rank {rank} cannot be started: {error}")));
            }
        }
    }
    watch(&mut processes, &coordinator, stop);
    outcome(&processes, &coordinator)
}

fn start(rank: usize, count: usize, coordinator: &Coordinator) -> std::io::Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).stdin(Stdio::null());
    command.env("RETROGRAPH_COORDINATOR", coordinator.address().to_string());
    command.env("RETROGRAPH_RANK", rank.to_string()).env("RETROGRAPH_RANKS", count.to_string());
    if rank > 0 {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
    }
    let mut child = command.spawn()?;
    let errors = child.stderr.take().map(|mut errors| {
        std::thread::spawn(move || {
            let (mut kept, mut part) = (Vec::new(), [0; 4096]);
            while let Ok(len @ 1..) = errors.read(&mut part) {
                let fits = MAX_ERROR_BYTES.saturating_sub(kept.len()).min(len);
                kept.extend_from_slice(&part[..fits]);
            }
            String::from_utf8_lossy(&kept).into_owned()
        })
    });
    Ok(Process { rank, child, errors, status: None })
}

/// Waits until all processes have ended. Kills those that are silent, and the remaining ones
/// [`GRACE`] after one has failed.
fn watch(processes: &mut [Process], coordinator: &Coordinator, stop: &AtomicBool) {
    let (mut asked, mut failed) = (false, None::<Instant>);
    while processes.iter().any(|process| process.status.is_none()) {
        for process in processes.iter_mut().filter(|process| process.status.is_none()) {
            process.status = process.child.try_wait().ok().flatten();
            if let Some(status) = process.status.filter(|status| !is_end(*status)) {
                let text = process.errors.take().and_then(|errors| errors.join().ok());
                coordinator.fail(process.rank, &ended(status, &text.unwrap_or_default()));
                failed.get_or_insert_with(Instant::now);
            }
        }
        if stop.load(Ordering::Relaxed) && !asked {
            coordinator.stop();
            asked = true;
        }
        for rank in coordinator.silent() {
            processes[rank].kill();
        }
        if failed.is_some_and(|since| since.elapsed() > GRACE) {
            processes.iter_mut().for_each(Process::kill);
        }
        std::thread::sleep(POLL);
    }
}

impl Process {
    fn kill(&mut self) {
        if self.status.is_none() {
            // It may have ended by itself.
            let _ = self.child.kill();
            self.status = self.child.wait().ok();
        }
    }
}

/// Whether a process ended normally: it completed, or stopped by a signal that it handled.
fn is_end(status: ExitStatus) -> bool {
    matches!(status.code(), Some(0 | 129 | 130 | 143))
}

/// Describes how a process ended, with the reason that it printed.
fn ended(status: ExitStatus, errors: &str) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("its process was killed by signal {signal}");
    }
    match (reason(errors), status.code()) {
        (Some(reason), _) => reason,
        (None, Some(code)) => format!("its process ended with status {code}"),
        (None, None) => "its process ended".to_owned(),
    }
}

/// Maximum number of lines in a reason.
const MAX_LINES: usize = 4;

/// Returns the last error or panic with the lines that follow it, such as a hint, or else the last
/// line.
fn reason(errors: &str) -> Option<String> {
    let lines = errors.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<_> = lines.filter(|line| !line.starts_with("note: run with")).collect();
    let begins = |line: &&str| line.starts_with("error: ") || line.contains("panicked at");
    let first = lines.iter().rposition(begins).or_else(|| lines.len().checked_sub(1))?;
    let text = lines[first..].iter().take(MAX_LINES).copied().collect::<Vec<_>>().join("; ");
    Some(text.strip_prefix("error: ").unwrap_or(&text).to_owned())
}

/// Returns the status of rank 0, which has printed its error, or an error if only other ranks
/// failed.
fn outcome(processes: &[Process], coordinator: &Coordinator) -> Result<Status, CliError> {
    let codes: Vec<Option<i32>> =
        processes.iter().map(|process| process.status.and_then(|status| status.code())).collect();
    match codes[0] {
        Some(code) if code != 0 => return Ok(Status(code as u8)),
        Some(_) if codes.iter().all(|code| matches!(code, Some(0))) => return Ok(Status(0)),
        _ => {}
    }
    let (rank, reason) =
        coordinator.failure().unwrap_or((0, "its process ended without an error".to_owned()));
    Err(CliError::Ranks(GroupError::RankFailed { rank, reason }.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failed_rank_is_its_last_error_with_the_hint() {
        let found = |errors| reason(errors).unwrap_or_default();
        assert_eq!(
            found("warm 3\nerror: no file\nhint: --data names it\n"),
            "no file; hint: --data names it"
        );
        assert_eq!(found("error: first\nerror: second"), "second");
        let panic = "thread 'main' panicked at a.rs:1:2:\nindex\nnote: run with `RUST_BACKTRACE=1`";
        assert_eq!(found(panic), "thread 'main' panicked at a.rs:1:2:; index");
        assert_eq!(found("Killed\n\n"), "Killed");
        assert_eq!(reason("\n"), None);
        let long: String = (0..9).map(|at| format!("line {at}\n")).collect();
        assert_eq!(found(&format!("error: {long}")), "line 0; line 1; line 2; line 3");
    }
}
