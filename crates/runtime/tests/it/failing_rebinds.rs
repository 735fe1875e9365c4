//! Rebinding while driver calls fail: the next update strategy is used, or the old bindings stay,
//! or the program reports that neither is possible. A step never mixes both memories.

use retrograph_driver_sys::CUresult;
use retrograph_runtime::{
    BuildError, GraphFailure, Policy, Program, Rebound, StepError, Strategy, UpdateStrategy,
};

use crate::failing_programs::{Bench, LOST, UNKNOWN, code_of, fallback};
use crate::mlp::MlpBuffers;

const SET: &str = "cuGraphExecKernelNodeSetParams_v2";
const INSTANTIATE: &str = "cuGraphInstantiateWithFlags";
const UPLOAD: &str = "cuMemcpyHtoDAsync_v2";

/// Calls that fail, the first update strategy, and the strategy that is then used.
type Case = (&'static [(&'static str, u64)], UpdateStrategy, UpdateStrategy);

const FOLLOWED: [Case; 4] = [
    (&[(SET, 1)], UpdateStrategy::KeepGraph, UpdateStrategy::Rebuild),
    (&[(SET, 3)], UpdateStrategy::KeepGraph, UpdateStrategy::Rebuild),
    // Without an event, memory is kept until the program ends.
    (&[("cuEventRecord", 1)], UpdateStrategy::KeepGraph, UpdateStrategy::SetNodeParams),
    (&[("cuEventCreate", 3)], UpdateStrategy::KeepGraph, UpdateStrategy::SetNodeParams),
];

/// Calls that fail, so that no update is left.
const UNFOLLOWED: [(&[(&str, u64)], UpdateStrategy); 8] = [
    (&[(SET, 1), (INSTANTIATE, 1)], UpdateStrategy::KeepGraph),
    (&[(SET, 3), (INSTANTIATE, 1)], UpdateStrategy::KeepGraph),
    (&[(SET, 3), ("cuGraphCreate", 1)], UpdateStrategy::KeepGraph),
    (&[(INSTANTIATE, 1)], UpdateStrategy::Rebuild),
    (&[("cuGraphAddKernelNode_v2", 4)], UpdateStrategy::Rebuild),
    (&[("cuGraphGetNodes", 1)], UpdateStrategy::Rebuild),
    (&[("cuGraphUpload", 1)], UpdateStrategy::Rebuild),
    (&[("cuGraphCreate", 1)], UpdateStrategy::Rebuild),
];

/// Shared by all cases of a test: a simulated device, and the states after each eager step.
struct Shared {
    bench: Bench,
    states: Vec<Vec<u32>>,
}

impl Shared {
    fn new(steps: u32) -> Self {
        let bench = Bench::new(0);
        let stream = &bench.device.stream;
        let buffers = bench.mlp.buffers(stream);
        let mut program = bench.build(&buffers, Policy::Eager).unwrap();
        let mut states = vec![buffers.state(stream)];
        for step in 0..steps {
            program.step(stream, &bench.mlp.controls(step)).unwrap();
            states.push(buffers.state(stream));
        }
        drop(program);
        Self { bench, states }
    }
}

/// A program after one step, with its memory and other memory.
struct Rebinding<'a> {
    shared: &'a Shared,
    bench: &'a Bench,
    program: Program,
    old: MlpBuffers,
    new: MlpBuffers,
}

impl<'a> Rebinding<'a> {
    fn new(shared: &'a Shared, policy: Policy) -> Self {
        let bench = &shared.bench;
        let [old, new] = [(), ()].map(|()| bench.mlp.buffers(&bench.device.stream));
        let mut program = bench.build(&old, policy).unwrap();
        program.step(&bench.device.stream, &bench.mlp.controls(0)).unwrap();
        Self { shared, bench, program, old, new }
    }

    fn fail(&self, calls: &[(&str, u64)], code: CUresult) {
        for (call, nth) in calls {
            self.bench.simulator.fail(call, *nth, code).unwrap();
        }
    }

    fn rebind(&mut self, least: UpdateStrategy) -> Result<Rebound, BuildError> {
        let bindings = self.bench.mlp.bindings(&self.new);
        self.program.rebind_from(least, &self.bench.device.stream, &bindings)
    }

    /// Does `steps` and compares the state of both memories after the same number of steps in each.
    fn check(&mut self, steps: std::ops::Range<u32>, old: usize, new: usize) {
        let stream = &self.bench.device.stream;
        for step in steps {
            self.program.step(stream, &self.bench.mlp.controls(step)).unwrap();
        }
        assert!(self.old.state(stream) == self.shared.states[old], "the old memory");
        assert!(self.new.state(stream) == self.shared.states[new], "the new memory");
    }
}

#[test]
fn an_update_that_fails_is_followed_by_the_next() {
    let shared = Shared::new(2);
    for (calls, least, update) in FOLLOWED {
        for policy in [Policy::Manual, Policy::Auto] {
            let mut case = Rebinding::new(&shared, policy);
            case.fail(calls, UNKNOWN);
            let rebound = case.rebind(least).unwrap();
            assert_eq!((rebound.update, rebound.strategy), (update, Strategy::Manual), "{calls:?}");
            for ((_, cause), (call, _)) in rebound.failed.iter().zip(calls) {
                assert_eq!(code_of(cause.call()), Some((*call, UNKNOWN)), "{cause}");
            }
            case.check(0..2, 1, 2);
        }
    }
}

