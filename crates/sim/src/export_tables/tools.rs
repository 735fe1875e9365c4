//! The tables through which profilers and debuggers observe the CUDA runtime. No tool observes a
//! simulated machine.

use std::cell::UnsafeCell;
use std::ffi::c_void;

use super::{Table, sized};

pub(super) const HOOKS_ID: [u8; 16] = 0xa094798c_2e74_2e74_93f2_0800200c0a66_u128.to_be_bytes();
pub(super) const LOCAL_ID: [u8; 16] = 0x42d85a81_23f6_cb47_8298_f6e78a3aecdc_u128.to_be_bytes();

/// Callbacks of tools.
pub(super) static HOOKS: Table = {
    let mut table = sized::<1>(7);
    table[2] = enabled_calls as *const c_void;
    table[6] = enabled_domains as *const c_void;
    Table(table)
};

/// Storage of tools per thread. The runtime requires the table and calls none of its functions.
pub(super) static LOCAL: Table = Table(sized::<2>(4));

/// Words that the runtime reads, and that a tool would set to enable callbacks.
struct Words<const N: usize>(UnsafeCell<[u32; N]>);

// SAFETY: this library never accesses the words after it has given out their address.
unsafe impl<const N: usize> Sync for Words<N> {}

impl<const N: usize> Words<N> {
    const fn new() -> Self {
        Self(UnsafeCell::new([0; N]))
    }

    /// Writes address and number of the words.
    ///
    /// # Safety
    /// Each pointer is null or valid.
    unsafe fn give(&self, words: *mut *mut c_void, count: *mut usize) {
        // SAFETY: passed on from the caller.
        let (words, count) = unsafe { (words.as_mut(), count.as_mut()) };
        if let (Some(words), Some(count)) = (words, count) {
            (*words, *count) = (self.0.get().cast(), N);
        }
    }
}

static CALLS: Words<1024> = Words::new();
static DOMAINS: Words<14> = Words::new();

/// Gives the words of the single functions of the runtime.
///
/// # Safety
/// Each pointer is null or valid.
unsafe extern "C" fn enabled_calls(words: *mut *mut c_void, count: *mut usize) {
    // SAFETY: passed on from the caller.
    unsafe { CALLS.give(words, count) }
}

/// Gives the words of groups of events.
///
/// # Safety
/// Each pointer is null or valid.
unsafe extern "C" fn enabled_domains(words: *mut *mut c_void, count: *mut usize) {
    // SAFETY: passed on from the caller.
    unsafe { DOMAINS.give(words, count) }
}
