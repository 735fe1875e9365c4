//! Lookups of entry points.

use retrograph_driver::{Error, Module};

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
