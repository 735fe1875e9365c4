//! Simulated times between events.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use retrograph_driver_sim::{Config, Order};
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
/// Rounds of a kernel that takes 30 microseconds and a little more.
const ROUNDS: u32 = 1000;

impl Machine {
    fn spin(&self, rounds: u32, stream: CUstream) {
        assert_eq!(self.launch(c"spin", 0, rounds, stream), SUCCESS);
    }

    /// Records a new event.
    pub(crate) fn record(&self, stream: CUstream) -> CUevent {
        let event = self.event();
        assert_eq!(cu!(self, cuEventRecord(event, stream)), SUCCESS);
        event
    }

    fn wait(&self, stream: CUstream, event: CUevent) {
        assert_eq!(cu!(self, cuStreamWaitEvent(stream, event, 0)), SUCCESS);
    }

    fn synchronize(&self) {
        assert_eq!(cu!(self, cuCtxSynchronize()), SUCCESS);
    }

    /// Nanoseconds between two events.
    pub(crate) fn nanoseconds(&self, start: CUevent, end: CUevent) -> u64 {
        let mut milliseconds = f32::NAN;
        assert_eq!(cu!(self, cuEventElapsedTime(&mut milliseconds, start, end)), SUCCESS);
        (f64::from(milliseconds) * 1e6).round() as u64
    }

    /// Queues a host function, which runs at the next wait. It ends on the timeline after all work
    /// that is queued before that wait, so the times of this work do not depend on the host.
    pub(crate) fn outlast(&self, stream: CUstream, since: &Instant) {
        let data = std::ptr::from_ref(since).cast_mut().cast();
        assert_eq!(cu!(self, cuLaunchHostFunc(stream, Some(sleep_as_long), data)), SUCCESS);
    }

    /// The duration of a kernel.
    fn duration_of(&self, rounds: u32) -> u64 {
        let (since, stream) = (Instant::now(), self.stream());
        self.outlast(stream, &since);
        let start = self.record(stream);
        self.spin(rounds, stream);
        let end = self.record(stream);
        self.synchronize();
        self.nanoseconds(start, end)
    }
}

/// Sleeps for the time since its data.
unsafe extern "C" fn sleep_as_long(since: *mut c_void) {
    // SAFETY: the tests pass an instant that lives until the function has run.
    let since = unsafe { &*since.cast::<Instant>() };
    std::thread::sleep(since.elapsed());
}

#[test]
fn kernels_of_one_stream_take_the_sum_of_their_times() {
    let machine = Machine::new();
    let (since, stream) = (Instant::now(), machine.stream());
    machine.outlast(stream, &since);
    let start = machine.record(stream);
    machine.spin(ROUNDS, stream);
    let middle = machine.record(stream);
    machine.spin(2 * ROUNDS, stream);
    let end = machine.record(stream);
    machine.synchronize();
    let [first, second] = [(start, middle), (middle, end)].map(|(a, b)| machine.nanoseconds(a, b));
    assert_eq!(second - first, 3 * 10 * u64::from(ROUNDS), "10 ns per instruction");
    assert_eq!(machine.nanoseconds(start, end), first + second);
    assert_eq!(machine.nanoseconds(end, start), 0);
}

#[test]
fn kernels_of_two_streams_overlap_and_an_event_joins_them() {
    let one = Machine::new().duration_of(ROUNDS);
    for seed in 0..8 {
        let machine = Machine::seeded(seed);
        let (since, stream, other) = (Instant::now(), machine.stream(), machine.stream());
        machine.outlast(stream, &since);
        let start = machine.record(stream);
        machine.wait(other, start);
        machine.spin(ROUNDS, stream);
        machine.spin(2 * ROUNDS, other);
        let joined = machine.record(other);
        machine.wait(stream, joined);
        let end = machine.record(stream);
        machine.spin(ROUNDS, stream);
        let last = machine.record(stream);
        machine.synchronize();
        let longer = one + 30 * u64::from(ROUNDS);
        assert_eq!(machine.nanoseconds(start, end), longer, "seed {seed}");
        assert_eq!(machine.nanoseconds(start, last), longer + one, "seed {seed}");
    }
}

#[test]
fn streams_overlap_in_the_prompt_order_too() {
    let prompt = |it: &mut Config| (it.order, it.threads) = (Order::Prompt, 1);
    let machine = Machine::with(with(Config::default(), prompt));
    // At least 9 ms, so that the host queues the second kernel earlier in most attempts.
    let (rounds, least) = (300 * ROUNDS, 9_000_000);
    let overlap = |_| {
        let (stream, other) = (machine.stream(), machine.stream());
        let start = machine.record(stream);
        machine.spin(rounds, stream);
        machine.spin(rounds, other);
        let joined = machine.record(other);
        // The kernel is complete already, but ends later on the timeline.
        machine.wait(stream, joined);
        let end = machine.record(stream);
        let [first, both] = [joined, end].map(|event| machine.nanoseconds(start, event));
        assert!(first >= least && both >= first, "{first} {both}");
        both < 2 * least
    };
    assert!((0..50).any(overlap));
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    let machine = Machine::new();
    let one = machine.duration_of(ROUNDS);
    let since = Instant::now();
    let [first, second] = [(); 2].map(|()| machine.stream_with(CU_STREAM_DEFAULT));
    let apart = machine.stream();
    machine.outlast(first, &since);
    let start = machine.record(first);
    machine.wait(apart, start);
    machine.spin(ROUNDS, first);
    machine.spin(ROUNDS, CUstream::LEGACY);
    let [ordered, unordered] = [second, apart].map(|stream| machine.record(stream));
    machine.synchronize();
    assert_eq!(machine.nanoseconds(start, ordered), 2 * one);
    assert_eq!(machine.nanoseconds(start, unordered), 0);
}

