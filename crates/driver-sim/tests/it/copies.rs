//! Copies and fills: the time of their accesses, and refused calls.

use retrograph_driver_sim::POISON;
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

#[test]
fn an_async_copy_reads_pinned_memory_when_it_runs() {
    let machine = Machine::new();
    let (word, stream, host) = (machine.zero(), machine.stream(), machine.pinned(&[1]));
    assert_eq!(cu!(machine, cuMemcpyHtoDAsync_v2(word, host.cast(), 4, stream)), SUCCESS);
    // SAFETY: the pinned word lives, and nothing runs before the wait.
    unsafe { host.write(2) };
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.peek(word), 2, "the overwritten staging memory was copied");
}

#[test]
fn an_async_copy_reads_pageable_memory_at_the_call() {
    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream());
    let mut host = [1u32];
    assert_eq!(cu!(machine, cuMemcpyHtoDAsync_v2(word, host.as_ptr().cast(), 4, stream)), SUCCESS);
    host[0] = 2;
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!((machine.peek(word), host[0]), (1, 2));
}

#[test]
fn a_copy_to_pinned_memory_completes_at_the_wait() {
    let machine = Machine::new();
    let (word, stream, host) = (machine.words(&[7]), machine.stream(), machine.pinned(&[0]));
    assert_eq!(cu!(machine, cuMemcpyDtoHAsync_v2(host.cast(), word, 4, stream)), SUCCESS);
    // SAFETY: the pinned word lives.
    let read = || unsafe { host.read() };
    assert_eq!(read(), 0);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(read(), 7);
}

#[test]
fn a_copy_to_pageable_memory_is_complete_when_the_call_returns() {
    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream());
    let mut host = 0u32;
    assert_eq!(machine.append(word, 3, stream), SUCCESS);
    let target = (&raw mut host).cast();
    assert_eq!(cu!(machine, cuMemcpyDtoHAsync_v2(target, word, 4, stream)), SUCCESS);
    assert_eq!(host, 3);
}

