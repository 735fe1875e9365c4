//! Operations that a pass refuses; a refusal changes nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use retrograph_kernels::ops::{SoftmaxInPlace, SoftmaxMask};
use retrograph_kernels::{
    Access, Argument, BufferArgument, Cell, Kernel, Launch, Parameter, ParameterKind, Problem,
    TensorMapLayout, TensorMapSwizzle, TensorMapType,
};
use retrograph_runtime::{
    ControlError, CustomImage, CustomLaunch, LaunchGeometry, Pass, PassError, Slice,
};

use crate::described::ANY;

/// A launch of a kernel that reads nothing.
pub(crate) fn any(
    arguments: Vec<Argument<retrograph_runtime::BufferId>>,
) -> Launch<retrograph_runtime::BufferId> {
    // SAFETY: the kernel is never launched.
    unsafe { Launch::new_unchecked(&ANY, Problem::Items(0), arguments) }
}

/// A launch whose table accesses `accesses`.
fn accessing(accesses: &[(Slice<f32>, Access)]) -> Launch<retrograph_runtime::BufferId> {
    let cells =
        accesses.iter().map(|&(slice, access)| Cell::Address(BufferArgument::new(slice, access)));
    let arguments = vec![Argument::Table(cells.collect())];
    any(arguments)
}

#[test]
fn a_transient_is_read_only_where_it_was_written() {
    let mut pass = Pass::new("partial");
    let scratch = pass.transient::<f32>("scratch", 8);
    let out = pass.external::<f32>("out", 8);
    pass.fill(scratch.slice(0..3), 0).unwrap();
    pass.fill(scratch.slice(5..8), 0).unwrap();
    let error = pass.copy(scratch, out).unwrap_err();
    let expected = PassError::ReadBeforeWrite {
        operation: "copy".to_owned(),
        buffer: "scratch".to_owned(),
        bytes: 12..20,
    };
    assert_eq!(error, expected);
    assert_eq!(pass.operations().len(), 2, "a refused operation is not part of the pass");
    let update = accessing(&[(scratch, Access::ReadWrite)]);
    assert!(matches!(pass.launch(update), Err(PassError::ReadBeforeWrite { .. })));
    pass.fill(scratch.slice(3..5), 0).unwrap();
    pass.copy(scratch, out).unwrap();
}

/// A kernel that takes a matrix as a pointer and as a tensor map.
static MAPPED: Kernel = Kernel {
    name: "mapped",
    image: "mapped",
    parameters: &[
        Parameter { name: "matrix", kind: ParameterKind::Pointer },
        Parameter { name: "map", kind: ParameterKind::TensorMap },
    ],
    entries: &["mapped"],
    dispatch: |_, _| None,
};

/// A matrix of 8 rows and columns.
fn tile() -> TensorMapLayout {
    TensorMapLayout {
        dtype: TensorMapType::F32,
        sizes: vec![8, 8],
        strides: vec![32],
        box_sizes: vec![8, 8],
        swizzle: TensorMapSwizzle::None,
    }
}

#[test]
fn a_tensor_map_describes_what_another_argument_accesses() {
    let mut pass = Pass::new("mapped");
    let matrix = pass.external::<f32>("matrix", 64);
    let other = pass.external::<f32>("other", 64);
    let launch = |declared: Slice<f32>| {
        let arguments = vec![Argument::read(declared), Argument::tensor_map(matrix, tile())];
        // SAFETY: the kernel is never launched.
        unsafe { Launch::new_unchecked(&MAPPED, Problem::Items(0), arguments) }
    };
    for declared in [other, matrix.slice(1..64), matrix.slice(0..63)] {
        let error = pass.launch(launch(declared)).unwrap_err();
        let expected = PassError::UndeclaredTensorMap {
            operation: "mapped".to_owned(),
            buffer: "matrix".to_owned(),
            bytes: 0..256,
        };
        assert_eq!(error, expected);
    }
    assert_eq!(pass.operations().len(), 0);
    pass.launch(launch(matrix)).unwrap();
}

#[test]
fn tensor_maps_of_own_kernels_are_inside_of_the_pass() {
    let mut pass = Pass::new("mapped");
    let matrix = pass.external::<f32>("matrix", 64);
    let mut add = |map: Slice<f32>, layout| {
        let arguments = vec![Argument::read(matrix), Argument::tensor_map(map, layout)];
        let image = CustomImage::ptx("mapped", "");
        let geometry = LaunchGeometry::linear(1, 1);
        // SAFETY: the kernel is never launched.
        unsafe { pass.custom(CustomLaunch::new(image, "mapped", geometry, arguments)) }
    };
    let error = add(Pass::new("other").external("matrix", 64), tile()).unwrap_err();
    assert!(matches!(&error, PassError::WrongPass { pass, .. } if pass == "mapped"), "{error}");
    let long = TensorMapLayout { sizes: vec![8, 9], ..tile() };
    let error = add(matrix, long).unwrap_err();
    assert!(matches!(error, PassError::TensorMapBytes { needed: 288, .. }), "{error}");
    add(matrix, tile()).unwrap();
}

