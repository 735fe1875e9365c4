//! The time and order in which queued work runs.

use std::collections::BTreeSet;

use retrograph_driver_sim::{Config, DiagnosticKind, Order};
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const NOT_READY: CUresult = CUresult::CUDA_ERROR_NOT_READY;

#[test]
fn work_of_a_non_blocking_stream_runs_at_the_wait_and_not_before() {
    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream());
    assert_eq!(machine.append(word, 5, stream), SUCCESS);
    assert_eq!(machine.peek(word), 0, "the copy is not ordered with the stream");
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!(machine.peek(word), 5);
}

#[test]
fn waiting_for_one_stream_leaves_another_alone() {
    let machine = Machine::new();
    let (word, other_word) = (machine.zero(), machine.zero());
    let (stream, other) = (machine.stream(), machine.stream());
    assert_eq!(machine.append(word, 1, stream), SUCCESS);
    assert_eq!(machine.append(other_word, 2, other), SUCCESS);
    assert_eq!(machine.sync(other), SUCCESS);
    assert_eq!((machine.peek(word), machine.peek(other_word)), (0, 2));
    assert_eq!(cu!(machine, cuCtxSynchronize()), SUCCESS);
    assert_eq!(machine.peek(word), 1);
}

#[test]
fn an_event_orders_two_streams() {
    for seed in 0..16 {
        let machine = Machine::seeded(seed);
        let (word, event) = (machine.zero(), machine.event());
        let (first, second) = (machine.stream(), machine.stream());
        assert_eq!(machine.append(word, 1, first), SUCCESS);
        assert_eq!(cu!(machine, cuEventRecord(event, first)), SUCCESS);
        assert_eq!(cu!(machine, cuStreamWaitEvent(second, event, 0)), SUCCESS);
        assert_eq!(machine.append(word, 2, second), SUCCESS);
        assert_eq!(machine.sync(second), SUCCESS);
        assert_eq!(machine.peek(word), 0x12, "seed {seed}");
    }
}

#[test]
fn two_streams_without_an_event_run_in_either_order() {
    let order = |seed| {
        let machine = Machine::seeded(seed);
        let word = machine.zero();
        for digit in [1, 2] {
            assert_eq!(machine.append(word, digit, machine.stream()), SUCCESS);
        }
        assert_eq!(cu!(machine, cuCtxSynchronize()), SUCCESS);
        machine.peek(word)
    };
    assert_eq!((0..32).map(order).collect::<BTreeSet<_>>(), BTreeSet::from([0x12, 0x21]));
    assert_eq!(order(5), order(5), "a seed decides for good");
}

#[test]
fn blocking_streams_are_ordered_by_the_legacy_stream() {
    for seed in 0..16 {
        let machine = Machine::seeded(seed);
        let word = machine.zero();
        let [first, second] = [(); 2].map(|()| machine.stream_with(CU_STREAM_DEFAULT));
        assert_eq!(machine.append(word, 1, first), SUCCESS);
        assert_eq!(machine.append(word, 2, CUstream::LEGACY), SUCCESS);
        assert_eq!(machine.append(word, 3, second), SUCCESS);
        assert_eq!(machine.sync(second), SUCCESS);
        assert_eq!(machine.peek(word), 0x123, "seed {seed}");
    }
}

#[test]
fn a_wait_of_the_legacy_stream_delays_later_work_of_blocking_streams() {
    for seed in 0..16 {
        let machine = Machine::seeded(seed);
        let (word, event) = (machine.zero(), machine.event());
        let (other, blocking) = (machine.stream(), machine.stream_with(CU_STREAM_DEFAULT));
        assert_eq!(machine.append(word, 1, other), SUCCESS);
        assert_eq!(cu!(machine, cuEventRecord(event, other)), SUCCESS);
        assert_eq!(cu!(machine, cuStreamWaitEvent(CUstream::LEGACY, event, 0)), SUCCESS);
        assert_eq!(machine.append(word, 2, blocking), SUCCESS);
        assert_eq!(machine.sync(blocking), SUCCESS);
        assert_eq!(machine.peek(word), 0x12, "seed {seed}");
    }
}

#[test]
fn the_first_query_of_a_stream_is_not_ready_and_the_second_runs_it() {
    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream());
    assert_eq!(cu!(machine, cuStreamQuery(stream)), SUCCESS, "nothing was queued");
    assert_eq!(machine.append(word, 1, stream), SUCCESS);
    assert_eq!(cu!(machine, cuStreamQuery(stream)), NOT_READY);
    assert_eq!(machine.peek(word), 0);
    assert_eq!(cu!(machine, cuStreamQuery(stream)), SUCCESS);
    assert_eq!(machine.peek(word), 1);
}

