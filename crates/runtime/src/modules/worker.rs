//! Worker processes that compile for another process, over standard input and output.
//!
//! A worker first reports its driver and device, and is used only if they match. It answers each
//! request (a length, PTX) with a status, a length, and code or a message. It exits when its input
//! ends.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use retrograph_driver::{Context, compile_ptx};

use super::compiler::WorkerCommand;
use super::disk::identity;
use super::job::{Failure, Job};

/// Maximum length of an answer.
const MAX_BYTES: u64 = 1 << 30;

const GOOD: u8 = 1;
const BAD: u8 = 0;

/// Compiles requests on `input` until it ends, in a process started by a [`WorkerCommand`]. Nothing
/// else may write to `output`.
///
/// # Errors
/// If `input` or `output` fail. Compile errors are answers.
pub fn serve(context: &Context, input: impl Read, output: impl Write) -> io::Result<()> {
    let (mut input, mut output) = (BufReader::new(input), BufWriter::new(output));
    answer(&mut output, GOOD, identity(context).as_bytes())?;
    loop {
        if input.fill_buf()?.is_empty() {
            return Ok(());
        }
        let ptx = read_bytes(&mut input)?;
        match compile_ptx(context, &String::from_utf8_lossy(&ptx)) {
            Ok(code) => answer(&mut output, GOOD, &code)?,
            Err(failure) => {
                let message = format!("{}\n{}", failure.error, failure.log);
                answer(&mut output, BAD, message.trim().as_bytes())?;
            }
        }
    }
}

/// A status, and code or a message.
type Answer = io::Result<(u8, Vec<u8>)>;

/// A worker process, killed when dropped. A separate thread communicates with it, since that may
/// block; the thread ends with the pipes.
pub(super) struct Worker {
    child: Child,
    /// PTX.
    requests: Sender<String>,
    answers: Receiver<Answer>,
}

impl Worker {
    pub(super) fn start(
        command: &WorkerCommand,
        identity: &str,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let WorkerCommand { program, arguments } = command;
        let failed = |error: io::Error| format!("{}: {error}", program.display());
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{}: no pipes", program.display()).into());
        };
        let ((requests, asked), (told, answers)) = (mpsc::channel(), mpsc::channel());
        std::thread::spawn(move || talk(input, BufReader::new(output), &asked, &told));
        let worker = Self { child, requests, answers };
        match worker.answer(limit)? {
            Ok((GOOD, said)) if said == identity.as_bytes() => Ok(worker),
            Ok((_, said)) => {
                let said = String::from_utf8_lossy(&said).into_owned();
                Err(format!("{} is for `{said}`, not for `{identity}`", program.display()).into())
            }
            Err(error) => Err(failed(error).into()),
        }
    }

    pub(super) fn compile(&mut self, job: Job<'_>) -> Result<Vec<u8>, Failure> {
        // If the request cannot be sent, receiving the answer fails too.
        let _ = self.requests.send(job.ptx.to_owned());
        match self.answer(job.limit)? {
            Ok((GOOD, code)) => Ok(code),
            Ok((_, message)) => Err(String::from_utf8_lossy(&message).into_owned().into()),
            Err(error) => Err(format!("the compiler process failed: {error}").into()),
        }
    }

    fn answer(&self, limit: Duration) -> Result<Answer, Failure> {
        match self.answers.recv_timeout(limit) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => Err(Failure::TooSlow),
            Err(RecvTimeoutError::Disconnected) => Ok(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

/// Forwards requests and answers until either side ends.
fn talk(
    mut input: ChildStdin,
    mut output: BufReader<ChildStdout>,
    requests: &Receiver<String>,
    answers: &Sender<Answer>,
) {
    // The worker sends its identity unasked.
    let mut answer = read_answer(&mut output);
    loop {
        let failed = answer.is_err();
        if answers.send(answer).is_err() || failed {
            return;
        }
        let Ok(request) = requests.recv() else { return };
        answer = ask(&mut input, &request).and_then(|()| read_answer(&mut output));
    }
}

fn ask(input: &mut impl Write, ptx: &str) -> io::Result<()> {
    input.write_all(&(ptx.len() as u64).to_le_bytes())?;
    input.write_all(ptx.as_bytes())?;
    input.flush()
}

fn read_answer(output: &mut impl Read) -> Answer {
    let mut status = [0];
    output.read_exact(&mut status)?;
    if ![GOOD, BAD].contains(&status[0]) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its output is not an answer"));
    }
    Ok((status[0], read_bytes(output)?))
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The process may have ended by itself, so errors are ignored.
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
    if length > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an invalid length"));
    }
    let mut bytes = Vec::new();
    if input.take(length).read_to_end(&mut bytes)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}
