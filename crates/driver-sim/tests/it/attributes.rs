//! Attributes of devices, pointers and pools advertise only supported features: each nonzero
//! attribute is a fact on which no call depends, or a test here makes the calls that it advertises.

use std::collections::BTreeMap;
use std::ffi::c_void;

use CUdevice_attribute as A;
use retrograph_driver_sim::{Config, DiagnosticKind};
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu};
use crate::ptx;

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

/// Attributes without related calls: speeds, widths, identifiers, and requirements of textures.
const FACTS: [A; 14] = [
    A::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT,
    A::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT,
    A::CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT,
    A::CU_DEVICE_ATTRIBUTE_WARP_SIZE,
    A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
    A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
    A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
    A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
    A::CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO,
    A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
    A::CU_DEVICE_ATTRIBUTE_NUMA_ID,
    A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK,
    A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
    A::CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT,
];

/// Checks the calls that an attribute value advertises.
type Check = fn(&Machine, i32);

const CHECKS: [(A, Check); 37] = [
    (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, |machine, most| {
        assert!(launches(machine, [1; 3], [most, 1, 1]) && launches(machine, [1; 3], [1, most, 1]));
        assert!(!launches(machine, [1; 3], [most / 2, 3, 1]));
    }),
    (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, |machine, most| {
        assert!(launches(machine, [1; 3], [most, 1, 1]));
        assert!(!launches(machine, [1; 3], [most + 1, 1, 1]));
    }),
    (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, |machine, most| {
        assert!(launches(machine, [1; 3], [1, most, 1]));
        assert!(!launches(machine, [1; 3], [1, most + 1, 1]));
    }),
    (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, |machine, most| {
        assert!(launches(machine, [1; 3], [1, 1, most]));
        assert!(!launches(machine, [1; 3], [1, 1, most + 1]));
    }),
    // A grid of the maximum size would take too long.
    (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, |machine, most| {
        assert!(!launches(machine, [most.wrapping_add(1), 1, 1], [1; 3]));
    }),
    (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, |machine, most| {
        assert!(launches(machine, [1, most, 1], [1; 3]));
        assert!(!launches(machine, [1, most + 1, 1], [1; 3]));
    }),
    (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, |machine, most| {
        assert!(launches(machine, [1, 1, most], [1; 3]));
        assert!(!launches(machine, [1, 1, most + 1], [1; 3]));
    }),
    (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, |machine, most| {
        assert_eq!(run(machine, [1; 3], [1; 3], most), SUCCESS);
        assert_ne!(run(machine, [1; 3], [1; 3], most + 1), SUCCESS);
    }),
    (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, |machine, most| {
        let limit = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let store = machine.function(c"store");
        assert_ne!(cu!(machine, cuFuncSetAttribute(store, limit, most + 1)), SUCCESS);
        assert_eq!(cu!(machine, cuFuncSetAttribute(store, limit, most)), SUCCESS);
        assert_eq!(run(machine, [1; 3], [1; 3], most), SUCCESS);
        assert_eq!(occupancy(machine, 1, most), 1);
    }),
    (A::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, |machine, reserved| {
        let all = get(machine, A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
        let (half, quarter) = (all / 2 - reserved, all / 4 - reserved);
        assert_eq!(occupancy(machine, 32, quarter), 4);
        assert_eq!(
            occupancy(machine, 32, half.min(48 << 10)),
            all / (half.min(48 << 10) + reserved)
        );
    }),
    (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, |machine, all| {
        let reserved = get(machine, A::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
        assert_eq!(occupancy(machine, 32, all / 8 - reserved), 8);
        assert_eq!(occupancy(machine, 32, all / 8 - reserved + 128), 7);
    }),
    (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, |machine, most| {
        assert_eq!(occupancy(machine, 1024, 0), most / 1024);
    }),
    (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, |machine, most| {
        assert_eq!(occupancy(machine, 1, 0), most);
    }),
    (A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, |machine, count| {
        let resident = occupancy(machine, 1024, 0) * count;
        assert_eq!(cooperative(machine, resident, 1024), SUCCESS);
        let too_large = CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
        assert_eq!(cooperative(machine, resident + 1, 1024), too_large);
    }),
    (A::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, |machine, most| {
        let variable = format!(".visible .const .align 4 .b8 table[{most}];\n");
        assert!(machine.load(&ptx::image("7.0", "sm_70", &variable)).is_ok());
    }),
    (A::CU_DEVICE_ATTRIBUTE_MAX_PITCH, |machine, most| {
        let (word, mut to) = (machine.words(&[5]), 0u32);
        let row = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: word,
            srcPitch: most as usize,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: (&raw mut to).cast(),
            dstPitch: most as usize,
            WidthInBytes: 4,
            Height: 1,
            ..CUDA_MEMCPY2D::default()
        };
        assert_eq!(cu!(machine, cuMemcpy2D_v2(&row)), SUCCESS);
        assert_eq!(to, 5);
    }),
    (A::CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, |_, _| streams_are_unordered()),
    (A::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, |_, _| streams_are_unordered()),
    (A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, |_, _| streams_are_unordered()),
    (A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, |machine, _| {
        let (host, mut address) = (machine.pinned(&[1]), 0);
        let code = cu!(machine, cuMemHostGetDevicePointer_v2(&mut address, host.cast(), 0));
        assert_eq!(code, SUCCESS);
        assert_eq!(appended(machine, address, host), 0x17);
    }),
    (A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, |machine, _| {
        let (host, word) = (machine.pinned(&[3]), machine.zero());
        let host = host.expose_provenance() as u64;
        assert_eq!(cu!(machine, cuMemcpy(word, host, 4)), SUCCESS);
        assert_eq!(machine.peek(word), 3);
    }),
    (A::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, |machine, _| registered(machine, 0)),
    (A::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, |machine, _| registered(machine, 8)),
    (A::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, |machine, _| {
        registered(machine, 0);
    }),
    (A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, |machine, _| managed(machine)),
    (A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, |machine, _| {
        managed(machine);
        // A device without the attribute refuses prefetches.
        let mut address = 0;
        assert_eq!(cu!(machine, cuMemAllocManaged(&mut address, 4, 1)), SUCCESS);
        let stream = machine.stream();
        assert_eq!(cu!(machine, cuMemPrefetchAsync(address, 4, 0, stream)), SUCCESS);
    }),
    (A::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, |machine, _| {
        let (mut least, mut greatest) = (1, 1);
        let code = cu!(machine, cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
        assert!(code == SUCCESS && greatest < least);
        let (mut stream, mut found) = (CUstream::NULL, 1);
        let code = cu!(machine, cuStreamCreateWithPriority(&mut stream, 1, greatest));
        assert_eq!(code, SUCCESS);
        assert_eq!(cu!(machine, cuStreamGetPriority(stream, &mut found)), SUCCESS);
        assert_eq!(found, greatest);
    }),
    (A::CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, |machine, _| caches(machine, "global")),
    (A::CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, |machine, _| caches(machine, "local")),
    (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, |machine, major| {
        assert!(machine.load(&ptx::small("8.7", &format!("sm_{major}0"))).is_ok());
        assert!(machine.load(&ptx::small("8.7", &format!("sm_{}0", major + 3))).is_err());
    }),
    (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, |machine, minor| {
        let major = get(machine, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
        assert!(machine.load(&ptx::small("8.7", &format!("sm_{major}{minor}"))).is_ok());
    }),
    (A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, |machine, _| {
        assert_eq!(cooperative(machine, 2, 32), SUCCESS);
    }),
    (A::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, |machine, _| {
        pool_of_host(machine, CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST);
    }),
    (A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, |machine, _| {
        pool_of_host(machine, CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA);
    }),
    (A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, |machine, _| {
        let (mut pool, mut address, stream) = (CUmemoryPool::NULL, 0, machine.stream());
        assert_eq!(cu!(machine, cuMemPoolCreate(&mut pool, &pool_properties())), SUCCESS);
        let code = cu!(machine, cuMemAllocFromPoolAsync(&mut address, 4, pool, stream));
        assert_eq!(code, SUCCESS);
        assert_eq!(machine.launch(c"store", address, 6, stream), SUCCESS);
        assert_eq!(machine.sync(stream), SUCCESS);
        assert_eq!(machine.peek(address), 6);
        assert_eq!(cu!(machine, cuMemFreeAsync(address, stream)), SUCCESS);
    }),
    (A::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, |machine, _| {
        let cluster = CUlaunchAttributeValue_clusterDim { x: 2, y: 1, z: 1 };
        let mut attribute = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            value: CUlaunchAttributeValue { clusterDim: cluster },
            ..Default::default()
        };
        assert_eq!(launch_with(machine, &mut attribute, 4), SUCCESS);
        let code = launch_with(machine, &mut attribute, 3);
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
    }),
    (A::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, |machine, _| {
        assert!(crate::tensor_maps::encode(machine, 0x1000, 64).is_ok());
    }),
];

fn get(machine: &Machine, attribute: A) -> i32 {
    let mut value = i32::MIN;
    assert_eq!(cu!(machine, cuDeviceGetAttribute(&mut value, attribute, 0)), SUCCESS);
    value
}

/// Launches `store` with a geometry and dynamic shared memory.
fn run(machine: &Machine, grid: [i32; 3], block: [i32; 3], shared_bytes: i32) -> CUresult {
    let (mut address, mut word) = (machine.zero(), 1u32);
    let mut list = [(&raw mut address).cast::<c_void>(), (&raw mut word).cast()];
    let (function, none) = (machine.function(c"store"), std::ptr::null_mut());
    let [[gx, gy, gz], [bx, by, bz]] = [grid, block].map(|sizes| sizes.map(i32::cast_unsigned));
    let (shared, list, stream) = (shared_bytes as u32, list.as_mut_ptr(), machine.stream());
    let code =
        cu!(machine, cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, list, none));
    assert_eq!(machine.sync(stream), SUCCESS);
    code
}

fn launches(machine: &Machine, grid: [i32; 3], block: [i32; 3]) -> bool {
    run(machine, grid, block, 0) == SUCCESS
}

fn cooperative(machine: &Machine, blocks: i32, threads: u32) -> CUresult {
    let (mut address, mut word) = (machine.zero(), 1u32);
    let mut list = [(&raw mut address).cast::<c_void>(), (&raw mut word).cast()];
    let (function, list, stream) =
        (machine.function(c"store"), list.as_mut_ptr(), machine.stream());
    let blocks = blocks.cast_unsigned();
    let code = cu!(
        machine,
        cuLaunchCooperativeKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, list)
    );
    assert_eq!(machine.sync(stream), SUCCESS);
    code
}

