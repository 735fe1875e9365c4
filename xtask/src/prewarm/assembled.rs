//! The hash of each image's PTX and launches when the budget was written, committed next to the
//! budget.
//!
//! `ptxas` generates the same machine code for the same text, so an unchanged image keeps its
//! budget without being assembled again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};
use retrograph_ptx::SmTarget;
use sha2::{Digest, Sha256};

use super::coverage::Coverage;
use crate::ptxas::Job;
use crate::toolchain::PTXAS_REQUIREMENT;
use crate::workspace;

/// Hexadecimal digits of a hash.
const DIGITS: usize = 16;

/// The hash of the PTX of each image and target.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Assembled {
    hashes: BTreeMap<(String, SmTarget), String>,
}

impl Assembled {
    /// Returns the hashes of `jobs` and their launches, on which occupancy depends.
    pub(crate) fn of(jobs: &[Job], coverage: &Coverage) -> Self {
        let hashes = jobs.iter().map(|job| {
            let mut hash = Sha256::new_with_prefix(job.module.to_string());
            for entry in &job.module.entries {
                let launched = coverage.of(&entry.name, job.target);
                hash.update(launched.threads.to_le_bytes());
                hash.update(launched.shared_bytes.to_le_bytes());
            }
            let hash = format!("{:x}", hash.finalize());
            ((job.image.clone(), job.target), hash[..DIGITS].to_owned())
        });
        Self { hashes: hashes.collect() }
    }

    fn path() -> PathBuf {
        workspace::root().join("kernels-ptx/assembled.tsv")
    }

    /// Reads the committed hashes; none if another `ptxas` assembled them.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let path = Self::path();
        let text = fs::read_to_string(&path)
            .context("cannot read kernels-ptx/assembled.tsv; write it with --bless")?;
        Self::parse(&text)
    }

    pub(crate) fn write(&self) -> anyhow::Result<()> {
        Ok(fs::write(Self::path(), self.text())?)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut lines = text.lines();
        if lines.next() != Some(PTXAS_REQUIREMENT) {
            return Ok(Self::default());
        }
        let mut hashes = BTreeMap::new();
        for line in lines {
            let wrong = || format!("kernels-ptx/assembled.tsv: invalid line `{line}`");
            let [image, target, hash] = line.split('\t').collect::<Vec<_>>()[..] else {
                bail!(wrong())
            };
            let target: SmTarget = target.parse().with_context(wrong)?;
            hashes.insert((image.to_owned(), target), hash.to_owned());
        }
        Ok(Self { hashes })
    }

    fn text(&self) -> String {
        let mut text = format!("{PTXAS_REQUIREMENT}\n");
        for ((image, target), hash) in &self.hashes {
            writeln!(text, "{image}\t{target}\t{hash}").expect("writing to a string does not fail");
        }
        text
    }

    /// Whether the image and target have the same hash in `other`.
    pub(crate) fn is_same(&self, other: &Self, job: &Job) -> bool {
        let hash = |all: &Self| all.hashes.get(&(job.image.clone(), job.target)).cloned();
        hash(self).is_some_and(|found| hash(other) == Some(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembled(hash: &str) -> Assembled {
        let key = ("gemm".to_owned(), SmTarget::arch_specific(90));
        Assembled { hashes: [(key, hash.to_owned())].into() }
    }

    #[test]
    fn hashes_survive_their_file_and_those_of_another_assembler_do_not_count() {
        let written = assembled("0123456789abcdef");
        assert_eq!(Assembled::parse(&written.text()).unwrap(), written);
        let other = written.text().replacen("13.0", "12.9", 1);
        assert_eq!(Assembled::parse(&other).unwrap(), Assembled::default());
        assert!(Assembled::parse(&format!("{PTXAS_REQUIREMENT}\na\tsm_90a\n")).is_err());
    }

    #[test]
    fn only_an_image_with_the_same_text_for_the_same_target_is_the_same() {
        let module = retrograph_kernels_ptx::images(SmTarget::arch_specific(80)).remove(0).1;
        let job = |target| Job::new(target, "image", module.clone());
        let jobs = [job(SmTarget::arch_specific(80)), job(SmTarget::arch_specific(86))];
        let coverage = Coverage::default();
        let committed = Assembled::of(&jobs[..1], &coverage);
        let now = Assembled::of(&jobs, &coverage);
        assert!(now.is_same(&committed, &jobs[0]));
        assert!(!now.is_same(&committed, &jobs[1]));
        let mut changed = Assembled::of(&jobs[..1], &coverage);
        changed.hashes.values_mut().for_each(|hash| hash.replace_range(..1, "x"));
        assert!(!now.is_same(&changed, &jobs[0]));
    }
}
