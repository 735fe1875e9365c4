//! The protocol between ranks and the hub of a communicator, over a local socket.

use std::ffi::c_char;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use retrograph_nccl_sys::ncclUniqueId;

use crate::request::Request;

/// The beginning of every unique id.
const MAGIC: [u8; 8] = *b"RGNCCL1\0";

/// The interval at which a waiting rank checks for an abort.
pub(crate) const POLL: Duration = Duration::from_millis(5);

/// The address at which the hub of a communicator listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) port: u16,
    /// Distinguishes communicators that use the same port one after the other.
    pub(crate) nonce: u64,
}

impl Address {
    pub(crate) fn id(self) -> ncclUniqueId {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.port.to_le_bytes());
        bytes.extend(self.nonce.to_le_bytes());
        let mut id = ncclUniqueId::default();
        for (to, from) in id.internal.iter_mut().zip(bytes) {
            *to = from as c_char;
        }
        id
    }

    pub(crate) fn of(id: &ncclUniqueId) -> Option<Self> {
        let bytes: Vec<u8> = id.internal.iter().map(|byte| *byte as u8).collect();
        let (magic, rest) = bytes.split_at(MAGIC.len());
        let (port, rest) = rest.split_first_chunk()?;
        let (nonce, _) = rest.split_first_chunk()?;
        let address = Self { port: u16::from_le_bytes(*port), nonce: u64::from_le_bytes(*nonce) };
        (magic == MAGIC).then_some(address)
    }
}

/// The first message of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) nonce: u64,
    pub(crate) ranks: i32,
    pub(crate) rank: i32,
}

impl Hello {
    pub(crate) fn write(self, stream: &mut TcpStream) -> io::Result<()> {
        let mut bytes = self.nonce.to_le_bytes().to_vec();
        bytes.extend(self.ranks.to_le_bytes());
        bytes.extend(self.rank.to_le_bytes());
        stream.write_all(&bytes)
    }

    pub(crate) fn read(stream: &mut TcpStream) -> io::Result<Self> {
        let nonce = u64::from_le_bytes(array(stream)?);
        let (ranks, rank) =
            (i32::from_le_bytes(array(stream)?), i32::from_le_bytes(array(stream)?));
        Ok(Self { nonce, ranks, rank })
    }
}

/// A collective of a rank: the request, and the bytes that it sends.
#[derive(Debug)]
pub(crate) struct Contribution {
    pub(crate) request: Request,
    pub(crate) bytes: Vec<u8>,
}

impl Contribution {
    pub(crate) fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(&self.request.encode())?;
        write_bytes(stream, &self.bytes)
    }

    pub(crate) fn read(stream: &mut TcpStream) -> io::Result<Self> {
        let request = Request::decode(&array(stream)?);
        Ok(Self { request, bytes: read_bytes(stream)? })
    }
}

/// The answer of the hub: the bytes that a rank receives, or an error.
pub(crate) type Answer = Result<Vec<u8>, String>;

pub(crate) fn write_answer(stream: &mut TcpStream, answer: &Answer) -> io::Result<()> {
    let (ok, bytes) = match answer {
        Ok(bytes) => (1, bytes.as_slice()),
        Err(text) => (0, text.as_bytes()),
    };
    stream.write_all(&[ok])?;
    write_bytes(stream, bytes)
}

pub(crate) fn read_answer(stream: &mut impl Read) -> io::Result<Answer> {
    let [ok] = array(stream)?;
    let bytes = read_bytes(stream)?;
    Ok(if ok == 1 { Ok(bytes) } else { Err(String::from_utf8_lossy(&bytes).into_owned()) })
}

fn write_bytes(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(&(bytes.len() as u64).to_le_bytes())?;
    stream.write_all(bytes)
}

fn read_bytes(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let len = u64::from_le_bytes(array(stream)?);
    let mut bytes = vec![0; len as usize];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn array<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A socket whose reads fail with the kind `TimedOut` once `stop` returns true.
pub(crate) struct Watched<'a, F> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) stop: F,
}

impl<F: Fn() -> bool> Read for Watched<'_, F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&mut &*self.stream).read(into) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if (self.stop)() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}
