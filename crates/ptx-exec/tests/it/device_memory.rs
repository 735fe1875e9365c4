//! Poison, bounds, limits, reserved addresses and snapshots of device memory.

use std::ptr::NonNull;

use retrograph_ptx_exec::Launch;
use retrograph_ptx_exec::memory::{ADDRESSES, Memory, MemoryError, POISON};

use super::{decode, kernel};

#[test]
fn fresh_memory_is_poisoned_and_bounded() {
    let memory = Memory::new(1 << 20);
    let base = memory.alloc(1000).unwrap();
    assert_eq!(base % 256, 0);
    let mut word = [0; 4];
    memory.read(base + 996, &mut word).unwrap();
    assert_eq!(u32::from_le_bytes(word), POISON);
    let past = MemoryError::OutOfBounds { address: base + 997, bytes: 4 };
    assert_eq!(memory.read(base + 997, &mut word), Err(past));
    assert_eq!(memory.allocation_of(base + 999), Some((base, 1000)));
    assert_eq!(memory.allocation_of(base + 1000), None);
}

#[test]
fn a_size_beyond_the_address_range_is_refused() {
    let memory = Memory::new(u64::MAX);
    for bytes in [u64::MAX, u64::MAX - 7, 1 << 63, 0] {
        assert_eq!(memory.alloc(bytes), Err(MemoryError::InvalidSize { bytes }));
    }
}

#[test]
fn freed_addresses_are_not_reused() {
    let memory = Memory::new(4096);
    let first = memory.alloc(4096).unwrap();
    assert!(matches!(memory.alloc(1), Err(MemoryError::OutOfMemory { free: 0, .. })));
    assert_eq!(memory.free(first), Ok(4096));
    assert_eq!(memory.free(first), Err(MemoryError::NotAnAllocation { address: first }));
    assert!(memory.write(first, &[1]).is_err());
    assert_ne!(memory.alloc(4096).unwrap(), first);
    assert_eq!((memory.used(), memory.allocations()), (4096, 1));
}

#[test]
fn a_limit_refuses_allocations_that_would_fit() {
    let memory = Memory::new(4096);
    memory.limit_to(100);
    let first = memory.alloc(100).unwrap();
    let refused = MemoryError::Limited { requested: 1, used: 100, limit: 100 };
    assert_eq!(memory.alloc(1), Err(refused));
    memory.free(first).unwrap();
    memory.alloc(1).unwrap();
    memory.limit_to(u64::MAX);
    memory.alloc(4000).unwrap();
    assert_eq!(memory.total(), 4096);
}

#[test]
fn large_allocations_are_poisoned_at_both_ends() {
    let memory = Memory::new(1 << 32);
    let bytes = 3 * Memory::EAGER_POISON + 8;
    let base = memory.alloc(bytes).unwrap();
    let mut word = [0; 4];
    for address in [base, base + bytes - 4] {
        memory.read(address, &mut word).unwrap();
        assert_eq!(u32::from_le_bytes(word), POISON);
    }
}

/// Other tests of this process use little memory at the same time.
#[test]
#[cfg(target_os = "linux")]
fn the_host_commits_large_allocations_on_first_access() {
    let resident_pages = || -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse().unwrap()
    };
    let memory = Memory::new(1 << 40);
    let (before, bytes) = (resident_pages(), 4 << 30);
    let base = memory.alloc(bytes).unwrap();
    memory.write(base + bytes / 2, &[1]).unwrap();
    let pages = resident_pages().saturating_sub(before);
    assert!(pages * 4096 < bytes / 4, "{pages} pages");
}

#[test]
fn fill_and_copy_are_checked() {
    let memory = Memory::new(1 << 20);
    let base = memory.alloc(16).unwrap();
    memory.fill(base, &7u16.to_le_bytes(), 8).unwrap();
    assert!(memory.fill(base, &[1, 2, 3, 4], 5).is_err());
    memory.write(base, &[1, 2, 3]).unwrap();
    memory.copy(base + 1, base, 4).unwrap();
    let mut all = [0; 8];
    memory.read(base, &mut all).unwrap();
    assert_eq!(all, [1, 1, 2, 3, 0, 0, 7, 0]);
    assert!(memory.copy(base, base + 8, 9).is_err());
}

#[test]
fn memory_at_reserved_addresses_must_not_overlap() {
    let memory = Memory::new(1 << 20);
    let reserved = memory.reserve(1024).unwrap();
    assert_ne!(memory.alloc(16).unwrap(), reserved);
    memory.alloc_at(reserved + 256, 256).unwrap();
    assert_eq!(memory.allocation_of(reserved + 256), Some((reserved + 256, 256)));
    let used = memory.used();
    // The same range, an end inside it, a start inside it, around it, and inside it.
    for (start, bytes) in [(256, 256), (0, 257), (511, 256), (0, 1024), (300, 8)] {
        let address = reserved + start;
        let overlap = MemoryError::Overlap { address, bytes };
        assert_eq!(memory.alloc_at(address, bytes), Err(overlap), "{start} {bytes}");
    }
    assert_eq!((memory.used(), memory.allocations()), (used, 2));
    memory.alloc_at(reserved, 256).unwrap();
    memory.alloc_at(reserved + 512, 512).unwrap();
    memory.free(reserved + 256).unwrap();
    memory.alloc_at(reserved + 256, 256).unwrap();
}

#[test]
fn a_device_can_run_out_of_addresses() {
    let memory = Memory::new(1 << 20);
    let first = memory.reserve(ADDRESSES - (8 << 20)).unwrap();
    assert!(matches!(memory.reserve(u64::MAX), Err(MemoryError::OutOfMemory { .. })));
    // Each allocation takes addresses for itself and a red zone, and a free returns none.
    let mut last = first;
    let error = loop {
        match memory.alloc(1024) {
            Ok(base) => last = base,
            Err(error) => break error,
        }
        memory.free(last).unwrap();
    };
    assert!(matches!(error, MemoryError::OutOfMemory { requested: 1024, .. }), "{error}");
    assert!(last > first && last + 1024 < first + ADDRESSES);
    assert_eq!(memory.used(), 0);
}

#[test]
fn host_memory_is_mapped_at_its_own_address_and_only_once() {
    let mut words = [5u32, 6, 7, 8];
    let memory = Memory::new(64);
    let host = NonNull::new(words.as_mut_ptr()).unwrap().cast::<u8>();
    // SAFETY: no kernel and no access uses the words after this function.
    let base = unsafe { memory.map_host(host, 16) }.unwrap();
    assert_eq!((base, memory.used()), (host.as_ptr() as u64, 0));
    let again = MemoryError::Overlap { address: base + 4, bytes: 8 };
    // SAFETY: as before.
    assert_eq!(unsafe { memory.map_host(host.add(4), 8) }, Err(again));
    let body = "ld.global.u32 %r5, [%rd2+4]; add.u32 %r5, %r5, 100; st.global.u32 [%rd1+8], %r5;";
    let parameters = [base.to_le_bytes(); 2].concat();
    let launch = Launch { parameters: &parameters, ..Launch::default() };
    crate::launch(&decode(&kernel(body)).unwrap(), &launch, &memory).unwrap();
    let mut word = [0; 4];
    memory.read(base + 8, &mut word).unwrap();
    assert_eq!(u32::from_le_bytes(word), 106);
    assert_eq!(memory.free(base), Ok(16));
    assert_eq!(memory.allocation_of(base), None);
}
