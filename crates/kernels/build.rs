//! Prints every image for every generated SM target and a table that embeds them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs, io};

use retrograph_ptx::SmTarget;
use sha2::{Digest, Sha256};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let mut table = String::from("&[\n");
    for target in SmTarget::GENERATED {
        for (name, module) in retrograph_kernels_ptx::images(target) {
            let path = out.join(format!("{name}.{target}.ptx"));
            let text = module.to_string();
            fs::write(&path, &text)?;
            let (number, digest) = (target.number, <[u8; 32]>::from(Sha256::digest(text)));
            writeln!(table, "    ({name:?}, {number}, {digest:?}, include_str!({path:?})),")
                .expect("writing to a string does not fail");
        }
    }
    table.push_str("]\n");
    fs::write(out.join("images.rs"), table)
}
