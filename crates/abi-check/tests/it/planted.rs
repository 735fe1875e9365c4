//! Negative control: errors of each kind are planted into the description of driver-sys, and every
//! source that can detect one must report it.

use retrograph_abi_check::compare::Difference;
use retrograph_abi_check::model::{Constant, Definition, Description, Field, Function, Type};
use retrograph_abi_check::source::{self, Source};
use retrograph_abi_check::{exceptions, ours};

const HEADERS_BOTH_WAYS: [&str; 4] =
    ["cuda.h 13.0 by bindgen", "cuda.h 12.9 by bindgen", "cuda.h 13.0 by cc", "cuda.h 12.9 by cc"];
const BY_BINDGEN: [&str; 2] = ["cuda.h 13.0 by bindgen", "cuda.h 12.9 by bindgen"];

/// The sources that complain about `item` once `plant` has changed the description.
fn complaints(item: &str, plant: impl FnOnce(&mut Description)) -> Option<Vec<String>> {
    let oracles = crate::oracles()?;
    let mut ours = ours::describe().unwrap_or_else(|error| panic!("{error}"));
    plant(&mut ours);
    let differences = oracles.compare(&ours).unwrap_or_else(|error| panic!("{error}"));
    let (left, _) = exceptions::apply(exceptions::DRIVER, differences);
    let about = |difference: &Difference| difference.item == item;
    Some(left.into_iter().filter(about).map(|difference| difference.source).collect())
}

fn assert_noticed(by: &[&str], item: &str, plant: impl FnOnce(&mut Description)) {
    let Some(sources) = complaints(item, plant) else { return };
    for source in by {
        assert!(sources.iter().any(|one| one == source), "{item}: {source} noticed nothing");
    }
}

fn definition<'a>(ours: &'a mut Description, name: &str) -> &'a mut Definition {
    ours.types.get_mut(name).expect("the type is declared")
}

fn field<'a>(ours: &'a mut Description, name: &str, field: &str) -> &'a mut Field {
    let fields = &mut definition(ours, name).fields;
    fields.iter_mut().find(|one| one.name == field).expect("the field is declared")
}

fn function<'a>(ours: &'a mut Description, name: &str) -> &'a mut Function {
    ours.functions.get_mut(name).expect("the function is declared")
}

#[test]
fn without_planted_errors_there_are_no_complaints() {
    let Some(sources) = complaints("size of CUDA_MEMCPY3D", |_| {}) else { return };
    assert_eq!(sources, Vec::<String>::new());
}

#[test]
fn a_wrong_size_or_alignment_is_noticed() {
    assert_noticed(&HEADERS_BOTH_WAYS, "size of CUDA_MEMCPY3D", |ours| {
        definition(ours, "CUDA_MEMCPY3D").size = Some(192);
    });
    assert_noticed(&["cuda-driver-sys 0.3"], "size of CUDA_MEMCPY3D", |ours| {
        definition(ours, "CUDA_MEMCPY3D").size = Some(192);
    });
    assert_noticed(&HEADERS_BOTH_WAYS, "alignment of CUgraphEdgeData", |ours| {
        definition(ours, "CUgraphEdgeData").align = Some(4);
    });
    assert_noticed(&HEADERS_BOTH_WAYS, "size of CUstreamCaptureMode", |ours| {
        definition(ours, "CUstreamCaptureMode").size = Some(8);
    });
}

#[test]
fn a_wrong_field_is_noticed() {
    assert_noticed(&HEADERS_BOTH_WAYS, "offset of CUDA_MEMCPY3D.srcHost", |ours| {
        field(ours, "CUDA_MEMCPY3D", "srcHost").offset = Some(48);
    });
    assert_noticed(&["cuda-driver-sys 0.3"], "offset of CUDA_MEMCPY3D.srcHost", |ours| {
        field(ours, "CUDA_MEMCPY3D", "srcHost").offset = Some(48);
    });
    assert_noticed(&BY_BINDGEN, "type of CUDA_MEMCPY3D.srcHost", |ours| {
        field(ours, "CUDA_MEMCPY3D", "srcHost").of = Type::Void.pointer(false);
    });
    assert_noticed(&HEADERS_BOTH_WAYS, "offset of CUDA_MEMCPY3D.sourceHost", |ours| {
        field(ours, "CUDA_MEMCPY3D", "srcHost").name = "sourceHost".to_owned();
    });
    assert_noticed(&BY_BINDGEN, "offset of CUDA_MEMCPY3D.srcHost", |ours| {
        definition(ours, "CUDA_MEMCPY3D").fields.retain(|field| field.name != "srcHost");
    });
}