#[test]
fn branches_of_a_graph_overlap() {
    let one = Machine::new().duration_of(ROUNDS);
    for seed in 0..8 {
        let machine = Machine::seeded(seed);
        let (graph, child, stream) = (machine.graph(), machine.graph(), machine.stream());
        let first = machine.add(child, c"spin", 0, ROUNDS, &[]);
        machine.add(child, c"spin", 0, ROUNDS, &[first]);
        let [start, joined, end] = [(); 3].map(|()| machine.event());
        let record = |event, after: &[CUgraphNode]| {
            let (mut node, from, count) = (CUgraphNode::NULL, after.as_ptr(), after.len());
            let code =
                cu!(machine, cuGraphAddEventRecordNode(&mut node, graph, from, count, event));
            assert_eq!(code, SUCCESS);
            node
        };
        let root = machine.add(graph, c"spin", 0, ROUNDS, &[]);
        let root = record(start, &[root]);
        let short = machine.add(graph, c"spin", 0, ROUNDS, &[root]);
        let mut long = CUgraphNode::NULL;
        let code = cu!(machine, cuGraphAddChildGraphNode(&mut long, graph, &root, 1, child));
        assert_eq!(code, SUCCESS);
        let join = record(joined, &[short, long]);
        let last = machine.add(graph, c"spin", 0, ROUNDS, &[join]);
        record(end, &[last]);
        let exec = machine.instantiate(graph).unwrap();
        assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
        let after = machine.record(stream);
        assert_eq!(machine.sync(stream), SUCCESS);
        assert_eq!(machine.nanoseconds(start, joined), 2 * one, "seed {seed}");
        assert_eq!(machine.nanoseconds(start, end), 3 * one, "seed {seed}");
        assert_eq!(machine.nanoseconds(end, after), 0, "seed {seed}");
    }
}

#[test]
fn copies_and_fills_take_a_time_for_their_bytes() {
    const BYTES: usize = 1 << 20;
    let machine = Machine::new();
    let (mut from, mut to) = (0, 0);
    for address in [&mut from, &mut to] {
        assert_eq!(cu!(machine, cuMemAlloc_v2(address, BYTES)), SUCCESS);
    }
    let (since, stream) = (Instant::now(), machine.stream());
    machine.outlast(stream, &since);
    let start = machine.record(stream);
    assert_eq!(cu!(machine, cuMemsetD32Async(from, 1, BYTES / 4, stream)), SUCCESS);
    let middle = machine.record(stream);
    assert_eq!(cu!(machine, cuMemcpyDtoDAsync_v2(to, from, BYTES, stream)), SUCCESS);
    let end = machine.record(stream);
    machine.synchronize();
    let expected = 1000 + (BYTES as u64).div_ceil(10);
    assert_eq!(machine.nanoseconds(start, middle), expected);
    assert_eq!(machine.nanoseconds(middle, end), expected);

    // The host waits for a copy to pageable memory.
    let (mut words, start) = (vec![0u32; BYTES / 4], machine.record(stream));
    let host = words.as_mut_ptr().cast();
    assert_eq!(cu!(machine, cuMemcpyDtoHAsync_v2(host, from, BYTES, stream)), SUCCESS);
    let end = machine.record(stream);
    machine.synchronize();
    assert!(machine.nanoseconds(start, end) >= expected);
    assert_eq!(words[BYTES / 4 - 1], 1);
}

#[test]
fn work_starts_neither_before_it_is_queued_nor_before_an_earlier_wait_has_ended() {
    const PAUSE: Duration = Duration::from_millis(20);
    let machine = Machine::new();
    let (stream, other) = (machine.stream(), machine.stream());
    let start = machine.record(stream);
    std::thread::sleep(PAUSE);
    let queued = machine.record(stream);
    // At least 30 ms.
    machine.spin(1000 * ROUNDS, stream);
    let end = machine.record(stream);
    assert_eq!(machine.sync(stream), SUCCESS);
    let after = machine.record(other);
    machine.synchronize();
    assert!(machine.nanoseconds(start, queued) >= PAUSE.as_nanos() as u64);
    assert!(machine.nanoseconds(start, after) >= machine.nanoseconds(start, end));
    assert!(machine.nanoseconds(start, end) >= 50_000_000);
}