#[test]
fn an_event_is_ready_after_its_work_and_measures_time() {
    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream());
    let (start, end) = (machine.event(), machine.event());
    let mut time = f32::NAN;
    let code = cu!(machine, cuEventElapsedTime(&mut time, start, end));
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_HANDLE, "never recorded");
    assert_eq!(cu!(machine, cuEventRecord(start, stream)), SUCCESS);
    assert_eq!(machine.append(word, 1, stream), SUCCESS);
    assert_eq!(cu!(machine, cuEventRecord(end, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuEventElapsedTime(&mut time, start, end)), NOT_READY);
    assert_eq!(cu!(machine, cuEventQuery(end)), NOT_READY);
    assert_eq!(cu!(machine, cuEventSynchronize(end)), SUCCESS);
    assert_eq!(cu!(machine, cuEventQuery(end)), SUCCESS);
    assert_eq!(cu!(machine, cuEventElapsedTime(&mut time, start, end)), SUCCESS);
    assert!(time >= 0.0 && machine.peek(word) == 1);
}

#[test]
fn work_of_a_destroyed_stream_still_completes() {
    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream());
    assert_eq!(machine.append(word, 9, stream), SUCCESS);
    assert_eq!(cu!(machine, cuStreamDestroy_v2(stream)), SUCCESS);
    assert_eq!(cu!(machine, cuCtxSynchronize()), SUCCESS);
    assert_eq!(machine.peek(word), 9);
    // Hardware may crash here, so nothing after it is checked.
    assert_ne!(machine.append(word, 1, stream), SUCCESS);
    let said = machine.diagnostics(DiagnosticKind::Undefined);
    assert!(said.iter().any(|text| text.contains("stream")), "{said:?}");
}

#[test]
fn parameter_values_are_copied_at_the_call() {
    let machine = Machine::new();
    let (word, stream) = (machine.zero(), machine.stream());
    let function = machine.function(c"store");
    let (mut address, mut value) = (word, 1u32);
    let mut list = [(&raw mut address).cast(), (&raw mut value).cast()];
    let (list, none) = (list.as_mut_ptr(), std::ptr::null_mut());
    let code = cu!(machine, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, list, none));
    assert_eq!(code, SUCCESS);
    value = 2;
    assert_eq!(machine.sync(stream), SUCCESS);
    assert_eq!((machine.peek(word), value), (1, 2));
}

#[test]
fn the_first_query_of_an_event_is_not_ready_and_the_second_is() {
    let machine = Machine::new();
    let (word, stream, event) = (machine.zero(), machine.stream(), machine.event());
    assert_eq!(machine.append(word, 1, stream), SUCCESS);
    assert_eq!(cu!(machine, cuEventRecord(event, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuEventQuery(event)), NOT_READY);
    assert_eq!(machine.peek(word), 0);
    assert_eq!(cu!(machine, cuEventQuery(event)), SUCCESS);
    assert_eq!(machine.peek(word), 1);
}

fn prompt(seed: u64) -> Machine {
    let order = Order::Prompt;
    Machine::with(with(Config::default(), |it| {
        it.order = order;
        it.seed = seed;
        it.memory_bytes = 1 << 24;
        it.threads = 1;
    }))
}

#[test]
fn the_prompt_order_runs_work_before_its_call_returns() {
    for seed in 0..8 {
        let machine = prompt(seed);
        let word = machine.zero();
        let (first, second) = (machine.stream(), machine.stream());
        assert_eq!(machine.append(word, 1, first), SUCCESS);
        assert_eq!(machine.peek(word), 1, "nobody waited");
        assert_eq!(cu!(machine, cuStreamQuery(first)), SUCCESS);
        assert_eq!(machine.append(word, 2, second), SUCCESS);
        assert_eq!(machine.append(word, 3, first), SUCCESS);
        assert_eq!(machine.peek(word), 0x123, "streams run in the order of the calls");
    }
}

#[test]
fn the_prompt_order_runs_nodes_in_order_of_addition() {
    for seed in 0..8 {
        let machine = prompt(seed);
        let (word, graph) = (machine.zero(), machine.graph());
        for digit in 1..=4 {
            machine.add(graph, c"append", word, digit, &[]);
        }
        let exec = machine.instantiate(graph).expect("the graph is valid");
        assert_eq!(cu!(machine, cuGraphLaunch(exec, machine.stream())), SUCCESS);
        assert_eq!(machine.peek(word), 0x1234);
    }
}

#[test]
fn a_fault_in_the_prompt_order_is_the_result_of_the_next_call() {
    let machine = prompt(0);
    let stream = machine.stream();
    assert_eq!(machine.append(0x10, 1, stream), SUCCESS);
    assert_eq!(machine.sync(stream), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(machine.diagnostics(DiagnosticKind::Fault).len(), 1);
}
