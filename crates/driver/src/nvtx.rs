//! NVTX ranges: named spans in profilers such as Nsight Systems.
//!
//! The NVTX library is loaded once per process, when the first range begins. If it is absent, a
//! range costs one flag check.
//!
//! ```
//! let range = retrograph_driver::nvtx::range(c"load the data");
//! // Work until the range is dropped is shown under its name.
//! drop(range);
//! ```

use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;
use std::sync::OnceLock;

use libloading::Library;

/// The library of CUDA up to version 12, and its successors with the same functions.
const NAMES: [&str; 3] = ["libnvToolsExt.so.1", "libnvtx3interop.so.1", "libnvtx3interop.so"];

type Push = unsafe extern "C" fn(*const c_char) -> c_int;
type Pop = unsafe extern "C" fn() -> c_int;

/// The functions of the library that are used.
#[derive(Clone, Copy, Debug)]
struct Functions {
    push: Push,
    pop: Pop,
}

impl Functions {
    /// Loads the functions of the first library that has both. It is never unloaded.
    fn load() -> Option<Self> {
        let found = NAMES.iter().find_map(|name| {
            // SAFETY: the name denotes an NVIDIA library whose initializers only look for a
            // profiler.
            let library = unsafe { Library::new(*name) }.ok()?;
            // SAFETY: these are the signatures of both functions in every version of nvToolsExt.h.
            let functions = unsafe {
                let push = *library.get::<Push>(b"nvtxRangePushA\0").ok()?;
                let pop = *library.get::<Pop>(b"nvtxRangePop\0").ok()?;
                Self { push, pop }
            };
            std::mem::forget(library);
            tracing::debug!(name, "NVTX ranges are enabled");
            Some(functions)
        });
        if found.is_none() {
            tracing::debug!("no NVTX library was found");
        }
        found
    }

    fn begin(self, name: &CStr) -> Range {
        // SAFETY: the string is zero-terminated and only read during the call.
        unsafe { (self.push)(name.as_ptr()) };
        Range { pop: Some(self.pop), not_send: PhantomData }
    }
}

/// A range that ends when this is dropped. Ranges nest per thread, so it is not `Send`.
#[must_use = "the range ends when this is dropped"]
#[derive(Debug)]
pub struct Range {
    pop: Option<Pop>,
    not_send: PhantomData<*const ()>,
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(pop) = self.pop {
            // SAFETY: this thread began the range: ranges are not `Send`.
            unsafe { pop() };
        }
    }
}

/// Begins a range on this thread.
pub fn range(name: &CStr) -> Range {
    static LOADED: OnceLock<Option<Functions>> = OnceLock::new();
    match LOADED.get_or_init(Functions::load) {
        Some(functions) => functions.begin(name),
        None => Range { pop: None, not_send: PhantomData },
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    unsafe extern "C" fn push(name: *const c_char) -> c_int {
        // SAFETY: ranges pass a zero-terminated string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        SEEN.with_borrow_mut(|seen| seen.push(name));
        0
    }

    unsafe extern "C" fn pop() -> c_int {
        SEEN.with_borrow_mut(|seen| seen.push("end".to_owned()));
        0
    }

    #[test]
    fn ranges_nest_and_end_after_a_panic() {
        let functions = Functions { push, pop };
        let outcome = std::panic::catch_unwind(|| {
            let _outer = functions.begin(c"outer");
            drop(functions.begin(c"first"));
            let _inner = functions.begin(c"second");
            panic!("on purpose");
        });
        assert!(outcome.is_err());
        let seen = SEEN.with_borrow(Clone::clone);
        assert_eq!(seen, ["outer", "first", "end", "second", "end", "end"]);
    }

    #[test]
    fn a_range_without_the_library_does_nothing() {
        drop(Range { pop: None, not_send: PhantomData });
        drop(range(c"whether or not the library is present"));
        assert!(SEEN.with_borrow(Vec::is_empty), "these are not the test's functions");
    }
}
