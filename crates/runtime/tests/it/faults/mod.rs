//! Every driver call of a program fails once, in every plausible way: nothing leaks, nothing hangs,
//! and each step happens exactly once or an error names the call.
//!
//! The calls are not listed anywhere: they are counted in a run without a fault.

mod client;
mod codes;
mod out_of_memory;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use retrograph_driver_sim::{Config, DiagnosticKind, Simulator};
use retrograph_driver_sys::CUresult;
use retrograph_runtime::{Policy, UpdateStrategy};

use client::{Client, Life};
use codes::plausible;

/// The `nth` call of a function returns `code`.
#[derive(Clone, Copy)]
struct Fault {
    life: Life,
    call: &'static str,
    nth: u64,
    code: CUresult,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { life, call, nth, code } = self;
        write!(f, "{life:?}, call {nth} of {call} returns {code}")
    }
}

impl Fault {
    /// A capture into a graph that is made by hand cannot be ended in a lost context. It is then
    /// unknown whether the driver destroyed the graph, and a double free would be worse than a leak
    /// until the process ends.
    fn may_strand_a_graph(&self) -> bool {
        let captures_into = matches!(self.life.policy, Policy::Auto | Policy::Hybrid);
        self.code.is_sticky() && self.life.library && captures_into
    }
}

fn world() -> Arc<Simulator> {
    let mut config = Config::default();
    config.threads = 1;
    config.memory_bytes = 1 << 20;
    Arc::new(Simulator::new(config).unwrap())
}

/// Every fault of a whole life, and the state after its steps.
fn faults(life: Life) -> (Vec<Fault>, Vec<u32>) {
    let simulator = world();
    let expected = Client::new(&simulator, life).unwrap().run().unwrap();
    let calls = simulator.calls();
    let faults = calls.into_iter().flat_map(|(call, count)| {
        let codes = plausible(call);
        (1..=count).flat_map(move |nth| {
            let fault = move |code| Fault { life, call, nth, code };
            codes.clone().into_iter().map(fault)
        })
    });
    (faults.collect(), expected)
}

/// How a run with a fault ended.
#[derive(Debug, PartialEq, Eq)]
enum Ending {
    /// All steps happened.
    Done,
    /// An error named the call.
    Refused,
}

/// Runs with `fault` in a new simulator, and checks for leaks.
fn live_with(fault: &Fault, expected: &[u32]) -> Result<Ending, String> {
    let simulator = world();
    simulator.fail(fault.call, fault.nth, fault.code).unwrap();
    let ending = live(&simulator, fault, expected)?;
    left_of(&simulator, fault.may_strand_a_graph())?;
    Ok(ending)
}

fn live(simulator: &Arc<Simulator>, fault: &Fault, expected: &[u32]) -> Result<Ending, String> {
    let client = Client::new(simulator, fault.life);
    let outcome = client.as_ref().map_err(Clone::clone).and_then(Client::run);
    let ending = match outcome {
        Ok(state) if state == expected => Ending::Done,
        Ok(_) => return Err("a step happened twice or not at all".to_owned()),
        Err(error) if names(&error, fault) => Ending::Refused,
        Err(error) => return Err(format!("the error does not name the call: {error}")),
    };
    if fault.code.is_sticky() {
        client.map_or(Ok(()), |client| assert_lost(&client, fault))?;
        return Ok(ending);
    }
    // On the same stream if there is one, unless the fault was in dropping it.
    let happened = simulator.call_count(fault.call) >= fault.nth;
    let fresh = || Client::new(simulator, fault.life);
    let client = client.ok().filter(|_| happened).map_or_else(fresh, Ok);
    let again = client.and_then(|client| client.run());
    match again {
        Ok(state) if state == expected => Ok(ending),
        Ok(_) => Err("a fresh program computes something else".to_owned()),
        Err(error) => Err(format!("a fresh program fails: {error}")),
    }
}

/// In a lost context every operation fails and names the cause.
fn assert_lost(client: &Client, fault: &Fault) -> Result<(), String> {
    let Some(cause) = client.context.lost().cloned() else { return Ok(()) };
    let later = client.run().expect_err("a lost context works");
    match later.contains(&cause.to_string()) && cause.call == fault.call {
        true => Ok(()),
        false => Err(format!("lost by {cause}, and later {later}")),
    }
}

fn names(error: &str, fault: &Fault) -> bool {
    let lacking =
        fault.code == CUresult::CUDA_ERROR_OUT_OF_MEMORY && error.contains("cannot allocate");
    lacking || (error.contains(fault.call) && error.contains(&fault.code.0.to_string()))
}

/// Leaks and diagnostics after everything was dropped.
fn left(simulator: &Simulator) -> Result<(), String> {
    left_of(simulator, false)
}

fn left_of(simulator: &Simulator, may_be_a_graph: bool) -> Result<(), String> {
    let mut live = simulator.live();
    if may_be_a_graph && live.graphs == 1 {
        live.graphs = 0;
    }
    if !live.is_empty() {
        return Err(format!("{live} left"));
    }
    let told = |kind| matches!(kind, DiagnosticKind::Fault | DiagnosticKind::Capture);
    match simulator.diagnostics().iter().find(|said| !told(said.kind)) {
        Some(said) => Err(said.to_string()),
        None => Ok(()),
    }
}

