//! The hub of a communicator: a thread of the process that created the unique id. Each rank has a
//! connection to it. It reads the contributions of all ranks in turn and answers them.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::reduce;
use crate::request::Request;
use crate::wire::{Address, Answer, Contribution, Hello, write_answer};

/// Starts a hub.
pub(crate) fn start() -> io::Result<Address> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = Address { port: listener.local_addr()?.port(), nonce: nonce() };
    let serve = move || {
        // An error means that this process or a rank has ended, and then nobody waits for an
        // answer.
        let _ = Hub::gather(&listener, address).and_then(Hub::serve);
    };
    std::thread::Builder::new().name("simulated NCCL".to_owned()).spawn(serve)?;
    Ok(address)
}

/// Returns a number that no other communicator of this machine has.
fn nonce() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    (time as u64) ^ (u64::from(std::process::id()) << 40) ^ count
}

struct Hub {
    /// The connections in the order of ranks.
    ranks: Vec<TcpStream>,
}

impl Hub {
    /// Accepts ranks until all are there.
    fn gather(listener: &TcpListener, address: Address) -> io::Result<Self> {
        let mut joined: Vec<(Hello, TcpStream)> = Vec::new();
        loop {
            let (mut stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            let Ok(hello) = Hello::read(&mut stream) else { continue };
            if hello.nonce != address.nonce {
                continue;
            }
            match refusal(&joined, hello) {
                Some(text) => drop(write_answer(&mut stream, &Err(text))),
                None => joined.push((hello, stream)),
            }
            if joined.first().is_some_and(|(first, _)| first.ranks as usize == joined.len()) {
                break;
            }
        }
        joined.sort_by_key(|(hello, _)| hello.rank);
        let mut ranks: Vec<_> = joined.into_iter().map(|(_, stream)| stream).collect();
        for stream in &mut ranks {
            write_answer(stream, &Ok(Vec::new()))?;
        }
        Ok(Self { ranks })
    }

    /// Serves collectives until a rank leaves. The connections of the others stay open, so that
    /// their collectives hang, as on hardware.
    fn serve(mut self) -> io::Result<()> {
        loop {
            let contributions: io::Result<Vec<_>> =
                self.ranks.iter_mut().map(Contribution::read).collect();
            let Ok(contributions) = contributions else { return self.wait_for_all() };
            for (stream, answer) in self.ranks.iter_mut().zip(answers(contributions)) {
                // A missing rank is detected when the next contributions are read.
                let _ = write_answer(stream, &answer);
            }
        }
    }

    /// Reads the messages of the other ranks until they leave, too.
    fn wait_for_all(&mut self) -> io::Result<()> {
        for stream in &mut self.ranks {
            while io::copy(stream, &mut io::sink())? > 0 {}
        }
        Ok(())
    }
}

/// Returns the reason why a rank cannot join, if any.
fn refusal(joined: &[(Hello, TcpStream)], hello: Hello) -> Option<String> {
    let Hello { ranks, rank, .. } = hello;
    let (first, _) = joined.first()?;
    if first.ranks != ranks {
        return Some(format!("rank {rank} has {ranks} ranks, and others have {}", first.ranks));
    }
    let taken = joined.iter().any(|(other, _)| other.rank == rank);
    taken.then(|| format!("there are two ranks {rank}"))
}

/// The answers to all ranks.
fn answers(contributions: Vec<Contribution>) -> Vec<Answer> {
    let ranks = contributions.len();
    let requests: Vec<Request> = contributions.iter().map(|one| one.request).collect();
    let sent: Vec<Vec<u8>> = contributions.into_iter().map(|one| one.bytes).collect();
    let outcome = match requests.iter().all(|request| *request == requests[0]) {
        true => reduce::results(&requests[0], &sent),
        false => Err(disagreement(&requests)),
    };
    match outcome {
        Ok(results) => results.into_iter().map(Ok).collect(),
        Err(text) => vec![Err(text); ranks],
    }
}

fn disagreement(requests: &[Request]) -> String {
    let asked = requests.iter().enumerate().map(|(rank, one)| format!("rank {rank} runs {one}"));
    format!("ranks disagree: {}", asked.collect::<Vec<_>>().join(", "))
}