fn launch_with(machine: &Machine, attribute: &mut CUlaunchAttribute, blocks: u32) -> CUresult {
    let (mut address, mut word) = (machine.zero(), 1u32);
    let mut list = [(&raw mut address).cast::<c_void>(), (&raw mut word).cast()];
    let config = CUlaunchConfig {
        gridDimX: blocks,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: machine.stream(),
        attrs: attribute,
        numAttrs: 1,
    };
    let (function, none) = (machine.function(c"store"), std::ptr::null_mut());
    let code = cu!(machine, cuLaunchKernelEx(&config, function, list.as_mut_ptr(), none));
    assert_eq!(machine.sync(config.hStream), SUCCESS);
    code
}

/// Resident blocks of `store` per SM.
fn occupancy(machine: &Machine, threads: i32, shared_bytes: i32) -> i32 {
    let (store, mut blocks) = (machine.function(c"store"), -1);
    let shared = shared_bytes as usize;
    let code = cu!(
        machine,
        cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, store, threads, shared)
    );
    assert_eq!(code, SUCCESS);
    blocks
}

/// Appends a digit to a host word by a kernel, and returns the word.
fn appended(machine: &Machine, address: CUdeviceptr, host: *const u32) -> u32 {
    let stream = machine.stream();
    assert_eq!(machine.append(address, 7, stream), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    // SAFETY: the callers pass a live word that no kernel accesses any more.
    unsafe { host.read() }
}

fn registered(machine: &Machine, flags: u32) {
    let mut words = vec![1u32; 1024];
    let host = words.as_mut_ptr();
    assert_eq!(cu!(machine, cuMemHostRegister_v2(host.cast(), 4096, flags)), SUCCESS);
    let (address, copy) = (host.expose_provenance() as u64, machine.zero());
    assert_eq!(cu!(machine, cuMemcpyDtoD_v2(copy, address, 4)), SUCCESS);
    assert_eq!(machine.peek(copy), 1);
    if flags == 0 {
        assert_eq!(appended(machine, address, host), 0x17);
    }
    assert_eq!(cu!(machine, cuMemHostUnregister(host.cast())), SUCCESS);
}

fn managed(machine: &Machine) {
    let mut address = 0;
    assert_eq!(cu!(machine, cuMemAllocManaged(&mut address, 4, 1)), SUCCESS);
    let host = std::ptr::with_exposed_provenance_mut::<u32>(address as usize);
    // SAFETY: the word lives, and nothing is queued that accesses it.
    unsafe { host.write(1) };
    assert_eq!(appended(machine, address, host), 0x17);
}

/// Checks that a kernel changes a word of a host pool to which its device has access.
fn pool_of_host(machine: &Machine, r#type: CUmemLocationType) {
    let mut given = pool_properties();
    given.location.r#type = r#type;
    let (mut pool, mut address, stream) = (CUmemoryPool::NULL, 0, machine.stream());
    assert_eq!(cu!(machine, cuMemPoolCreate(&mut pool, &given)), SUCCESS);
    let access = CUmemAccessDesc {
        location: pool_properties().location,
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    assert_eq!(cu!(machine, cuMemPoolSetAccess(pool, &access, 1)), SUCCESS);
    assert_eq!(cu!(machine, cuMemAllocFromPoolAsync(&mut address, 4, pool, stream)), SUCCESS);
    let host = std::ptr::with_exposed_provenance_mut::<u32>(address as usize);
    // SAFETY: the word lives, and nothing is queued that accesses it.
    unsafe { host.write(1) };
    assert_eq!(appended(machine, address, host), 0x17);
}

/// The first digit of the word that the kernels of two streams append to.
fn first_digit(seed: u64) -> u32 {
    let machine = Machine::seeded(seed);
    let (word, streams) = (machine.zero(), [machine.stream(), machine.stream()]);
    for (digit, stream) in (1..).zip(streams) {
        assert_eq!(machine.append(word, digit, stream), SUCCESS);
    }
    assert_eq!(cu!(machine, cuCtxSynchronize()), SUCCESS);
    machine.peek(word) >> 4
}

/// Checks that the work of two streams runs in either order.
fn streams_are_unordered() {
    let first: Vec<u32> = (0..16).map(first_digit).collect();
    assert!(first.contains(&1) && first.contains(&2), "{first:?}");
}

/// Checks loads that are cached in L1.
fn caches(machine: &Machine, space: &str) {
    let body = format!(
        ".global .align 4 .b8 in_global[4];
        .visible .entry cached() {{
            .reg .b32 %r<2>;
            .reg .b64 %rd<2>;
            .local .align 4 .b8 in_local[4];
            mov.u64 %rd1, in_{space};
            ld.{space}.ca.b32 %r1, [%rd1];
            ret;
        }}"
    );
    let module = machine.load(&ptx::image("7.0", "sm_70", &body)).unwrap();
    let (mut function, stream) = (CUfunction::NULL, machine.stream());
    let code = cu!(machine, cuModuleGetFunction(&mut function, module, c"cached".as_ptr()));
    assert_eq!(code, SUCCESS);
    let none = std::ptr::null_mut();
    let code =
        cu!(machine, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, none.cast()));
    assert_eq!((code, machine.sync(stream)), (SUCCESS, SUCCESS));
}

fn pool_properties() -> CUmemPoolProps {
    let r#type = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: CUmemLocation { r#type, id: 0 },
        ..Default::default()
    }
}

