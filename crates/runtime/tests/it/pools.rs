//! Memory pools: allocation, reuse and seals. While any thread captures, a pool may not wait for
//! the context, and dropped graphs keep their memory. Tests of either need exclusive use of a GPU.

use std::sync::mpsc;

use retrograph_runtime::{
    Bindings, CaptureMode, DeviceBuffer, Error, MemoryPool, Pass, Policy, PoolUse,
};

use crate::device::{Device, alone, device};
use crate::programs::build;

const KIB: usize = 1 << 10;

/// Bytes used, waiting, and in the largest gap.
fn usage(pool: &MemoryPool) -> [usize; 3] {
    let PoolUse { used, waiting, largest, .. } = pool.usage();
    [used, waiting, largest]
}

#[test]
fn a_pool_gives_out_buffers_like_any_other() {
    alone("pools::a_pool_gives_out_buffers_like_any_other", |Device { context, stream }| {
        let pool = MemoryPool::new(&context, 4 * KIB).unwrap();
        let mut pass = Pass::new("copy");
        let (input, output) = (pass.external::<f32>("input", 9), pass.external::<f32>("output", 9));
        pass.copy(input, output).unwrap();
        let (from, to) = (pool.uninit::<f32>(9).unwrap(), pool.zeroed::<f32>(9).unwrap());
        assert_eq!(to.download(&stream).unwrap(), [0.0; 9]);
        from.upload(&stream, &[2.5; 9]).unwrap();
        let mut bindings = Bindings::new();
        bindings.bind(input, &from).bind(output, &to);
        let device = Device { context, stream };
        let mut program = build(&device, &pass, &bindings, Policy::Manual).unwrap();
        drop((from, bindings));
        assert_eq!(usage(&pool)[0], 512, "the program keeps its part");
        program.step(&device.stream, &pass.controls()).unwrap();
        assert_eq!(to.download(&device.stream).unwrap(), [2.5; 9]);
        drop(program);
        assert_eq!(usage(&pool), [256, 256, 3584]);
    });
}

#[test]
fn dropped_memory_is_reused_after_the_work_that_used_it() {
    alone(
        "pools::dropped_memory_is_reused_after_the_work_that_used_it",
        |Device { context, stream }| {
            let pool = MemoryPool::new(&context, KIB).unwrap();
            let (kept, result) =
                (DeviceBuffer::<u32>::zeroed(&context, 128).unwrap(), [3_u32; 128]);
            let first = pool.zeroed::<u32>(128).unwrap();
            let address = first.address();
            // SAFETY: both ranges are whole buffers; the pool reuses the first only after this
            // has run, which the test checks.
            unsafe {
                stream.memset_d32(address, 3, 128).unwrap();
                stream.memcpy_dtod(kept.address(), address, 512).unwrap();
            }
            drop(first);
            assert_eq!(usage(&pool), [0, 512, 512]);
            let second = pool.uninit::<u32>(128).unwrap();
            assert_ne!(second.address(), address, "unused memory is taken first");
            assert_eq!(usage(&pool), [512, 512, 0]);
            let third = pool.zeroed::<u32>(128).unwrap();
            assert_eq!(third.address(), address, "after a wait");
            assert_eq!(usage(&pool), [1024, 0, 0]);
            assert_eq!(kept.download(&stream).unwrap(), result, "the copy ran before that");
            assert_eq!(third.download(&stream).unwrap(), [0; 128]);
        },
    );
}

#[test]
fn a_full_pool_reports_its_free_bytes() {
    alone("pools::a_full_pool_reports_its_free_bytes", |Device { context, .. }| {
        let pool = MemoryPool::new(&context, KIB).unwrap();
        let held: Vec<_> = (0..4).map(|_| pool.uninit::<u8>(1).unwrap()).collect();
        let expected = Error::PoolExhausted { requested: 4, free: 0, largest: 0, capacity: 1024 };
        assert_eq!(pool.uninit::<u8>(1).unwrap_err(), expected);
        drop(held);
        let error = pool.uninit::<u8>(KIB + 1).unwrap_err();
        let (requested, free, largest) = (KIB + 4, KIB, KIB);
        assert_eq!(error, Error::PoolExhausted { requested, free, largest, capacity: KIB });
        assert!(error.to_string().contains("enlarge"), "{error}");
        assert!(matches!(pool.uninit::<u64>(usize::MAX), Err(Error::PoolExhausted { .. })));
    });
}

