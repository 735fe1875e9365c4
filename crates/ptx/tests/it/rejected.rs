//! Texts that must not parse, and their error messages.

use retrograph_ptx::parse;

use crate::ptxas;
use crate::table::{FIRST_LINE, module_around};

const LINE: u32 = FIRST_LINE as u32;

/// Statements that neither the parser nor `ptxas` accepts, and words of the parser's message.
const STATEMENTS: &[(&str, &str)] = &[
    ("add.rni.f32 %f1, %f2, %f3;", "a modifier or type of `add`"),
    ("add.u8 %r1, %r2, %r3;", ".u8"),
    ("add.b32 %r1, %r2, %r3;", ".b32"),
    ("add.u32 %f1, %r2, %r3;", "a register of type .f32"),
    ("add.f32 %f1, %f2, 1;", "the constant 1"),
    ("add.u32 %r1, %r2;", "2 operands"),
    ("add.u32 %r1, %tid.x, 1;", "the special register %tid.x"),
    ("mov.u32 %r1, %envreg32;", "a declared name or a special register"),
    ("add.rn.rz.f32 %f1, %f2, %f3;", "several"),
    ("mul.u32.lo %r1, %r2, %r3;", "right after `mul`"),
    ("mul.u32 %r1, %r2, %r3;", "one of .lo .hi"),
    ("fma.f32 %f1, %f2, %f3, %f4;", "one of .rn .rz .rm .rp"),
    ("div.f32 %f1, %f2, %f3;", "one of .rn .rz .rm .rp"),
    ("sqrt.f32 %f1, %f2;", "one of .rn"),
    ("ex2.approx.f64 %fd1, %fd2;", ".f64"),
    ("abs.u32 %r1, %r2;", ".u32"),
    ("shl.u32 %r1, %r2, %r3;", ".u32"),
    ("shl.b32 %r1, %r2, %rd3;", "a register of type .b64"),
    ("shf.wrap.l.b32 %r1, %r2, %r3, %r4;", "right after `shf`"),
    ("cvt.f32.s32 %f1, %r1;", "one of .rn"),
    ("cvt.u32.f32 %r1, %f1;", "one of .rni"),
    ("cvt.rn.f64.f32 %fd1, %f1;", "cvt"),
    ("cvt.rzi.s8.bf16 %r1, %h1;", "a register for .s8"),
    ("cvt.rzi.sat.u8.bf16 %b1, %h1;", "cvt"),
    ("cvta.global.to.u64 %rd1, %rd2;", "right after `cvta`"),
    ("setp.lt.b32 %p1, %r1, %r2;", ".b32"),
    ("setp.lo.s32 %p1, %r1, %r2;", ".s32"),
    ("setp.ltu.u32 %p1, %r1, %r2;", ".u32"),
    ("mov.u32 _, %r1;", "`_`"),
    ("mov.f32 %f1, 0;", "the constant 0"),
    ("mov.u64 %rd1, {%r1, %r2};", "a vector"),
    ("mov.b32 %r1, {%b1, %b2};", "a register for .b16"),
    ("mov.b16 %h1, {%h2, %h3};", "a register for .b8"),
    ("ld.global.f32 %f1, %rd1;", "an [address]"),
    ("ld.global.u16 %f1, [%rd1];", "a register of type .f32"),
    ("ld.global.v4.f32 {%f1, %f2}, [%rd1];", "a vector of 4"),
    ("ld.global.v4.f64 {%fd1, %fd2, %fd3, %fd4}, [%rd1];", "16 bytes"),
    ("ld.shared.nc.f32 %f1, [%r1];", ".nc"),
    ("ld.shared.f32 %f1, [16];", "base"),
    ("ld.relaxed.global.f32 %f1, [%rd1];", "one of .cta .cluster .gpu .sys"),
    ("ld.relaxed.cluster.f32 %f1, [%rd1];", "PTX ISA 7.8"),
    ("bar.sync 16;", "a constant from 0 to 15"),
    ("ld.u64 %rd1, [p];", "generic"),
    ("mov.f32 %f1, -0f3F800000;", "include the sign"),
    ("ret;;", "an instruction"),
    ("call (got), callee;", "1 arguments"),
    ("call (got), %rd1, to_callee;", "1 arguments"),
    ("call %rd1, (given), to_callee;", "1 results"),
    ("call (got), %rd1, (given, given), to_callee;", "1 in parentheses"),
    ("call (got), %h1, (given), to_callee;", "a register for .u64"),
    ("call (got), %rd1, (given), callee;", "a prototype"),
    ("call (got), callee, (given), to_callee;", "a register for .u64"),
    ("call (got), callee, ();", "1 in parentheses"),
    ("brx.idx %r1, done;", "a declared name"),
    ("add.f16 %h1, %h2;", "2 operands"),
    ("barrier.relaxed.cluster.arrive;", "right after `barrier`"),
    ("barrier.cluster.relaxed.arrive;", "right after `barrier`"),
    ("barrier.arrive.cluster.release;", "right after `barrier`"),
    ("dp2a.u32.u32.lo %r1, %r2, %r3, %r4;", "right after `dp2a`"),
    ("elect.sync %r1, -1;", "a predicate"),
    ("ld.shared.f32 %f1, [%r1-4];", "`]`"),
    ("ld.global.f32 %f1, [missing];", "a declared name"),
    ("st.param.u32 [p], %r1;", ".param"),
    ("atom.global.add.s64 %rd1, [%rd2], %rd3;", ".s64"),
    ("vote.any.pred %p1, %p2;", "one of .sync"),
    ("frobnicate.u32 %r1;", "an instruction that the table knows"),
    ("bra nowhere;", "label `nowhere`"),
    ("mov.u32 %r99, 1;", "a declared name"),
    ("@%r1 ret;", "a predicate register"),
    ("again: again: ret;", "label `again` again"),
    (".reg .f32 %f<3>;", "`%f0` again"),
    (".reg .q32 %q;", "a type"),
    (".loc 1 5; ret;", "a number"),
    (".loc 1 5 1; ret;", "an instruction"),
    (".loc 1 5 1, inlined_at 1 2 3", "`function_name`"),
    (".pragma;", "the text of a pragma"),
    (".pragma \"nounroll\" ret;", "`;`"),
];

