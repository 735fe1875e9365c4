//! Modules that were constructed by hand.

use retrograph_ptx::ast::{LabelId, Module, Operand, RegisterId, Statement, Type};
use retrograph_ptx::build::{Kernel, ModuleBuilder};
use retrograph_ptx::validate::min_isa;
use retrograph_ptx::{IsaVersion, SmTarget, ValidationError, parse, validate};

use crate::ptxas;

/// A valid module to damage: its third statement is `tanh`, its fourth a branch to its label.
fn module() -> Module {
    let text = "
.version 7.0
.target sm_75
.visible .entry k(.param .u32 n) {
    .reg .pred %p<2>; .reg .f32 %f<2>;
    mov.f32 %f0, 0f00000000;
    setp.eq.f32 %p0, %f0, %f0;
    tanh.approx.f32 %f1, %f0;
    @%p0 bra end;
end:
    ret;
}";
    parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn instruction(module: &mut Module, index: usize) -> &mut retrograph_ptx::ast::Instruction {
    match &mut module.entries[0].body[index] {
        Statement::Instruction(instruction) => instruction,
        Statement::Label(_) => panic!("statement {index} is a label"),
    }
}

#[test]
fn the_module_is_valid_before_it_is_damaged() {
    assert_eq!(validate(&module()), Ok(()));
    assert_eq!(min_isa(&module()), Ok(IsaVersion::new(7, 0)));
}

#[test]
fn an_instruction_needs_its_version() {
    let mut module = module();
    module.isa = IsaVersion::new(6, 5);
    let error = validate(&module).unwrap_err();
    assert!(
        matches!(&error, ValidationError::TooNew { min_isa, .. }
            if *min_isa == IsaVersion::new(7, 0)),
        "{error}"
    );
    module.isa = IsaVersion::new(6, 0);
    let error = validate(&module).unwrap_err();
    assert!(matches!(error, ValidationError::IsaTooOld { .. }), "{error}");
}

#[test]
fn names_must_be_declared() {
    let mut damaged = module();
    instruction(&mut damaged, 2).operands[1] = Operand::Register(RegisterId(9));
    assert!(validate(&damaged).unwrap_err().to_string().contains("undeclared register"));
    assert!(damaged.to_string().contains("<undeclared>"), "printing does not fail");

    let mut damaged = module();
    instruction(&mut damaged, 3).operands[0] = Operand::Label(LabelId(7));
    assert!(validate(&damaged).unwrap_err().to_string().contains("undeclared label"));

    let mut damaged = module();
    instruction(&mut damaged, 3).guard = instruction(&mut damaged, 3)
        .guard
        .map(|guard| retrograph_ptx::ast::Guard { predicate: RegisterId(2), ..guard });
    assert!(validate(&damaged).unwrap_err().to_string().contains("a guard of type .f32"));
}

#[test]
fn labels_and_names_are_defined_once() {
    let mut damaged = module();
    damaged.entries[0].body.remove(4);
    let error = validate(&damaged).unwrap_err();
    assert!(matches!(error, ValidationError::Label { places: 0, .. }), "{error}");

    let mut damaged = module();
    damaged.entries[0].body.push(Statement::Label(LabelId(0)));
    let error = validate(&damaged).unwrap_err();
    assert!(matches!(error, ValidationError::Label { places: 2, .. }), "{error}");

    let mut damaged = module();
    damaged.entries[0].labels[0] = "n".to_owned();
    let error = validate(&damaged).unwrap_err();
    assert!(matches!(error, ValidationError::Duplicate { .. }), "{error}");
}

#[test]
fn a_parameter_with_the_name_of_a_function_is_valid_as_in_ptxas() {
    let text = ".version 7.0\n.target sm_75\n.address_size 64\n.func f() { ret; }\n\
                .visible .entry k(.param .u32 f) { ret; }";
    ptxas::must_assemble(text, "sm_75");
    assert_eq!(validate(&parse(text).unwrap_or_else(|error| panic!("{error}"))), Ok(()));
}

#[test]
fn types_are_checked() {
    let mut damaged = module();
    instruction(&mut damaged, 2).types = vec![Type::F64];
    let error = validate(&damaged).unwrap_err();
    assert!(error.to_string().contains("expected tanh.approx.f32"), "{error}");
}

#[test]
fn the_builder_selects_the_lowest_version_for_target_and_instructions() {
    let plain = Kernel::build("plain", |_| {});
    for &target in SmTarget::GENERATED {
        let module = ModuleBuilder::new(target).entry(plain.clone()).build();
        assert_eq!(module.isa, target.min_isa());
    }
    let newer = module().entries.remove(0);
    let module = ModuleBuilder::new(SmTarget::portable(75)).entry(newer).build();
    assert_eq!(module.isa, IsaVersion::new(7, 0));
}

#[test]
#[should_panic(expected = "sm_80")]
fn the_builder_refuses_what_the_target_does_not_have() {
    let text = ".version 7.0\n.target sm_80\n.entry k() {
        .reg .f32 %f<3>; max.NaN.f32 %f0, %f1, %f2; ret; }";
    let entry = parse(text).expect("it is valid on sm_80").entries.remove(0);
    ModuleBuilder::new(SmTarget::portable(75)).entry(entry).build();
}
