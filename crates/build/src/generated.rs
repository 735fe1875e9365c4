//! The Rust file that the program includes.

use std::fmt::Write as _;

/// An image in the Rust file.
pub(crate) struct Constant {
    pub(crate) name: String,
    /// The image and the source of its PTX, for the documentation.
    pub(crate) about: String,
    /// The file of its PTX, in the folder of the module.
    pub(crate) file: String,
}

/// Returns the text of the module `name`: a constant for each image, and `BUNDLE`. Paths are
/// relative to `OUT_DIR`, which is also set when the program is compiled.
pub(crate) fn module(name: &str, constants: &[Constant], about_bundle: &str) -> String {
    let mut text = "// Made by the build script; changes are lost.\n".to_owned();
    for Constant { name: constant, about, file } in constants {
        let kind = format!("{constant}: &str = include_str!");
        item(&mut text, about, &kind, &format!("{name}/{file}"));
    }
    let bundle = format!("{name}/{BUNDLE_FILE}");
    item(&mut text, about_bundle, "BUNDLE: &[u8] = include_bytes!", &bundle);
    text
}

/// The file of the bundle, in the folder of the module.
pub(crate) const BUNDLE_FILE: &str = "images.bundle";

fn item(text: &mut String, about: &str, kind: &str, file: &str) {
    writeln!(
        text,
        "\n#[doc = {about:?}]\n#[allow(dead_code, unreachable_pub)]\n\
         pub const {kind}(concat!(env!(\"OUT_DIR\"), {:?}));",
        format!("/{file}")
    )
    .expect("a string can be written");
}
