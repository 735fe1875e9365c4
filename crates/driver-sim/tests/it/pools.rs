//! Memory pools: counters, reserved memory, access, and the state after a refused call.

use retrograph_driver_sim::Config;
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
/// Bytes that a pool reserves at a time.
const CHUNK: u64 = 32 << 20;
const RESERVED: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
const RESERVED_HIGH: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
const USED: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
const USED_HIGH: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
const THRESHOLD: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;

impl Machine {
    /// A pool of the first device with a maximum size; 0 for no maximum.
    fn pool(&self, most: usize) -> CUmemoryPool {
        let mut given = CUmemPoolProps { maxSize: most, ..Default::default() };
        given.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        given.location.r#type = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let mut pool = CUmemoryPool::NULL;
        assert_eq!(cu!(self, cuMemPoolCreate(&mut pool, &given)), SUCCESS);
        pool
    }

    fn take(&self, pool: CUmemoryPool, bytes: usize, stream: CUstream) -> CUdeviceptr {
        let mut address = 0;
        let code = cu!(self, cuMemAllocFromPoolAsync(&mut address, bytes, pool, stream));
        assert_eq!(code, SUCCESS);
        address
    }

    fn give(&self, address: CUdeviceptr, stream: CUstream) {
        assert_eq!(cu!(self, cuMemFreeAsync(address, stream)), SUCCESS);
        assert_eq!(self.sync(stream), SUCCESS);
    }

    fn counters<const N: usize>(
        &self,
        pool: CUmemoryPool,
        of: [CUmemPool_attribute; N],
    ) -> [u64; N] {
        of.map(|attribute| {
            let mut value = 0u64;
            let place = (&raw mut value).cast();
            assert_eq!(cu!(self, cuMemPoolGetAttribute(pool, attribute, place)), SUCCESS);
            value
        })
    }

    fn set(&self, pool: CUmemoryPool, attribute: CUmemPool_attribute, mut value: u64) -> CUresult {
        cu!(self, cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast()))
    }

    fn present_pool(&self) -> CUmemoryPool {
        let mut pool = CUmemoryPool::NULL;
        assert_eq!(cu!(self, cuDeviceGetMemPool(&mut pool, 0)), SUCCESS);
        pool
    }
}

#[test]
fn both_frees_return_memory_to_its_pool() {
    let machine = Machine::new();
    let (stream, pool) = (machine.stream(), machine.pool(0));
    let (first, second) = (machine.take(pool, 100, stream), machine.take(pool, 50, stream));
    assert_eq!(machine.counters(pool, [USED, RESERVED]), [150, CHUNK]);
    assert_eq!(cu!(machine, cuMemFree_v2(first)), SUCCESS);
    assert_eq!(machine.counters(pool, [USED, RESERVED]), [50, CHUNK]);
    machine.give(second, stream);
    assert_eq!(machine.counters(pool, [USED, RESERVED]), [0, 0], "nothing is kept");
}

#[test]
fn a_pool_keeps_memory_up_to_its_threshold_until_trimmed() {
    let machine = Machine::new();
    let (stream, pool) = (machine.stream(), machine.pool(0));
    assert_eq!(machine.set(pool, THRESHOLD, u64::MAX), SUCCESS);
    let (first, second) = (machine.take(pool, 100, stream), machine.take(pool, 50, stream));
    machine.give(first, stream);
    machine.give(second, stream);
    assert_eq!(machine.counters(pool, [USED, RESERVED]), [0, CHUNK]);
    assert_eq!(cu!(machine, cuMemPoolTrimTo(pool, 1)), SUCCESS);
    assert_eq!(machine.counters(pool, [RESERVED]), [CHUNK], "a chunk is kept whole");
    assert_eq!(cu!(machine, cuMemPoolTrimTo(pool, 0)), SUCCESS);
    assert_eq!(machine.counters(pool, [RESERVED]), [0]);
}

#[test]
fn high_watermarks_reset_to_current_values() {
    let machine = Machine::new();
    let (stream, pool) = (machine.stream(), machine.pool(0));
    let address = machine.take(pool, 100, stream);
    machine.give(address, stream);
    assert_eq!(machine.counters(pool, [USED_HIGH, RESERVED_HIGH]), [100, CHUNK]);
    assert_eq!(machine.set(pool, USED_HIGH, 0), SUCCESS);
    assert_eq!(machine.counters(pool, [USED_HIGH, RESERVED_HIGH]), [0, CHUNK]);
    assert_eq!(machine.set(pool, RESERVED_HIGH, 0), SUCCESS);
    assert_eq!(machine.counters(pool, [USED_HIGH, RESERVED_HIGH]), [0, 0]);
}

