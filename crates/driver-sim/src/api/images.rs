//! Module images: recognition and parsing of PTX, and the errors of other images.

use std::ffi::c_void;
use std::io::ErrorKind;
use std::sync::Arc;

use retrograph_driver_sys::*;
use retrograph_ptx::IsaVersion;
use retrograph_ptx::ast::{Function, Linkage, Module, Operand, Statement};
use retrograph_ptx_exec::{GET_GRID_HANDLE, SYNCHRONIZE_GRID};

use super::fatbin;
use crate::argument::In;
use crate::image::{self, Image};
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::State;

/// The magic number of cubins.
const ELF: &[u8; 4] = b"\x7fELF";

/// The ELF class for 64-bit addresses, at the next byte.
const ELF_CLASS_64: u8 = 2;

/// Why a binary image is refused.
const NOT_PTX: &str = "cubins cannot be simulated";

/// Device functions that the driver provides.
const OF_THE_DRIVER: [&str; 7] = [
    "vprintf",
    "malloc",
    "free",
    "__assertfail",
    "cudaGraphSetConditional",
    GET_GRID_HANDLE,
    SYNCHRONIZE_GRID,
];

/// A failed load: the code and the message of the JIT log.
#[derive(Clone)]
pub(crate) struct LoadFailure {
    pub(crate) refusal: Refusal,
    pub(crate) message: String,
}

impl LoadFailure {
    pub(crate) fn new(refusal: Refusal, message: impl Into<String>) -> Self {
        Self { refusal, message: message.into() }
    }

    fn no_image() -> Self {
        let refusal = refuse(CUresult::CUDA_ERROR_INVALID_IMAGE, Rule::ModuleNoImage);
        Self::new(refusal, "what was given is no image: it does not begin with `.version`")
    }

    pub(crate) fn bad_text(rule: Rule, message: impl Into<String>) -> Self {
        Self::new(refuse(CUresult::CUDA_ERROR_INVALID_PTX, rule), message)
    }
}

impl State {
    /// The refusal of a load that failed.
    pub(super) fn failed(&mut self, failure: LoadFailure) -> Refusal {
        match failure.refusal.kind {
            Some(_) => self.unsupported(failure.message),
            None => failure.refusal,
        }
    }

    /// Parses the PTX of an image, which may refer to undefined functions.
    pub(super) fn parse_image(&self, text: &str) -> Result<Arc<Image>, LoadFailure> {
        if !begins_with_version(text) {
            return Err(LoadFailure::no_image());
        }
        let newest = self.config.newest_isa();
        if let Some(version) = version_line(text).filter(|version| *version > newest) {
            return Err(LoadFailure::new(
                refuse(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, Rule::ModuleIsa),
                format!("PTX ISA {version} is newer than {newest}, which this driver understands"),
            ));
        }
        let parsed = image::parse(text).map_err(|error| match error.is_missing {
            // A real driver may accept it.
            true => LoadFailure::new(Refusal::UNSUPPORTED, error.to_string()),
            false => LoadFailure::bad_text(Rule::ModuleText, error.to_string()),
        })?;
        let (major, minor) = self.config.compute_capability;
        let target = parsed.module.target;
        if !target.runs_on(major, minor) {
            let message = format!("an image for {target} does not run on a device {major}.{minor}");
            return Err(LoadFailure::bad_text(Rule::ModuleTarget, message));
        }
        Ok(parsed)
    }

    /// Parses the PTX of an image that must define all functions that it calls.
    pub(super) fn parse_complete(&self, text: &str) -> Result<Arc<Image>, LoadFailure> {
        let parsed = self.parse_image(text)?;
        match undefined_function(&parsed.module) {
            Some(name) => {
                let message = format!("the function `{name}` is called and has no body");
                Err(LoadFailure::bad_text(Rule::ModuleUndefined, message))
            }
            None => Ok(parsed),
        }
    }
}

/// A called function that neither the module nor the driver defines.
pub(super) fn undefined_function(module: &Module) -> Option<&str> {
    undefined_functions(module).next()
}

