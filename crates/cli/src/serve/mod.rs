//! `retrograph serve`: the OpenAI API over HTTP.
//!
//! One thread owns the device and answers requests, several concurrently with `--batch`. Another
//! runs the HTTP server; it checks requests, renders conversations and encodes prompts.

mod error;
mod metrics;
mod reply;
mod request;
mod routes;
mod server;
mod worker;

use std::collections::HashSet;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::unbounded_channel;

use self::metrics::Metrics;
use self::server::Server;
use crate::args::ServeArguments;
use crate::engine::Engine;
use crate::error::CliError;
use crate::screen::fact;
use crate::{Outcome, interrupt};

/// Interval between checks for a signal.
const LOOK: Duration = Duration::from_millis(50);
/// Maximum time for sending the ends of answers after the grace period.
const CLOSING: Duration = Duration::from_secs(5);
/// Maximum bytes of the API key file.
const MAX_KEY_BYTES: u64 = 4096;

/// Serves until Ctrl-C or SIGTERM.
pub(crate) fn run(arguments: &ServeArguments) -> Result<Outcome, CliError> {
    let names = names(arguments)?;
    let key = arguments.api_key_file.as_deref().map(key).transpose()?;
    let address = SocketAddr::new(arguments.host, arguments.port);
    let listening = |reason| CliError::Listen { address, reason };
    let listener = TcpListener::bind(address).map_err(listening)?;
    listener.set_nonblocking(true).map_err(listening)?;
    let address = listener.local_addr().map_err(listening)?;
    let adapters: Vec<&Path> = arguments.adapter.iter().map(|(_, path)| path.as_path()).collect();
    let batch = arguments.batch.into();
    let engine = Engine::open(&arguments.engine, &adapters, batch, false, |_, _| Ok(()))?;
    let (jobs, queue) = unbounded_channel();
    let metrics = Arc::new(Metrics::new());
    let unsent = Arc::new(());
    let unsent_count = Arc::downgrade(&unsent);
    let most = arguments.queue + usize::from(arguments.batch);
    let server = Server {
        names,
        tokenizer: engine.tokenizer.clone(),
        template: engine.template.clone(),
        defaults: engine.defaults.clone(),
        vocab: engine.vocab(),
        capacity: engine.capacity(),
        max_tokens: arguments.max_tokens,
        max_body: usize::try_from(arguments.max_body).unwrap_or(usize::MAX),
        key,
        metrics: metrics.clone(),
        slots: Arc::new(Semaphore::new(most)),
        unsent,
        queue: arguments.queue,
        most,
        jobs,
        started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        counter: AtomicU64::new(0),
    };
    fact("models", server.names.join(", "));
    let router = routes::router(Arc::new(server));
    let stop = Stop {
        signal: interrupt::defer(),
        failed: Arc::new(AtomicBool::new(false)),
        cancel: Arc::new(AtomicBool::new(false)),
        grace: Duration::from_secs(arguments.grace.into()),
        unsent: unsent_count,
    };
    let http = {
        let stop = stop.clone();
        std::thread::spawn(move || serve(listener, router, &stop))
    };
    fact("serving", format!("http://{address}"));
    let worked = worker::work(engine, queue, &metrics, &stop.cancel);
    if worked.is_err() {
        stop.failed.store(true, Ordering::SeqCst);
    }
    let served = http.join().unwrap_or_else(|_| Err(std::io::Error::other("its thread failed")));
    let ended = worked?;
    served.map_err(|reason| CliError::Serve { address, reason })?;
    match ended {
        0 => fact("stopped", "all requests are answered"),
        ended => fact("stopped", format!("requests without a complete answer: {ended}")),
    }
    Ok(Outcome::Done)
}

/// The conditions that end the server.
#[derive(Clone)]
struct Stop {
    /// Set by a signal.
    signal: &'static AtomicBool,
    /// Set when the device has failed.
    failed: Arc<AtomicBool>,
    /// Ends all answers and refuses waiting requests.
    cancel: Arc<AtomicBool>,
    /// Time for which requests continue after the signal.
    grace: Duration,
    /// Has one more reference for each request whose answer is not completely sent.
    unsent: Weak<()>,
}

impl Stop {
    /// Waits until the server should stop.
    async fn begins(&self) {
        while !(self.signal.load(Ordering::SeqCst) || self.failed.load(Ordering::SeqCst)) {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until connections that are still open should be closed.
    async fn is_over(&self) {
        self.begins().await;
        if !self.failed.load(Ordering::SeqCst) {
            tokio::time::sleep(self.grace).await;
        }
        self.cancel.store(true, Ordering::SeqCst);
        let end = tokio::time::Instant::now() + CLOSING;
        // The server itself has one reference.
        while self.unsent.strong_count() > 1 && tokio::time::Instant::now() < end {
            tokio::time::sleep(LOOK).await;
        }
        // The last bytes may still be in a buffer.
        tokio::time::sleep(LOOK).await;
    }
}

/// Runs the HTTP server. After a signal, it accepts no connections and answers requests for the
/// grace period.
fn serve(listener: TcpListener, router: Router, stop: &Stop) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let graceful = {
            let stop = stop.clone();
            async move { stop.begins().await }
        };
        let server = axum::serve(listener, router).with_graceful_shutdown(graceful);
        tokio::select! {
            served = server => served,
            () = stop.is_over() => Ok(()),
        }
    });
    // Blocking tasks, such as rendering a template, have their own time limit.
    runtime.shutdown_background();
    served
}

/// Returns the name of the base model, followed by the names of the adapters.
fn names(arguments: &ServeArguments) -> Result<Vec<String>, CliError> {
    let directory = arguments.engine.model.canonicalize();
    let directory = directory.as_deref().unwrap_or(&arguments.engine.model);
    let named = || directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let base = arguments.name.clone().unwrap_or_else(named);
    let adapters = arguments.adapter.iter().map(|(name, _)| name.clone());
    let names: Vec<String> = std::iter::once(base).chain(adapters).collect();
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(name.as_str())) {
        Some(twice) => Err(CliError::ModelTwice(twice.clone())),
        None => Ok(names),
    }
}

/// Returns the digest of the key in a file.
fn key(path: &Path) -> Result<[u8; 32], CliError> {
    use std::io::Read;
    let failed = |reason| CliError::Read { what: "the key", path: path.to_owned(), reason };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_KEY_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    let key = text.trim();
    if key.is_empty() || key.contains(char::is_whitespace) || text.len() as u64 > MAX_KEY_BYTES {
        let reason = "it must have one line with the key, and nothing else";
        return Err(failed(std::io::Error::new(std::io::ErrorKind::InvalidData, reason)));
    }
    Ok(Sha256::digest(key).into())
}