#[test]
fn a_refused_allocation_changes_nothing() {
    let machine = Machine::with(with(Config::default(), |it| it.memory_bytes = 1 << 28));
    let (stream, pool) = (machine.stream(), machine.pool(1));
    let (mut address, nowhere) = (7, std::ptr::null_mut());
    let most = CHUNK as usize + 1;
    let code = cu!(machine, cuMemAllocFromPoolAsync(&mut address, most, pool, stream));
    assert_eq!((code, address), (CUresult::CUDA_ERROR_OUT_OF_MEMORY, 0));
    assert_eq!(cu!(machine, cuMemAllocFromPoolAsync(nowhere, 64, pool, stream)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuMemAllocAsync(nowhere, 64, stream)), INVALID_VALUE);
    assert_eq!(machine.simulator.live().allocations, 0);
    assert_eq!(machine.counters(pool, [USED, RESERVED]), [0, 0]);

    assert_eq!(machine.begin(stream), SUCCESS);
    assert_eq!(cu!(machine, cuMemAllocAsync(nowhere, 64, stream)), INVALID_VALUE);
    let ((code, graph), mut count) = (machine.end(stream), 9);
    assert_eq!(code, SUCCESS);
    assert_eq!(cu!(machine, cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count)), SUCCESS);
    assert_eq!(count, 0);
}

#[test]
fn a_destroyed_pool_is_not_the_pool_of_a_device() {
    let machine = Machine::new();
    let (stream, pool, own) = (machine.stream(), machine.pool(0), machine.present_pool());
    assert_eq!(cu!(machine, cuDeviceSetMemPool(0, pool)), SUCCESS);
    assert_eq!(machine.present_pool(), pool);
    let mut address = 0;
    assert_eq!(cu!(machine, cuMemAllocAsync(&mut address, 100, stream)), SUCCESS);
    assert_eq!(machine.counters(pool, [USED]), [100]);
    assert_eq!(cu!(machine, cuMemPoolDestroy(pool)), SUCCESS);
    assert_eq!(machine.present_pool(), own);
    assert_eq!(cu!(machine, cuMemPoolTrimTo(pool, 0)), INVALID_VALUE);
    machine.give(address, stream);
}