/// The same for instructions of newer targets.
const NEWER: &[(&str, &str)] = &[
    ("cp.async.global.shared.ca [%r1], [%rd1], 4;", "`.global`"),
    ("cp.ca.shared.global.async [%r1], [%rd1], 4;", "right after `cp`"),
    ("cp.async.cg.shared.global [%r1], [%rd1], 8;", "one of the constants [16]"),
    ("cp.async.ca.shared.global [%r1], [%rd1], 4, 5;", "a constant from 0 to 4"),
    ("cp.async.ca.shared.global [%r1], [tile], 4;", "a name in .global"),
    ("cp.async.wait_group %r1;", "an integer constant"),
    ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r1, [%r2];", "a vector of 1"),
    ("stmatrix.sync.aligned.m8n8.x2.b16 [%rd2], {%r1};", "a vector of 2"),
    (
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r1}], [tile];",
        "a tensor map and 2 coordinates",
    ),
    ("cp.reduce.async.bulk.global.shared::cta.bulk_group.f32 [%rd1], [tile], 16;", "one of .add"),
    ("cp.async.bulk.read.wait_group 1;", "its forms are"),
    ("mbarrier.arrive.shared::cluster.b64 %rd1, [%r1];", "`_`"),
    ("mbarrier.try_wait.shared::cta.parity.b64 %p1, [tile], %r1;", "a modifier or type"),
    ("mbarrier.test_wait.parity.shared.b64 %p1, [tile], 2;", "a constant from 0 to 1"),
    ("movmatrix.sync.aligned.m8n8.b16 %r1, %r2;", "one of .trans"),
    (
        "mma.sync.aligned.m16n8k8.col.row.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3}, \
      {%f1, %f2, %f3, %f4};",
        "a modifier or type of `mma`",
    ),
    (
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%f5, %f6}, {%r3}, \
      {%f1, %f2, %f3, %f4};",
        "a register of type .b32",
    ),
    (
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f16 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3}, \
      {%r1, %r2};",
        ".f32.f16.f16.f16",
    ),
    (
        "wmma.sync.load.a.aligned.row.m16n16k16.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, \
      [%rd1];",
        "right after `wmma`",
    ),
];

/// The same for features of sm_90a alone.
const NOT_PORTABLE: &[(&str, &str)] = &[
    ("wgmma.fence.sync.aligned;", "it needs PTX ISA 8.0 and sm_90a"),
    ("wgmma.wait_group.sync.aligned 0;", "it needs PTX ISA 8.0 and sm_90a"),
];
const WARPGROUPS: &[(&str, &str)] = &[
    ("wgmma.wait_group.sync.aligned -1;", "not negative"),
    ("setmaxnreg.dec.sync.aligned.u32 41;", "one of the constants"),
    ("setmaxnreg.aligned.dec.sync.u32 40;", "right after `setmaxnreg`"),
    ("wgmma.sync.fence.aligned;", "right after `wgmma`"),
    (
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%f1, %f2}, %rd1, %rd2, 1, 1, 1, \
      0, 0;",
        "a vector of 32",
    ),
    (
        "wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, \
      %f7, %f8, %f9, %f10, %f11, %f12, %f13, %f14, %f15}, {%r1, %r2}, %rd2, 1, 1, 1;",
        "a vector of 4",
    ),
];

