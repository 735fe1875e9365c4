//! Long texts: the time to parse and validate them grows linearly.

use std::time::{Duration, Instant};

use retrograph_ptx::{parse, validate};

/// Names or blocks of a text. A parser that takes quadratic time needs more than half a minute.
const N: usize = 200_000;

fn module(text: &str) -> String {
    format!(".version 7.0\n.target sm_80\n.address_size 64\n{text}")
}

fn entry(body: &str) -> String {
    module(&format!(".visible .entry e() {{ {body} ret; }}"))
}

fn numbered(text: impl Fn(usize) -> String) -> String {
    (0..N).map(text).collect()
}

#[test]
fn the_time_to_parse_and_validate_grows_linearly() {
    let (open, close) = ("{".repeat(N), "}".repeat(N));
    let parameters = (0..N).map(|i| format!(".param .u32 p{i}")).collect::<Vec<_>>().join(", ");
    let variables = numbered(|i| format!(".global .u32 v{i};"));
    let texts = [
        ("nested blocks", entry(&format!("{open}{close}"))),
        ("labels of nested blocks", entry(&format!("{}{close}", numbered(|i| format!("{{L{i}:"))))),
        (
            "uses in the innermost block",
            entry(&format!(".reg .u32 a, b;{open}{}{close}", "mov.u32 a, b;".repeat(N))),
        ),
        ("one name in many blocks", entry(&"{ .reg .u32 a; }".repeat(N))),
        ("one label in many blocks", entry(&"{ a: bra a; }".repeat(N))),
        (
            "registers",
            entry(&format!(
                "{}{}",
                numbered(|i| format!(".reg .u32 r{i};")),
                numbered(|i| format!("mov.u32 r{i}, 0;"))
            )),
        ),
        ("parameters", module(&format!(".func f({parameters}) {{ ret; }}"))),
        (
            "variables and entries",
            module(&(variables + &numbered(|i| format!(".entry e{i}() {{}}")))),
        ),
        ("functions", module(&numbered(|i| format!(".func f{i}() {{ ret; }}")))),
    ];
    for (name, text) in texts {
        let start = Instant::now();
        let parsed = parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        validate(&parsed).unwrap_or_else(|error| panic!("{name}: {error}"));
        let time = start.elapsed();
        assert!(time < Duration::from_secs(15), "{name}: {time:?}");
    }
}
