//! All images of a program: verified, assembled, and written as files for the program to include.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use retrograph_bundle::{Assembler, Bundle, BundleImage};
use retrograph_ptx::{ImageForm, SmTarget, parse};

use crate::error::Error;
use crate::generated::{BUNDLE_FILE, Constant, module};
use crate::image::{Image, Source};
use crate::nvcc::Compilation;
use crate::tool::{self, VARIABLES, Variables};

/// Whether machine code is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Assembly {
    /// Without `ptxas` the build fails.
    #[default]
    Required,
    /// Without `ptxas` the build warns, and the bundle has no code. The driver then compiles the
    /// images when the program prewarms them.
    IfFound,
}

/// The images of a program, and their targets.
#[derive(Clone, Debug)]
pub struct Images {
    name: String,
    images: Vec<Image>,
    targets: Vec<String>,
    assembly: Assembly,
}

/// The generated files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Built {
    /// The Rust file to include.
    pub module: PathBuf,
    /// The bundle.
    pub bundle: PathBuf,
    /// The instructions for Cargo, one per line: files and variables that trigger a rebuild, and
    /// warnings.
    pub instructions: Vec<String>,
}

/// An image with its PTX.
struct Compiled {
    constant: Constant,
    image: BundleImage,
}

impl Images {
    /// Creates an empty set. `name` is the name of the Rust file: `kernels` for `kernels.rs` in
    /// `OUT_DIR`.
    pub fn new(name: impl Into<String>) -> Self {
        let (images, targets) = (Vec::new(), Vec::new());
        Self { name: name.into(), images, targets, assembly: Assembly::default() }
    }

    /// Sets the SM targets of images without their own targets, such as `sm_80` and `sm_90`. Code
    /// for `sm_80` also runs on 8.6 and 8.9; code for `sm_90a` runs on 9.0 only.
    #[must_use]
    pub fn targets<T: Into<String>>(self, targets: impl IntoIterator<Item = T>) -> Self {
        Self { targets: targets.into_iter().map(Into::into).collect(), ..self }
    }

    /// Adds an image.
    #[must_use]
    pub fn image(mut self, image: Image) -> Self {
        self.images.push(image);
        self
    }

    /// Whether machine code is needed.
    #[must_use]
    pub fn assembly(self, assembly: Assembly) -> Self {
        Self { assembly, ..self }
    }

    /// Builds into `OUT_DIR` with the variables of this process and prints the lines for Cargo;
    /// an error is printed for Cargo too and fails the build.
    #[expect(clippy::print_stdout, reason = "Cargo reads the standard output of build scripts")]
    pub fn run(&self) -> ExitCode {
        let out = std::env::var_os("OUT_DIR").ok_or(Error::NoOutDir);
        let built = out.and_then(|out| self.build(Path::new(&out), &|name| std::env::var_os(name)));
        match built {
            Ok(built) => {
                built.instructions.iter().for_each(|line| println!("{line}"));
                ExitCode::SUCCESS
            }
            Err(error) => {
                error.to_string().lines().for_each(|line| println!("cargo::error={line}"));
                ExitCode::FAILURE
            }
        }
    }