/// Statements that `ptxas` accepts and this crate intentionally rejects.
const UNSUPPORTED: &[(&str, &str)] = &[("mov.u32 %r1, 5000000000;", "the constant 5000000000")];

#[test]
fn statements_outside_of_the_table_are_rejected_with_their_position() {
    for (statement, words) in STATEMENTS.iter().chain(UNSUPPORTED) {
        let error = parse(&module_around("6.3", "sm_75", statement))
            .expect_err(&format!("{statement} was accepted"));
        let said = error.to_string();
        assert!(said.contains(words), "{statement}: {said}");
        assert_eq!(error.line, LINE, "{statement}: {said}");
    }
}

#[test]
fn instructions_of_newer_targets_are_rejected_by_parser_and_ptxas() {
    let all = [("sm_90", NEWER), ("sm_90", NOT_PORTABLE), ("sm_100", NOT_PORTABLE)];
    let all = all.iter().chain(&[("sm_90a", WARPGROUPS)]);
    for (target, statement, words) in all.flat_map(|(t, list)| list.iter().map(|(s, w)| (*t, s, w)))
    {
        let text = module_around("8.6", target, statement);
        let error = parse(&text).expect_err(&format!("{statement} was accepted"));
        assert!(error.to_string().contains(words), "{statement}: {error}");
        if ptxas::assemble(&text, target) == Some(Ok(())) {
            panic!("ptxas takes `{statement}`; then the table should");
        }
    }
}

#[test]
fn ptxas_rejects_them_too() {
    for (statement, _) in STATEMENTS {
        let text = module_around("6.4", "sm_75", statement);
        if ptxas::assemble(&text, "sm_75") == Some(Ok(())) {
            panic!("ptxas takes `{statement}`; then the table should");
        }
    }
}

#[test]
fn the_error_column_points_to_the_operand() {
    let error = parse(&module_around("6.3", "sm_75", "add.u32 %r1, %r2, %f3;")).unwrap_err();
    assert_eq!((error.line, error.column), (LINE, 19));
    assert_eq!(error.found, "a register of type .f32");
    assert!(error.help.contains("add.u32"), "{}", error.help);
}

/// Whole texts, and words of the message.
const TEXTS: &[(&str, &str)] = &[
    ("", "`.version`"),
    (".version 7\n.target sm_80", "a version"),
    (".version 7.0\n.target sm_90", "sm_90 needs PTX ISA 7.8"),
    (".version 7.0\n.target sm_eighty", "an SM target"),
    (".version 7.0\n.target sm_85", "an SM target"),
    (".version 8.8\n.target sm_90f", "an SM target"),
    (".version 8.7\n.target sm_100f", "sm_100f needs PTX ISA 8.8"),
    (".version 4.3\n.target sm_50\n.common .global .u32 a;", "PTX ISA 5.0"),
    (".version 7.0\n.target sm_80\n.common .shared .u32 a;", "`.common` is for global variables"),
    (".version 7.0\n.target sm_80\n.const .attribute(.managed) .u32 a;", "in `.global`"),
    (".version 7.0\n.target sm_80\n.global .attribute(.other) .u32 a;", "`.managed`"),
    (".version 7.0\n.target sm_80\n.common .func f() { ret; }", "`.global`"),
    (".version 7.0\n.target sm_80\n.weak .global .u32 a; .weak .global .u32 a;", "`a` again"),
    (".version 7.0\n.target sm_80\n.extern .global .u32 a; .global .u32 a;", "`a` again"),
    (".version 7.0\n.target sm_80\n.extern .global .u32 a; .weak .global .f32 a;", "`a` again"),
    (".version 7.0\n.target sm_80\n.address_size 32", "64-bit addressing"),
    (".version 7.0\n.target sm_80\n.func f() { ret; } .func f() { ret; }", "without a body"),
    (".version 7.0\n.target sm_80\n.visible .entry k() { call f; }", "a declared name"),
    (".version 7.0\n.target sm_80\n.visible .entry k() { ret;", "the end of the text"),
    (".version 7.0\n.target sm_80\n.visible .entry k() { ret; } }", "`.entry`"),
    (".version 7.0\n.target sm_80\n.entry k() { } .entry k() { }", "entry `k` again"),
    (".version 7.0\n.target sm_80\n.entry k(.param .u32 a, .param .u32 a) { }", "`a` again"),
    (".version 7.0\n.target sm_80\n.entry k() .maxfoo 3 { }", "`.maxntid`"),
    (".version 7.8\n.target sm_80\n.entry k() .explicitcluster { }", "sm_90"),
    (".version 7.7\n.target sm_90\n.entry k() .maxclusterrank 2 { }", "an older target"),
    (".version 7.0\n.target sm_80\n.shared .align 3 .b8 a[4];", "a power of two"),
    (".version 7.0\n.target sm_80\n.shared .b8 a[4], a;", "`a` again"),
    (".version 7.0\n.target sm_80\n.shared .pred a;", "a type with a size"),
    (".version 7.0\n.target sm_80\n.entry k(.param .b8 a[99999]) { }", "bytes of parameters"),
    (".version 7.0\n.target sm_80\n.const .f32 a; .entry k(.param .b8 a) { }", "`a` again"),
    (".version 7.0\n.target sm_80\n.entry k() { .reg .b32 a; a: ret; }", "also a variable"),
    (".version 7.0\n.target sm_80\n.tex .u64 t;", "a variable"),
    (".version 7.0\n.target sm_80\n.entry k() { ret\n ret; }", "4:2: found `ret`"),
    (".version 7.0\n.target sm_80\n/* ", "an unterminated comment"),
    (".version 7.0\n.target sm_80\n.entry k() { .reg .b32 %r<4000000000>; }", "1048576 registers"),
    (".version 7.0\n.target sm_80\n.entry k() { .reg .b32 a, r<1048576>; }", "1048576 registers"),
    (".version 7.0\n.target sm_80\n.entry k() { .reg .b32 %r<0>; }", "at least one register"),
    (
        ".version 7.0\n.target sm_80\n.entry k(.param .b8 a[32760], .param .b64 b) { }",
        "bytes of parameters",
    ),
];

