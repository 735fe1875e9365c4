//! Arrays: descriptors, and copies between arrays, the host and device memory.

use std::ptr::{null, null_mut};

use retrograph_driver_sim::{Config, DiagnosticKind};
use retrograph_driver_sys::*;

use crate::machine::with;
use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const NOT_SUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;
const ARRAY: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_ARRAY;
const HOST: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_HOST;
const WORD: CUarray_format = CUarray_format::CU_AD_FORMAT_UNSIGNED_INT32;

/// An array of 32-bit integers of these extents.
fn words_of([width, height, depth]: [usize; 3], flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: depth,
        Format: WORD,
        NumChannels: 1,
        Flags: flags,
    }
}

impl Machine {
    fn try_array(&self, descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> Result<CUarray, CUresult> {
        let mut array = CUarray::NULL;
        let code = cu!(self, cuArray3DCreate_v2(&mut array, descriptor));
        assert_eq!(array.is_null(), code != SUCCESS);
        code.ok().map(|()| array)
    }

    fn array(&self, extents: [usize; 3]) -> CUarray {
        self.try_array(&words_of(extents, 0)).expect("a valid descriptor")
    }

    /// Copies words from the host into a row.
    fn fill_row(&self, array: CUarray, words: &[u32]) {
        let code = cu!(self, cuMemcpyHtoA_v2(array, 0, words.as_ptr().cast(), 4 * words.len()));
        assert_eq!(code, SUCCESS);
    }

    /// Reads the words of a row.
    fn row(&self, array: CUarray, count: usize) -> Vec<u32> {
        let mut words = vec![0; count];
        let code = cu!(self, cuMemcpyAtoH_v2(words.as_mut_ptr().cast(), array, 0, 4 * count));
        assert_eq!(code, SUCCESS);
        words
    }
}

/// A copy of a box of an array to contiguous host words.
fn read_box(
    array: CUarray,
    start: [usize; 3],
    extent: [usize; 3],
    to: &mut [u32],
) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcMemoryType: ARRAY,
        srcArray: array,
        srcXInBytes: 4 * start[0],
        srcY: start[1],
        srcZ: start[2],
        dstMemoryType: HOST,
        dstHost: to.as_mut_ptr().cast(),
        dstPitch: 4 * extent[0],
        dstHeight: extent[1],
        WidthInBytes: 4 * extent[0],
        Height: extent[1],
        Depth: extent[2],
        ..CUDA_MEMCPY3D::device_to_device(0, 0, 0)
    }
}

/// A copy of contiguous host words to a box of an array.
fn write_box(array: CUarray, start: [usize; 3], extent: [usize; 3], from: &[u32]) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        dstMemoryType: ARRAY,
        dstArray: array,
        dstXInBytes: 4 * start[0],
        dstY: start[1],
        dstZ: start[2],
        srcMemoryType: HOST,
        srcHost: from.as_ptr().cast(),
        srcPitch: 4 * extent[0],
        srcHeight: extent[1],
        WidthInBytes: 4 * extent[0],
        Height: extent[1],
        Depth: extent[2],
        ..CUDA_MEMCPY3D::device_to_device(0, 0, 0)
    }
}

#[test]
fn array_descriptors_round_trip() {
    let machine = Machine::new();
    let given = CUDA_ARRAY_DESCRIPTOR {
        Width: 7,
        Height: 3,
        Format: CUarray_format::CU_AD_FORMAT_HALF,
        NumChannels: 4,
    };
    let (mut array, before) = (CUarray::NULL, machine.simulator.live());
    assert_eq!(cu!(machine, cuArrayCreate_v2(&mut array, &given)), SUCCESS);
    let live = machine.simulator.live();
    assert_eq!(live.allocations, before.allocations + 1);
    assert_eq!(live.allocated_bytes, before.allocated_bytes + 7 * 3 * 8);
    let (mut flat, mut full) = (CUDA_ARRAY_DESCRIPTOR::default(), words_of([9; 3], 9));
    assert_eq!(cu!(machine, cuArrayGetDescriptor_v2(&mut flat, array)), SUCCESS);
    assert_eq!(flat, given);
    assert_eq!(cu!(machine, cuArray3DGetDescriptor_v2(&mut full, array)), SUCCESS);
    let expected = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 7,
        Height: 3,
        Format: given.Format,
        NumChannels: 4,
        ..CUDA_ARRAY3D_DESCRIPTOR::default()
    };
    assert_eq!(full, expected);
    assert_eq!(cu!(machine, cuArrayDestroy(array)), SUCCESS);
    assert_eq!(machine.simulator.live(), before);
    assert!(machine.simulator.diagnostics().is_empty());
}

