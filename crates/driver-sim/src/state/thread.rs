//! State of a host thread: its context stack and its capture mode.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use retrograph_driver_sys::{CUcontext, CUresult, CUstreamCaptureMode};

use super::State;
use crate::refusal::{Refusal, Rule, refuse};

/// A host thread.
pub(crate) struct Thread {
    /// The context stack, the current one last. Null contexts may be pushed.
    pub(crate) contexts: Vec<CUcontext>,
    pub(crate) capture_mode: CUstreamCaptureMode,
    /// Dangles once the thread has ended.
    life: Weak<()>,
}

/// The number of threads below which none is forgotten.
pub(super) const MIN_THREADS: usize = 64;

impl Default for Thread {
    fn default() -> Self {
        let capture_mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        Self { contexts: Vec::new(), capture_mode, life: life_of_this_thread() }
    }
}

/// The unique number of the calling thread.
pub(crate) fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local!(static THIS: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    THIS.with(|number| *number)
}

/// A value that lives as long as the calling thread. It dangles already in calls from a destructor
/// of a thread that runs after the destructor of this value.
fn life_of_this_thread() -> Weak<()> {
    thread_local!(static LIFE: Arc<()> = Arc::new(()));
    LIFE.try_with(Arc::downgrade).unwrap_or_default()
}

impl State {
    /// Registers the calling thread. Forgets threads that have ended whenever the number of known
    /// threads has doubled, so that programs that start many threads do not grow.
    pub(crate) fn enter_thread(&mut self) {
        if self.threads.contains_key(&this_thread()) {
            return;
        }
        self.thread();
        if self.threads.len() < self.max_threads {
            return;
        }
        self.threads.retain(|_, thread| thread.life.strong_count() > 0);
        let Self { threads, timeline, .. } = self;
        timeline.retain_threads(|thread| threads.contains_key(&thread));
        self.forget_per_thread_streams();
        self.max_threads = (2 * self.threads.len()).max(MIN_THREADS);
    }

    /// The calling thread.
    pub(crate) fn thread(&mut self) -> &mut Thread {
        self.threads.entry(this_thread()).or_default()
    }

    /// The current context of the calling thread, or null.
    pub(crate) fn current_context(&mut self) -> CUcontext {
        self.thread().contexts.last().copied().unwrap_or(CUcontext::NULL)
    }

    /// Fails with `CUDA_ERROR_NOT_INITIALIZED` before `cuInit`.
    pub(crate) fn check_initialized(&self) -> Result<(), Refusal> {
        match self.initialized {
            true => Ok(()),
            false => Err(refuse(CUresult::CUDA_ERROR_NOT_INITIALIZED, Rule::Uninitialized)),
        }
    }

    /// The device of the current context, even if the context is lost.
    pub(crate) fn current_even_lost(&mut self) -> Result<usize, Refusal> {
        self.check_initialized()?;
        let context = self.current_context();
        if context.is_null() {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_CONTEXT, Rule::ContextNone));
        }
        let found = self.devices.iter().position(|device| device.context == Some(context));
        found.ok_or(refuse(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED, Rule::ContextDestroyed))
    }

    /// The device of the current context. Fails with the sticky code if the context is lost.
    pub(crate) fn current(&mut self) -> Result<usize, Refusal> {
        let device = self.current_even_lost()?;
        self.check_alive().map(|()| device)
    }

    /// Fails if a context is current and lost or destroyed.
    pub(crate) fn refuse_lost(&mut self) -> Result<(), Refusal> {
        match self.current_context().is_null() {
            true => Ok(()),
            false => self.current().map(|_| ()),
        }
    }

    /// Fails with the sticky code if the contexts are lost.
    pub(crate) fn check_alive(&self) -> Result<(), Refusal> {
        self.lost.map_or(Ok(()), |code| Err(refuse(code, Rule::Sticky)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use retrograph_driver_sys::CUstream;

    use super::*;
    use crate::config::Config;

    #[test]
    fn threads_that_have_ended_are_forgotten_with_their_streams() {
        let state = Mutex::new(State::new(Config::default()));
        let lock = || state.lock().expect("no thread panicked");
        lock().initialized = true;
        let context = lock().create_context(0);
        let streams = lock().streams.len();
        let call = || {
            let mut state = lock();
            state.enter_thread();
            state.thread().contexts.push(context);
            state.timeline.now();
            assert!(state.resolve(CUstream::PER_THREAD).is_ok());
        };
        call();
        for _ in 0..1000 {
            std::thread::scope(|scope| scope.spawn(call).join()).expect("it does not panic");
        }
        let mut state = lock();
        assert!(state.threads.len() <= MIN_THREADS, "{}", state.threads.len());
        assert!(state.per_thread.len() <= MIN_THREADS, "{}", state.per_thread.len());
        assert_eq!(state.streams.len(), streams + state.per_thread.len());
        let mut threads = 0;
        state.timeline.retain_threads(|_| {
            threads += 1;
            true
        });
        assert!(threads <= MIN_THREADS, "{threads}");
        assert_eq!(state.current_context(), context, "this thread has not ended");
    }
}
