//! The simulator reproduces every recorded scenario.

use std::path::Path;

use retrograph_conformance::Folders;
use retrograph_conformance::replay::replay;

#[test]
fn the_simulator_matches_the_recordings_on_hardware() {
    let report = replay(&Folders::under(Path::new(env!("CARGO_MANIFEST_DIR"))), "");
    for one in &report.differences {
        eprintln!("{} ({})\n    {}", one.scenario, one.place, one.step);
        eprintln!("    hardware:  {}\n    simulator: {}", one.expected, one.actual);
    }
    assert_eq!(report.mistakes, Vec::<String>::new());
    assert_eq!(report.untraced, Vec::new(), "record them on a GPU");
    assert_eq!(report.orphans, Vec::<String>::new(), "traces without a scenario");
    assert_eq!(report.outdated, Vec::<String>::new(), "listed as different, and are not");
    assert_eq!(report.differences.len(), 0, "of {} scenarios", report.replayed);
    assert!(report.agreeing >= 200, "only {} scenarios agree", report.agreeing);
}
