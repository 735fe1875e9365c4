//! Managed memory.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use retrograph_driver_sim::{Config, DiagnosticKind, POISON};
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const DEVICE: CUmemLocation =
    CUmemLocation { r#type: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };

/// Managed words with given values, as a host pointer.
fn managed(machine: &Machine, values: &[u32]) -> *mut u32 {
    let mut address = 0;
    let code = cu!(machine, cuMemAllocManaged(&mut address, size_of_val(values), 1));
    assert_eq!(code, SUCCESS);
    let words = std::ptr::with_exposed_provenance_mut::<u32>(address as usize);
    for (index, value) in values.iter().enumerate() {
        // SAFETY: the allocation holds all values.
        unsafe {
            assert_eq!(words.add(index).read(), POISON);
            words.add(index).write(*value);
        }
    }
    words
}

fn read(word: *const u32) -> u32 {
    // SAFETY: the tests pass live managed memory, and no kernel runs at the same time.
    unsafe { word.read() }
}

/// An attribute of the first `bytes` bytes.
fn attribute(machine: &Machine, name: CUmem_range_attribute, at: *mut u32, bytes: usize) -> i32 {
    let mut value = i32::MIN;
    let place = (&raw mut value).cast();
    let code = cu!(machine, cuMemRangeGetAttribute(place, 4, name, at as u64, bytes));
    assert_eq!(code, SUCCESS);
    value
}

#[test]
fn host_and_device_see_the_same_words() {
    let machine = Machine::new();
    let (words, stream) = (managed(&machine, &[1, 2]), machine.stream());
    assert_eq!(machine.append(words as u64, 7, stream), SUCCESS);
    assert_eq!(read(words), 1, "kernels run late, and nothing waited");
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(read(words), 0x17);
    // Copies accept it as device memory and as host memory.
    let copy = machine.zero();
    assert_eq!(cu!(machine, cuMemcpyHtoD_v2(copy, words.wrapping_add(1).cast(), 4)), SUCCESS);
    assert_eq!(machine.peek(copy), 2);
    assert_eq!(cu!(machine, cuMemcpyDtoD_v2(words as u64, copy, 4)), SUCCESS);
    assert_eq!(machine.sync(CUstream::NULL), SUCCESS);
    assert_eq!(read(words), 2);
    assert_eq!(machine.simulator.live().allocations, 2);
    assert_eq!(machine.simulator.live().pinned, 0);
    assert_eq!(cu!(machine, cuMemFree_v2(words as u64)), SUCCESS);
    assert_eq!(machine.simulator.live().allocations, 1);
    assert_eq!(cu!(machine, cuMemFree_v2(words as u64)), INVALID_VALUE, "freed twice");
}

#[test]
fn every_device_sees_it() {
    let machine = Machine::with(with(Config::default(), |it| it.devices = 2));
    let words = managed(&machine, &[1]);
    let mut other = CUcontext::NULL;
    assert_eq!(cu!(machine, cuDevicePrimaryCtxRetain(&mut other, 1)), SUCCESS);
    assert_eq!(cu!(machine, cuCtxSetCurrent(other)), SUCCESS);
    assert_eq!(machine.peek(words as u64), 1);
}

#[test]
fn accesses_are_checked_and_a_free_waits() {
    let machine = Machine::new();
    let (words, stream) = (managed(&machine, &[1]), machine.stream());
    assert_eq!(machine.append(words as u64, 1, stream), SUCCESS);
    assert_eq!(cu!(machine, cuMemFree_v2(words as u64)), SUCCESS);
    assert_eq!(machine.diagnostics(DiagnosticKind::Fault), [""; 0]);
    assert_eq!(machine.append(words as u64, 1, stream), SUCCESS);
    assert_eq!(machine.sync(stream), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn bad_requests_are_refused_as_recorded() {
    let machine = Machine::new();
    for (bytes, flags) in [(8, 0), (8, 3), (8, 4), (0, 1)] {
        let mut address = 1;
        let code = cu!(machine, cuMemAllocManaged(&mut address, bytes, flags));
        assert_eq!((code, address), (INVALID_VALUE, 0), "{bytes} bytes, flags {flags}");
    }
    assert_eq!(cu!(machine, cuMemAllocManaged(std::ptr::null_mut(), 8, 1)), INVALID_VALUE);
    let words = managed(&machine, &[1]);
    let freed = cu!(machine, cuMemFreeHost(words.cast()));
    assert_eq!(freed, INVALID_VALUE, "it is not host memory");
}

#[test]
fn pointer_attributes_report_managed_memory() {
    use CUpointer_attribute as A;
    let machine = Machine::new();
    let words = managed(&machine, &[1, 2]) as u64;
    let get = |attribute| {
        let mut value = 0u64;
        let place = (&raw mut value).cast::<c_void>();
        assert_eq!(cu!(machine, cuPointerGetAttribute(place, attribute, words + 4)), SUCCESS);
        value
    };
    let device = u64::from(CUmemorytype::CU_MEMORYTYPE_DEVICE.0);
    assert_eq!(get(A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE), device);
    assert_eq!(get(A::CU_POINTER_ATTRIBUTE_IS_MANAGED), 1);
    assert_eq!(get(A::CU_POINTER_ATTRIBUTE_HOST_POINTER), words + 4);
    assert_eq!(get(A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER), words + 4);
    assert_eq!(get(A::CU_POINTER_ATTRIBUTE_RANGE_SIZE), 8);
    assert_eq!(get(A::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE), 0);
    let mut exists = 0;
    let name = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY;
    assert_eq!(cu!(machine, cuDeviceGetAttribute(&mut exists, name, 0)), SUCCESS);
    assert_eq!(exists, 1);
}

#[test]
fn advice_and_prefetches_are_returned_by_queries() {
    use CUmem_advise as Advise;
    use CUmem_range_attribute as A;
    let machine = Machine::new();
    let words = managed(&machine, &[0; 4]);
    let at = words as u64;
    let none = attribute(&machine, A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, words, 16);
    assert_eq!(none, -2);
    let advise = |advice, bytes, device| cu!(machine, cuMemAdvise(at, bytes, advice, device));
    assert_eq!(advise(Advise::CU_MEM_ADVISE_SET_READ_MOSTLY, 8, 0), SUCCESS);
    assert_eq!(advise(Advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 16, -1), SUCCESS);
    assert_eq!(advise(Advise::CU_MEM_ADVISE_SET_ACCESSED_BY, 16, 0), SUCCESS);
    let get = |name, bytes| attribute(&machine, name, words, bytes);
    assert_eq!(get(A::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 8), 1);
    assert_eq!(get(A::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 16), 0, "not all of it");
    assert_eq!(get(A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 16), -1);
    let kind = get(A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, 16);
    assert_eq!(kind as u32, CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST.0);
    let mut by = [0i32; 2];
    let place = by.as_mut_ptr().cast();
    let name = A::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    assert_eq!(cu!(machine, cuMemRangeGetAttribute(place, 8, name, at, 16)), SUCCESS);
    assert_eq!(by, [0, -2]);
    assert_eq!(advise(Advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY, 16, 0), SUCCESS);
    assert_eq!(get(name, 16), -2);

    assert_eq!(cu!(machine, cuMemPrefetchAsync(at, 8, -1, CUstream::NULL)), SUCCESS);
    let name = A::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;
    assert_eq!((get(name, 8), get(name, 16)), (-1, -2));
    let prefetch = machine.simulator.table().cuMemPrefetchAsync_v2.expect("of driver 12.2");
    // SAFETY: the memory is live.
    assert_eq!(unsafe { prefetch(at, 16, DEVICE, 0, CUstream::NULL) }, SUCCESS);
    assert_eq!(get(name, 16), 0);
    let batch = machine.simulator.table().cuMemPrefetchBatchAsync.expect("of driver 13.0");
    let (mut addresses, mut sizes, mut host) = ([at, at + 8], [8, 8], [DEVICE, DEVICE]);
    host[1].r#type = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST;
    let mut from = [0, 1];
    // SAFETY: the lists have as many elements as the counts say.
    let code = unsafe {
        let (addresses, sizes) = (addresses.as_mut_ptr(), sizes.as_mut_ptr());
        let (locations, from) = (host.as_mut_ptr(), from.as_mut_ptr());
        batch(addresses, sizes, 2, locations, from, 2, 0, CUstream::NULL)
    };
    assert_eq!(code, SUCCESS);
    assert_eq!(get(name, 8), 0);
    assert_eq!(attribute(&machine, name, words.wrapping_add(2), 8), -1);
    assert_eq!(cu!(machine, cuStreamAttachMemAsync(machine.stream(), at, 0, 4)), SUCCESS);
    assert_eq!(machine.simulator.diagnostics(), []);
}

#[test]
fn memory_that_is_not_managed_has_no_advice() {
    let machine = Machine::new();
    let (device, pinned) = (machine.zero(), machine.pinned(&[0]) as u64);
    for address in [device, pinned] {
        // Their code was not recorded.
        let code = cu!(machine, cuMemPrefetchAsync(address, 4, 0, CUstream::NULL));
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
        let advice = CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY;
        let code = cu!(machine, cuMemAdvise(address, 4, advice, 0));
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    assert_eq!(machine.diagnostics(DiagnosticKind::Unattested).len(), 4);
}

/// `counter`, a managed word of 3, to which `count` adds 4.
const VARIABLE: &str = "
    .visible .global .attribute(.managed) .align 4 .u32 counter = 3;
    .visible .global .align 4 .u32 ordinary = 5;
    .visible .entry count() {
        .reg .b32 %r<3>;
        ld.global.u32 %r1, [counter];
        add.u32 %r2, %r1, 4;
        st.global.u32 [counter], %r2;
        ret;
    }";

fn launch_count(machine: &Machine, function: CUfunction) {
    let stream = machine.stream();
    let code =
        cu!(machine, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()));
    assert_eq!((code, machine.sync(stream)), (SUCCESS, SUCCESS));
}

#[test]
fn host_and_device_access_a_managed_variable() {
    let machine = Machine::new();
    let module = machine.load(&crate::ptx::image("7.0", "sm_80", VARIABLE)).unwrap();
    let (mut address, mut bytes, mut function) = (0, 0, CUfunction::NULL);
    let name = c"counter".as_ptr();
    assert_eq!(cu!(machine, cuModuleGetGlobal_v2(&mut address, &mut bytes, module, name)), SUCCESS);
    assert_eq!(bytes, 4);
    let word = std::ptr::with_exposed_provenance_mut::<u32>(address as usize);
    assert_eq!(read(word), 3);
    // SAFETY: the variable lives, and nothing is queued.
    unsafe { word.write(5) };
    let code = cu!(machine, cuModuleGetFunction(&mut function, module, c"count".as_ptr()));
    assert_eq!(code, SUCCESS);
    launch_count(&machine, function);
    assert_eq!(read(word), 9);

    let mut is_managed = 0u32;
    let managed = CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED;
    let place = (&raw mut is_managed).cast();
    assert_eq!(cu!(machine, cuPointerGetAttribute(place, managed, address)), SUCCESS);
    assert_eq!(is_managed, 1);
    let stream = machine.stream();
    assert_eq!(cu!(machine, cuMemPrefetchAsync(address, 4, 0, stream)), SUCCESS);
    let last = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;
    assert_eq!(attribute(&machine, last, word, 4), 0);

    // The module owns it, and a leak check does not count it.
    assert_eq!(cu!(machine, cuMemFree_v2(address)), INVALID_VALUE);
    assert_eq!((machine.simulator.live().allocations, machine.simulator.live().pinned), (0, 0));
    assert_eq!(cu!(machine, cuModuleUnload(module)), SUCCESS);
    let code = cu!(machine, cuPointerGetAttribute(place, managed, address));
    assert_eq!(code, INVALID_VALUE, "freed with its module");
}

/// Loads [`VARIABLE`] as a library.
fn load_library(machine: &Machine) -> CUlibrary {
    let image = crate::ptx::image("7.0", "sm_80", VARIABLE);
    let (mut library, text) = (CUlibrary::NULL, image.as_ptr().cast());
    let code = cu!(
        machine,
        cuLibraryLoadData(&mut library, text, null_mut(), null_mut(), 0, null_mut(), null_mut(), 0)
    );
    assert_eq!(code, SUCCESS);
    library
}

#[test]
fn a_library_has_managed_variables() {
    let machine = Machine::new();
    let library = load_library(&machine);
    let get = |name: &CStr| {
        let (mut address, mut bytes) = (0, 0);
        let name = name.as_ptr();
        cu!(machine, cuLibraryGetManaged(&mut address, &mut bytes, library, name))
            .ok()
            .map(|()| (address, bytes))
    };
    let (address, bytes) = get(c"counter").unwrap();
    let word = std::ptr::with_exposed_provenance::<u32>(address as usize);
    assert_eq!((bytes, read(word)), (4, 3));
    assert_eq!(get(c"ordinary"), Err(CUresult::CUDA_ERROR_NOT_FOUND));
    assert_eq!(get(c"nothing"), Err(CUresult::CUDA_ERROR_NOT_FOUND));
    let (mut kernel, mut function) = (CUkernel::NULL, CUfunction::NULL);
    let code = cu!(machine, cuLibraryGetKernel(&mut kernel, library, c"count".as_ptr()));
    assert_eq!(code, SUCCESS);
    assert_eq!(cu!(machine, cuKernelGetFunction(&mut function, kernel)), SUCCESS);
    launch_count(&machine, function);
    assert_eq!(read(word), 7);
    assert_eq!(cu!(machine, cuLibraryUnload(library)), SUCCESS);
}

#[test]
fn managed_variables_of_a_library_outlive_contexts() {
    let machine = Machine::new();
    assert_eq!(cu!(machine, cuCtxSetCurrent(CUcontext::NULL)), SUCCESS);
    let library = load_library(&machine);
    let (mut address, mut bytes) = (0, 0);
    let name = c"counter".as_ptr();
    let code = cu!(machine, cuLibraryGetManaged(&mut address, &mut bytes, library, name));
    assert_eq!(code, SUCCESS, "no context is current");
    let word = std::ptr::with_exposed_provenance::<u32>(address as usize);
    for expected in [7, 11] {
        let mut context = CUcontext::NULL;
        assert_eq!(cu!(machine, cuCtxCreate_v2(&mut context, 0, 0)), SUCCESS);
        let (mut module, mut function) = (CUmodule::NULL, CUfunction::NULL);
        assert_eq!(cu!(machine, cuLibraryGetModule(&mut module, library)), SUCCESS);
        let code = cu!(machine, cuModuleGetFunction(&mut function, module, c"count".as_ptr()));
        assert_eq!(code, SUCCESS);
        launch_count(&machine, function);
        assert_eq!(cu!(machine, cuCtxDestroy_v2(context)), SUCCESS);
        assert_eq!(read(word), expected, "each context has the same variable");
    }
    assert_eq!(cu!(machine, cuLibraryUnload(library)), SUCCESS);
    assert_eq!(machine.diagnostics(DiagnosticKind::Internal), [""; 0]);
}

#[test]
fn a_reset_frees_managed_variables() {
    let machine = Machine::new();
    machine.load(&crate::ptx::image("7.0", "sm_80", VARIABLE)).unwrap();
    assert_eq!(cu!(machine, cuDevicePrimaryCtxReset_v2(0)), SUCCESS);
    assert_eq!(machine.simulator.live().allocations, 0);
    assert_eq!(machine.diagnostics(DiagnosticKind::Internal), [""; 0]);
}

/// As recorded on an H200: the host pointer is the address, and the size of the range is not
/// written.
#[test]
fn an_unknown_address_may_be_one_of_the_host() {
    use CUpointer_attribute as A;
    let machine = Machine::new();
    let written = |attribute| {
        let (mut place, mut names) = ([u64::MAX; 2], [attribute]);
        let mut places = [place.as_mut_ptr().cast()];
        let (names, places) = (names.as_mut_ptr(), places.as_mut_ptr());
        assert_eq!(cu!(machine, cuPointerGetAttributes(1, names, places, 0x10)), SUCCESS);
        assert_eq!(place[1], u64::MAX);
        place[0]
    };
    assert_eq!(written(A::CU_POINTER_ATTRIBUTE_HOST_POINTER), 0x10);
    assert_eq!(written(A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER), 0);
    assert_eq!(written(A::CU_POINTER_ATTRIBUTE_RANGE_SIZE), u64::MAX);
    assert_eq!(written(A::CU_POINTER_ATTRIBUTE_MAPPED), u64::from(u32::MAX) << 32);
}

#[test]
fn an_address_that_the_driver_does_not_know_is_not_managed() {
    let machine = Machine::new();
    let (mut kind, mut managed) = (7u32, 7u32);
    let mut names = [
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
    ];
    let mut places = [(&raw mut kind).cast(), (&raw mut managed).cast()];
    let (names, places) = (names.as_mut_ptr(), places.as_mut_ptr());
    assert_eq!(cu!(machine, cuPointerGetAttributes(2, names, places, 0x10)), SUCCESS);
    assert_eq!((kind, managed), (0, 0));
}

#[test]
fn an_ordinal_that_is_no_device_is_refused() {
    let machine = Machine::trusting();
    let (words, stream) = (managed(&machine, &[1]) as u64, machine.stream());
    let preferred = CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    let invalid = CUresult::CUDA_ERROR_INVALID_DEVICE;
    for (device, expected) in [(-1, SUCCESS), (0, SUCCESS), (-2, invalid), (-9, invalid)] {
        assert_eq!(cu!(machine, cuMemAdvise(words, 4, preferred, device)), expected, "{device}");
        assert_eq!(cu!(machine, cuMemPrefetchAsync(words, 4, device, stream)), expected);
    }
}

#[test]
fn large_memory_is_poisoned_at_its_two_ends() {
    const BYTES: usize = 160 << 20;
    let machine = Machine::new();
    let mut address = 0;
    assert_eq!(cu!(machine, cuMemAllocManaged(&mut address, BYTES, 1)), SUCCESS);
    assert!(address.is_multiple_of(4096));
    let words = std::ptr::with_exposed_provenance_mut::<u32>(address as usize);
    let at = |byte: usize| read(words.wrapping_add(byte / 4));
    assert_eq!([at(0), at(BYTES / 2), at(BYTES - 4)], [POISON, 0, POISON]);
}

#[test]
fn a_refused_batch_of_prefetches_has_no_effect() {
    let machine = Machine::trusting();
    let (words, stream) = (managed(&machine, &[1]), machine.stream());
    let Some(prefetch) = machine.simulator.table().cuMemPrefetchBatchAsync else { return };
    let last = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;
    let before = attribute(&machine, last, words, 4);
    let (mut addresses, mut sizes) = ([words as u64, 8], [4usize, 4]);
    let (mut location, mut start) = (DEVICE, 0usize);
    let mut batch = |count| {
        // SAFETY: the lists have that many elements.
        unsafe {
            prefetch(
                addresses.as_mut_ptr(),
                sizes.as_mut_ptr(),
                count,
                &mut location,
                &mut start,
                1,
                0,
                stream,
            )
        }
    };
    assert_eq!(batch(2), INVALID_VALUE);
    assert_eq!(attribute(&machine, last, words, 4), before);
    assert_eq!(batch(1), SUCCESS);
    assert_eq!(attribute(&machine, last, words, 4), 0);
}

#[test]
fn queued_work_that_uses_a_managed_variable_runs_before_its_library_is_unloaded() {
    let machine = Machine::new();
    let library = load_library(&machine);
    let (mut address, mut bytes) = (0, 0);
    let name = c"counter".as_ptr();
    let code = cu!(machine, cuLibraryGetManaged(&mut address, &mut bytes, library, name));
    assert_eq!(code, SUCCESS);
    let stream = machine.stream();
    assert_eq!(machine.append(address, 1, stream), SUCCESS, "the library has no module yet");
    assert_eq!(cu!(machine, cuLibraryUnload(library)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.diagnostics(DiagnosticKind::Fault), [""; 0]);
}