/// The size in bytes of each wraps to 0 or 4, which would be inside any buffer.
const WRAPPING: [usize; 2] = [1 << 62, (1 << 62) + 1];

#[test]
fn a_slice_whose_bytes_wrap_is_not_inside_of_its_buffer() {
    let mut pass = Pass::new("wraps");
    let x = pass.external::<f32>("x", 4);
    let y = pass.external::<f32>("y", 4);
    for len in WRAPPING {
        let copied = catch_unwind(AssertUnwindSafe(|| {
            pass.copy(Slice::<f32>::new(x.buffer(), len), Slice::<f32>::new(y.buffer(), len))
        }));
        let message = copied.unwrap_err().downcast::<String>().map(|text| *text);
        let message =
            message.unwrap_or_else(|other| other.downcast_ref::<&str>().unwrap().to_string());
        assert!(message.contains("no more bytes than there are addresses"), "{message}");
    }
    assert_eq!(pass.operations().len(), 0);
}

#[test]
fn a_buffer_whose_bytes_wrap_is_not_declared() {
    for len in WRAPPING {
        let declared = catch_unwind(|| Pass::new("wraps").transient::<f32>("x", len).len());
        assert!(declared.is_err(), "{len}");
    }
}

/// The panic of a declaration in a pass that has a buffer already; the pass is unchanged.
fn refused_declaration(declare: impl FnOnce(&mut Pass) -> Slice<u8>) -> String {
    let mut pass = Pass::new("huge");
    let value = pass.control::<u32>("value");
    let held = pass.transient::<u32>("held", 1);
    pass.copy(value, held).unwrap();
    let before = pass.explain().to_string();
    let declared = catch_unwind(AssertUnwindSafe(|| declare(&mut pass)));
    assert_eq!(pass.explain().to_string(), before);
    *declared.unwrap_err().downcast::<String>().unwrap()
}

#[test]
fn buffers_that_are_larger_than_the_addresses_are_not_declared() {
    const HALF: usize = usize::MAX / 4 + 1;
    let refused = [
        refused_declaration(|pass| pass.transient::<u8>("large", usize::MAX)),
        refused_declaration(|pass| pass.external::<u8>("large", usize::MAX)),
        refused_declaration(|pass| pass.control_array::<u8>("large", usize::MAX - 8)),
        refused_declaration(|pass| pass.transient::<u8>("large", isize::MAX as usize)),
        refused_declaration(|pass| {
            let mut pass = Pass::new(pass.name());
            pass.transient::<u8>("half", HALF);
            pass.transient::<u8>("large", HALF)
        }),
    ];
    for message in refused {
        assert!(message.contains("no more bytes than there are addresses: `large`"), "{message}");
    }
}

#[test]
fn controls_that_no_host_memory_holds_are_not_declared() {
    let most = Pass::MAX_CONTROL_BYTES;
    for len in [most, 1 << 46] {
        let message = refused_declaration(|pass| pass.control_array::<u8>("large", len));
        assert!(message.contains("the control `large`"), "{message}");
    }
    assert_eq!(Pass::new("most").control_array::<u8>("most", most).len(), most);
}

#[test]
fn slices_of_other_passes_are_refused() {
    let mut other = Pass::new("other");
    let wrong = other.external::<f32>("x", 4);
    let mut pass = Pass::new("mine");
    let x = pass.external::<f32>("x", 4);
    let error = pass.copy(wrong, x).unwrap_err();
    assert!(matches!(&error, PassError::WrongPass { pass, .. } if pass == "mine"), "{error}");
    let lr = pass.control::<f32>("lr");
    let other_lr = other.control::<f32>("lr");
    let mut controls = pass.controls();
    controls.set(lr, 1.0).unwrap();
    assert_eq!(controls.set(other_lr, 1.0), Err(ControlError::NotAControl));
    assert_eq!(controls.set(x.slice(0..1), 1.0), Err(ControlError::NotAControl));
}

#[test]
fn slices_beyond_their_buffer_are_refused() {
    let mut pass = Pass::new("bounds");
    let x = pass.external::<f32>("x", 4);
    let beyond = Slice::<f32>::new(x.buffer(), 5);
    let error = pass.fill(beyond, 0).unwrap_err();
    assert!(matches!(error, PassError::OutsideBuffer { buffer_bytes: 16, .. }), "{error}");
}

