//! Host functions of scenarios, which log their name or sleep.
//!
//! The scenario chooses the argument of a host function, so the function's address selects its
//! action: a fixed number of functions is assigned to scenarios.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use retrograph_driver_sys::{CUresult, CUstream};

use crate::error::Problem;

/// The log of a scenario's host functions.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

/// The action of a host function.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Appends its name to a log.
    Say(String, Log),
    /// Sleeps for a number of milliseconds.
    Sleep(u64),
}

static ACTIONS: [Mutex<Option<Action>>; COUNT] = [const { Mutex::new(None) }; COUNT];

fn act(slot: usize, suffix: &str) {
    let action = ACTIONS[slot].lock().unwrap_or_else(PoisonError::into_inner).clone();
    match action {
        Some(Action::Say(name, log)) => {
            log.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{name}{suffix}"));
        }
        Some(Action::Sleep(milliseconds)) => {
            std::thread::sleep(Duration::from_millis(milliseconds));
        }
        None => {}
    }
}

extern "C" fn host<const SLOT: usize>(_data: *mut c_void) {
    act(SLOT, "");
}

extern "C" fn callback<const SLOT: usize>(_stream: CUstream, code: CUresult, _data: *mut c_void) {
    act(SLOT, &format!(":{}", code.0));
}

macro_rules! slots {
    ($($slot:literal)*) => {
        const COUNT: usize = [$($slot),*].len();
        const HOSTS: [extern "C" fn(*mut c_void); COUNT] = [$(host::<$slot>),*];
        const CALLBACKS: [extern "C" fn(CUstream, CUresult, *mut c_void); COUNT] =
            [$(callback::<$slot>),*];
    };
}

slots! {
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62
    63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93
    94 95 96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118
    119 120 121 122 123 124 125 126 127
}

/// The functions assigned to a scenario. Released at its end.
#[derive(Debug, Default)]
pub(crate) struct Lent(Vec<usize>);

impl Lent {
    /// Assigns a function to an action and returns its address: a host function or a stream
    /// callback.
    pub(crate) fn lend(&mut self, action: Action, is_callback: bool) -> Result<u64, Problem> {
        for (slot, place) in ACTIONS.iter().enumerate() {
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            if place.is_none() {
                *place = Some(action);
                self.0.push(slot);
                let address = if is_callback {
                    CALLBACKS[slot] as *const c_void
                } else {
                    HOSTS[slot] as *const c_void
                };
                return Ok(address.expose_provenance() as u64);
            }
        }
        Err(Problem::Limit { what: "too many host functions are in use" })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        for slot in &self.0 {
            *ACTIONS[*slot].lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}
