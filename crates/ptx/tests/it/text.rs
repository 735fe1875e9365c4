//! PTX as written by compilers and by hand.

use retrograph_ptx::ast::{
    AddressBase, Immediate, Linkage, Opcode, Operand, StateSpace, Statement, Symbol, Type,
};
use retrograph_ptx::{IsaVersion, SmTarget, parse};

use crate::ptxas;

/// In the manner of a compiler: linkage, attributes, debug directives, an inner block, registers
/// with one name, decimal floats, generic addresses and labels with dollars.
const COMPILED: &str = r#"
//
// Made by hand in the manner of a compiler.
//
.version 7.8
.target sm_80, debug
.address_size 64

	.file 1 "scale.cu", 1700000000, 312
.extern .shared .align 16 .b8 smem[];
.visible .global .align 4 .u32 counter;
.const .align 8 .b8 weights[8] = {1, 0x2, 3};

.weak .entry _Z5scalePfi(
	.param .u64 .ptr .global .align 4 _Z5scalePfi_param_0,
	.param .u32 _Z5scalePfi_param_1,
	.param .align 8 .b8 _Z5scalePfi_param_2[16]
)
.maxntid 256, 1, 1
.minnctapersm 2
{
	.pragma "nounroll";
	.reg .pred 	%p<2>;
	.reg .f32 	%f<4>;
	.reg .b32 	%r<5>, count;
	.reg .b64 	%rd<5>;
	.shared .align 4 .f32 tile[32];
	.local .align 8 .b8 	__local_depot0[16];

	.loc	1 12 5, function_name $L__info_string0, inlined_at 1 3 1
	ld.param.u64 	%rd1, [_Z5scalePfi_param_0];
	ld.param.u32 	%r2, [_Z5scalePfi_param_1];
	ld.param.u64 	%rd4, [_Z5scalePfi_param_2+8];
	cvta.to.global.u64 	%rd2, %rd1;
	mov.u32 	%r3, %tid.x;
	setp.ge.s32 	%p1, %r3, %r2;
	@%p1 bra 	$L__BB0_2;
	bra.uni 	$L__BB0_1;

$L__BB0_1:
	mul.wide.s32 	%rd3, %r3, 4; /* bytes */
	add.s64 	%rd3, %rd2, %rd3;
	ld.global.f32 	%f1, [%rd3+-4];
	{
	.reg .f32 %f<2>;
	mul.f32 	%f1, 0f3F000000, 2.5;
	st.shared.f32 	[tile+4], %f1;
	}
	{ .reg .b32 count; mov.b32 count, -1; }
	fma.rn.f32 	%f2, %f1, 0f40000000, -1.5e-1;
	mov.u32 	count, smem;
	st.global.f32 	[%rd3+-4], %f2;

$L__BB0_2:
	ret;
}
"#;

#[test]
fn output_of_compilers_parses() {
    let module = parse(COMPILED).unwrap_or_else(|error| panic!("{error}"));
    let entry = module.entry("_Z5scalePfi").expect("the entry");
    assert_eq!(module.variables[0].linkage, Linkage::Extern);
    assert_eq!(module.variables[1].space, StateSpace::Global);
    assert_eq!(module.variables[2].initial, [1, 2, 3].map(Immediate::Integer));
    assert_eq!(entry.parameter_layout(), (vec![0, 8, 16], 32));
    assert_eq!(entry.limits.max_threads, Some([256, 1, 1]));
    assert_eq!(entry.limits.min_blocks, Some(2));
    assert_eq!(entry.labels, ["$L__BB0_2", "$L__BB0_1"]);
    ptxas::must_assemble(&module.to_string(), "sm_80");
}

#[test]
fn printing_and_parsing_again_changes_nothing() {
    let module = parse(COMPILED).unwrap();
    let printed = module.to_string();
    assert_eq!(parse(&printed).as_ref(), Ok(&module), "{printed}");
    assert_eq!(parse(&printed).unwrap().to_string(), printed);
}

#[test]
fn names_resolve_to_the_innermost_block() {
    let module = parse(COMPILED).unwrap();
    let entry = &module.entries[0];
    let instructions = entry.body.iter().filter_map(|statement| match statement {
        Statement::Instruction(instruction) => Some(instruction),
        Statement::Label(_) => None,
    });
    let store = instructions.clone().find(|i| i.space() == Some(StateSpace::Shared)).unwrap();
    let Operand::Register(inner) = store.operands[1] else { panic!("{store:?}") };
    let fma = instructions.clone().find(|i| i.opcode == Opcode::Fma).unwrap();
    let Operand::Register(outer) = fma.operands[1] else { panic!("{fma:?}") };
    assert_ne!(inner, outer, "%f1 of the block is not %f1 of the entry");
    assert_eq!(entry.register(outer), Some(("%f1".to_owned(), Type::F32)));
    let Operand::Address(address) = &store.operands[0] else { panic!("{store:?}") };
    assert_eq!((address.base, address.offset), (AddressBase::Symbol(Symbol::Local(0)), 4));
}