/// Runs with each of `faults`, on all cores, and returns the failures.
fn live_with_all(faults: &[Fault], expected: &[u32]) -> (Vec<(Fault, Ending)>, Vec<String>) {
    let next = AtomicUsize::new(0);
    let (endings, wrong) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let work = || {
        while let Some(fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
            let lived = catch_unwind(AssertUnwindSafe(|| live_with(fault, expected)));
            match lived.unwrap_or_else(|_| Err("a panic".to_owned())) {
                Ok(ending) => endings.lock().push((*fault, ending)),
                Err(error) => wrong.lock().push(format!("{fault}: {error}")),
            }
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(4);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let wrong: Vec<String> = wrong.into_inner();
    (endings.into_inner(), wrong)
}

fn assert_survives(life: impl Into<Life>) -> Vec<(Fault, Ending)> {
    let (faults, expected) = faults(life.into());
    let (endings, wrong) = live_with_all(&faults, &expected);
    let shown: Vec<_> = wrong.iter().take(40).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), faults.len(), shown.join("\n"));
    // A late release, or a failed event record at the end of a step, costs no step.
    let late = ["Destroy", "Free", "Unload", "Release", "EventRecord"];
    assert_all_done(&endings, |fault| late.iter().any(|part| fault.call.contains(part)));
    assert!(endings.iter().any(|(_, ending)| *ending == Ending::Refused));
    endings
}

/// Asserts that no temporary failure of the calls that `which` selects prevents a step.
fn assert_all_done(endings: &[(Fault, Ending)], which: impl Fn(&Fault) -> bool) {
    let found = endings.iter().filter(|(fault, _)| !fault.code.is_sticky() && which(fault));
    let (done, refused): (Vec<_>, Vec<_>) = found.partition(|(_, how)| *how == Ending::Done);
    let refused: Vec<String> = refused.iter().map(|(fault, _)| fault.to_string()).collect();
    assert!(!done.is_empty() && refused.is_empty(), "{refused:#?}");
}

#[test]
fn every_call_of_an_automatic_program_fails_once_in_every_plausible_way() {
    let endings = assert_survives(Policy::Auto);
    // Whatever fails about graphs, the steps are done eagerly.
    assert_all_done(&endings, |fault| fault.call.starts_with("cuGraph"));
}

#[test]
fn every_call_of_a_manual_program_fails_once_in_every_plausible_way() {
    assert_survives(Policy::Manual);
}

#[test]
fn every_call_of_a_captured_program_fails_once_in_every_plausible_way() {
    assert_survives(Policy::Capture);
}

#[test]
fn every_call_of_an_eager_program_fails_once_in_every_plausible_way() {
    assert_survives(Policy::Eager);
}

/// Fails every call of a life in which the program is bound to other memory twice, and compares the
/// state with a life without rebinding.
fn assert_survives_rebinding(life: Life, least: UpdateStrategy) -> Vec<(Fault, Ending)> {
    let staying = Client::new(&world(), life).unwrap().run().unwrap();
    let moving = Client::new(&world(), life.rebinding(least)).unwrap().run().unwrap();
    assert_eq!(moving, staying, "a rebind changes no step");
    assert_survives(life.rebinding(least))
}

#[test]
fn every_call_of_rebinding_by_setting_parameters_fails_once_in_every_plausible_way() {
    let endings = assert_survives_rebinding(Policy::Manual.into(), UpdateStrategy::KeepGraph);
    // If parameters cannot be set, the graph is built again.
    assert_all_done(&endings, |fault| fault.call.contains("SetParams"));
}

#[test]
fn every_call_of_rebinding_by_building_again_fails_once_in_every_plausible_way() {
    for policy in [Policy::Manual, Policy::Capture] {
        assert_survives_rebinding(policy.into(), UpdateStrategy::Rebuild);
    }
}

#[test]
fn every_call_of_rebinding_an_automatic_program_fails_once_in_every_plausible_way() {
    let endings = assert_survives_rebinding(Policy::Auto.into(), UpdateStrategy::KeepGraph);
    assert_all_done(&endings, |fault| fault.call.starts_with("cuGraph"));
}

#[test]
fn every_call_of_a_program_with_a_library_fails_once_in_every_plausible_way() {
    let endings = assert_survives(Life::with_library(Policy::Auto));
    let graphs = ["cuGraph", "cuStreamBeginCapture", "cuStreamEndCapture"];
    assert_all_done(&endings, |fault| graphs.iter().any(|part| fault.call.starts_with(part)));
    for policy in [Policy::Hybrid, Policy::Capture, Policy::Eager] {
        assert_survives(Life::with_library(policy));
    }
}

#[test]
fn every_call_of_rebinding_a_program_with_a_library_fails_once_in_every_plausible_way() {
    for policy in [Policy::Hybrid, Policy::Capture] {
        assert_survives_rebinding(Life::with_library(policy), UpdateStrategy::KeepGraph);
    }
}
