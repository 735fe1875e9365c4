//! Processes that compile for another one, over their standard input and output.
//!
//! A worker first says what its driver and device are, and is used only if they are those of the
//! process that started it. Then it answers each request, which is a number of threads, a length
//! and PTX, with a status, a length and code or a message. It ends when its input ends.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::compiler::{Job, WorkerCommand};
use super::disk::identity;
use super::load::compile;
use crate::context::Context;

/// Longer answers than this are none.
const MOST_BYTES: u64 = 1 << 30;

const GOOD: u8 = 1;
const BAD: u8 = 0;

/// Compiles what is asked for on `input` until it ends, for a process that was started as
/// [`WorkerCommand`] says. Nothing else may write to `output`.
///
/// # Errors
/// When `input` or `output` fail. What does not compile is answered, and no error.
pub fn serve(context: &Context, input: impl Read, output: impl Write) -> io::Result<()> {
    let (mut input, mut output) = (BufReader::new(input), BufWriter::new(output));
    answer(&mut output, GOOD, identity(context).as_bytes())?;
    loop {
        let mut threads = [0; 4];
        match input.read_exact(&mut threads) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            outcome => outcome?,
        }
        let ptx = read_bytes(&mut input)?;
        let ptx = String::from_utf8_lossy(&ptx);
        match compile(context, &ptx, u32::from_le_bytes(threads) as usize) {
            Ok(code) => answer(&mut output, GOOD, &code)?,
            Err(failure) => {
                let message = format!("{}\n{}", failure.error, failure.log);
                answer(&mut output, BAD, message.trim().as_bytes())?;
            }
        }
    }
}

/// A started worker, which is ended when it is dropped.
pub(super) struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    pub(super) fn start(command: &WorkerCommand, identity: &str) -> Result<Self, String> {
        let WorkerCommand { program, arguments } = command;
        let failed = |error: io::Error| format!("{}: {error}", program.display());
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{}: no pipes", program.display()));
        };
        let mut worker = Self { child, input, output: BufReader::new(output) };
        match worker.read_answer() {
            Ok((GOOD, said)) if said == identity.as_bytes() => Ok(worker),
            Ok((_, said)) => {
                let said = String::from_utf8_lossy(&said).into_owned();
                Err(format!("{} is for `{said}`, not for `{identity}`", program.display()))
            }
            Err(error) => Err(failed(error)),
        }
    }

    pub(super) fn compile(&mut self, job: Job<'_>) -> Result<Vec<u8>, String> {
        match self.ask(job) {
            Ok((GOOD, code)) => Ok(code),
            Ok((_, message)) => Err(String::from_utf8_lossy(&message).into_owned()),
            Err(error) => Err(format!("the compiling process failed: {error}")),
        }
    }

    fn ask(&mut self, job: Job<'_>) -> io::Result<(u8, Vec<u8>)> {
        self.input.write_all(&u32::try_from(job.threads).unwrap_or(1).to_le_bytes())?;
        self.input.write_all(&(job.ptx.len() as u64).to_le_bytes())?;
        self.input.write_all(job.ptx.as_bytes())?;
        self.input.flush()?;
        self.read_answer()
    }

    fn read_answer(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut status = [0];
        self.output.read_exact(&mut status)?;
        if ![GOOD, BAD].contains(&status[0]) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its output is no answer"));
        }
        Ok((status[0], read_bytes(&mut self.output)?))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself, and there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(output: &mut impl Write, status: u8, bytes: &[u8]) -> io::Result<()> {
    output.write_all(&[status])?;
    output.write_all(&(bytes.len() as u64).to_le_bytes())?;
    output.write_all(bytes)?;
    output.flush()
}

fn read_bytes(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    input.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a length that cannot be"));
    }
    let mut bytes = Vec::new();
    if input.take(length).read_to_end(&mut bytes)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}
