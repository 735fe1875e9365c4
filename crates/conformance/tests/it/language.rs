//! Tests of the scenario language, with small scenarios on the simulator.

use std::fs;
use std::path::Path;

use retrograph_conformance::replay::play;
use retrograph_conformance::{Library, TraceFile};
use tempfile::TempDir;

/// A folder with one scenario file, `area/topic.txt`.
pub(crate) fn folder(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("scenarios/area")).unwrap();
    fs::write(folder.path().join("scenarios/area/topic.txt"), text).unwrap();
    folder
}

fn load(text: &str) -> Library {
    Library::load(&folder(text).path().join("scenarios"))
}

/// The outcome of every step of the only scenario in a text.
fn outcomes(text: &str) -> Vec<String> {
    let library = load(text);
    assert_eq!(library.mistakes, []);
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("images");
    let played = play(&library.scenarios[0], &images).unwrap();
    played.steps.into_iter().map(|(_, outcome)| outcome).collect()
}

fn names(library: &Library) -> Vec<&str> {
    library.scenarios.iter().map(|scenario| scenario.name.as_str()).collect()
}

#[test]
fn loops_make_every_combination_and_labels_appear_in_names() {
    let library = load(
        "scenario a/$x/$call\n  for x in 1 2\n  for call in one='cuInit $x' two=\"cuInit 0\"\n  \
         $call\nend\nscenario b/$p\n  for p,q in 3,4 5,6\n  cuInit $q\nend\n",
    );
    assert_eq!(names(&library), ["a/1/one", "a/1/two", "a/2/one", "a/2/two", "b/3", "b/5"]);
    let first = |at: usize| library.scenarios[at].steps.as_ref().unwrap()[0].text.clone();
    assert_eq!(
        (first(1), first(2), first(5)),
        ("cuInit 0".into(), "cuInit 2".into(), "cuInit 6".into())
    );
}

#[test]
fn snippets_take_arguments_and_use_each_other() {
    let library = load(
        "snippet inner N\n  cuInit $N\nend\nsnippet outer N\n  use inner $N\n  cuInit 0\nend\n\
         scenario a\n  use outer 7 # a comment\nend\n",
    );
    let steps = library.scenarios[0].steps.as_ref().unwrap();
    let texts: Vec<_> = steps.iter().map(|step| step.text.as_str()).collect();
    assert_eq!(texts, ["cuInit 7", "cuInit 0"]);
    assert_eq!(steps[0].place.line, 2);
}

#[test]
fn mistakes_name_their_line_and_leave_other_scenarios_alone() {
    let library = load(
        "scenario a\n  cuNothing 1\nend\nscenario b\n  cuInit\nend\nscenario c\n  cuInit 0\nend\n\
         scenario d\n  cuStreamCreate &s CU_NOT_THERE\nend\n",
    );
    let said = |at: usize| match &library.scenarios[at].steps {
        Ok(_) => String::new(),
        Err(mistake) => mistake.to_string().rsplit_once("topic.txt:").unwrap().1.to_owned(),
    };
    assert_eq!(said(0), "2: undefined function `cuNothing`");
    assert_eq!(said(1), "5: cuInit takes 1 arguments, not 0");
    assert_eq!(said(2), "");
    assert_eq!(said(3), "11: undefined constant `CU_NOT_THERE`");
}

#[test]
fn two_scenarios_with_the_same_name_are_a_mistake() {
    let library = load("scenario a\n  cuInit 0\nend\nscenario a\n  cuInit 0\nend\n");
    assert_eq!(library.mistakes.len(), 1);
    assert!(library.mistakes[0].to_string().contains("a name of its own"));
}

