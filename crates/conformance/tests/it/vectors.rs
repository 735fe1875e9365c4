//! The simulator reproduces every recorded vector.

use std::path::Path;

use retrograph_conformance::Folders;
use retrograph_conformance::vectors::{plan, verify};

#[test]
fn instructions_match_the_recordings_on_hardware() {
    let folders = Folders::under(Path::new(env!("CARGO_MANIFEST_DIR")));
    let report = verify(&folders.vectors, "");
    for one in &report.wrong {
        eprintln!("{}: {} of {} cases, such as", one.name, one.wrong.0, one.wrong.1);
        let (sources, expected, actual) = (&one.sources, &one.expected, &one.actual);
        eprintln!("    {sources:x?}: hardware {expected:x?}, simulator {actual:x?}");
    }
    assert_eq!(report.unsupported, Vec::new(), "recorded, and not simulated");
    assert_eq!(report.orphans, Vec::<String>::new(), "recorded, and not in the table");
    assert_eq!(report.missing, Vec::<String>::new(), "record them on a GPU");
    assert_eq!(report.wrong.len(), 0, "of {} instructions", report.instances);
    assert!(report.cases > 100_000, "only {} cases", report.cases);
}

#[test]
fn every_form_has_vectors_or_a_reason() {
    let plan = plan("");
    assert!(plan.covered_forms > 250, "only {} forms", plan.covered_forms);
    for one in &plan.uncovered {
        assert!(one.reason.len() > 20, "{}: {}", one.form, one.reason);
    }
    for one in &plan.instances {
        assert!(one.cases >= 32 && one.cases % 32 == 0, "{}: {} cases", one.name, one.cases);
    }
}
