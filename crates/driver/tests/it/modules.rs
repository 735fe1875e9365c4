//! Loading of images, and lookups of entry points.

use retrograph_driver::{
    DeviceBuffer, Error, KernelArguments, KernelLaunch, LaunchGeometry, Module,
};

use crate::device::{Device, device};
use crate::ptx::SCALE;

#[test]
fn a_missing_entry_point_is_named() {
    let Device { context, .. } = device();
    let module = Module::load_ptx(&context, SCALE).unwrap();
    for missing in ["scales", "", "scale\0"] {
        let error = module.function(missing).unwrap_err();
        let Error::NoEntryPoint { name, .. } = &error else { panic!("{error}") };
        assert_eq!(name, missing);
        assert!(error.to_string().contains(&format!("`{missing}`")), "{error}");
    }
    assert_eq!(module.function("scale").unwrap().name(), "scale");
}

/// A fatbin with `ptx` for sm_75, uncompressed, as `fatbinary` of CUDA 13.0 writes it.
fn fatbin(ptx: &str) -> Vec<u8> {
    let mut text = ptx.as_bytes().to_vec();
    text.resize((ptx.len() + 1).next_multiple_of(8), 0);
    let bytes = text.len() as u64;
    let entry: [&[u8]; 12] = [
        // PTX, the version of the entry, and the size of its header.
        &1_u16.to_le_bytes(),
        &0x101_u16.to_le_bytes(),
        &80_u32.to_le_bytes(),
        &bytes.to_le_bytes(),
        // Not compressed; where the options are; the ISA 6.3 and the SM target.
        &0_u32.to_le_bytes(),
        &64_u32.to_le_bytes(),
        &[3, 0, 6, 0],
        &75_u32.to_le_bytes(),
        &0_u64.to_le_bytes(),
        // 64-bit addresses, for Linux.
        &0x11_u64.to_le_bytes(),
        &[0; 16],
        // No options.
        &[0x48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    let images = [entry.concat(), text].concat();
    let (magic, version, header) = (0xba55_ed50_u32, 1_u16, 16_u16);
    let start = [&magic.to_le_bytes()[..], &version.to_le_bytes(), &header.to_le_bytes()].concat();
    [start, (images.len() as u64).to_le_bytes().to_vec(), images].concat()
}

#[test]
fn a_fatbin_is_loaded_unless_the_driver_is_simulated() {
    let Device { context, stream } = device();
    let loaded = Module::load_code(&context, &fatbin(SCALE));
    if context.driver().is_simulated() {
        let error = loaded.unwrap_err();
        assert!(error.is_of_image() && error.to_string().contains("simulated"), "{error}");
        return;
    }
    let function = loaded.unwrap().function("scale").unwrap();
    let buffer = DeviceBuffer::from_slice(&stream, &[1.0_f32, 2.0, 3.0]).unwrap();
    let arguments = KernelArguments::new().buffer(&buffer).u32(3).f32(2.0);
    let launch = KernelLaunch::new(&function, LaunchGeometry::linear(1, 32), &arguments);
    // SAFETY: the arguments match the function, and the download waits.
    unsafe { stream.launch(&launch) }.unwrap();
    assert_eq!(buffer.download(&stream).unwrap(), [2.0, 4.0, 6.0]);
}

#[test]
fn code_that_is_cut_off_or_unknown_does_not_reach_the_driver() {
    let Device { context, .. } = device();
    let bad = |code: &[u8]| {
        let error = Module::load_code(&context, code).unwrap_err().error;
        assert!(matches!(error, Error::BadImage { .. }), "{error}");
    };
    let fatbin = fatbin(SCALE);
    bad(&fatbin[..fatbin.len() - 1]);
    bad(&fatbin[..10]);
    bad(b"\x7fELF");
    bad(b"no code");
    bad(b"");
}
