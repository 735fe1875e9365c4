//! Device memory and pinned memory.

use retrograph_driver_sim::{Config, POISON};
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;

fn free_bytes(machine: &Machine) -> usize {
    let (mut free, mut total) = (0, 0);
    assert_eq!(cu!(machine, cuMemGetInfo_v2(&mut free, &mut total)), SUCCESS);
    assert!(free <= total);
    free
}

#[test]
fn memory_runs_out_and_is_freed() {
    let machine = Machine::with(with(Config::default(), |it| it.memory_bytes = 1 << 20));
    let (free, mut first, mut second) = (free_bytes(&machine), 0, 0);
    assert_eq!(cu!(machine, cuMemAlloc_v2(&mut first, free)), SUCCESS);
    assert_eq!(free_bytes(&machine), 0);
    assert_eq!(cu!(machine, cuMemAlloc_v2(&mut second, 1)), OUT_OF_MEMORY);
    assert_eq!(cu!(machine, cuMemFree_v2(first)), SUCCESS);
    assert_eq!(free_bytes(&machine), free);
    assert_eq!(cu!(machine, cuMemAlloc_v2(&mut second, 1)), SUCCESS);
    assert_eq!(cu!(machine, cuMemFree_v2(first)), INVALID_VALUE, "freed twice");
    assert_eq!(cu!(machine, cuMemAlloc_v2(&mut second, 0)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuMemFree_v2(0)), SUCCESS);
}

#[test]
fn fresh_memory_is_poison_and_a_nan() {
    let machine = Machine::new();
    let mut address = 0;
    assert_eq!(cu!(machine, cuMemAlloc_v2(&mut address, 64)), SUCCESS);
    assert_eq!(address % 256, 0);
    assert_eq!(machine.peek(address + 60), POISON);
    assert!(f32::from_bits(POISON).is_nan());
    let mut pointer = std::ptr::null_mut();
    assert_eq!(cu!(machine, cuMemAllocHost_v2(&mut pointer, 4)), SUCCESS);
    // SAFETY: the allocation holds one word.
    assert_eq!(unsafe { pointer.cast::<u32>().read() }, POISON);
}

#[test]
fn freeing_waits_for_queued_work() {
    let machine = Machine::new();
    let (word, copy, stream) = (machine.words(&[4]), machine.zero(), machine.stream());
    assert_eq!(cu!(machine, cuMemcpyDtoDAsync_v2(copy, word, 4, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuMemFree_v2(word)), SUCCESS);
    assert_eq!(machine.peek(copy), 4);
}

#[test]
fn a_stream_ordered_free_runs_in_stream_order() {
    let machine = Machine::new();
    let (stream, mut address) = (machine.stream(), 0);
    assert_eq!(cu!(machine, cuMemAllocAsync(&mut address, 4, stream)), SUCCESS);
    assert_eq!(machine.append(address, 1, stream), SUCCESS);
    assert_eq!(cu!(machine, cuMemFreeAsync(address, stream)), SUCCESS);
    let live = machine.simulator.live().allocations;
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.simulator.live().allocations, live - 1);
    assert_eq!(cu!(machine, cuMemFreeAsync(address, stream)), INVALID_VALUE);
}

#[test]
fn kernels_access_pinned_memory_by_its_host_address() {
    let machine = Machine::new();
    let (host, stream) = (machine.pinned(&[0]), machine.stream());
    assert_eq!(machine.append(host.expose_provenance() as u64, 6, stream), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    // SAFETY: the pinned word lives.
    assert_eq!(unsafe { host.read() }, 6);
    assert_eq!(cu!(machine, cuMemFreeHost(host.cast())), SUCCESS);
    assert_eq!(cu!(machine, cuMemFreeHost(host.cast())), INVALID_VALUE);
    assert_eq!(machine.simulator.live().pinned, 0);
}

#[test]
fn device_memory_has_no_host_address() {
    let machine = Machine::trusting();
    let words = machine.words(&[1]);
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER;
    let mut host = 7u64;
    let place = (&raw mut host).cast();
    assert_eq!(cu!(machine, cuPointerGetAttribute(place, attribute, words)), INVALID_VALUE);
    let (mut attributes, mut places) = ([attribute], [place]);
    let (list, values) = (attributes.as_mut_ptr(), places.as_mut_ptr());
    assert_eq!(cu!(machine, cuPointerGetAttributes(1, list, values, words)), SUCCESS);
    assert_eq!(host, 0, "a list of attributes does not fail");
}

#[test]
fn an_address_range_query_returns_the_allocation() {
    use CUpointer_attribute as A;
    let machine = Machine::new();
    let words = machine.words(&[1, 2, 3]);
    let (mut base, mut size) = (0u64, 0usize);
    let mut kind = CUmemorytype(0);
    let ask =
        |data, attribute, address| cu!(machine, cuPointerGetAttribute(data, attribute, address));
    let start = A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
    assert_eq!(ask((&raw mut base).cast(), start, words + 5), SUCCESS);
    let bytes = A::CU_POINTER_ATTRIBUTE_RANGE_SIZE;
    assert_eq!(ask((&raw mut size).cast(), bytes, words + 5), SUCCESS);
    assert_eq!((base, size), (words, 12));
    let memory = A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    assert_eq!(ask((&raw mut kind).cast(), memory, words), SUCCESS);
    assert_eq!(kind, CUmemorytype::CU_MEMORYTYPE_DEVICE);
    let host = machine.pinned(&[0]).expose_provenance() as u64;
    assert_eq!(ask((&raw mut kind).cast(), memory, host), SUCCESS);
    assert_eq!(kind, CUmemorytype::CU_MEMORYTYPE_HOST);
    assert_eq!(ask((&raw mut kind).cast(), memory, words + 12), INVALID_VALUE);
}

#[test]
fn pinned_memory_is_freed_after_its_copies() {
    let machine = Machine::new();
    let (word, stream, host) = (machine.zero(), machine.stream(), machine.pinned(&[7]));
    let source = host.cast_const().cast();
    assert_eq!(cu!(machine, cuMemcpyHtoDAsync_v2(word, source, 4, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuMemFreeHost(host.cast())), SUCCESS);
    assert_eq!(machine.peek(word), 7, "the copy ran before the memory went");
    assert_eq!(machine.simulator.live().pinned, 0);
}

#[test]
fn an_attribute_that_a_program_set_ends_with_its_allocation() {
    let machine = Machine::trusting();
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    // An allocator of the host often gives the same address again.
    for _ in 0..10 {
        let (mut host, mut is_set) = (std::ptr::null_mut(), 7u32);
        assert_eq!(cu!(machine, cuMemAllocHost_v2(&mut host, 1 << 20)), SUCCESS);
        let (address, place) = (host as u64, (&raw mut is_set).cast());
        assert_eq!(cu!(machine, cuPointerGetAttribute(place, attribute, address)), SUCCESS);
        assert_eq!(is_set, 0);
        is_set = 1;
        let place = (&raw const is_set).cast();
        assert_eq!(cu!(machine, cuPointerSetAttribute(place, attribute, address)), SUCCESS);
        assert_eq!(cu!(machine, cuMemFreeHost(host)), SUCCESS);
    }
}