    /// Verifies every image for each of its targets, and writes into `out` the Rust file, the PTX
    /// and the bundle. Files are read relative to the current directory, which Cargo sets to the
    /// package. `variable` is the environment: `NVCC`, `RETROGRAPH_PTXAS`, `CUDA_HOME`, `CUDA_PATH`
    /// and `PATH`.
    ///
    /// # Errors
    /// [`Error`], for the first invalid image.
    pub fn build(&self, out: &Path, variable: Variables<'_>) -> Result<Built, Error> {
        // The files of other names could be outside `out`.
        if Path::new(&self.name).file_name().is_none_or(|name| name != self.name.as_str()) {
            return Err(Error::Module { name: self.name.clone() });
        }
        let folder = out.join(&self.name);
        let write_error = |path: &Path, source| Error::Write { path: path.to_owned(), source };
        fs::create_dir_all(&folder).map_err(|source| write_error(&folder, source))?;
        let mut lines: Vec<_> =
            VARIABLES.iter().map(|name| format!("cargo::rerun-if-env-changed={name}")).collect();
        let mut compiled = Vec::new();
        let mut taken = HashSet::from(["BUNDLE".to_owned()]);
        for image in &self.images {
            let constant = image.constant()?;
            if !taken.insert(constant.clone()) {
                return Err(Error::Duplicate { constant });
            }
            let targets = image.parsed_targets(&self.targets)?;
            let (ptx, read) = text(image, &targets, &folder, variable)?;
            lines.extend(read.iter().map(|it| format!("cargo::rerun-if-changed={}", it.display())));
            let file = format!("{}.ptx", constant.to_lowercase());
            let path = folder.join(&file);
            fs::write(&path, &ptx).map_err(|source| write_error(&path, source))?;
            let about = about(image);
            let image = BundleImage { name: image.name.clone(), ptx, targets };
            compiled.push(Compiled { constant: Constant { name: constant, about, file }, image });
        }

        let ptxas = tool::ptxas(variable)?;
        if ptxas.is_none() && self.assembly == Assembly::Required {
            return Err(Error::NoPtxas);
        }
        let (mut constants, mut images) = (Vec::new(), Vec::new());
        for Compiled { constant, image } in compiled {
            constants.push(constant);
            images.push(image);
        }
        let path = folder.join(BUNDLE_FILE);
        let about = self.bundle(&path, images, ptxas, &mut lines)?;
        let file = out.join(format!("{}.rs", self.name));
        fs::write(&file, module(&self.name, &constants, &about))
            .map_err(|source| write_error(&file, source))?;
        Ok(Built { module: file, bundle: path, instructions: lines })
    }

    /// Writes the bundle, and returns its documentation.
    fn bundle(
        &self,
        path: &Path,
        mut images: Vec<BundleImage>,
        ptxas: Option<PathBuf>,
        lines: &mut Vec<String>,
    ) -> Result<String, Error> {
        if let Some(ptxas) = ptxas {
            let bundle = Bundle::build(path, &images, &Assembler::at(ptxas))?;
            let targets: Vec<_> = bundle.targets().iter().map(SmTarget::to_string).collect();
            return Ok(format!("The machine code of all images, for {}.", targets.join(", ")));
        }
        images.iter().try_for_each(check)?;
        images.clear();
        Bundle::build(path, &images, &Assembler::at("ptxas"))?;
        let name = &self.name;
        lines.push(format!(
            "cargo::warning=the images of `{name}` have no machine code, as there is no ptxas: the \
             driver will compile them"
        ));
        Ok("A bundle without machine code: there was no `ptxas`.".to_owned())
    }
}

/// The PTX of an image, and the files that were read.
fn text(
    image: &Image,
    targets: &[SmTarget],
    folder: &Path,
    variable: Variables<'_>,
) -> Result<(String, Vec<PathBuf>), Error> {
    match &image.source {
        Source::Ptx(text) => Ok((text.clone(), Vec::new())),
        Source::PtxFile(path) => match fs::read_to_string(path) {
            Ok(text) => Ok((text, vec![path.clone()])),
            Err(source) => Err(Error::Read { path: path.clone(), source }),
        },
        Source::CudaFile(source) => {
            if let Err(error) = fs::File::open(source) {
                return Err(Error::Read { path: source.clone(), source: error });
            }
            let nvcc = tool::nvcc(variable)?;
            let nvcc = nvcc.ok_or_else(|| Error::NoNvcc { source_file: source.clone() })?;
            let ptx = folder.join(format!("{}.nvcc.ptx", image.constant()?.to_lowercase()));
            let (target, arguments) = (targets[0], &image.nvcc_arguments[..]);
            let (text, mut read) =
                Compilation { nvcc: &nvcc, source, target, arguments, ptx: &ptx }.run()?;
            read.push(source.clone());
            Ok((text, read))
        }
    }
}

/// Checks without `ptxas` that the parser accepts an image and that it runs on its targets.
fn check(image: &BundleImage) -> Result<(), Error> {
    let name = || image.name.clone();
    let module = parse(&image.ptx).map_err(|source| Error::Parse { image: name(), source })?;
    let runs = |target: &SmTarget| module.target.require(ImageForm::Ptx, *target);
    let wrong = |source| Error::WrongTarget { image: name(), source };
    image.targets.iter().try_for_each(runs).map_err(wrong)
}

fn about(image: &Image) -> String {
    let name = &image.name;
    match &image.source {
        Source::Ptx(_) => format!("The PTX of the image `{name}`."),
        Source::PtxFile(path) | Source::CudaFile(path) => {
            format!("The PTX of the image `{name}`, from {}.", path.display())
        }
    }
}