#[test]
fn parameters_that_the_driver_refuses_to_set_are_followed_by_a_rebuild() {
    let shared = Shared::new(2);
    let mut case = Rebinding::new(&shared, Policy::Manual);
    let refused = CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    case.fail(&[(SET, 2)], refused);
    let rebound = case.rebind(UpdateStrategy::KeepGraph).unwrap();
    assert_eq!(rebound.update, UpdateStrategy::Rebuild);
    let [(UpdateStrategy::SetNodeParams, cause)] = &rebound.failed[..] else {
        panic!("{:?}", rebound.failed)
    };
    assert_eq!(code_of(cause.call()), Some((SET, refused)), "{cause}");
    case.check(0..2, 1, 2);
}

#[test]
fn without_an_update_the_old_step_stays() {
    let shared = Shared::new(3);
    for (calls, least) in UNFOLLOWED {
        let mut case = Rebinding::new(&shared, Policy::Manual);
        let before = case.bench.simulator.live();
        case.fail(calls, UNKNOWN);
        let error = case.rebind(least).unwrap_err();
        let (call, _) = calls.last().unwrap();
        assert_eq!(code_of(error.call()), Some((*call, UNKNOWN)), "{error}");
        let after = case.bench.simulator.live();
        assert_eq!(
            (after.graphs, after.graph_execs),
            (before.graphs, before.graph_execs),
            "{calls:?}"
        );
        case.check(1..3, 3, 0);
        // And the same rebind works when nothing fails.
        assert_eq!(
            case.rebind(UpdateStrategy::KeepGraph).unwrap().update,
            UpdateStrategy::SetNodeParams
        );
        case.check(0..2, 3, 2);
    }
}

#[test]
fn without_an_update_an_automatic_program_is_eager_with_the_new_memory() {
    let shared = Shared::new(20);
    for (calls, least) in UNFOLLOWED {
        let mut case = Rebinding::new(&shared, Policy::Auto);
        case.fail(calls, UNKNOWN);
        let rebound = case.rebind(least).unwrap();
        assert_eq!(
            (rebound.update, rebound.strategy),
            (UpdateStrategy::KeepGraph, Strategy::Eager)
        );
        let (call, _) = calls.last().unwrap();
        let (failure, _) = fallback(case.program.report());
        assert!(matches!(failure, GraphFailure::Rebind { .. }), "{failure}");
        assert_eq!(code_of(failure.call()), Some((*call, UNKNOWN)));
        case.check(0..2, 1, 2);
        assert_eq!(case.program.report().strategy, Strategy::Eager);
        // The graph that is tried again later has the new addresses.
        case.check(2..20, 1, 20);
        assert_eq!(case.program.report().strategy, Strategy::Manual);
    }
}

#[test]
fn tables_that_cannot_be_written_leave_the_old_step() {
    let shared = Shared::new(3);
    for call in [UPLOAD, "cuMemHostAlloc", "cuEventCreate"] {
        for policy in [Policy::Eager, Policy::Manual, Policy::Auto] {
            let mut case = Rebinding::new(&shared, policy);
            case.fail(&[(call, 1)], UNKNOWN);
            let error = case.rebind(UpdateStrategy::KeepGraph).unwrap_err();
            assert_eq!(code_of(error.call()), Some((call, UNKNOWN)), "{error}");
            case.check(1..3, 3, 0);
        }
    }
}

#[test]
fn a_program_that_can_neither_update_nor_go_back_is_given_up() {
    let shared = Shared::new(1);
    let mut case = Rebinding::new(&shared, Policy::Manual);
    // The second and third call of each belong to the way back.
    let calls = [(SET, 3), (SET, 4), (INSTANTIATE, 1), (INSTANTIATE, 2)];
    case.fail(&calls, UNKNOWN);
    let error = case.rebind(UpdateStrategy::KeepGraph).unwrap_err();
    let BuildError::GivenUp { cause } = error else { panic!("{error}") };
    assert!(matches!(*cause, StepError::HalfRebound { .. }), "{cause}");
    assert_eq!(code_of(cause.call()).unwrap().1, UNKNOWN);
    let stream = &case.bench.device.stream;
    let later = case.program.step(stream, &case.bench.mlp.controls(1)).unwrap_err();
    assert!(matches!(later, StepError::GivenUp { .. }), "{later}");
    assert!(matches!(later.first_cause(), StepError::HalfRebound { .. }), "{later}");
    assert!(case.old.state(stream) == shared.states[1], "no step was done with both");
    assert!(case.new.state(stream) == shared.states[0]);
    let again = case.rebind(UpdateStrategy::KeepGraph).unwrap_err();
    assert!(matches!(again, BuildError::GivenUp { .. }), "{again}");
}

#[test]
fn a_lost_context_shows_when_rebinding() {
    let shared = Shared::new(1);
    let mut case = Rebinding::new(&shared, Policy::Auto);
    case.fail(&[(SET, 2)], LOST);
    let error = case.rebind(UpdateStrategy::KeepGraph).unwrap_err();
    assert_eq!(code_of(error.call()), Some((SET, LOST)), "{error}");
    let step = case.program.step(&case.bench.device.stream, &case.bench.mlp.controls(1));
    assert_eq!(code_of(step.unwrap_err().call()), Some((SET, LOST)));
}
