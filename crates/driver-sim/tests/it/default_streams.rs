//! The default stream of programs that are compiled for per-thread default streams.

use retrograph_driver_sim::{Config, with_per_thread_default_stream};
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

/// The id of the stream that a null stream means.
fn default_id(machine: &Machine) -> u64 {
    let mut id = 0;
    assert_eq!(cu!(machine, cuStreamGetId(CUstream::NULL, &mut id)), SUCCESS);
    id
}

#[test]
fn a_null_stream_is_the_default_stream_of_the_thread() {
    let machine = Machine::new();
    let legacy = default_id(&machine);
    let mut own = 0;
    assert_eq!(cu!(machine, cuStreamGetId(CUstream::PER_THREAD, &mut own)), SUCCESS);
    assert_eq!(with_per_thread_default_stream(|| default_id(&machine)), own);
    assert_ne!(own, legacy);
    assert_eq!(default_id(&machine), legacy, "the meaning ends with the calls");
    let panics = || with_per_thread_default_stream(|| std::panic::panic_any("a test"));
    let _ = std::panic::catch_unwind(panics);
    assert_eq!(default_id(&machine), legacy, "also after a panic");
    let other = std::thread::scope(|scope| {
        let thread = || {
            machine.enter();
            with_per_thread_default_stream(|| default_id(&machine))
        };
        scope.spawn(thread).join().expect("it does not panic")
    });
    assert!(other != own && other != legacy);
}

#[test]
fn a_copy_without_a_stream_argument_is_ordered_with_the_stream_of_the_thread() {
    for seed in 0..8 {
        let machine = Machine::seeded(seed);
        let (word, mut found) = (machine.zero(), 0u32);
        let host = (&raw mut found).cast();
        with_per_thread_default_stream(|| {
            assert_eq!(machine.append(word, 4, CUstream::NULL), SUCCESS);
            assert_eq!(cu!(machine, cuMemcpyDtoH_v2(host, word, 4)), SUCCESS);
        });
        assert_eq!(found, 4, "seed {seed}");
        // The legacy stream waits for the default streams of threads.
        assert_eq!(machine.append(word, 2, CUstream::PER_THREAD), SUCCESS);
        assert_eq!(cu!(machine, cuMemcpyDtoH_v2(host, word, 4)), SUCCESS);
        assert_eq!(found, 0x42, "seed {seed}");
    }
}

#[test]
fn a_copy_that_waits_is_not_captured() {
    let machine = Machine::with(with(Config::default(), |it| it.attested_only = false));
    let (word, mut found, mut graph) = (machine.zero(), 0u32, CUgraph::NULL);
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    with_per_thread_default_stream(|| {
        assert_eq!(cu!(machine, cuStreamBeginCapture_v2(CUstream::NULL, mode)), SUCCESS);
        let code = cu!(machine, cuMemcpyDtoH_v2((&raw mut found).cast(), word, 4));
        assert_eq!(code, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        let code = cu!(machine, cuStreamEndCapture(CUstream::NULL, &mut graph));
        assert_eq!(code, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    });
}
