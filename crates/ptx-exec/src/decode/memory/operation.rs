//! The operation of a load or store: of words in global or shared memory, or of any values.

use retrograph_ptx::ast::StateSpace;

use crate::decode::{VirtualRegister, Width};
use crate::operation::Memory;
use crate::program::Access;

/// Whether the access moves 32-bit words and has the alignment of its size.
fn is_of_words(access: &Access) -> bool {
    access.bytes == 4 && access.value == Width::Word && access.align <= access.bytes * access.count
}

/// The load of 32-bit words in global or shared memory, if the access is one.
pub(super) fn word_load(
    access: &Access,
    values: &[VirtualRegister],
    address: VirtualRegister,
    index: u32,
) -> Option<Memory<VirtualRegister>> {
    if !is_of_words(access) {
        return None;
    }
    Some(match (access.space?, values) {
        (StateSpace::Global, &[d]) => Memory::LoadGlobal1 { d, address, access: index },
        (StateSpace::Global, &[d0, d1]) => Memory::LoadGlobal2 { d0, d1, address, access: index },
        (StateSpace::Global, &[d0, d1, d2, d3]) => {
            Memory::LoadGlobal4 { d0, d1, d2, d3, address, access: index }
        }
        (StateSpace::Shared, &[d]) => Memory::LoadShared1 { d, address, access: index },
        (StateSpace::Shared, &[d0, d1]) => Memory::LoadShared2 { d0, d1, address, access: index },
        (StateSpace::Shared, &[d0, d1, d2, d3]) => {
            Memory::LoadShared4 { d0, d1, d2, d3, address, access: index }
        }
        _ => return None,
    })
}

/// The store of 32-bit words in global or shared memory, if the access is one.
pub(super) fn word_store(
    access: &Access,
    values: &[VirtualRegister],
    address: VirtualRegister,
    index: u32,
) -> Option<Memory<VirtualRegister>> {
    if !is_of_words(access) {
        return None;
    }
    Some(match (access.space?, values) {
        (StateSpace::Global, &[a]) => Memory::StoreGlobal1 { address, a, access: index },
        (StateSpace::Global, &[a0, a1]) => Memory::StoreGlobal2 { address, a0, a1, access: index },
        (StateSpace::Global, &[a0, a1, a2, a3]) => {
            Memory::StoreGlobal4 { address, a0, a1, a2, a3, access: index }
        }
        (StateSpace::Shared, &[a]) => Memory::StoreShared1 { address, a, access: index },
        (StateSpace::Shared, &[a0, a1]) => Memory::StoreShared2 { address, a0, a1, access: index },
        (StateSpace::Shared, &[a0, a1, a2, a3]) => {
            Memory::StoreShared4 { address, a0, a1, a2, a3, access: index }
        }
        _ => return None,
    })
}

/// The load of one, two or four values of any type.
pub(super) fn any_load(
    values: &[VirtualRegister],
    address: VirtualRegister,
    access: u32,
) -> Memory<VirtualRegister> {
    match *values {
        [d0, d1, d2, d3] => Memory::Load4 { d0, d1, d2, d3, address, access },
        [d0, d1] => Memory::Load2 { d0, d1, address, access },
        _ => Memory::Load1 { d: values[0], address, access },
    }
}

/// The store of one, two or four values of any type.
pub(super) fn any_store(
    values: &[VirtualRegister],
    address: VirtualRegister,
    access: u32,
) -> Memory<VirtualRegister> {
    match *values {
        [a0, a1, a2, a3] => Memory::Store4 { address, a0, a1, a2, a3, access },
        [a0, a1] => Memory::Store2 { address, a0, a1, access },
        _ => Memory::Store1 { address, a: values[0], access },
    }
}
