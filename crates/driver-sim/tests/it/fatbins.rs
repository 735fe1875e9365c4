//! Fat binaries: which PTX is taken, and images without usable PTX.

use std::ffi::c_void;
use std::ptr::null_mut;

use retrograph_driver_sim::DiagnosticKind;
use retrograph_driver_sys::*;

use crate::machine::{Machine, cu};

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;
/// Flags of entries: 64-bit code for Linux, and the compression.
const PLAIN: u64 = 0x11;
const LZ4: u64 = 0x2011;
const ZSTD: u64 = 0x8011;
/// Code for exactly one compute capability, and for its family.
const ARCH_SPECIFIC: u64 = 0x10_0011;
const FAMILY_SPECIFIC: u64 = 0x120_0011;
const MACHINE_CODE: u16 = 2;

/// PTX for a target, such as 90 or `90a`, with one kernel of this name.
fn ptx(target: impl std::fmt::Display, kernel: &str) -> Vec<u8> {
    format!(
        ".version 8.0\n.target sm_{target}\n.address_size 64\n\
         .visible .entry {kernel}()\n{{\nret;\n}}\n"
    )
    .into_bytes()
}

/// An entry whose payload becomes `size` bytes if it is decompressed.
fn entry(kind: u16, target: u32, flags: u64, payload: &[u8], size: usize) -> Vec<u8> {
    let mut entry = vec![0; 64];
    let stored = payload.len().next_multiple_of(8);
    let mut put = |at: usize, bytes: &[u8]| entry[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &kind.to_le_bytes());
    put(2, &0x101u16.to_le_bytes());
    put(4, &64u32.to_le_bytes());
    put(8, &(stored as u64).to_le_bytes());
    put(16, &(payload.len() as u32).to_le_bytes());
    put(28, &target.to_le_bytes());
    put(40, &flags.to_le_bytes());
    put(56, &(size as u64).to_le_bytes());
    entry.extend(payload);
    entry.resize(64 + stored, 0);
    entry
}

fn plain(target: u32, kernel: &str) -> Vec<u8> {
    entry(1, target, PLAIN, &ptx(target, kernel), 0)
}

fn fatbin(entries: &[Vec<u8>]) -> Vec<u8> {
    let entries = entries.concat();
    let mut fatbin = [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0].to_vec();
    fatbin.extend((entries.len() as u64).to_le_bytes());
    fatbin.extend(entries);
    fatbin
}

/// Loads an image and returns the name of its first kernel.
fn loaded(machine: &Machine, image: *const c_void) -> Result<String, CUresult> {
    let (mut module, mut function, mut name) = (CUmodule::NULL, CUfunction::NULL, std::ptr::null());
    cu!(machine, cuModuleLoadData(&mut module, image)).ok()?;
    let driver = machine.simulator.table();
    let list = driver.cuModuleEnumerateFunctions.expect("a function of this driver");
    let get = driver.cuFuncGetName.expect("a function of this driver");
    // SAFETY: the places are valid, and the name lives as long as the module.
    let name = unsafe {
        assert_eq!(list(&mut function, 1, module), SUCCESS);
        assert_eq!(get(&mut name, function), SUCCESS);
        std::ffi::CStr::from_ptr(name)
    };
    Ok(name.to_string_lossy().into_owned())
}

fn load(image: &[u8]) -> Result<String, CUresult> {
    let machine = Machine::new();
    let found = loaded(&machine, image.as_ptr().cast());
    assert_eq!(machine.diagnostics(DiagnosticKind::Internal), [""; 0]);
    found
}

#[test]
fn ptx_for_the_newest_target_that_runs_is_taken() {
    let code = entry(MACHINE_CODE, 90, PLAIN, b"\x7fELF", 0);
    let entries = [plain(80, "older"), plain(90, "newer"), code, plain(100, "later")];
    assert_eq!(load(&fatbin(&entries)).as_deref(), Ok("newer"));
    assert_eq!(load(&fatbin(&entries[..1])).as_deref(), Ok("older"));
    assert_eq!(load(&fatbin(&entries[2..])), Err(UNSUPPORTED));
    assert_eq!(load(&fatbin(&[])), Err(UNSUPPORTED));
}

#[test]
fn the_most_specific_ptx_for_a_device_is_taken() {
    let of_arch = |target: u32| {
        let text = ptx(format!("{target}a"), &format!("exact_{target}"));
        entry(1, target, ARCH_SPECIFIC, &text, 0)
    };
    let forward = |target: u32| plain(target, &format!("forward_{target}"));
    // Every order, since the driver does not take the first one.
    for entries in [[forward(90), of_arch(90)], [of_arch(90), forward(90)]] {
        assert_eq!(load(&fatbin(&entries)).as_deref(), Ok("exact_90"));
    }
    // PTX for another exact target does not run, not even on later devices.
    for entries in [[forward(80), of_arch(89)], [of_arch(100), forward(80)]] {
        assert_eq!(load(&fatbin(&entries)).as_deref(), Ok("forward_80"));
    }
}