#[test]
fn whole_texts_are_rejected_with_a_reason() {
    for (text, words) in TEXTS {
        let said = parse(text).expect_err(text).to_string();
        assert!(said.contains(words), "{text}: {said}");
    }
}

/// Declarations that neither the parser nor `ptxas` accepts, and words of the parser's message.
const DECLARATIONS: &[(&str, &str)] = &[
    (
        ".func f(.param .b64 a[4]) { ret; } .entry k() { .param .b64 p[536870916]; call f, (p); }",
        "bytes of parameters",
    ),
    (".global .u32 a[2] = {1, 2, 3};", "at most 2 initial values"),
    (".global .u32 a = {1};", "a constant"),
    (".global .u32 a[2] = 1;", "`{`"),
    (".global .f32 a[2] = {1.0, 2};", "a float, as the variable has type .f32"),
    (".shared .u32 a[2] = {1, 2};", "no initial value"),
    (".entry k(.param .b8 a[]) { }", "`a` without a length"),
    (".entry k(.param .b8 a[4353]) { }", "at most 4352 bytes of parameters"),
    (".entry k(.param .b8 a, .param .align 16 .b8 b[4337]) { }", "at most 4352 bytes"),
    (".entry k() .maxntid 64 .reqntid 32 { }", "only one of them"),
    (".extern .entry k() { }", "`.extern` before an entry"),
    (".func k() { ret; } .entry k() { }", "`k` again"),
    (".entry k() { } .func k() { ret; }", "`k` again"),
    (".global .u32 k; .entry k() { }", "`k` again"),
    (".entry k() { } .global .u32 k;", "`k` again"),
    (".entry k(.param .u32 a) { .reg .u32 a; }", "`a` again"),
    (".entry k(.param .u32 a) { a: ret; }", "also a parameter"),
];

#[test]
fn addresses_as_initial_values_are_a_missing_feature() {
    for initial in ["[2] = {s, 0}", "= s", "= generic(s)", "[1] = {generic(s)+8}", "= f"] {
        let text = format!(
            ".version 7.0\n.target sm_80\n.global .u64 s; .func f() {{ ret; }} \
             .global .u64 p{initial};"
        );
        let error = parse(&text).unwrap_err();
        assert!(error.is_missing, "{initial}: {error}");
    }
    let text = ".version 7.1\n.target sm_80\n.global .u64 s; .global .u8 p[1] = {0xFF(s)};";
    assert!(parse(text).unwrap_err().is_missing);
    let text = ".version 7.0\n.target sm_80\n.global .u64 p = +;";
    assert!(!parse(text).unwrap_err().is_missing);
}

#[test]
fn declarations_that_ptxas_rejects_are_rejected() {
    for (declarations, words) in DECLARATIONS {
        let text = format!(".version 7.0\n.target sm_80\n.address_size 64\n{declarations}");
        let said = parse(&text).expect_err(&text).to_string();
        assert!(said.contains(words), "{declarations}: {said}");
        if ptxas::assemble(&text, "sm_80") == Some(Ok(())) {
            panic!("ptxas takes `{declarations}`; then the parser should");
        }
    }
}
