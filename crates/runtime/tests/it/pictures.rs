//! Pictures: well-formed, each operation once, and the critical path is the longest path.

use std::collections::BTreeSet;

use proptest::prelude::*;
use retrograph_runtime::{CaptureMode, OpId, OperationTime, Pass, Profile, graph_to_svg};
use roxmltree::{Document, Node};

use crate::described;
use crate::device::{Device, assert_works, device};
use crate::mlp::Mlp;

/// The operations of a picture, each of which must be there once.
fn operations<'a>(document: &'a Document<'_>) -> Vec<Node<'a, 'a>> {
    let mut found: Vec<(usize, Node<'_, '_>)> = document
        .descendants()
        .filter_map(|node| Some((node.attribute("data-op")?.parse().unwrap(), node)))
        .collect();
    found.sort_by_key(|(at, _)| *at);
    for (expected, (at, _)) in found.iter().enumerate() {
        assert_eq!(expected, *at, "each operation is drawn once");
    }
    found.into_iter().map(|(_, node)| node).collect()
}

/// The operations that are framed as critical.
fn critical(operations: &[Node<'_, '_>]) -> BTreeSet<usize> {
    let is_critical = |at: &usize| operations[*at].attribute("class") == Some("op critical");
    (0..operations.len()).filter(is_critical).collect()
}

fn tooltip<'a>(operation: &Node<'a, 'a>) -> &'a str {
    operation.first_element_child().and_then(|title| title.text()).unwrap()
}

fn number(node: &Node<'_, '_>, name: &str) -> f32 {
    node.attribute(name).unwrap().parse().unwrap()
}

/// A profile with the given times of the first operations.
fn profile(pass: &Pass, times: &[f32]) -> Profile {
    let operation = |(operation, ms): (usize, &f32)| {
        let held = &pass.operations()[operation];
        let (name, kernel) = (held.name().to_owned(), held.verb().to_owned());
        OperationTime { operation, name, kernel, ms: *ms }
    };
    let mut profile = Profile::of(pass.name(), &device().context, 3).unwrap();
    profile.device = "a <device>".to_owned();
    profile.simulated = true;
    profile.operations = times.iter().enumerate().map(operation).collect();
    profile
}

/// The largest sum of times along edges, by trying every operation as the end of a path.
fn heaviest(pass: &Pass, times: &[f32]) -> f32 {
    let edges = pass.edges();
    let mut ends = vec![0.0f32; times.len()];
    for to in 0..times.len() {
        let before = edges.iter().filter(|edge| edge.to.index() == to);
        let start = before.map(|edge| ends[edge.from.index()]).fold(0.0, f32::max);
        ends[to] = start + times[to];
    }
    ends.into_iter().fold(0.0, f32::max)
}

#[test]
fn a_planned_picture_shows_the_longest_path() {
    let pass = Mlp::new().pass;
    let svg = pass.to_svg(None);
    let document = Document::parse(&svg).unwrap();
    let drawn = operations(&document);
    assert_eq!(drawn.len(), pass.operations().len());
    let longest: BTreeSet<_> = pass.edges().longest_path().into_iter().map(OpId::index).collect();
    assert_eq!(critical(&drawn), longest);
    let first = tooltip(&drawn[0]);
    assert!(
        first.starts_with(
            "#0 controls/fetch_step_parameters\nkernel fetch_step_parameters\nreads 0 bytes, "
        ),
        "{first}"
    );
    assert!(svg.contains("planned") && !svg.contains("SIMULATED"), "there are no times in it");
    let scopes: BTreeSet<_> =
        document.descendants().filter_map(|node| node.attribute("data-scope")).collect();
    assert_eq!(scopes, BTreeSet::from(["backward", "controls", "forward", "update"]));
    let edges = document.descendants().filter(|node| node.tag_name().name() == "path").count();
    assert_eq!(edges, pass.edges().len());
    assert!(document.descendants().all(|node| node.tag_name().name() != "script"));
}

#[test]
fn with_times_width_is_time_and_the_critical_path_is_the_heaviest() {
    let pass = Mlp::new().pass;
    let times: Vec<f32> =
        (0..pass.operations().len()).map(|at| 1.0 + (at * 7 % 5) as f32).collect();
    let svg = pass.to_svg(Some(&profile(&pass, &times)));
    let document = Document::parse(&svg).unwrap();
    let drawn = operations(&document);
    let along: f32 = critical(&drawn).into_iter().map(|at| times[at]).sum();
    assert_eq!(along, heaviest(&pass, &times));
    assert!(
        svg.contains(&format!("critical path: {along:.3} ms of {:.3}", times.iter().sum::<f32>()))
    );
    assert!(svg.contains("SIMULATED") && svg.contains("a &lt;device&gt;"));
    let frames: Vec<_> = drawn
        .iter()
        .map(|node| node.children().find(|child| child.has_tag_name((SVG, "rect"))).unwrap())
        .collect();
    let scale = number(&frames[0], "width") / times[0];
    for (frame, time) in frames.iter().zip(&times) {
        assert!((number(frame, "width") - time * scale).abs() < 0.2, "{time}");
    }
    assert!(tooltip(&drawn[1]).ends_with("3000.0 µs"), "{}", tooltip(&drawn[1]));
}