#[test]
fn a_wrong_constant_is_noticed() {
    for name in ["CU_MEMORYTYPE_ARRAY", "CU_MEMHOSTALLOC_PORTABLE", "CU_STREAM_LEGACY"] {
        assert_noticed(&HEADERS_BOTH_WAYS, &format!("value of {name}"), |ours| {
            ours.constants.get_mut(name).expect("the constant is declared").value += 1;
        });
    }
    assert_noticed(&["cuda-driver-sys 0.3"], "value of CU_MEMORYTYPE_ARRAY", |ours| {
        ours.constants.get_mut("CU_MEMORYTYPE_ARRAY").expect("it is declared").value = 4;
    });
    assert_noticed(&HEADERS_BOTH_WAYS, "value of CU_MEMORYTYPE_TAPE", |ours| {
        let constant = Constant { value: 5, of: Some("CUmemorytype".to_owned()), since: None };
        ours.constants.insert("CU_MEMORYTYPE_TAPE".to_owned(), constant);
    });
    assert_noticed(&BY_BINDGEN, "enumeration of CU_MEMORYTYPE_ARRAY", |ours| {
        let constant = ours.constants.get_mut("CU_MEMORYTYPE_ARRAY").expect("it is declared");
        constant.of = Some("CUlimit".to_owned());
    });
}

#[test]
fn a_wrong_number_of_arguments_is_noticed() {
    assert_noticed(&HEADERS_BOTH_WAYS, "signature of cuStreamWaitEvent", |ours| {
        function(ours, "cuStreamWaitEvent").arguments.pop();
    });
    assert_noticed(&HEADERS_BOTH_WAYS, "signature of cuCtxSynchronize", |ours| {
        let arguments = &mut function(ours, "cuCtxSynchronize").arguments;
        arguments.push(Type::Integer { bytes: 4, signed: false });
    });
}

#[test]
fn a_wrong_argument_is_noticed() {
    let wrong = [
        // A different handle, an integer of another size or sign, a constant pointer.
        (1, Type::Named("CUstream".to_owned())),
        (0, Type::Named("CUevent".to_owned())),
        (2, Type::Integer { bytes: 8, signed: false }),
        (2, Type::Integer { bytes: 4, signed: true }),
    ];
    for (index, of) in wrong {
        assert_noticed(&HEADERS_BOTH_WAYS, "signature of cuStreamWaitEvent", |ours| {
            function(ours, "cuStreamWaitEvent").arguments[index] = of;
        });
    }
    assert_noticed(&HEADERS_BOTH_WAYS, "signature of cuMemcpyHtoD_v2", |ours| {
        function(ours, "cuMemcpyHtoD_v2").arguments[1] = Type::Void.pointer(false);
    });
    assert_noticed(&BY_BINDGEN, "signature of cuMemAlloc_v2", |ours| {
        function(ours, "cuMemAlloc_v2").arguments[1] = Type::Integer { bytes: 8, signed: false };
    });
    assert_noticed(&["cudaTypedefs.h 13.0"], "version of cuStreamWaitEvent", |ours| {
        function(ours, "cuStreamWaitEvent").arguments.pop();
    });
}

#[test]
fn a_missing_symbol_and_a_wrong_version_are_noticed() {
    assert_noticed(&HEADERS_BOTH_WAYS, "signature of cuStreamWaitEvents", |ours| {
        let function = function(ours, "cuStreamWaitEvent").clone();
        ours.functions.insert("cuStreamWaitEvents".to_owned(), function);
    });
    assert_noticed(&["cudaTypedefs.h 13.0"], "since of cuFuncGetParamInfo", |ours| {
        function(ours, "cuFuncGetParamInfo").since = Some(12030);
    });
    assert_noticed(&["cudaTypedefs.h 13.0"], "since of cuFuncGetParamInfo", |ours| {
        function(ours, "cuFuncGetParamInfo").since = None;
    });
    // The header of 12.9 declares it, so that it cannot be one of 13.0.
    assert_noticed(&["cuda.h 12.9 by bindgen"], "signature of cuFuncGetParamInfo", |ours| {
        function(ours, "cuFuncGetParamInfo").since = Some(13000);
    });
}

#[test]
fn a_wrong_or_unknown_type_is_noticed() {
    assert_noticed(&BY_BINDGEN, "alias CUdeviceptr", |ours| {
        let wrong = Type::Integer { bytes: 4, signed: false };
        ours.aliases.insert("CUdeviceptr".to_owned(), wrong);
    });
    assert_noticed(&BY_BINDGEN, "type CUtape", |ours| {
        let handle = definition(ours, "CUstream").clone();
        ours.types.insert("CUtape".to_owned(), handle);
    });
    assert_noticed(&BY_BINDGEN, "kind of CUstreamCaptureMode", |ours| {
        let handle = definition(ours, "CUstream").clone();
        ours.types.insert("CUstreamCaptureMode".to_owned(), handle);
    });
}

#[test]
fn a_declaration_that_cannot_be_read_is_a_problem() {
    let problems = |text: &str| {
        let mut source = Source::new(source::CUDA);
        source.items(&syn::parse_file(text).expect("it is Rust").items);
        source.problems.len()
    };
    assert_eq!(problems("enumerations! { CUtape: u32 { CU_TAPE = 1; } }"), 0);
    assert_eq!(problems("tapes! { CUtape: u32 { CU_TAPE = 1; } }"), 1);
    assert_eq!(problems("#[repr(u32)] pub enum CUtape { CU_TAPE = 1 }"), 1);
    assert_eq!(problems("pub struct CUtape { pub reels: u32 }"), 1);
    assert_eq!(problems("pub const TAPE: u32 = 1;"), 1);
}
