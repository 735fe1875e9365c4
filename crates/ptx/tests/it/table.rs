//! Every line of `accepted.ptx` through the parser, the printer and `ptxas`.

use retrograph_ptx::ast::{Module, Statement};
use retrograph_ptx::instructions::Opcode;
use retrograph_ptx::parse;

use crate::ptxas;

/// The line of the first statement in [`module_around`].
pub(crate) const FIRST_LINE: usize = 16;

/// A module around one or more statements, with registers and variables of every kind.
pub(crate) fn module_around(version: &str, target: &str, statements: &str) -> String {
    // Registers of 128 bits came with PTX ISA 8.3.
    let wide = if version >= "8.3" { " .reg .b128 %q<5>;" } else { "" };
    format!(
        ".version {version}
.target {target}
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.global .align 4 .f32 table[4] = {{0f3F800000, 2.0, 0.5}};
.const .align 4 .f32 constants[4] = {{1.0}};
.func (.param .b32 result) callee (.param .b32 argument) {{ ret; }}
.func action () {{ ret; }} .func taker (.param .b32 argument) {{ ret; }} \
.func (.param .b32 result) giver () {{ ret; }}
.visible .entry kernel(.param .u64 p)
{{
.reg .pred %p<9>; .reg .f32 %f<129>; .reg .f64 %fd<9>; .reg .b16 %h<9>; .reg .b8 %b<9>;
.reg .b32 %r<9>; .reg .b64 %rd<9>;
.shared .align 16 .b8 tile[64];
.local .align 16 .b8 stack[16];
.param .b32 given; .param .b32 got; targets: .branchtargets done, done;{wide} \
to_callee: .callprototype (.param .b32 _) _ (.param .b32 _); to_action: .callprototype () _ (); \
to_taker: .callprototype () _ (.param .b32 _); to_giver: .callprototype (.param .b32 _) _ ();
{statements}
done:
ret;
}}
"
    )
}

/// The lines of `accepted.ptx` with the version and target that each needs.
fn lines() -> Vec<(&'static str, &'static str, &'static str)> {
    let lines = include_str!("accepted.ptx").lines().filter(|line| !line.starts_with("//"));
    lines
        .map(|line| match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
            Some((needs, text)) => {
                let (version, target) = needs.split_once(' ').expect("a version and a target");
                (version, target, text)
            }
            None => ("6.3", "sm_75", line),
        })
        .collect()
}

#[test]
fn each_line_is_parsed_and_printed_back_to_the_same_module() {
    for (version, target, text) in lines() {
        let module = parse(&module_around(version, target, text))
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        let printed = module.to_string();
        let again = parse(&printed).unwrap_or_else(|error| panic!("{printed}: {error}"));
        assert_eq!(again, module, "{printed}");
    }
}

#[test]
fn ptxas_accepts_each_line_as_written_and_as_printed() {
    let mut groups: Vec<((&str, &str), Vec<&str>)> = Vec::new();
    for (version, target, text) in lines() {
        match groups.iter_mut().find(|(needs, _)| *needs == (version, target)) {
            Some((_, group)) => group.push(text),
            None => groups.push(((version, target), vec![text])),
        }
    }
    for ((version, target), group) in groups {
        let text = module_around(version, target, &group.join("\n"));
        ptxas::must_assemble(&text, target);
        ptxas::must_assemble(&parse(&text).unwrap().to_string(), target);
    }
}

#[test]
fn a_line_that_needs_a_newer_version_is_rejected_without_it() {
    let newer = lines().into_iter().filter(|&(version, _, _)| version != "6.3");
    for (version, _, text) in newer {
        let error = parse(&module_around("6.3", "sm_75", text)).unwrap_err();
        assert!(error.help.contains(&format!("PTX ISA {version}")), "{text}: {error}");
    }
}

#[test]
fn every_opcode_has_a_line() {
    let mut missing: Vec<Opcode> = Opcode::ALL.to_vec();
    for (version, target, text) in lines() {
        let module = parse(&module_around(version, target, text)).unwrap();
        missing.retain(|&opcode| !uses(&module, opcode));
    }
    assert_eq!(missing, [], "opcodes without a line in accepted.ptx");
}

fn uses(module: &Module, opcode: Opcode) -> bool {
    module.entries[0].body.iter().any(|statement| match statement {
        Statement::Instruction(instruction) => instruction.opcode == opcode,
        Statement::Label(_) => false,
    })
}