const SVG: &str = "http://www.w3.org/2000/svg";

#[test]
fn thousands_of_operations_stay_readable_and_names_stay_text() {
    let mut pass = Pass::new("many <operations> & \"more\"");
    let buffers: Vec<_> = (0..50).map(|at| pass.external::<f32>(format!("b{at}"), 64)).collect();
    for layer in 0..60 {
        pass.set_scope(format!("layer {layer}/shift <{}>", layer % 2));
        for pair in buffers.windows(2) {
            pass.copy(pair[0], pair[1]).unwrap();
        }
    }
    let times = vec![0.002; pass.operations().len()];
    for svg in [pass.to_svg(None), pass.to_svg(Some(&profile(&pass, &times)))] {
        let document = Document::parse(&svg).unwrap();
        assert_eq!(operations(&document).len(), 60 * 49);
        let root = document.root_element();
        assert!(number(&root, "width") < 100_000.0, "{:?}", root.attribute("width"));
        assert!(root.attribute("viewBox").is_some());
        let scopes = document.descendants().filter(|node| node.attribute("data-scope").is_some());
        assert_eq!(scopes.count(), 1, "layers are one family: {}", &svg[..300]);
        assert!(svg.len() < 4 << 20);
    }
}

#[test]
fn a_captured_graph_is_drawn_and_reported_like_a_pass() {
    let Device { context, stream } = device();
    let buffer = retrograph_runtime::DeviceBuffer::<u32>::zeroed(&context, 8).unwrap();
    let graph = stream
        .capture(CaptureMode::ThreadLocal, |capturing| {
            capturing.keep(buffer.owner());
            // SAFETY: the range is the whole buffer, which the graph keeps.
            unsafe {
                capturing.stream().memset_d32(buffer.address(), 1, 8)?;
                capturing.stream().memset_d32(buffer.address(), 2, 4)
            }
        })
        .unwrap();
    assert_eq!(graph.report().unwrap().to_string(), "2 nodes, 1 edges, depth 2: 2 × fill");
    let svg = graph_to_svg(&graph, None).unwrap();
    let document = Document::parse(&svg).unwrap();
    let drawn = operations(&document);
    assert_eq!(critical(&drawn), BTreeSet::from([0, 1]));
    assert!(tooltip(&drawn[1]).contains("fill"));
    let profile = graph.profile(&stream, 2).unwrap();
    let measured = graph_to_svg(&graph, Some(&profile)).unwrap();
    assert!(measured.contains("medians of 2 replays"), "{measured}");
    assert_eq!(measured.contains("SIMULATED: "), context.driver().is_simulated());
    assert_works(&stream);
}

#[test]
fn a_trace_has_each_operation_once_on_a_track_without_overlap() {
    let mut pass = Pass::new("fork");
    let [input, one, two] = ["input", "one", "two"].map(|name| pass.external::<f32>(name, 8));
    let sum = pass.transient::<f32>("sum", 8);
    pass.set_scope("there");
    pass.copy(input, sum).unwrap();
    pass.set_scope("back");
    pass.copy(sum, one).unwrap();
    pass.copy(sum, two).unwrap();
    let measured = profile(&pass, &[1.0, 2.0, 4.0]);
    let trace: serde_json::Value = serde_json::from_str(&pass.to_trace(&measured)).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let spans: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    let number = |event: &serde_json::Value, field: &str| event[field].as_f64().unwrap();
    let found: Vec<_> = spans
        .iter()
        .map(|event| (number(event, "tid"), number(event, "ts"), number(event, "dur")))
        .collect();
    // The longer copy is on the critical path; the other one runs concurrently.
    assert_eq!(found, [(0.0, 0.0, 1e3), (1.0, 1e3, 2e3), (0.0, 1e3, 4e3)]);
    assert_eq!((&spans[0]["cat"], &spans[2]["cat"]), (&"there".into(), &"back".into()));
    assert_eq!(spans[0]["args"]["bytes read"], 32);
    let names: Vec<_> = events.iter().filter(|event| event["ph"] == "M").collect();
    assert_eq!(names.len(), 3, "a process and two tracks");
    assert_eq!(trace["otherData"]["schedule_ms"], 5.0);
}

#[test]
fn a_pass_without_operations_is_a_picture_too() {
    for svg in
        [Pass::new("").to_svg(None), Pass::new("x").to_svg(Some(&profile(&Pass::new("x"), &[])))]
    {
        assert!(operations(&Document::parse(&svg).unwrap()).is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_pass_is_drawn_whole(described in described::described(40)) {
        let pass = described.pass();
        let svg = pass.to_svg(None);
        let document = Document::parse(&svg).unwrap();
        let drawn = operations(&document);
        prop_assert_eq!(drawn.len(), pass.operations().len());
        let longest: BTreeSet<_> =
            pass.edges().longest_path().into_iter().map(OpId::index).collect();
        prop_assert_eq!(critical(&drawn), longest);
    }
}
