//! Simulators: separate worlds, counted calls, injected failures and leaks.

use retrograph_driver_sim::{Config, SimError, Simulator};
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu};
use crate::ptx;

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

#[test]
fn simulators_are_independent() {
    let (first, second) = (Machine::new(), Machine::new());
    let word = first.zero();
    assert_eq!(cu!(second, cuMemFree_v2(word + (1 << 30))), CUresult::CUDA_ERROR_INVALID_VALUE);
    let stream = first.stream();
    let mut current = CUcontext::NULL;
    assert_eq!(cu!(first, cuCtxGetCurrent(&mut current)), SUCCESS);
    assert_eq!(current, first.context);
    assert_eq!(first.begin(stream), SUCCESS);
    let mut address = 0;
    assert_eq!(cu!(second, cuMemAlloc_v2(&mut address, 4)), SUCCESS, "no capture is open here");
    assert_eq!(first.end(stream).0, SUCCESS);
}

#[test]
fn nothing_works_before_initialization_and_without_a_context() {
    let simulator = Simulator::new(Config::default()).unwrap();
    let driver = simulator.table();
    let (mut count, mut address, mut version) = (0, 0, 0);
    // SAFETY: every pointer is valid during its call.
    unsafe {
        assert_eq!((driver.cuDriverGetVersion)(&mut version), SUCCESS);
        let early = (driver.cuDeviceGetCount)(&mut count);
        assert_eq!(early, CUresult::CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!((driver.cuInit)(1), CUresult::CUDA_ERROR_INVALID_VALUE);
        assert_eq!((driver.cuInit)(0), SUCCESS);
        let no_context = (driver.cuMemAlloc_v2)(&mut address, 4);
        assert_eq!(no_context, CUresult::CUDA_ERROR_INVALID_CONTEXT);
        let no_device = (driver.cuDeviceGet)(&mut count, 1);
        assert_eq!(no_device, CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    assert_eq!(version, 13000);
}

#[test]
fn a_machine_without_devices_reports_none() {
    let simulator = Simulator::new(with(Config::default(), |it| it.devices = 0)).unwrap();
    // SAFETY: the call takes no pointer.
    assert_eq!(unsafe { (simulator.table().cuInit)(0) }, CUresult::CUDA_ERROR_NO_DEVICE);
}

#[test]
fn an_invalid_configuration_is_refused_with_the_field_name() {
    let default = Config::default;
    let configs = [
        ("threads", with(default(), |it| it.threads = 0)),
        ("devices", with(default(), |it| it.devices = 65)),
        ("driver_version", with(default(), |it| it.driver_version = i32::MIN)),
        ("driver_version", with(default(), |it| it.driver_version = 13060)),
        ("memory_bytes", with(default(), |it| it.memory_bytes = (1 << 38) + 1)),
        ("compute_capability", with(default(), |it| it.compute_capability = (100, 0))),
        ("compute_capability", with(default(), |it| it.compute_capability = (9, u32::MAX))),
    ];
    for (name, config) in configs {
        let error = Simulator::new(config).unwrap_err();
        assert!(matches!(&error, SimError::InvalidConfig { field, .. } if *field == name));
        assert!(error.to_string().contains(&format!("cannot have {name} = ")), "{error}");
    }
    assert!(Simulator::new(with(default(), |it| it.memory_bytes = u64::MAX)).is_err());
}

#[test]
fn the_largest_machine_refuses_larger_allocations() {
    let (memory_bytes, compute_capability) = (1 << 38, (99, 9));
    let machine = Machine::with(with(Config::default(), |it| {
        it.memory_bytes = memory_bytes;
        it.compute_capability = compute_capability;
    }));
    for bytes in [usize::MAX, usize::MAX - 7, 1 << 39] {
        let code = cu!(machine, cuMemAlloc_v2(&mut 0, bytes));
        assert_eq!(code, CUresult::CUDA_ERROR_OUT_OF_MEMORY, "{bytes}");
    }
}

#[test]
fn a_device_is_found_by_its_place_on_the_pci_bus() {
    let machine = Machine::with(with(Config::default(), |it| it.devices = 20));
    let mut id = [1; 13];
    assert_eq!(cu!(machine, cuDeviceGetPCIBusId(id.as_mut_ptr(), 13, 17)), SUCCESS);
    let text = id.map(|byte| byte as u8);
    assert_eq!(std::str::from_utf8(&text), Ok("0000:00:11.0\0"));
    let found = |text: &std::ffi::CStr| {
        let mut device = -1;
        cu!(machine, cuDeviceGetByPCIBusId(&mut device, text.as_ptr())).ok().map(|()| device)
    };
    for text in [c"0000:00:11.0", c"0000:00:11", c"00:11.0"] {
        assert_eq!(found(text), Ok(17), "{text:?}");
    }
    assert!(found(c"0000:00:20.0").is_err());
    let short = cu!(machine, cuDeviceGetPCIBusId(id.as_mut_ptr(), 12, 0));
    assert_eq!(short, CUresult::CUDA_ERROR_NOT_SUPPORTED);
}

#[test]
fn devices_are_named_as_simulated_and_have_their_own_memory() {
    let machine = Machine::with(with(Config::default(), |it| {
        it.devices = 2;
        it.memory_bytes = 1 << 20;
    }));
    let mut name = [0; 64];
    assert_eq!(cu!(machine, cuDeviceGetName(name.as_mut_ptr(), 64, 1)), SUCCESS);
    let text: String =
        name.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte as u8)).collect();
    assert!(text.contains("SIMULATED") && text.contains("9.0"), "{text}");
    let (mut first, mut second) = (CUuuid::default(), CUuuid::default());
    assert_eq!(cu!(machine, cuDeviceGetUuid_v2(&mut first, 0)), SUCCESS);
    assert_eq!(cu!(machine, cuDeviceGetUuid_v2(&mut second, 1)), SUCCESS);
    assert_ne!(first, second);
    let (mut other, mut address) = (CUcontext::NULL, 0);
    assert_eq!(cu!(machine, cuDevicePrimaryCtxRetain(&mut other, 1)), SUCCESS);
    assert_eq!(cu!(machine, cuCtxPushCurrent_v2(other)), SUCCESS);
    assert_eq!(cu!(machine, cuMemAlloc_v2(&mut address, 1 << 20)), SUCCESS);
    let (mut free, mut total) = (0, 0);
    assert_eq!(cu!(machine, cuMemGetInfo_v2(&mut free, &mut total)), SUCCESS);
    assert_eq!((free, total), (0, 1 << 20));
    assert_eq!(cu!(machine, cuCtxPopCurrent_v2(&mut other)), SUCCESS);
    assert_eq!(cu!(machine, cuMemGetInfo_v2(&mut free, &mut total)), SUCCESS);
    assert!(free > 0, "the memory of the other device is still free");
}

#[test]
fn the_nth_call_from_now_fails_once() {
    let machine = Machine::new();
    let mut address = 0;
    let fail = |nth| {
        machine.simulator.fail("cuMemAlloc_v2", nth, CUresult::CUDA_ERROR_OUT_OF_MEMORY).unwrap();
    };
    fail(2);
    let before = machine.simulator.call_count("cuMemAlloc_v2");
    let mut codes = [(); 3].map(|()| cu!(machine, cuMemAlloc_v2(&mut address, 4)).0);
    assert_eq!(codes, [0, 2, 0]);
    assert_eq!(machine.simulator.call_count("cuMemAlloc_v2"), before + 3);
    fail(1);
    fail(2);
    codes = [(); 3].map(|()| cu!(machine, cuMemAlloc_v2(&mut address, 4)).0);
    assert_eq!(codes, [2, 2, 0]);
    let unknown = machine.simulator.fail("cuNothing", 1, CUresult::CUDA_ERROR_UNKNOWN);
    assert_eq!(unknown, Err(SimError::UnknownCall { name: "cuNothing".to_owned() }));
}

#[test]
fn a_memory_limit_applies_on_any_device() {
    let machine = Machine::new();
    let info = || {
        let (mut free, mut total) = (0, 0);
        assert_eq!(cu!(machine, cuMemGetInfo_v2(&mut free, &mut total)), SUCCESS);
        (free as u64, total as u64)
    };
    let alloc = |bytes| {
        let mut address = 0;
        (cu!(machine, cuMemAlloc_v2(&mut address, bytes)), address)
    };
    let (free, total) = info();
    let used = total - free;
    machine.simulator.out_of_memory_at(used + 100);
    let lacking = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    assert_eq!(info(), (free, total), "the device tells what it has");
    assert_eq!(alloc(101), (lacking, 0));
    let (code, word) = alloc(60);
    assert_eq!(code, SUCCESS);
    assert_eq!(alloc(41), (lacking, 0));
    assert_eq!(cu!(machine, cuMemFree_v2(word)), SUCCESS);
    assert_eq!(alloc(100).0, SUCCESS);

    // The call runs out of memory although no trace attests it, and the world continues.
    assert_eq!(machine.load(&ptx::module()), Err(lacking), "its variables need memory");
    let (mut pitched, mut pitch) = (0, 0);
    let code = cu!(machine, cuMemAllocPitch_v2(&mut pitched, &mut pitch, 64, 2, 4));
    assert_eq!(code, lacking);
    machine.simulator.out_of_memory_at(u64::MAX);
    assert_eq!(alloc(1 << 20).0, SUCCESS);
    assert!(machine.simulator.diagnostics().is_empty(), "{:?}", machine.simulator.diagnostics());
    assert!(machine.simulator.refused().is_empty(), "injected failures are not the simulator's");
}

#[test]
fn an_injected_sticky_code_stays() {
    let machine = Machine::new();
    let (stream, code) = (machine.stream(), CUresult::CUDA_ERROR_LAUNCH_FAILED);
    machine.simulator.fail("cuStreamSynchronize", 1, code).unwrap();
    assert_eq!(machine.sync(stream), code);
    assert_eq!(machine.sync(stream), code);
}

#[test]
fn leaked_objects_are_counted() {
    let machine = Machine::new();
    let (stream, event, graph) = (machine.stream(), machine.event(), machine.graph());
    let (word, host) = (machine.zero(), machine.pinned(&[0]));
    let exec = machine.instantiate(graph).unwrap();
    let live = machine.simulator.live();
    assert_eq!((live.streams, live.events, live.graphs, live.graph_execs), (1, 1, 1, 1));
    assert_eq!((live.allocations, live.allocated_bytes, live.pinned), (1, 4, 1));
    assert_eq!((live.contexts, live.modules), (1, 1));
    for code in [
        cu!(machine, cuGraphExecDestroy(exec)),
        cu!(machine, cuGraphDestroy(graph)),
        cu!(machine, cuEventDestroy_v2(event)),
        cu!(machine, cuStreamDestroy_v2(stream)),
        cu!(machine, cuMemFree_v2(word)),
        cu!(machine, cuMemFreeHost(host.cast())),
        cu!(machine, cuModuleUnload(machine.module)),
        cu!(machine, cuDevicePrimaryCtxRelease_v2(0)),
    ] {
        assert_eq!(code, SUCCESS);
    }
    assert_eq!(machine.simulator.finish(), Ok(()));
}