/// A machine that also returns unattested errors.
fn machine_of(major: u32, minor: u32, recorded_attributes: bool) -> Machine {
    Machine::with(with(Config::default(), |it| {
        it.compute_capability = (major, minor);
        it.recorded_attributes = recorded_attributes;
        it.attested_only = false;
        it.memory_bytes = 1 << 28;
        it.threads = 1;
    }))
}

#[test]
fn a_nonzero_attribute_is_a_fact_or_works() {
    let checks = BTreeMap::from(CHECKS);
    for (major, minor) in [(9, 0), (8, 6), (8, 0)] {
        let machine = machine_of(major, minor, false);
        for attribute in (1..148).map(A) {
            let value = get(&machine, attribute);
            match checks.get(&attribute) {
                _ if value == 0 || FACTS.contains(&attribute) => {}
                Some(check) => check(&machine, value),
                None => panic!("{attribute:?} is {value}, and nothing shows that it works"),
            }
        }
        assert_eq!(machine.diagnostics(DiagnosticKind::Unsupported), [""; 0]);
    }
}

#[test]
fn a_device_has_clusters_and_tensor_maps_from_9_0_on() {
    for ((major, minor), expected) in [((8, 6), 0), ((9, 0), 1), ((10, 0), 1)] {
        let machine = machine_of(major, minor, false);
        assert_eq!(get(&machine, A::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH), expected);
        let maps = get(&machine, A::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED);
        assert_eq!(maps, expected);
        assert_eq!(get(&machine, A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH), 1);
    }
}