#[test]
fn copies_need_equal_lengths() {
    let mut pass = Pass::new("lengths");
    let x = pass.external::<f32>("x", 4);
    let y = pass.external::<f32>("y", 5);
    let error = pass.copy(x, y).unwrap_err();
    assert!(matches!(error, PassError::LengthMismatch { source_len: 4, target_len: 5, .. }));
}

#[test]
fn arguments_of_one_launch_do_not_alias_what_it_writes() {
    let mut pass = Pass::new("aliases");
    let x = pass.external::<f32>("x", 8);
    let y = pass.external::<f32>("y", 8);
    let (low, high) = (x.slice(0..5), x.slice(4..8));
    let refused = [
        vec![(low, Access::Read), (high, Access::Write)],
        vec![(low, Access::Write), (high, Access::Write)],
        vec![(low, Access::Write), (high, Access::ReadWrite)],
        vec![(low, Access::ReadWrite), (high, Access::ReadWrite)],
        vec![(y, Access::Read), (x, Access::Read), (x, Access::Write)],
    ];
    for accesses in refused {
        let error = pass.launch(accessing(&accesses)).unwrap_err();
        assert!(matches!(&error, PassError::Aliased { buffer, .. } if buffer == "x"), "{error}");
    }
    let allowed = [
        vec![(low, Access::Read), (high, Access::Read)],
        vec![(low, Access::Read), (low, Access::ReadWrite)],
        vec![(x.slice(0..4), Access::Read), (high, Access::Write)],
        vec![(x, Access::Read), (y, Access::Write)],
    ];
    for accesses in allowed {
        pass.launch(accessing(&accesses)).unwrap();
    }
    assert!(pass.copy(x.slice(0..4), x.slice(2..6)).is_err(), "copies must not overlap");
}

#[test]
fn a_kernel_that_is_made_to_work_in_place_may() {
    let mut pass = Pass::new("in place");
    let values = pass.external::<f32>("values", 6);
    let softmax = SoftmaxInPlace { values, rows: 2, width: 3, mask: SoftmaxMask::None };
    pass.launch(softmax.launch().unwrap()).unwrap();
}

#[test]
fn controls_are_set_by_the_host_alone() {
    let mut pass = Pass::new("controls");
    let lr = pass.control::<f32>("lr");
    let error = pass.fill(lr, 0).unwrap_err();
    assert!(matches!(error, PassError::WritesControl { .. }), "{error}");
}

#[test]
fn control_values_must_fit_their_control() {
    let mut pass = Pass::new("controls");
    let tokens = pass.control_array::<u32>("tokens", 4);
    let mut controls = pass.controls();
    let error = controls.set_array(tokens, &[1, 2]).unwrap_err();
    assert!(matches!(error, ControlError::LengthMismatch { given: 2, expected: 4, .. }));
    let beyond = Slice::<u32>::new(tokens.buffer(), 5);
    let error = controls.set_array(beyond, &[0; 5]).unwrap_err();
    assert!(matches!(error, ControlError::OutsideControl { .. }), "{error}");
}

#[test]
fn arguments_match_the_parameters_of_the_kernel() {
    let mut pass = Pass::new("arguments");
    let error = pass.launch(any(vec![])).unwrap_err();
    assert!(matches!(error, PassError::ArgumentCount { given: 0, expected: 1, .. }), "{error}");
    let error = pass.launch(any(vec![Argument::U32(1)])).unwrap_err();
    assert!(matches!(error, PassError::ArgumentKind { parameter: "table", .. }), "{error}");
}

#[test]
fn one_image_name_means_one_image() {
    let mut pass = Pass::new("images");
    let launch = |ptx: &str| {
        let image = CustomImage::ptx("mine", ptx);
        CustomLaunch::new(image, "entry", LaunchGeometry::linear(1, 1), Vec::new())
    };
    // SAFETY: the launches are only described and never run.
    let (first, again, other) = unsafe {
        (pass.custom(launch("one")), pass.custom(launch("one")), pass.custom(launch("two")))
    };
    assert!(first.is_ok() && again.is_ok());
    assert!(matches!(other, Err(PassError::ImageName { .. })));
    assert_eq!(pass.requirements().custom().len(), 1);
}

#[test]
fn names_of_buffers_are_unique() {
    let mut pass = Pass::new("names");
    let one = pass.transient::<f32>("x", 1);
    let other = pass.transient::<f32>("x", 1);
    let name = |slice: Slice<f32>| pass.buffer(slice.buffer()).unwrap().name().to_owned();
    assert_eq!((name(one), name(other)), ("x".to_owned(), "x (2)".to_owned()));
}