#[test]
fn an_image_without_code_for_the_device_is_refused_as_by_the_driver() {
    let code = |target, flags| entry(MACHINE_CODE, target, flags, b"\x7fELF", 0);
    // Machine code runs within a major version, from its minor version on.
    for other in [code(80, PLAIN), code(100, PLAIN), code(103, ARCH_SPECIFIC), plain(100, "later")]
    {
        assert_eq!(load(&fatbin(&[other])), Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
    }
    for ours in [code(90, PLAIN), code(90, ARCH_SPECIFIC), code(90, FAMILY_SPECIFIC)] {
        assert_eq!(load(&fatbin(&[plain(100, "later"), ours])), Err(UNSUPPORTED));
    }
    let unknown = entry(1, 90, PLAIN, b".version 8.0\n.target unknown\n", 0);
    assert_eq!(load(&fatbin(&[unknown])), Err(UNSUPPORTED));
    // Libraries report it when they are used.
    let (machine, mut library, mut module) = (Machine::new(), CUlibrary::NULL, CUmodule::NULL);
    let (image, none) = (fatbin(&[plain(100, "later")]), null_mut());
    let at = image.as_ptr().cast();
    let code = cu!(
        machine,
        cuLibraryLoadData(&mut library, at, none, null_mut(), 0, null_mut(), null_mut(), 0)
    );
    assert_eq!(code, SUCCESS);
    let code = cu!(machine, cuLibraryGetModule(&mut module, library));
    assert_eq!(code, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
}

#[test]
fn a_program_of_nvcc_points_to_its_fat_binary() {
    let image = fatbin(&[plain(90, "wrapped")]);
    #[repr(C)]
    struct Wrapper {
        magic: u32,
        version: u32,
        data: *const u8,
        others: *const c_void,
    }
    let mut wrapper =
        Wrapper { magic: 0x4662_43b1, version: 1, data: image.as_ptr(), others: null_mut() };
    let machine = Machine::new();
    let at = (&raw const wrapper).cast();
    assert_eq!(loaded(&machine, at).as_deref(), Ok("wrapped"));
    let mut library = CUlibrary::NULL;
    let code = cu!(
        machine,
        cuLibraryLoadData(&mut library, at, null_mut(), null_mut(), 0, null_mut(), null_mut(), 0)
    );
    assert_eq!(code, SUCCESS);
    let (mut kernel, mut graph, mut node) = (CUkernel::NULL, CUgraph::NULL, CUgraphNode::NULL);
    let code = cu!(machine, cuLibraryGetKernel(&mut kernel, library, c"wrapped".as_ptr()));
    assert_eq!((code, cu!(machine, cuGraphCreate(&mut graph, 0))), (SUCCESS, SUCCESS));
    let (none, mut given) = (std::ptr::null(), CUDA_KERNEL_NODE_PARAMS::default());
    (given.gridDimX, given.gridDimY, given.gridDimZ) = (1, 1, 1);
    (given.blockDimX, given.blockDimY, given.blockDimZ) = (1, 1, 1);
    given.kern = kernel;
    let code = cu!(machine, cuGraphAddKernelNode_v2(&mut node, graph, none, 0, &given));
    assert_eq!(code, SUCCESS);
    given.kern = CUkernel::NULL;
    assert_eq!(cu!(machine, cuGraphKernelNodeGetParams_v2(node, &mut given)), SUCCESS);
    assert_eq!(given.kern, kernel, "the runtime finds its function by the kernel");
    wrapper.version = 2;
    assert_eq!(loaded(&machine, (&raw const wrapper).cast()), Err(UNSUPPORTED));
}

#[test]
fn compressed_ptx_is_decompressed() {
    // LZ4: literal bytes, a match that repeats a line end 40 times, and five more literal bytes.
    let text = ptx(90, "compressed");
    let mut block = vec![0xff];
    let rest = text.len() - 15;
    block.extend(std::iter::repeat_n(0xff, rest / 0xff));
    block.push((rest % 0xff) as u8);
    block.extend(&text);
    block.extend([1, 0, 40 - 4 - 15, 5 << 4]);
    block.extend(b"//end");
    let size = text.len() + 40 + 5;
    let image = fatbin(&[entry(1, 90, LZ4, &block, size)]);
    assert_eq!(load(&image).as_deref(), Ok("compressed"));

    // Zstandard: a frame with its size and one block that is not compressed further.
    let mut frame = [0x28, 0xb5, 0x2f, 0xfd, 0xa0].to_vec();
    frame.extend((text.len() as u32).to_le_bytes());
    frame.extend(&((text.len() as u32) << 3 | 1).to_le_bytes()[..3]);
    frame.extend(&text);
    let image = fatbin(&[entry(1, 90, ZSTD, &frame, text.len())]);
    assert_eq!(load(&image).as_deref(), Ok("compressed"));
    // A size of zero bytes leaves no text.
    assert_eq!(load(&fatbin(&[entry(1, 90, ZSTD, &frame, 0)])), Err(UNSUPPORTED));
}

#[test]
fn a_damaged_fat_binary_is_refused() {
    let text = ptx(90, "damaged");
    let whole = fatbin(&[plain(90, "damaged")]);
    let with = |at: usize, bytes: &[u8]| {
        let mut image = whole.clone();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        load(&image)
    };
    // The sizes of the image, of the header of the entry and of its payload.
    assert_eq!(with(8, &u64::MAX.to_le_bytes()), Err(UNSUPPORTED));
    assert_eq!(with(8, &40u64.to_le_bytes()), Err(UNSUPPORTED));
    assert_eq!(with(16 + 4, &u32::MAX.to_le_bytes()), Err(UNSUPPORTED));
    assert_eq!(with(16 + 8, &u64::MAX.to_le_bytes()), Err(UNSUPPORTED));
    // Text that is not compressed as the flags say.
    for flags in [LZ4, ZSTD] {
        let image = fatbin(&[entry(1, 90, flags, &text, 1000)]);
        assert_eq!(load(&image), Err(UNSUPPORTED));
    }
}

#[test]
fn a_fat_binary_loads_from_a_file() {
    let machine = Machine::new();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kernels.fatbin");
    std::fs::write(&path, fatbin(&[plain(90, "filed")])).expect("it can be written");
    let path = std::ffi::CString::new(path.to_str().expect("UTF-8")).expect("no zero byte");
    let mut module = CUmodule::NULL;
    assert_eq!(cu!(machine, cuModuleLoad(&mut module, path.as_ptr())), SUCCESS);
}
