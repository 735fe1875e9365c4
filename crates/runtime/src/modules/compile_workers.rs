//! Concurrent compilation of images in several processes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use retrograph_driver::Context;

use super::compile_process::CompileProcess;
use super::compiler::Compiler;
use super::job::{Failure, Job};
use super::report::Source;

/// The compiler processes.
pub(super) struct CompileWorkers<'a> {
    pub(super) compiler: &'a Compiler,
    /// The driver and device for which code is compiled.
    pub(super) context: &'a Context,
    /// Maximum number of concurrent processes.
    pub(super) count: usize,
    /// Time limit of starting a process, and of one image.
    pub(super) limit: Duration,
}

/// The result for an image, or for a process that did not start.
pub(super) struct Compiled {
    /// The image, or `None` for a process that did not start.
    pub(super) index: Option<usize>,
    /// The code and its source, or the failure.
    pub(super) code: Result<(Vec<u8>, Source), Failure>,
    pub(super) elapsed: Duration,
}

impl CompileWorkers<'_> {
    /// Compiles `images`, started in this order, and passes each result to `take`. After an error
    /// of `take`, no further image is started.
    pub(super) fn compile<E>(
        &self,
        images: &[&str],
        take: &mut dyn FnMut(Compiled) -> Result<(), E>,
    ) -> Result<(), E> {
        let next = AtomicUsize::new(0);
        let (sender, made) = mpsc::channel();
        std::thread::scope(|scope| {
            for index in 0..self.count.min(images.len()) {
                let (sender, next) = (sender.clone(), &next);
                scope.spawn(move || self.work(images, index == 0, next, &sender));
            }
            drop(sender);
            let outcome = made.iter().try_for_each(take);
            next.store(images.len(), Ordering::Relaxed);
            outcome
        })
    }

    fn work(&self, images: &[&str], is_first: bool, next: &AtomicUsize, sender: &Sender<Compiled>) {
        let Self { compiler, context, limit, .. } = *self;
        let started = Instant::now();
        // A failed send means that no receiver waits for the outcome.
        let send = |index, code, started: Instant| {
            sender.send(Compiled { index, code, elapsed: started.elapsed() }).is_ok()
        };
        let mut process = match CompileProcess::new(compiler, context, is_first, limit) {
            Ok(process) => process,
            Err(reason) => {
                send(None, Err(reason), started);
                return;
            }
        };
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(ptx) = images.get(index) else { return };
            let started = Instant::now();
            let code = process.compile(Job { ptx, device: context.device_target(), limit });
            let code = code.map(|code| (code, process.source()));
            let goes_on = code.as_ref().err().is_none_or(|failure| process.survives(failure));
            if !send(Some(index), code, started) || !goes_on {
                return;
            }
        }
    }
}