#[test]
fn invalid_descriptors_are_refused() {
    let machine = Machine::trusting();
    let before = machine.simulator.live();
    let valid = words_of([4, 0, 0], 0);
    for (descriptor, code) in [
        (CUDA_ARRAY3D_DESCRIPTOR::default(), INVALID_VALUE),
        (CUDA_ARRAY3D_DESCRIPTOR { Format: CUarray_format(4), ..valid }, INVALID_VALUE),
        (CUDA_ARRAY3D_DESCRIPTOR { NumChannels: 0, ..valid }, INVALID_VALUE),
        (CUDA_ARRAY3D_DESCRIPTOR { NumChannels: 3, ..valid }, INVALID_VALUE),
        (CUDA_ARRAY3D_DESCRIPTOR { Flags: 0x200, ..valid }, INVALID_VALUE),
        (words_of([0, 1, 1], 0), INVALID_VALUE),
        (words_of([4, 0, 2], 0), INVALID_VALUE),
        (words_of([4, 4, 0], CUDA_ARRAY3D_LAYERED), INVALID_VALUE),
        (words_of([4, 4, 5], CUDA_ARRAY3D_CUBEMAP), INVALID_VALUE),
        (words_of([4, 4, 12], CUDA_ARRAY3D_CUBEMAP), INVALID_VALUE),
        (words_of([4, 3, 6], CUDA_ARRAY3D_CUBEMAP), INVALID_VALUE),
        (words_of([131_073, 0, 0], 0), INVALID_VALUE),
        (words_of([32_769, 0, 0], CUDA_ARRAY3D_SURFACE_LDST), INVALID_VALUE),
        (words_of([1, 65_537, 0], 0), INVALID_VALUE),
        (words_of([1, 1, 16_385], CUDA_ARRAY3D_SURFACE_LDST), INVALID_VALUE),
        (words_of([1, 1, 32_769], 0), INVALID_VALUE),
        (words_of([1, 1, 2049], CUDA_ARRAY3D_LAYERED), INVALID_VALUE),
        (CUDA_ARRAY3D_DESCRIPTOR { Flags: 0x10, ..valid }, INVALID_VALUE),
        (words_of([4, 0, 0], CUDA_ARRAY3D_TEXTURE_GATHER), INVALID_VALUE),
        (words_of([32_769, 1, 0], CUDA_ARRAY3D_TEXTURE_GATHER), INVALID_VALUE),
        // Not simulated: a planar format, a number of channels that the format does not have, and
        // memory that the program maps.
        (CUDA_ARRAY3D_DESCRIPTOR { Format: CUarray_format(0xb0), ..valid }, NOT_SUPPORTED),
        (CUDA_ARRAY3D_DESCRIPTOR { Format: CUarray_format(0xc1), ..valid }, NOT_SUPPORTED),
        (CUDA_ARRAY3D_DESCRIPTOR { Flags: 0x40, ..valid }, NOT_SUPPORTED),
    ] {
        assert_eq!(machine.try_array(&descriptor), Err(code), "{descriptor:?}");
    }
    let mut array = CUarray::NULL;
    assert_eq!(cu!(machine, cuArray3DCreate_v2(null_mut(), &valid)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuArray3DCreate_v2(&mut array, null())), INVALID_VALUE);
    assert_eq!(cu!(machine, cuArrayCreate_v2(&mut array, null())), INVALID_VALUE);
    assert_eq!(machine.simulator.live(), before);
    assert_eq!(machine.diagnostics(DiagnosticKind::Unsupported).len(), 3);
    let huge = machine.try_array(&words_of([16_384, 16_384, 2], 0));
    assert_eq!(huge, Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    assert_eq!(cu!(machine, cuCtxSetCurrent(CUcontext::NULL)), SUCCESS);
    assert_eq!(machine.try_array(&valid), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
}

#[test]
fn image_formats_have_elements_of_their_size() {
    let machine = Machine::new();
    let empty = machine.simulator.live().allocated_bytes;
    for (format, channels, bytes) in
        [(0xc0, 1, 1), (0xc2, 4, 4), (0xc5, 4, 8), (0xca, 2, 4), (0x50, 4, 4)]
    {
        let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
            Format: CUarray_format(format),
            NumChannels: channels,
            Flags: CUDA_ARRAY3D_TEXTURE_GATHER | 0x8000_0000,
            ..words_of([3, 5, 0], 0)
        };
        let array = machine.try_array(&descriptor).expect("a possible array");
        assert_eq!(machine.simulator.live().allocated_bytes, empty + 15 * bytes, "{format:#x}");
        assert_eq!(cu!(machine, cuArrayDestroy(array)), SUCCESS);
    }
}

/// Hardware reads extents as 32-bit numbers.
#[test]
fn extents_are_numbers_of_32_bits() {
    let machine = Machine::new();
    let array = machine.array([(1 << 32) + 4, 1 << 32, 0]);
    let mut known = CUDA_ARRAY3D_DESCRIPTOR::default();
    assert_eq!(cu!(machine, cuArray3DGetDescriptor_v2(&mut known, array)), SUCCESS);
    assert_eq!(known, words_of([4, 0, 0], 0));
}

#[test]
fn the_largest_layers_and_faces_are_possible() {
    let machine = Machine::new();
    for (extents, flags) in [
        ([1, 0, 2048], CUDA_ARRAY3D_LAYERED),
        ([1, 1, 2048], CUDA_ARRAY3D_LAYERED),
        ([4, 4, 6], CUDA_ARRAY3D_CUBEMAP),
        ([4, 4, 18], CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED),
        ([1, 1, 16_384], CUDA_ARRAY3D_SURFACE_LDST),
        // The alternative extents of three dimensions.
        ([1, 1, 32_768], 0),
        ([131_072, 0, 0], 0),
        ([131_072, 2, 0], 0),
    ] {
        let descriptor = words_of(extents, flags);
        let array = machine.try_array(&descriptor).expect("a possible array");
        let mut known = CUDA_ARRAY3D_DESCRIPTOR::default();
        assert_eq!(cu!(machine, cuArray3DGetDescriptor_v2(&mut known, array)), SUCCESS);
        assert_eq!(known, descriptor);
        assert_eq!(cu!(machine, cuArrayDestroy(array)), SUCCESS);
    }
}

#[test]
fn rows_are_copied_from_and_to_all_kinds_of_memory() {
    let machine = Machine::new();
    let (first, second) = (machine.array([4, 0, 0]), machine.array([4, 0, 0]));
    machine.fill_row(first, &[1, 2, 3, 4]);
    assert_eq!(machine.row(first, 4), [1, 2, 3, 4]);
    // From the second element of one array to the third of the other.
    machine.fill_row(second, &[0; 4]);
    assert_eq!(cu!(machine, cuMemcpyAtoA_v2(second, 8, first, 4, 8)), SUCCESS);
    assert_eq!(machine.row(second, 4), [0, 0, 2, 3]);
    let words = machine.words(&[7, 8]);
    assert_eq!(cu!(machine, cuMemcpyDtoA_v2(second, 4, words, 8)), SUCCESS);
    assert_eq!(machine.row(second, 4), [0, 7, 8, 3]);
    assert_eq!(cu!(machine, cuMemcpyAtoD_v2(words, second, 8, 8)), SUCCESS);
    assert_eq!([machine.peek(words), machine.peek(words + 4)], [8, 3]);
    let (stream, pinned) = (machine.stream(), machine.pinned(&[5, 6]));
    assert_eq!(cu!(machine, cuMemcpyHtoAAsync_v2(first, 0, pinned.cast(), 4, stream)), SUCCESS);
    // SAFETY: the pinned words live, and nothing runs before the wait.
    unsafe { pinned.write(9) };
    // SAFETY: as above.
    let target = unsafe { pinned.add(1) };
    assert_eq!(cu!(machine, cuMemcpyAtoHAsync_v2(target.cast(), first, 0, 4, stream)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    // SAFETY: as above.
    assert_eq!(unsafe { target.read() }, 9, "the copies ran in stream order");
}

#[test]
fn boxes_address_rows_and_slices_of_an_array() {
    let machine = Machine::new();
    let array = machine.array([3, 4, 2]);
    let all: Vec<u32> = (0..24).collect();
    let mut given = write_box(array, [0; 3], [3, 4, 2], &all);
    // The array ignores these.
    (given.dstPitch, given.dstHeight) = (usize::MAX, 1);
    assert_eq!(cu!(machine, cuMemcpy3D_v2(&given)), SUCCESS);
    let mut some = [0; 8];
    assert_eq!(
        cu!(machine, cuMemcpy3D_v2(&read_box(array, [1, 2, 0], [2, 2, 2], &mut some))),
        SUCCESS
    );
    assert_eq!(some, [7, 8, 10, 11, 19, 20, 22, 23]);
    // A rectangle from one array to another, in stream order.
    let (flat, stream) = (machine.array([2, 2, 0]), machine.stream());
    let rectangle = CUDA_MEMCPY2D {
        srcMemoryType: ARRAY,
        srcArray: array,
        srcXInBytes: 4,
        srcY: 1,
        dstMemoryType: ARRAY,
        dstArray: flat,
        WidthInBytes: 8,
        Height: 2,
        ..CUDA_MEMCPY2D::default()
    };
    assert_eq!(cu!(machine, cuMemcpy2DAsync_v2(&rectangle, stream)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    let mut four = [0; 4];
    let given = read_box(flat, [0; 3], [2, 2, 1], &mut four);
    assert_eq!(cu!(machine, cuMemcpy3D_v2(&given)), SUCCESS);
    assert_eq!(four, [4, 5, 7, 8]);
}

#[test]
fn layers_without_rows_are_slices() {
    let machine = Machine::new();
    let array = machine.try_array(&words_of([2, 0, 3], CUDA_ARRAY3D_LAYERED)).expect("layers");
    let given = write_box(array, [0; 3], [2, 1, 3], &[1, 2, 3, 4, 5, 6]);
    assert_eq!(cu!(machine, cuMemcpy3D_v2(&given)), SUCCESS);
    let mut layer = [0; 2];
    let given = read_box(array, [0, 0, 2], [2, 1, 1], &mut layer);
    assert_eq!(cu!(machine, cuMemcpy3D_v2(&given)), SUCCESS);
    assert_eq!(layer, [5, 6]);
}

#[test]
fn copies_past_an_array_are_refused() {
    let machine = Machine::trusting();
    let array = machine.array([3, 2, 2]);
    let mut words = [7; 12];
    for (start, extent) in [
        ([1, 0, 0], [3, 1, 1]),
        ([0, 1, 0], [1, 2, 1]),
        ([0, 0, 1], [1, 1, 2]),
        ([0, 0, 2], [1, 1, 1]),
        ([usize::MAX / 4, 0, 0], [1, 1, 1]),
    ] {
        let given = read_box(array, start, extent, &mut words);
        assert_eq!(cu!(machine, cuMemcpy3D_v2(&given)), INVALID_VALUE, "{start:?} {extent:?}");
    }
    let inside = read_box(array, [0; 3], [1; 3], &mut words);
    for given in
        [CUDA_MEMCPY3D { srcLOD: 1, ..inside }, CUDA_MEMCPY3D { srcArray: CUarray::NULL, ..inside }]
    {
        assert_eq!(cu!(machine, cuMemcpy3D_v2(&given)), INVALID_VALUE);
    }
    let row = machine.array([4, 0, 0]);
    let source = words.as_ptr().cast();
    assert_eq!(cu!(machine, cuMemcpyHtoA_v2(row, 8, source, 12)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuMemcpyHtoA_v2(array, 8, source, 8)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuMemcpyHtoA_v2(CUarray::NULL, 0, source, 4)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuMemcpyHtoA_v2(CUarray::NULL, 0, source, 0)), SUCCESS);
    assert_eq!(cu!(machine, cuMemcpyAtoD_v2(8, row, 0, 4)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuArrayGetDescriptor_v2(null_mut(), row)), INVALID_VALUE);
    assert_eq!(cu!(machine, cuArray3DGetDescriptor_v2(null_mut(), row)), INVALID_VALUE);
    assert_eq!(words, [7; 12], "nothing was read");
}

#[test]
fn copies_start_and_end_inside_elements() {
    let machine = Machine::new();
    let array = machine.array([3, 2, 2]);
    let words = [0x0403_0201, 0x0807_0605, 0];
    let zeros = write_box(array, [0; 3], [3, 2, 2], &[0; 12]);
    assert_eq!(cu!(machine, cuMemcpy3D_v2(&zeros)), SUCCESS);
    // By offset, only the first row of the first slice.
    assert_eq!(cu!(machine, cuMemcpyHtoA_v2(array, 1, words.as_ptr().cast(), 6)), SUCCESS);
    assert_eq!(machine.row(array, 3), [0x0302_0100, 0x0006_0504, 0]);
    let (mut found, whole) = ([7; 12], [3, 2, 2]);
    let given = read_box(array, [0; 3], whole, &mut found);
    assert_eq!(cu!(machine, cuMemcpy3D_v2(&given)), SUCCESS);
    assert_eq!(found[3..], [0; 9]);
    let mut flat = CUDA_ARRAY_DESCRIPTOR::default();
    assert_eq!(cu!(machine, cuArrayGetDescriptor_v2(&mut flat, array)), SUCCESS);
    assert_eq!((flat.Width, flat.Height), (3, 2));
}

#[test]
fn a_destroyed_array_is_unknown() {
    let machine = Machine::trusting();
    let unknown = CUresult::CUDA_ERROR_INVALID_HANDLE;
    let (array, mut descriptor) = (machine.array([4, 0, 0]), words_of([1; 3], 0));
    assert_eq!(cu!(machine, cuArrayDestroy(array)), SUCCESS);
    assert_eq!(cu!(machine, cuArrayDestroy(array)), unknown);
    assert_eq!(cu!(machine, cuArrayDestroy(CUarray::NULL)), unknown);
    assert_eq!(cu!(machine, cuArray3DGetDescriptor_v2(&mut descriptor, array)), unknown);
    let mut word = 0u32;
    let place = (&raw mut word).cast();
    assert_eq!(cu!(machine, cuMemcpyAtoH_v2(place, array, 0, 4)), unknown);
    let never = CUarray(std::ptr::without_provenance_mut(0x7fff_0000_0040));
    assert_eq!(cu!(machine, cuArrayDestroy(never)), CUresult::CUDA_ERROR_UNKNOWN);
    assert_eq!(machine.diagnostics(DiagnosticKind::Undefined).len(), 1);
}

#[test]
fn queued_copies_end_before_their_array_is_destroyed() {
    let machine = Machine::new();
    let (array, stream) = (machine.array([1, 0, 0]), machine.stream());
    machine.fill_row(array, &[5]);
    let pinned = machine.pinned(&[0]);
    assert_eq!(cu!(machine, cuMemcpyAtoHAsync_v2(pinned.cast(), array, 0, 4, stream)), SUCCESS);
    assert_eq!(cu!(machine, cuArrayDestroy(array)), SUCCESS);
    assert_eq!(machine.sync(stream), SUCCESS);
    // SAFETY: the pinned word lives, and nothing runs.
    assert_eq!(unsafe { pinned.read() }, 5);
}

#[test]
fn graphs_copy_arrays_at_each_launch() {
    let machine = Machine::new();
    let (array, stream, word) = (machine.array([2, 0, 0]), machine.stream(), machine.zero());
    assert_eq!(machine.begin(stream), SUCCESS);
    let given = CUDA_MEMCPY3D {
        srcMemoryType: ARRAY,
        srcArray: array,
        srcXInBytes: 4,
        srcPitch: 1,
        ..CUDA_MEMCPY3D::device_to_device(word, 0, 4)
    };
    assert_eq!(cu!(machine, cuMemcpy3DAsync_v2(&given, stream)), SUCCESS);
    let (code, graph) = machine.end(stream);
    assert_eq!(code, SUCCESS);
    let (mut node, mut count, mut known) = (CUgraphNode::NULL, 1, CUDA_MEMCPY3D::default());
    assert_eq!(cu!(machine, cuGraphGetNodes(graph, &mut node, &mut count)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphMemcpyNodeGetParams(node, &mut known)), SUCCESS);
    assert_eq!((known.srcArray, known.srcXInBytes, known.srcPitch), (array, 4, 1));
    let exec = machine.instantiate(graph).expect("the graph is valid");
    for value in [3, 4] {
        machine.fill_row(array, &[0, value]);
        assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
        assert_eq!(machine.sync(stream), SUCCESS);
        assert_eq!(machine.peek(word), value);
    }
    // The array of a node that was added by its parameters.
    let (none, context) = (null(), machine.context);
    let given = CUDA_MEMCPY3D { srcXInBytes: 0, ..given };
    assert_eq!(
        cu!(machine, cuGraphAddMemcpyNode(&mut node, graph, none, 0, &given, context)),
        SUCCESS
    );
    let exec = machine.instantiate(graph).expect("the graph is valid");
    assert_eq!(cu!(machine, cuArrayDestroy(array)), SUCCESS);
    assert_eq!(cu!(machine, cuGraphLaunch(exec, stream)), SUCCESS);
    let late = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    assert_eq!(machine.sync(stream), late, "the array of the node is gone");
}

#[test]
fn an_array_is_copied_whichever_device_is_current() {
    let mut config = Config::default();
    config.devices = 2;
    config.memory_bytes = 1 << 20;
    let machine = Machine::with(config);
    let (array, mut other) = (machine.array([4, 0, 0]), CUcontext::NULL);
    machine.fill_row(array, &[1, 2, 3, 4]);
    // Another context of the device may use it.
    assert_eq!(cu!(machine, cuCtxCreate_v2(&mut other, 0, 0)), SUCCESS);
    assert_eq!(machine.row(array, 4), [1, 2, 3, 4]);
    assert_eq!(cu!(machine, cuCtxCreate_v2(&mut other, 0, 1)), SUCCESS);
    assert_eq!(machine.row(array, 4), [1, 2, 3, 4]);
}

#[test]
fn arrays_of_a_context_end_with_it() {
    let machine = Machine::with(with(Config::default(), |it| it.memory_bytes = 1 << 20));
    let before = machine.simulator.live();
    for _ in 0..3 {
        let mut context = CUcontext::NULL;
        assert_eq!(cu!(machine, cuCtxCreate_v2(&mut context, 0, 0)), SUCCESS);
        // Two of these arrays exceed the device memory.
        machine.array([150_000 / 4, 4, 0]);
        assert_eq!(cu!(machine, cuCtxDestroy_v2(context)), SUCCESS);
        assert_eq!(machine.simulator.live(), before);
    }
}