#[test]
fn a_seal_forbids_allocation_on_every_thread_and_names_who_sealed() {
    alone(
        "pools::a_seal_forbids_allocation_on_every_thread_and_names_who_sealed",
        |Device { context, stream }| {
            let pool = MemoryPool::new(&context, KIB).unwrap();
            let scratch = pool.uninit::<u32>(16).unwrap();
            let outer = pool.seal("the trainer");
            let inner = pool.seal("the captured step");
            let sealed_by = |error: Error| match error {
                Error::PoolSealed { by, requested: 64 } => by,
                other => panic!("{other}"),
            };
            let graph = stream
                .capture(CaptureMode::ThreadLocal, |capturing| {
                    let here = pool.uninit::<u32>(16).unwrap_err();
                    assert_eq!(sealed_by(here), "the captured step");
                    let there = std::thread::scope(|scope| {
                        scope.spawn(|| pool.uninit::<u32>(16).unwrap_err()).join().unwrap()
                    });
                    assert_eq!(sealed_by(there), "the captured step");
                    capturing.keep(scratch.owner());
                    // SAFETY: the range is the whole buffer, which the graph keeps.
                    unsafe { capturing.stream().memset_d32(scratch.address(), 5, 16) }
                })
                .expect("nothing that was refused broke the capture");
            drop(inner);
            assert_eq!(sealed_by(pool.zeroed::<u32>(16).unwrap_err()), "the trainer");
            drop(scratch);
            assert_eq!(usage(&pool)[0], 256, "the graph keeps its part, sealed or not");
            drop(outer);
            assert_eq!(pool.sealed_by(), None);
            graph.instantiate().unwrap().launch(&stream).unwrap();
            drop(graph);
            assert!(pool.uninit::<u32>(256).is_ok(), "everything is free again after a wait");
        },
    );
}

#[test]
fn seals_may_end_in_any_order() {
    let Device { context, .. } = device();
    let pool = MemoryPool::new(&context, KIB).unwrap();
    let (one, two) = (pool.seal("one"), pool.seal("two"));
    drop(one);
    assert_eq!(pool.sealed_by().as_deref(), Some("two"));
    drop(two);
    assert_eq!(pool.sealed_by(), None);
    pool.uninit::<u8>(1).unwrap();
}

#[test]
fn dropping_in_a_capture_calls_no_driver_and_waiting_for_one_is_refused() {
    alone(
        "pools::dropping_in_a_capture_calls_no_driver_and_waiting_for_one_is_refused",
        |Device { context, stream }| {
            let pool = MemoryPool::new(&context, KIB).unwrap();
            let dropped = pool.uninit::<u8>(KIB).unwrap();
            let here = pool.clone();
            let (ready, is_ready) = mpsc::channel();
            let (done, is_done) = mpsc::channel::<()>();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let captured = stream.capture(CaptureMode::ThreadLocal, |_| {
                        drop(dropped);
                        let refused = here.uninit::<u8>(1).unwrap_err();
                        assert!(matches!(refused, Error::RefusedDuringCapture { .. }), "{refused}");
                        ready.send(()).unwrap();
                        is_done.recv()
                    });
                    captured.expect("the drop did not break the capture");
                });
                is_ready.recv().unwrap();
                assert_eq!(context.deferred_releases(), 0, "nothing waits for the driver");
                let refused = pool.uninit::<u8>(1).unwrap_err();
                assert!(matches!(refused, Error::RefusedDuringCapture { .. }), "{refused}");
                done.send(()).unwrap();
            });
            pool.uninit::<u8>(KIB).unwrap();
        },
    );
}