#[test]
fn constants_take_the_type_of_their_instruction() {
    let module = parse(COMPILED).unwrap();
    let constants: Vec<Operand> = module.entries[0]
        .body
        .iter()
        .filter_map(|statement| match statement {
            Statement::Instruction(i) if i.opcode == Opcode::Mul && i.types == [Type::F32] => {
                Some(i.operands[1..].to_vec())
            }
            Statement::Instruction(i) if i.opcode == Opcode::Fma => Some(i.operands[3..].to_vec()),
            _ => None,
        })
        .flatten()
        .collect();
    let expected = [0.5f32, 2.5, -0.15].map(|v| Operand::Immediate(Immediate::F32(v.to_bits())));
    assert_eq!(constants, expected);
}

#[test]
fn an_inner_block_may_reuse_any_name() {
    let text = ".version 7.0\n.target sm_80\n.entry k(.param .u32 p) {
        .reg .b32 %r<3>; .shared .b32 s[4];
        { .reg .b32 %r1, s; mov.u32 %r1, 1; mov.u32 s, %r1; }
        { .shared .b32 s[8]; .reg .b32 p; mov.u32 %r1, s; mov.u32 p, %r1; }
        mov.u32 %r2, s; ld.param.u32 %r1, [p];
        ret; }";
    let module = parse(text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(retrograph_ptx::validate(&module), Ok(()));
    assert_eq!(parse(&module.to_string()).as_ref(), Ok(&module), "{module}");
    let moved: Vec<Operand> = module.entries[0]
        .body
        .iter()
        .filter_map(|statement| match statement {
            Statement::Instruction(i) if i.opcode == Opcode::Mov => Some(i.operands[1].clone()),
            _ => None,
        })
        .filter(|operand| matches!(operand, Operand::Symbol(..)))
        .collect();
    assert_eq!(moved, [1, 0].map(|index| Operand::Symbol(Symbol::Local(index), 0)));
}

#[test]
fn damaged_texts_are_errors_without_panics() {
    for (end, _) in COMPILED.char_indices() {
        // A text that ends early has no whole entry, until it ends after the brace.
        match parse(&COMPILED[..end]) {
            Ok(module) if module.entries.is_empty() => {}
            Ok(_) => assert!(end >= COMPILED.trim_end().len()),
            Err(error) => assert!(error.line > 0 && error.column > 0),
        }
    }
    let words: Vec<&str> =
        COMPILED.split_inclusive([' ', '\t', ',', ';', '\n', '.', '[']).collect();
    for dropped in 0..words.len() {
        let text: String = [&words[..dropped], &words[dropped + 1..]].concat().concat();
        if let Ok(module) = parse(&text) {
            assert_eq!(retrograph_ptx::validate(&module), Ok(()), "{text}");
            assert_eq!(parse(&module.to_string()).as_ref(), Ok(&module), "{text}");
        }
    }
}

#[test]
fn instructions_have_their_line_numbers() {
    let module = parse(".version 7.0\n.target sm_80\n.entry k()\n{\n\n  ret;\n}").unwrap();
    let Statement::Instruction(ret) = &module.entries[0].body[0] else { panic!("no ret") };
    assert_eq!(ret.line.0, 6);
}

#[test]
fn a_statement_after_a_directive_of_its_line_is_kept() {
    let directives = [
        ".loc 1 5 1",
        ".loc 1 5 1 .loc 1 6 1, function_name stop, inlined_at 1 5 1",
        ".loc 1 5 1 .loc 1 6 1, function_name stop+4, inlined_at 1 5 1",
        ".loc 1 5\n1",
        ".pragma \"nounroll\", \"nounroll\";",
    ];
    for directive in directives {
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.file 1 \"a.cu\", 7, 9 .func stop() \
             {{ trap; ret; }}\n.visible .entry k() {{ {directive} trap; ret; }}\n.section \
             .debug_str {{ stop: .b8 0 }}"
        );
        let module = parse(&text).unwrap_or_else(|error| panic!("{directive}: {error}"));
        assert_eq!(module.functions.len(), 1, "{directive}");
        assert_eq!(module.entries[0].body.len(), 2, "{directive}");
        ptxas::must_assemble(&text, "sm_90");
    }
}

#[test]
fn limits_of_clusters_are_read_and_printed() {
    let text = ".version 7.8\n.target sm_90\n.entry a() .reqnctapercluster 2, 3 { ret; }\n\
                .entry b() .explicitcluster .maxclusterrank 4 { ret; }\n";
    let module = parse(text).expect("it is PTX");
    let [first, second] = [0, 1].map(|index| module.entries[index].limits);
    assert_eq!((first.cluster, first.explicit_cluster), (Some([2, 3, 1]), false));
    assert_eq!((second.explicit_cluster, second.max_cluster_rank), (true, Some(4)));
    assert_eq!(parse(&module.to_string()).expect("it is PTX again"), module);
}