#[test]
fn a_pool_belongs_to_one_device() {
    let machine = Machine::with(with(Config::default(), |it| it.devices = 2));
    let pool = machine.pool(0);
    assert_eq!(cu!(machine, cuDeviceSetMemPool(1, pool)), INVALID_VALUE);
    let (mut flags, mut place) = (CUmemAccess_flags(9), CUmemLocation::default());
    place.r#type = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    place.id = 1;
    assert_eq!(cu!(machine, cuMemPoolGetAccess(&mut flags, pool, &mut place)), SUCCESS);
    assert_eq!(flags, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

/// A host pool or a managed pool.
struct HostPool {
    machine: Machine,
    pool: CUmemoryPool,
    stream: CUstream,
}

impl HostPool {
    fn new(r#type: CUmemAllocationType, location: CUmemLocationType) -> Self {
        let machine = Machine::new();
        let mut given = CUmemPoolProps { allocType: r#type, ..Default::default() };
        given.location.r#type = location;
        let mut pool = CUmemoryPool::NULL;
        assert_eq!(cu!(machine, cuMemPoolCreate(&mut pool, &given)), SUCCESS);
        let stream = machine.stream();
        Self { machine, pool, stream }
    }

    /// Allocates a word from the pool and writes it on the host.
    fn word(&self) -> *mut u32 {
        let address = self.machine.take(self.pool, 4, self.stream);
        let word = std::ptr::with_exposed_provenance_mut::<u32>(address as usize);
        // SAFETY: host memory, or managed memory, of this size.
        unsafe { word.write(0) };
        word
    }

    fn set_access(&self, flags: CUmemAccess_flags) -> CUresult {
        let r#type = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let given = CUmemAccessDesc { location: CUmemLocation { r#type, id: 0 }, flags };
        cu!(self.machine, cuMemPoolSetAccess(self.pool, &given, 1))
    }

    /// Appends a digit to a word by a kernel.
    fn append(&self, word: *mut u32, digit: u32) -> CUresult {
        let code = self.machine.append(word as u64, digit, self.stream);
        assert_eq!(code, SUCCESS);
        self.machine.sync(self.stream)
    }
}

const PINNED: CUmemAllocationType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
const MANAGED: CUmemAllocationType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;
const HOST: CUmemLocationType = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST;
const READ_WRITE: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
const NO_ACCESS: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;

#[test]
fn kernels_use_a_host_pool_while_their_device_has_access() {
    let host = HostPool::new(PINNED, HOST);
    let before = host.word();
    assert_eq!(host.set_access(READ_WRITE), SUCCESS);
    let after = host.word();
    assert_eq!([host.append(before, 1), host.append(after, 2)], [SUCCESS; 2]);
    // SAFETY: the kernels have ended.
    assert_eq!(unsafe { [before.read(), after.read()] }, [1, 2]);
    assert_eq!(host.set_access(NO_ACCESS), SUCCESS);
    assert_eq!(host.append(after, 3), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn a_refused_change_of_access_has_no_effect() {
    let host = HostPool::new(PINNED, HOST);
    let device = CUmemLocation { r#type: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    let own = CUmemLocation { r#type: HOST, id: 0 };
    let given = [
        CUmemAccessDesc { location: device, flags: READ_WRITE },
        CUmemAccessDesc { location: own, flags: NO_ACCESS },
    ];
    let code = cu!(host.machine, cuMemPoolSetAccess(host.pool, given.as_ptr(), 2));
    assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
    let (mut flags, mut place) = (CUmemAccess_flags(9), device);
    assert_eq!(cu!(host.machine, cuMemPoolGetAccess(&mut flags, host.pool, &mut place)), SUCCESS);
    assert_eq!(flags, NO_ACCESS);
}

#[test]
fn kernels_use_a_managed_pool_without_a_grant() {
    let managed = HostPool::new(MANAGED, CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE);
    let word = managed.word();
    assert_eq!(managed.set_access(NO_ACCESS), SUCCESS);
    assert_eq!(managed.append(word, 7), SUCCESS);
    // SAFETY: the kernel has ended.
    assert_eq!(unsafe { word.read() }, 7);
}

#[test]
fn host_memory_returns_to_its_pool() {
    for (r#type, location) in [(PINNED, HOST), (MANAGED, HOST)] {
        let host = HostPool::new(r#type, location);
        let (machine, pool) = (&host.machine, host.pool);
        let [first, second] = [host.word() as u64, host.word() as u64];
        assert_eq!(machine.counters(pool, [USED, RESERVED]), [8, CHUNK]);
        machine.give(first, host.stream);
        assert_eq!(machine.counters(pool, [USED, RESERVED]), [4, CHUNK]);
        assert_eq!(cu!(machine, cuMemFreeAsync(first, host.stream)), INVALID_VALUE);
        assert_eq!(cu!(machine, cuMemFree_v2(second)), SUCCESS);
        assert_eq!(machine.counters(pool, [USED, RESERVED]), [0, 0]);
        assert_eq!(cu!(machine, cuMemFree_v2(second)), INVALID_VALUE);
    }
}

/// A free is ordered in its stream, like the use of the memory.
#[test]
fn a_stream_ordered_free_runs_after_earlier_work() {
    let host = HostPool::new(PINNED, HOST);
    assert_eq!(host.set_access(READ_WRITE), SUCCESS);
    let word = host.word();
    let machine = &host.machine;
    assert_eq!(machine.append(word as u64, 1, host.stream), SUCCESS);
    machine.give(word as u64, host.stream);
    assert_eq!(machine.append(word as u64, 1, host.stream), SUCCESS);
    assert_eq!(machine.sync(host.stream), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn each_kind_of_memory_has_its_own_pools() {
    let machine = Machine::new();
    let mut location = CUmemLocation { r#type: HOST, id: 0 };
    let driver = machine.simulator.table();
    let default_of = |location: &mut CUmemLocation, r#type| {
        let (mut pool, ask) = (CUmemoryPool::NULL, driver.cuMemGetDefaultMemPool);
        // SAFETY: the pointers are valid during the call.
        let code = unsafe { ask.expect("since 13.0")(&mut pool, location, r#type) };
        assert_eq!(code, SUCCESS);
        pool
    };
    let pinned = default_of(&mut location, PINNED);
    let managed = default_of(&mut location, MANAGED);
    let mut of_device = location;
    of_device.r#type = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    let device = default_of(&mut of_device, PINNED);
    assert_eq!(device, machine.present_pool());
    assert!(pinned != managed && pinned != device && managed != device);
    assert_eq!(pinned, default_of(&mut location, PINNED));
    let set = driver.cuMemSetMemPool.expect("since 13.0");
    // SAFETY: the pointer is valid during the calls.
    let codes = unsafe { [MANAGED, PINNED].map(|r#type| set(&mut location, r#type, pinned)) };
    assert_eq!(codes, [INVALID_VALUE, SUCCESS]);
}

/// A call that waits for a host function is repeated after it, and only then changes state.
#[test]
fn access_granted_while_a_host_function_runs_is_granted() {
    unsafe extern "C" fn nothing(_: *mut std::ffi::c_void) {}
    let host = HostPool::new(PINNED, HOST);
    let (word, none) = (host.word(), std::ptr::null_mut());
    let code = cu!(host.machine, cuLaunchHostFunc(host.stream, Some(nothing), none));
    assert_eq!([code, host.set_access(READ_WRITE), host.append(word, 1)], [SUCCESS; 3]);
    // SAFETY: the kernel has ended.
    assert_eq!(unsafe { word.read() }, 1);
}
