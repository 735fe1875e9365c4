//! The whole comparison.

use crate::compare::{self, Difference, Extent};
use crate::facts::{self, Facts};
use crate::flat::Pair;
use crate::model::Description;
use crate::oracle::bindgen::BindgenError;
use crate::oracle::c::CompilerError;
use crate::oracle::include::Include;
use crate::oracle::old_crate::OldCrateError;
use crate::oracle::{bindgen, c, old_crate};
use crate::since;
use crate::tools::Tools;

/// A failed comparison.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// bindgen failed.
    #[error(transparent)]
    Bindgen(#[from] BindgenError),
    /// The C compiler failed.
    #[error(transparent)]
    Compiler(#[from] CompilerError),
    /// `cuda-driver-sys` cannot be read.
    #[error(transparent)]
    OldCrate(#[from] OldCrateError),
}

/// One header, as bindgen read it.
#[derive(Clone, Debug)]
pub struct Header {
    /// Its name in messages.
    pub name: &'static str,
    /// Its version, as `since` counts it.
    pub version: i32,
    /// Where it is.
    pub include: Include,
    /// Its declarations.
    pub description: Description,
}

impl Header {
    fn read(name: &'static str, version: i32, include: Include) -> Result<Self, CheckError> {
        let description = bindgen::describe(&include)?;
        Ok(Self { name, version, include, description })
    }

    /// Reads both versions of cuda.h, the newer one first.
    pub fn read_cuda(tools: &Tools) -> Result<[Self; 2], CheckError> {
        Ok([
            Self::read("cuda.h 13.0", 13000, Include::cuda(&tools.include_13))?,
            Self::read("cuda.h 12.9", 12090, Include::cuda(&tools.include_12))?,
        ])
    }

    /// Reads both versions of nccl.h, the newer one first.
    pub fn read_nccl(tools: &Tools) -> Result<[Self; 2], CheckError> {
        let include = |folder| Include::nccl(folder, &tools.include_13);
        Ok([
            Self::read("nccl.h 2.32.3", 23203, include(&tools.nccl_newest))?,
            Self::read("nccl.h 2.18.3", 21803, include(&tools.nccl_least))?,
        ])
    }

    /// Compares by bindgen and by C.
    pub fn compare(&self, ours: &Description) -> Result<Vec<Difference>, CheckError> {
        let pair = Pair { ours, header: &self.description };
        let said = self.without_newer(ours, facts::of_ours(&pair));
        let by_c = self.without_newer(ours, c::facts(&self.include, &pair)?);
        let mut by_bindgen = facts::of_header(&pair);
        // bindgen does not evaluate macros with casts; only the compiler confirms those.
        for (item, value) in by_c.iter().filter(|(item, _)| item.starts_with("value of ")) {
            by_bindgen.entry(item.clone()).or_insert_with(|| value.clone());
        }
        let name = format!("{} by bindgen", self.name);
        let mut differences = compare::compare(&name, Extent::All, &said, &by_bindgen);
        let name = format!("{} by cc", self.name);
        differences.extend(compare::compare(&name, Extent::C, &said, &by_c));
        Ok(differences)
    }

    /// Removes items that are newer than this header. If the header declares one anyway, it remains
    /// on the header's side and becomes a difference.
    fn without_newer(&self, ours: &Description, mut facts: Facts) -> Facts {
        let newer = ours
            .functions
            .iter()
            .filter(|(_, function)| function.since.is_some_and(|since| since > self.version));
        for (name, _) in newer {
            facts.remove(&format!("signature of {name}"));
        }
        let newer = ours
            .constants
            .iter()
            .filter(|(_, constant)| constant.since.is_some_and(|since| since > self.version));
        for (name, _) in newer {
            facts.remove(&format!("value of {name}"));
            facts.remove(&format!("enumeration of {name}"));
        }
        facts
    }
}

/// Compares with `cuda-driver-sys` 0.3.
pub fn compare_old_crate(ours: &Description, theirs: &Description) -> Vec<Difference> {
    let pair = Pair { ours, header: theirs };
    let (said, known) = (facts::of_ours(&pair), facts::of_header(&pair));
    compare::compare("cuda-driver-sys 0.3", Extent::Subset, &said, &known)
}

/// All sources that describe the interface of the driver.
#[derive(Clone, Debug)]
pub struct Oracles {
    headers: [Header; 2],
    versions: Description,
    old_crate: Description,
}

impl Oracles {
    /// Reads all sources.
    pub fn read(tools: &Tools) -> Result<Self, CheckError> {
        Ok(Self {
            headers: Header::read_cuda(tools)?,
            versions: bindgen::describe(&Include::typedefs(&tools.include_13))?,
            old_crate: old_crate::describe()?,
        })
    }

    /// Every function of the newer header by the name and version that `cuGetProcAddress` takes.
    pub fn symbols(&self) -> Vec<(String, i32, String)> {
        since::symbols(&self.headers[0].description, &self.versions)
    }

    /// Compares a description with all of them.
    pub fn compare(&self, ours: &Description) -> Result<Vec<Difference>, CheckError> {
        let mut differences = compare_headers(&self.headers, ours)?;
        differences.extend(since::compare(&Pair { ours, header: &self.versions }));
        differences.extend(compare_old_crate(ours, &self.old_crate));
        Ok(differences)
    }
}

/// Compares a description with headers, by bindgen and by C.
pub fn compare_headers(
    headers: &[Header],
    ours: &Description,
) -> Result<Vec<Difference>, CheckError> {
    let mut differences = Vec::new();
    for header in headers {
        differences.extend(header.compare(ours)?);
    }
    Ok(differences)
}