/// All called functions without a definition, once for each call.
pub(super) fn undefined_functions(module: &Module) -> impl Iterator<Item = &str> {
    let missing = |function: &Function| {
        !function.is_defined
            && function.linkage == Linkage::Extern
            && !OF_THE_DRIVER.contains(&function.code.name.as_str())
    };
    let functions = module.functions.iter().map(|function| &function.code.body);
    let bodies = module.entries.iter().map(|entry| &entry.body).chain(functions);
    // Most modules declare no such function, and need no search through their instructions.
    let any_missing = module.functions.iter().any(missing);
    let called =
        bodies.filter(move |_| any_missing).flatten().filter_map(|statement| match statement {
            Statement::Instruction(instruction) => Some(instruction),
            Statement::Label(_) => None,
        });
    let called = called.flat_map(|instruction| &instruction.operands);
    let called = called.filter_map(|operand| match operand {
        Operand::Function(index) => module.functions.get(*index as usize),
        _ => None,
    });
    called.filter(move |function| missing(function)).map(|function| function.code.name.as_str())
}

/// Whether bytes are a cubin or a fat binary.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes.starts_with(ELF) || bytes.starts_with(fatbin::MAGIC)
}

impl State {
    /// The PTX of an image in memory.
    pub(super) fn image_text(&self, image: In<c_void>) -> Result<String, LoadFailure> {
        let null = |refusal| LoadFailure::new(refusal, "there is no image");
        image.bytes(1).map_err(null)?;
        let byte = |at| image.cast::<u8>().get_at(at).ok();
        // A text may end after any byte, so that each is read only after the ones before it agree.
        let is = |magic: &[u8; 4]| (0..4).all(|at| byte(at) == Some(magic[at]));
        if is(ELF) {
            return match image.bytes(5) {
                Ok(bytes) if bytes[4] == ELF_CLASS_64 => {
                    Err(LoadFailure::new(Refusal::UNSUPPORTED, NOT_PTX))
                }
                _ => Err(LoadFailure::no_image()),
            };
        }
        let fatbin = if is(fatbin::MAGIC) {
            fatbin::copied(image)?
        } else if is(fatbin::WRAPPER_MAGIC) {
            fatbin::unwrapped(image)?
        } else {
            return image.text().map_err(null);
        };
        fatbin::ptx_for(&fatbin, &self.config)
    }

    /// The PTX of an image in a file, up to the first zero byte.
    pub(super) fn file_text(&self, path: &str) -> Result<String, LoadFailure> {
        let bytes = read_bytes(path)
            .map_err(|refusal| LoadFailure::new(refusal, "the file cannot be read"))?;
        if bytes.starts_with(fatbin::MAGIC) {
            return fatbin::ptx_for(&bytes, &self.config);
        }
        if is_binary(&bytes) {
            return Err(LoadFailure::new(Refusal::UNSUPPORTED, NOT_PTX));
        }
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

/// The content of a file.
pub(super) fn read_bytes(path: &str) -> Result<Vec<u8>, Refusal> {
    if path.is_empty() {
        return Err(invalid(Rule::ModuleFileName));
    }
    std::fs::read(path).map_err(|error| match error.kind() {
        // The driver takes the size of the directory for a file size and fails to allocate it.
        ErrorKind::IsADirectory => refuse(CUresult::CUDA_ERROR_OUT_OF_MEMORY, Rule::ModuleFolder),
        _ => refuse(CUresult::CUDA_ERROR_FILE_NOT_FOUND, Rule::ModuleFile),
    })
}

/// Whether `.version` is the first token of a text. The driver accepts no other text as PTX.
fn begins_with_version(text: &str) -> bool {
    let mut rest = text.trim_start();
    loop {
        let comment = if rest.starts_with("//") {
            "\n"
        } else if rest.starts_with("/*") {
            "*/"
        } else {
            return rest.starts_with(".version");
        };
        rest = rest.split_once(comment).map_or("", |(_, rest)| rest.trim_start());
    }
}

/// The version in the `.version` line of PTX.
fn version_line(text: &str) -> Option<IsaVersion> {
    let line = text.lines().map(str::trim).find_map(|line| line.strip_prefix(".version"))?;
    let (major, minor) = line.split_whitespace().next()?.split_once('.')?;
    Some(IsaVersion::new(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_among_comments() {
        let text = "//\n// made by hand\n /* .target */ .version 7.8\n.target sm_80\n";
        assert!(begins_with_version(text));
        let text = "//\n// made by hand\n  .version 7.8\n.target sm_80\n";
        assert!(begins_with_version(text));
        assert_eq!(version_line(text), Some(IsaVersion::new(7, 8)));
        assert_eq!(version_line("nothing"), None);
        assert!(!begins_with_version("// .version 7.8") && !begins_with_version(""));
    }
}
