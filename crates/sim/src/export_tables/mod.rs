//! The tables of `cuGetExportTable` that NVIDIA's CUDA runtime 13.0 requires.
//!
//! An id names a table, and a slot is a position in it. NVIDIA documents neither. The meaning of
//! the slots comes from the public project ZLUDA (github.com/vosen/ZLUDA) and from the calls that
//! the runtime makes. Other versions of the runtime may use other tables and slots.
//!
//! Only slots that the runtimes 13.0 to 13.3 call are simulated. Every other slot refuses the call,
//! and the report counts it under table and slot.

mod checks;
mod cudart;
mod integrity;
mod md2;
mod storage;
mod tools;

use std::ffi::c_void;

use retrograph_driver_sys::{CUresult, CUuuid};

use crate::{Machine, machine};

pub(crate) use storage::{Storage, destroyed};

/// The slots that a table has here. Real tables are shorter; a call of a slot after their end is
/// also refused by name.
const SLOTS: usize = 32;

/// A table: one pointer per slot. Most tables hold their size in bytes in slot 0.
#[repr(transparent)]
struct Table([*const c_void; SLOTS]);

// SAFETY: the pointers are addresses of functions, or numbers.
unsafe impl Sync for Table {}

/// A table that is simulated.
struct Known {
    id: [u8; 16],
    table: &'static Table,
}

/// The simulated tables. The index of each is the `TABLE` of its refusing slots.
static KNOWN: [Known; 6] = [
    Known { id: cudart::ID, table: &cudart::TABLE },
    Known { id: tools::HOOKS_ID, table: &tools::HOOKS },
    Known { id: tools::LOCAL_ID, table: &tools::LOCAL },
    Known { id: storage::ID, table: &storage::TABLE },
    Known { id: checks::ID, table: &checks::TABLE },
    Known { id: integrity::ID, table: &integrity::TABLE },
];

/// Tables that the CUDA runtime asks for and works without. Refusing one is not reported.
const OPTIONAL: [[u8; 16]; 1] = [0xf8cff951_2146_8b4e_b9e2_fb469e7c0dd9_u128.to_be_bytes()];

/// Whether refusing the table is not reported.
pub(crate) fn is_optional(id: &CUuuid) -> bool {
    OPTIONAL.contains(&id.bytes)
}

/// The table with this id.
pub(crate) fn find(id: &CUuuid) -> Option<*const c_void> {
    let known = KNOWN.iter().find(|known| known.id == id.bytes)?;
    Some(known.table.0.as_ptr().cast())
}

/// A UUID as it is usually written.
pub(crate) fn text_of(id: &[u8; 16]) -> String {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let ends = [0, 8, 12, 16, 20, 32];
    let parts: Vec<_> = ends.windows(2).map(|ends| &hex[ends[0]..ends[1]]).collect();
    parts.join("-")
}

/// The machine, unless a parent of this process initialized it.
fn own_machine() -> Result<&'static Machine, CUresult> {
    let machine = machine();
    match machine.is_of_parent() {
        true => Err(CUresult::CUDA_ERROR_NOT_INITIALIZED),
        false => Ok(machine),
    }
}

/// The code of a result.
fn code_of(result: Result<(), CUresult>) -> CUresult {
    result.err().unwrap_or(CUresult::CUDA_SUCCESS)
}

/// A slot that is not simulated.
extern "C" fn refuse<const TABLE: usize, const SLOT: usize>() -> CUresult {
    let name = format!("cuGetExportTable {} slot {SLOT}", text_of(&KNOWN[TABLE].id));
    machine().report_missing(&name, "this undocumented function is not simulated")
}

macro_rules! refusing {
    ($($slot:literal)*) => {
        /// A table that refuses every call.
        const fn refusing<const TABLE: usize>() -> [*const c_void; SLOTS] {
            [$(refuse::<TABLE, $slot> as *const c_void),*]
        }
    };
}

refusing! { 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 }

/// A table whose slot 0 is the size of `slots` slots in bytes.
const fn sized<const TABLE: usize>(slots: usize) -> [*const c_void; SLOTS] {
    let mut table = refusing::<TABLE>();
    table[0] = std::ptr::without_provenance(slots * size_of::<usize>());
    table
}