/// The stale read after a host-to-device copy on the legacy stream: a non-blocking stream is not
/// ordered after it.
#[test]
fn a_synchronous_copy_from_pageable_memory_is_not_ordered_with_a_non_blocking_stream() {
    let machine = Machine::new();
    let (mut word, copy, stream) = (0, machine.zero(), machine.stream());
    assert_eq!(cu!(machine, cuMemAlloc_v2(&mut word, 4)), SUCCESS);
    let host = 5u32;
    assert_eq!(cu!(machine, cuMemcpyHtoD_v2(word, (&raw const host).cast(), 4)), SUCCESS);
    assert_eq!(cu!(machine, cuMemcpyDtoDAsync_v2(copy, word, 4, stream)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.peek(copy), POISON, "the stream saw what was there before");
    assert_eq!(machine.peek(word), 5, "the legacy stream follows the copy");
}

#[test]
fn fills_write_bytes_and_words() {
    let machine = Machine::new();
    let (words, stream) = (machine.words(&[1, 2, 3]), machine.stream());
    assert_eq!(cu!(machine, cuMemsetD32Async(words, 0xdead_beef, 2, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuMemsetD8Async(words + 4, 0x11, 2, stream)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    let read: Vec<_> = (0..3).map(|index| machine.peek(words + 4 * index)).collect();
    assert_eq!(read, [0xdead_beef, 0xdead_1111, 3]);
    assert_eq!(cu!(machine, cuMemsetD32_v2(words, 0, 3)), SUCCESS);
    assert_eq!(machine.peek(words + 8), 0);
    assert_eq!(cu!(machine, cuMemsetD32_v2(words, 0, 4)), INVALID_VALUE, "past the end");
    assert_eq!(cu!(machine, cuMemsetD32_v2(words + 1, 0, 1)), INVALID_VALUE, "misaligned");
}

#[test]
fn copies_outside_allocations_are_refused() {
    let machine = Machine::new();
    let (words, stream) = (machine.words(&[1, 2]), machine.stream());
    let mut host = [0u32; 3];
    let target = host.as_mut_ptr().cast();
    assert_eq!(cu!(machine, cuMemcpyDtoH_v2(target, words, 12)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuMemcpyDtoDAsync_v2(words + 4, words, 8, stream)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuMemcpyHtoD_v2(8, host.as_ptr().cast(), 4)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuMemcpyHtoD_v2(words, std::ptr::null(), 4)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuMemcpyDtoH_v2(std::ptr::null_mut(), words, 0)), SUCCESS);
}

#[test]
fn a_unified_copy_determines_the_kinds_of_its_addresses() {
    let machine = Machine::new();
    let (words, stream, host) = (machine.words(&[1, 2]), machine.stream(), machine.pinned(&[9]));
    let pinned = host.expose_provenance() as u64;
    assert_eq!(cu!(machine, cuMemcpyAsync(words, pinned, 4, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuMemcpyAsync(words + 4, words, 4, stream)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!([machine.peek(words), machine.peek(words + 4)], [9, 9]);
}

#[test]
fn a_copy_between_pinned_memory_runs_in_stream_order() {
    let machine = Machine::new();
    let (stream, from, to) = (machine.stream(), machine.pinned(&[3]), machine.pinned(&[0]));
    let copy = CUDA_MEMCPY3D {
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: to.cast(),
        ..CUDA_MEMCPY3D::host_to_device(0, from.cast(), 4)
    };
    assert_eq!(cu!(machine, cuMemcpy3DAsync_v2(&copy, stream)), SUCCESS);
    // SAFETY: the pinned words live, and nothing runs before the wait.
    unsafe { from.write(4) };
    assert_eq!(machine.sync(stream), SUCCESS);
    // SAFETY: as above.
    assert_eq!(unsafe { to.read() }, 4);
}

#[test]
fn a_captured_copy_reads_pageable_memory_at_each_launch() {
    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream());
    let mut host = Box::new(1u32);
    assert_eq!(machine.begin(stream), SUCCESS);
    let code = cu!(machine, cuMemcpyHtoDAsync_v2(word, (&raw const *host).cast(), 4, stream));
    assert_eq!(code, SUCCESS);
    let (code, graph) = machine.end(stream);
    assert_eq!(code, SUCCESS);
    let exec = machine.instantiate(graph).expect("the graph is valid");
    for value in [2, 3] {
        *host = value;
        assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
        *host = 9;
        assert_eq!(machine.sync(stream), SUCCESS);
        assert_eq!(machine.peek(word), value, "what the memory held at the launch");
    }
}

#[test]
fn a_captured_copy_writes_pageable_memory_when_it_runs() {
    let machine = Machine::new();
    let (word, stream) = (machine.words(&[7]), machine.stream());
    let mut host = Box::new(1u32);
    let place = &raw mut *host;
    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(cu!(machine, cuMemcpyDtoHAsync_v2(place.cast(), word, 4, stream)), SUCCESS);
    let exec = machine.instantiate(machine.end(stream).1).expect("the graph is valid");
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    // SAFETY: the word lives, and nothing writes it before the wait.
    assert_eq!(unsafe { place.read() }, 1);
    assert_eq!(machine.sync(stream), SUCCESS);
    // SAFETY: as above.
    assert_eq!(unsafe { place.read() }, 7);
}

#[test]
fn a_synchronous_fill_of_pinned_memory_is_complete_at_its_return() {
    let machine = Machine::new();
    let (host, managed) = (machine.pinned(&[0]), &mut 0);
    assert_eq!(cu!(machine, cuMemAllocManaged(managed, 4, 1)), SUCCESS);
    for address in [host as u64, *managed] {
        let word = std::ptr::with_exposed_provenance::<u32>(address as usize);
        // SAFETY: the word lives.
        let read = || unsafe { word.read() };
        assert_eq!(cu!(machine, cuMemsetD32_v2(address, 7, 1)), SUCCESS);
        assert_eq!(read(), 7);
        assert_eq!(cu!(machine, cuMemsetD2D8_v2(address, 4, 1, 4, 1)), SUCCESS);
        assert_eq!(read(), 0x0101_0101);
        assert_eq!(cu!(machine, cuMemsetD32Async(address, 8, 1, CUstream::NULL)), SUCCESS);
        assert_eq!(read(), 0x0101_0101, "an asynchronous one runs when it is waited for");
        assert_eq!(machine.sync(CUstream::NULL), SUCCESS);
        assert_eq!(read(), 8);
    }
}
