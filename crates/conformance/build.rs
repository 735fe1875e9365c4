//! Concatenates the source of `retrograph-driver-sys`, from which the scenario language takes
//! constants, structures and handles by name.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let source = Path::new("../driver-sys/src");
    println!("cargo::rerun-if-changed=../driver-sys/src");
    let mut files = Vec::new();
    collect(source, &mut files);
    files.sort();
    let mut text = String::new();
    for file in files {
        text.push_str(&fs::read_to_string(&file).expect("a source file is readable"));
        text.push('\n');
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("driver_sys.txt"), text).expect("OUT_DIR is writable");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the crate lies beside this one") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
