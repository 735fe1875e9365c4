//! The messages between ranks and coordinator: one JSON text per line.

use std::io::{self, BufRead, Write};
use std::net::TcpStream;

use serde::{Deserialize, Serialize};

/// The protocol version, which must be the same in all processes.
pub(super) const VERSION: u32 = 1;

/// Maximum bytes of a message.
const MAX_BYTES: u64 = 1 << 20;

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Message {
    /// A rank wants to join.
    Join(Join),
    /// The coordinator refuses a rank.
    Refused { reason: String },
    /// All ranks have joined.
    Start,
    /// The sender lives.
    Alive,
    /// The sender has failed.
    Failed { reason: String },
    /// A rank has failed.
    RankFailed { rank: usize, reason: String },
    /// The sender ends in order.
    Leave,
    /// The `number`-th text of rank 0 for all ranks.
    Shared { number: u64, text: String },
    /// The ranks should stop after a step.
    Stop,
}

/// A rank that wants to join.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Join {
    pub(super) version: u32,
    pub(super) rank: usize,
    pub(super) count: usize,
    /// The process, for messages.
    pub(super) process: u32,
    /// A text about the run, which must be the same on all ranks.
    pub(super) run: String,
}

/// Sends a message.
pub(super) fn send(mut stream: &TcpStream, message: &Message) -> io::Result<()> {
    let mut line = serde_json::to_string(message).map_err(io::Error::other)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}

/// Receives a message; `None` if the sender has closed the connection.
pub(super) fn receive(reader: &mut impl BufRead) -> io::Result<Option<Message>> {
    let mut line = Vec::new();
    io::Read::take(&mut *reader, MAX_BYTES).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&line).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_and_others_are_errors() {
        let text = "two\nlines \"quoted\"".to_owned();
        let messages = [Message::Alive, Message::Shared { number: 3, text }];
        let lines: Vec<String> =
            messages.iter().map(|message| serde_json::to_string(message).unwrap()).collect();
        let text = format!("{}\n{}\n", lines[0], lines[1]);
        let mut reader = text.as_bytes();
        for message in messages {
            assert_eq!(receive(&mut reader).unwrap(), Some(message));
        }
        assert_eq!(receive(&mut reader).unwrap(), None);
        assert!(receive(&mut b"GET / HTTP/1.1\r\n".as_slice()).is_err());
    }
}
