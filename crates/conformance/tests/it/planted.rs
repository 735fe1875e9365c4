//! Negative control: replay detects a planted difference, a missing or stale trace, and a wrong
//! list of differences.

use std::fs;

use retrograph_conformance::Folders;
use retrograph_conformance::replay::{Report, replay};

use crate::language::folder;

const SCENARIO: &str = "scenario a\n  cuInit 0\n  cuInit 1\nend\n";
const TRACE: &str = "scenario a\n  cuInit 0 -> 0 CUDA_SUCCESS\n  \
                     cuInit 1 -> 1 CUDA_ERROR_INVALID_VALUE\nend\n";

/// Replays a scenario file with a trace file and a list of differences.
fn report(trace: &str, differences: &str) -> Report {
    let folder = folder(SCENARIO);
    fs::create_dir_all(folder.path().join("traces/area")).unwrap();
    fs::write(folder.path().join("traces/area/topic.txt"), trace).unwrap();
    fs::write(folder.path().join("differences.txt"), differences).unwrap();
    replay(&Folders::under(folder.path()), "")
}

#[test]
fn a_trace_that_agrees_attests_its_errors() {
    let report = report(TRACE, "");
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.agreeing, report.steps), (1, 2));
    let index = report.index();
    assert!(index.lines().any(|line| line.ends_with(" cuInit 1 a")), "{index}");
}

#[test]
fn another_code_is_a_difference_at_its_step() {
    let report = report(&TRACE.replace("1 CUDA_ERROR_INVALID_VALUE", "3 CUDA_ERROR_X"), "");
    assert!(!report.is_clean());
    let one = &report.differences[0];
    assert!(one.place.ends_with("topic.txt:3"), "{}", one.place);
    assert_eq!(
        (one.expected.as_str(), one.actual.as_str()),
        ("3 CUDA_ERROR_X", "1 CUDA_ERROR_INVALID_VALUE")
    );
    assert!(report.attested.is_empty(), "the error is not what hardware gave");
}

#[test]
fn a_listed_difference_is_expected_and_must_be_one() {
    let wrong = TRACE.replace("1 CUDA_ERROR_INVALID_VALUE", "3 CUDA_ERROR_X");
    assert!(report(&wrong, "# why\na because\n").is_clean());
    let outdated = report(TRACE, "a because\n");
    assert_eq!(outdated.outdated, ["a"]);
    assert!(!outdated.is_clean());
}

#[test]
fn a_file_or_scenario_is_listed_as_unrecorded_until_it_has_a_trace() {
    let of = |listed: &str, scenario: &str, trace: &str| {
        let folder = folder(scenario);
        fs::create_dir_all(folder.path().join("traces/area")).unwrap();
        fs::write(folder.path().join("traces/area/topic.txt"), trace).unwrap();
        fs::write(folder.path().join("unrecorded.txt"), format!("{listed}\n")).unwrap();
        replay(&Folders::under(folder.path()), "")
    };
    let report = |scenario: &str, trace: &str| of("area/topic", scenario, trace);
    let missing = report(SCENARIO, "");
    assert!(missing.is_clean(), "{missing:?}");
    assert_eq!((missing.unrecorded, missing.replayed), (1, 0));
    assert!(missing.attested.is_empty(), "no hardware gave the error");
    assert_eq!(report(SCENARIO, TRACE).outdated, ["area/topic"]);
    assert_eq!(report("scenario a\n  cuNothing\nend\n", "").mistakes.len(), 1);

    // A file may have traces of its other scenarios.
    let two = format!("{SCENARIO}scenario b\n  cuInit 0\nend\n");
    let partial = of("b", &two, TRACE);
    assert!(partial.is_clean(), "{partial:?}");
    assert_eq!((partial.unrecorded, partial.replayed), (1, 1));
    assert_eq!(of("a", SCENARIO, TRACE).outdated, ["a"]);
    assert_eq!(of("c", SCENARIO, TRACE).outdated, ["c"], "no such scenario");
}

#[test]
fn missing_stale_and_orphaned_traces_are_reported() {
    assert_eq!(report("", "").untraced, [("a".to_owned(), "no trace")]);
    let stale = TRACE.replace("cuInit 1", "cuInit 2");
    assert_eq!(report(&stale, "").untraced, [("a".to_owned(), "the trace is of other steps")]);
    let more = format!("{TRACE}scenario b\n  cuInit 0 -> 0 CUDA_SUCCESS\nend\n");
    assert_eq!(report(&more, "").orphans, ["b"]);
}

#[test]
fn a_crash_of_hardware_matches_undefined_behavior_of_the_simulator() {
    let crash = TRACE.replace("1 CUDA_ERROR_INVALID_VALUE", "crash");
    assert_eq!(report(&crash, "").differences.len(), 1, "it returned a code instead");
}
