//! Programs in place of `nvcc` and `ptxas`, and variables that name them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use retrograph_build::{Built, Error, Images};

pub(crate) const SCALE: &str = "\
.version 7.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 to)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [to];
    cvta.to.global.u64 %rd1, %rd1;
    st.global.u32 [%rd1], 1;
    ret;
}
";

/// An assembler whose code is its source with a terminating zero, which the simulator loads.
const PTXAS: &str = r#"
case "$1" in --version) echo version 1; exit;; esac
cat "$2" > "$4"; printf '\0' >> "$4""#;

/// A compiler that copies its source to the PTX and replaces `%s` with the target.
const NVCC: &str = r#"
for word; do
    case "$before" in -MF) list="$word";; -o) out="$word";; esac
    case "$word" in -arch=*) target="sm_${word#-arch=compute_}";; *.cu) source="$word";; esac
    before="$word"
done
case "$*" in *--refuse*) echo "line 7: no" >&2; exit 2;; esac
sed "s/%s/$target/" "$source" > "$out"
printf '%s : %s \\\n    some\\ header.h\n' "$out" "$source" > "$list""#;

/// A folder with `out`, and perhaps tools.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    variables: Vec<(&'static str, OsString)>,
}

impl Place {
    /// Without tools.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, variables: Vec::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn set(mut self, variable: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.push((variable, value.into()));
        self
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// With both tools in `bin`.
    pub(crate) fn with_tools(self) -> Self {
        std::fs::create_dir(self.path("bin")).unwrap();
        program(&self.path("bin/ptxas"), PTXAS);
        program(&self.path("bin/nvcc"), NVCC);
        self
    }

    pub(crate) fn build(&self, images: &Images) -> Result<Built, Error> {
        let value = |name: &str| {
            let set = self.variables.iter().find(|(variable, _)| *variable == name);
            set.map(|(_, value)| value.clone())
        };
        images.build(&self.path("out"), &value)
    }
}

/// A shell writes the program: a file that this process has open for writing, even in a child of
/// another test, cannot be started.
fn program(path: &Path, lines: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod 755 "$0""#]);
    assert!(shell.arg(path).arg(lines).status().unwrap().success());
}