#[test]
fn memory_is_not_shared_with_other_processes_or_cards() {
    use CUpointer_attribute as P;
    for recorded in [false, true] {
        let machine = machine_of(9, 0, recorded);
        let word = machine.zero();
        let capable = [
            P::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
            P::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
        ];
        for attribute in capable {
            let mut value = 9u32;
            let place = (&raw mut value).cast();
            assert_eq!(cu!(machine, cuPointerGetAttribute(place, attribute, word)), SUCCESS);
            assert_eq!(value, u32::from(recorded), "{attribute:?}");
        }
        let types = get(&machine, A::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES);
        assert_eq!(types != 0, recorded);
        let file = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let given = CUmemPoolProps { handleTypes: file, ..pool_properties() };
        let mut pool = CUmemoryPool::NULL;
        let code = cu!(machine, cuMemPoolCreate(&mut pool, &given));
        let refused = CUresult::CUDA_ERROR_NOT_SUPPORTED;
        assert_eq!(code, if recorded { SUCCESS } else { refused });
        assert_eq!(machine.diagnostics(DiagnosticKind::Unsupported).len(), usize::from(!recorded));
    }
}

#[test]
fn an_atomic_operation_on_peer_memory_is_atomic() {
    use CUdevice_P2PAttribute as P;
    let mut config = Config::default();
    config.devices = 2;
    config.memory_bytes = 1 << 24;
    config.threads = 2;
    let machine = Machine::with(config);
    let mut other = CUcontext::NULL;
    assert_eq!(cu!(machine, cuDevicePrimaryCtxRetain(&mut other, 1)), SUCCESS);
    assert_eq!(cu!(machine, cuCtxSetCurrent(other)), SUCCESS);
    let mut word = machine.zero();
    machine.enter();
    let link = |attribute| {
        let mut value = -1;
        let code = cu!(machine, cuDeviceGetP2PAttribute(&mut value, attribute, 0, 1));
        assert_eq!(code, SUCCESS);
        value
    };
    assert_eq!(link(P::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED), 1);
    assert_eq!(link(P::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED), 1);
    assert_eq!(link(P::CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED), 0);
    assert_eq!(link(P::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED), 1);

    assert_eq!(cu!(machine, cuCtxEnablePeerAccess(other, 0)), SUCCESS);
    let body = "
        .visible .entry increment(.param .u64 address) {
            .reg .b32 %r<2>;
            .reg .b64 %rd<2>;
            ld.param.u64 %rd1, [address];
            atom.sys.global.add.u32 %r1, [%rd1], 1;
            ret;
        }";
    let module = machine.load(&ptx::image("7.0", "sm_70", body)).unwrap();
    let (mut function, stream) = (CUfunction::NULL, machine.stream());
    let code = cu!(machine, cuModuleGetFunction(&mut function, module, c"increment".as_ptr()));
    assert_eq!(code, SUCCESS);
    let (mut list, none) = ([(&raw mut word).cast::<c_void>()], std::ptr::null_mut());
    let list = list.as_mut_ptr();
    let code = cu!(machine, cuLaunchKernel(function, 50, 1, 1, 64, 1, 1, 0, stream, list, none));
    assert_eq!((code, machine.sync(stream)), (SUCCESS, SUCCESS));
    assert_eq!(cu!(machine, cuCtxSetCurrent(other)), SUCCESS);
    assert_eq!(machine.peek(word), 3200);
}