/// Every linking directive where `ptxas` takes it.
const LINKAGE: &str = "\
.version 8.0
.target sm_90
.address_size 64
.common .global .align 8 .u64 common;
.common .global .align 4 .b8 bytes[16];
.weak .global .align 4 .u32 weak = 5;
.weak .const .align 4 .u32 constant = 6;
.weak .shared .align 4 .u32 shared;
.extern .global .u32 first;
.visible .global .u32 first = 7;
.visible .global .u32 second = 8;
.extern .global .u32 second;
.extern .shared .align 16 .b8 dynamic[];
.extern .shared .align 16 .b8 dynamic[];
.weak .func again()
{
    ret;
}
.weak .entry k()
{
    call.uni again;
    ret;
}
";

#[test]
fn linking_directives_are_kept() {
    let module = parse(LINKAGE).unwrap_or_else(|error| panic!("{error}"));
    let found = |name: &str| {
        let mut named = module.variables.iter().filter(|variable| variable.name == name);
        let linkage = named.next().expect(name).linkage;
        assert!(named.next().is_none(), "{name} is one variable");
        linkage
    };
    assert_eq!((found("common"), found("weak")), (Linkage::Common, Linkage::Weak));
    assert_eq!((found("first"), found("second")), (Linkage::Visible, Linkage::Visible));
    assert_eq!(found("dynamic"), Linkage::Extern);
    assert_eq!(module.functions[0].linkage, Linkage::Weak);
    let initial = |name: &str| {
        let named = module.variables.iter().find(|variable| variable.name == name);
        named.expect(name).initial.clone()
    };
    assert_eq!(initial("first"), [Immediate::Integer(7)], "a definition replaces a declaration");
    assert_eq!(initial("second"), [Immediate::Integer(8)], "a declaration replaces nothing");
    assert_eq!(parse(&module.to_string()).as_ref(), Ok(&module), "{module}");
    ptxas::must_assemble(LINKAGE, "sm_90");
    ptxas::must_assemble(&module.to_string(), "sm_90");
}

#[test]
fn managed_variables_are_kept() {
    let text = "\
.version 7.0
.target sm_80
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 first = 1;
.global .align 8 .attribute(.managed) .u64 second[2];
.global .u32 third;
";
    let module = parse(text).unwrap_or_else(|error| panic!("{error}"));
    let managed: Vec<bool> = module.variables.iter().map(|variable| variable.is_managed).collect();
    assert_eq!(managed, [true, true, false]);
    assert_eq!(parse(&module.to_string()).as_ref(), Ok(&module), "{module}");
    ptxas::must_assemble(text, "sm_80");
    ptxas::must_assemble(&module.to_string(), "sm_80");
}

#[test]
fn targets_are_accepted_from_the_same_version_as_in_ptxas() {
    // Letters of targets that the assembler can also make code for.
    for target in ["sm_75", "sm_88", "sm_90a", "sm_100", "sm_100f", "sm_103a", "sm_110", "sm_121f"]
    {
        let least = target.parse::<SmTarget>().expect(target).min_isa();
        let before = match (least.major, least.minor) {
            (major, 0) => IsaVersion::new(major - 1, 8),
            (major, minor) => IsaVersion::new(major, minor - 1),
        };
        for isa in [least, before] {
            let text = format!(
                ".version {isa}\n.target {target}\n.address_size 64\n.entry k() {{ ret; }}"
            );
            let verdict = ptxas::assemble(&text, target).map(|verdict| verdict.is_ok());
            assert_eq!(parse(&text).is_ok(), isa == least, "{text}");
            assert!(verdict.is_none_or(|taken| taken == (isa == least)), "{text}");
        }
    }
}

#[test]
fn lists_of_call_targets_are_reported_as_unsupported() {
    let text = ".version 7.0\n.target sm_80\n.address_size 64\n.func f () { ret; }\n.entry k() {
        t: .calltargets f;
        ret; }";
    let error = parse(text).expect_err("a list of targets");
    assert!(error.is_missing && error.found.contains("calltargets"), "{error}");
    ptxas::must_assemble(text, "sm_80");
}

#[test]
fn old_versions_have_the_instructions_of_the_base_version() {
    let text = ".version 3.0\n.target sm_20\n.address_size 64\n.entry k(.param .u64 p) {
        .reg .s32 %r<3>; .reg .s64 %rl<3>;
        ld.param.u64 %rl1, [p];
        cvta.to.global.u64 %rl2, %rl1;
        mov.u32 %r1, %tid.x;
        st.global.u32 [%rl2], %r1;
        ret; }";
    assert!(parse(text).is_ok(), "{:?}", parse(text));
    let newer = text.replace("ret;", "ld.relaxed.cluster.global.u32 %r1, [%rl2]; ret;");
    assert!(parse(&newer).is_err(), "forms that are newer than the base version need theirs");
}
