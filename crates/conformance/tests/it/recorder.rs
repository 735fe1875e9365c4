//! The recorder, with a shell script in place of the process that runs a scenario.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use retrograph_conformance::record::{Recorded, Recording, record};

use crate::language::folder;

const SCENARIOS: &str = "scenario one\n  cuInit 0\nend\n\
                         scenario two\n  two_devices\n  cuInit 0\nend\n\
                         scenario dies\n  cuInit 0\n  cuInit 1\nend\n";

/// The answers of a machine with this number of devices. The scenario `dies` ends its process
/// after the first step.
fn script(devices: usize) -> String {
    format!(
        "case $1 in\n\
         count) echo {devices} ;;\n\
         describe) echo 'gpu: none' ;;\n\
         one) printf 'outcome\\tdone\\n'\n\
         [ $3 = dies ] && kill -9 $$\n\
         printf 'outcome\\tdone\\n' ;;\n\
         esac\n\
         echo end\n"
    )
}

/// Records all scenarios in a folder, one after the other.
fn recorded(folder: &Path, devices: usize, only_missing: bool) -> Recorded {
    fs::write(folder.join("child.sh"), script(devices)).unwrap();
    let program = [OsString::from("sh"), folder.join("child.sh").into_os_string()];
    let recording = Recording {
        program: program.to_vec(),
        scenarios: folder.join("scenarios"),
        out: folder.join("traces"),
        jobs: 1,
        filter: String::new(),
        only_missing,
    };
    record(&recording, &|_, _, _| {}).unwrap()
}

fn traces(folder: &Path) -> String {
    fs::read_to_string(folder.join("traces/area/topic.txt")).unwrap()
}

#[test]
fn a_scenario_on_two_devices_is_skipped_by_name_on_a_machine_with_one() {
    let folder = folder(SCENARIOS);
    let first = recorded(folder.path(), 1, false);
    assert_eq!((first.traces, first.skipped), (2, vec!["two".to_owned()]));
    assert!(!traces(folder.path()).contains("scenario two\n"));

    let second = recorded(folder.path(), 2, true);
    assert_eq!((second.traces, second.skipped), (1, Vec::new()));
    assert!(traces(folder.path()).contains("scenario one\n  cuInit 0 -> done\nend\n"));
    assert!(traces(folder.path()).contains("scenario two\n  two_devices -> done\n"));
}

#[test]
fn a_scenario_that_kills_its_process_leaves_the_others() {
    let folder = folder(SCENARIOS);
    let recorded = recorded(folder.path(), 2, false);
    assert_eq!(recorded.traces, 3);
    assert_eq!(recorded.cut_short, [("dies".to_owned(), "cuInit 1 -> crash".to_owned())]);
    let text = traces(folder.path());
    assert!(text.contains("  cuInit 0 -> done\n  cuInit 1 -> crash\n"), "{text}");
    assert_eq!(text.matches("scenario ").count(), 3);
}