#[test]
fn a_host_function_takes_its_real_time_in_streams_and_graphs() {
    const PAUSE: Duration = Duration::from_millis(20);
    unsafe extern "C" fn pause(_: *mut c_void) {
        std::thread::sleep(PAUSE);
    }
    let machine = Machine::new();
    let one = machine.duration_of(ROUNDS);
    let (graph, stream) = (machine.graph(), machine.stream());
    let parameters = CUDA_HOST_NODE_PARAMS { r#fn: Some(pause), userData: std::ptr::null_mut() };
    let mut node = CUgraphNode::NULL;
    let none = std::ptr::null();
    let code = cu!(machine, cuGraphAddHostNode(&mut node, graph, none, 0, &parameters));
    assert_eq!(code, SUCCESS);
    machine.add(graph, c"spin", 0, ROUNDS, &[node]);
    let exec = machine.instantiate(graph).unwrap();
    let start = machine.record(stream);
    let code = cu!(machine, cuLaunchHostFunc(stream, Some(pause), std::ptr::null_mut()));
    assert_eq!(code, SUCCESS);
    let middle = machine.record(stream);
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    let end = machine.record(stream);
    machine.synchronize();
    let least = PAUSE.as_nanos() as u64;
    assert!(machine.nanoseconds(start, middle) >= least);
    assert!(machine.nanoseconds(middle, end) >= least + one);
}

#[test]
fn a_thread_does_not_wait_for_what_another_thread_waits_for() {
    let machine = Machine::new();
    let (stream, other) = (machine.stream(), machine.stream());
    // A slow host can exceed the 30 ms of the kernel, but not in every attempt.
    let is_apart = |_| {
        let start = machine.record(stream);
        let waited = std::thread::scope(|scope| {
            let wait = || {
                machine.enter();
                let start = machine.record(other);
                machine.spin(1000 * ROUNDS, other);
                let end = machine.record(other);
                assert_eq!(machine.sync(other), SUCCESS);
                machine.nanoseconds(start, end)
            };
            scope.spawn(wait).join().expect("the other thread ends")
        });
        let end = machine.record(stream);
        assert_eq!(machine.sync(stream), SUCCESS);
        assert!(waited >= 30_000_000, "{waited}");
        machine.nanoseconds(start, end) < 30_000_000
    };
    assert!((0..10).any(is_apart));

    // A new thread begins after all waits.
    let start = machine.record(stream);
    machine.spin(1000 * ROUNDS, stream);
    let end = machine.record(stream);
    assert_eq!(machine.sync(stream), SUCCESS);
    let after = std::thread::scope(|scope| {
        let record = || {
            machine.enter();
            let event = machine.record(other);
            machine.synchronize();
            machine.nanoseconds(start, event)
        };
        scope.spawn(record).join().expect("the other thread ends")
    });
    assert!(after >= machine.nanoseconds(start, end), "{after}");
}

#[test]
fn the_end_of_a_task_is_known_after_many_others() {
    let prompt = |it: &mut Config| (it.order, it.threads) = (Order::Prompt, 1);
    let machine = Machine::with(with(Config::default(), prompt));
    let (stream, other) = (machine.stream(), machine.stream());
    let start = machine.record(stream);
    machine.spin(1000 * ROUNDS, stream);
    let event = machine.record(other);
    for _ in 0..3000 {
        assert_eq!(cu!(machine, cuEventRecord(event, other)), SUCCESS);
    }
    let end = machine.record(stream);
    assert!(machine.nanoseconds(start, end) >= 30_000_000);
}

/// A step of a random program; streams and events are numbers.
#[derive(Clone, Copy, Debug)]
enum Step {
    Spin(usize, u32),
    Record(usize),
    Wait(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3usize, 1..50u32).prop_map(|(stream, rounds)| Step::Spin(stream, rounds)),
        (0..3usize).prop_map(Step::Record),
        (0..3usize, any::<usize>()).prop_map(|(stream, event)| Step::Wait(stream, event)),
    ]
}

/// The times of the recorded events of a program on three streams, in nanoseconds.
fn times_of(steps: &[Step], seed: u64) -> Vec<u64> {
    let machine = Machine::seeded(seed);
    let streams = [(); 3].map(|()| machine.stream());
    let since = Instant::now();
    machine.outlast(streams[0], &since);
    let start = machine.record(streams[0]);
    streams.iter().for_each(|stream| machine.wait(*stream, start));
    let mut events = vec![start];
    for step in steps {
        match *step {
            Step::Spin(stream, rounds) => machine.spin(rounds, streams[stream]),
            Step::Record(stream) => events.push(machine.record(streams[stream])),
            Step::Wait(stream, event) => {
                machine.wait(streams[stream], events[event % events.len()]);
            }
        }
    }
    machine.synchronize();
    events.iter().map(|event| machine.nanoseconds(start, *event)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn times_do_not_depend_on_the_order_of_execution(
        steps in proptest::collection::vec(step(), 1..40),
        seed in 1..1000u64,
    ) {
        prop_assert_eq!(times_of(&steps, 0), times_of(&steps, seed));
    }
}