#[test]
fn handles_and_addresses_are_shown_by_the_variables_that_hold_them() {
    let shown = outcomes(
        "scenario a\n  use context\n  cuStreamCreate &s 1\n  cuCtxGetCurrent &other\n  \
         cuMemAlloc_v2 &p 64\n  cuMemsetD32_v2 p 7 16\n  read p+8 u32 4\n  \
         cuMemcpyHtoD_v2 p &h:u32[2]=1,2 8\n  read p u32 3\n  cuGraphCreate &g 0\n  \
         cuGraphAddMemsetNode &n g null 0 {dst=p+16, elementSize=4, width=2, height=1} context\n  \
         cuGraphMemsetNodeGetParams n &set\n  b: cuCtxGetCurrent &none\nend\n",
    );
    let shown: Vec<_> = shown.iter().skip(3).map(String::as_str).collect();
    assert_eq!(
        shown,
        [
            "0 CUDA_SUCCESS s=CUstream#1",
            "0 CUDA_SUCCESS other=context",
            "0 CUDA_SUCCESS p=addr",
            "0 CUDA_SUCCESS",
            "0 CUDA_SUCCESS read=[7*4]",
            "0 CUDA_SUCCESS",
            "0 CUDA_SUCCESS read=[1, 2, 7]",
            "0 CUDA_SUCCESS g=CUgraph#1",
            "0 CUDA_SUCCESS n=CUgraphNode#1",
            "0 CUDA_SUCCESS set={dst=p+16 elementSize=4 width=2 height=1}",
            "0 CUDA_SUCCESS none=null",
        ]
    );
}

#[test]
fn host_functions_write_the_log_in_the_order_of_their_stream() {
    let shown = outcomes(
        "scenario a\n  use context\n  cuStreamCreate &s 1\n  cuLaunchHostFunc s hostfn(one) null\n\
         \x20 cuLaunchHostFunc s hostfn(two) null\n  cuStreamSynchronize s\n  log\nend\n",
    );
    assert_eq!(shown.last().map(String::as_str), Some("log=[one, two]"));
}

#[test]
fn unwritten_and_unrecorded_outputs_differ_from_results() {
    let shown = outcomes(
        "scenario a\n  cuGetErrorName 901 &name\n  cuGetErrorName 4242 &name\n  cuInit 0\n  \
         cuDeviceGetCount &_count\n  cuDeviceGet &d 99\n  show _count\nend\n",
    );
    assert_eq!(shown[0], "0 CUDA_SUCCESS name=\"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED\"");
    assert_eq!(shown[3], "0 CUDA_SUCCESS");
    assert_eq!(shown[4], "101 CUDA_ERROR_INVALID_DEVICE d=-");
    assert_eq!(shown[5], "_count=1");
}

#[test]
fn unions_with_one_public_field_are_shown_and_fields_of_the_driver_are_not() {
    let shown = outcomes(
        "scenario a\n  cuInit 0\n  cuDeviceGetDevResource 0 &all CU_DEV_RESOURCE_TYPE_SM\n  \
         show all.sm.smCount\n  \
         cuDevSmResourceSplitByCount &parts[3] &groups=2 all null 0 64\nend\n",
    );
    let sizes = "minSmPartitionSize=8 smCoscheduledAlignment=8";
    let all = format!("{{type=1 anonymous={{smCount=132 {sizes}}}}}");
    assert_eq!(shown[1], format!("0 CUDA_SUCCESS all={all}"));
    assert_eq!(shown[2], "all.sm.smCount=132");
    let part = "{type=1 anonymous={smCount=64}}";
    assert_eq!(shown[3], format!("0 CUDA_SUCCESS parts=[{part}, {part}, -] groups=2"));
}

#[test]
fn a_scenario_has_one_device_unless_it_asks_for_two_or_none() {
    let devices = |first: &str| {
        let text = format!("scenario a\n  {first}\n  cuInit 0\n  cuDeviceGetCount &n\nend\n");
        outcomes(&text).pop().unwrap()
    };
    assert_eq!(devices("two_devices"), "0 CUDA_SUCCESS n=2");
    assert_eq!(devices("cuInit 0"), "0 CUDA_SUCCESS n=1");
    assert_eq!(devices("no_devices"), "3 CUDA_ERROR_NOT_INITIALIZED n=-");
}

#[test]
fn traces_round_trip() {
    let text = "# driver: 1\n# gpu: x\n\nscenario a\n  cuInit 0 -> 0 CUDA_SUCCESS\n  \
                log -> log=[a, b]\nend\n";
    let file = TraceFile::parse(text);
    assert_eq!(file.text(), text);
    assert_eq!(file.find("a").unwrap().steps[1], ("log".to_owned(), "log=[a, b]".to_owned()));
}
