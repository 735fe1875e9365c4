//! Coverage of the warm set: every entry point that dispatch chooses for one of many problems must
//! be one that prewarming looks up, and must be in the image.

use std::collections::BTreeMap;

use retrograph_kernels::{Kernel, Problem, images};
use retrograph_ptx::SmTarget;

use crate::ptxas::Job;

/// The sizes of the problems: 0, 1, odd and large sizes.
const SIZES: [u32; 9] = [0, 1, 33, 64, 128, 200, 1536, 8960, 40_000];

/// The largest launch of an entry point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Launched {
    pub(crate) threads: u32,
    pub(crate) shared_bytes: u32,
}

/// The launches of dispatch, and missing entry points.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// Launches by entry point and target, since dynamic shared memory depends on the target.
    pub(crate) launched: BTreeMap<(&'static str, SmTarget), Launched>,
    pub(crate) shortfalls: Vec<String>,
}

impl Coverage {
    /// Dispatches many problems of `kernel` on the target of `jobs`, which are all its images.
    pub(crate) fn add(&mut self, kernel: &Kernel, jobs: &[Job]) {
        let (name, Some(target)) = (kernel.name, jobs.first().map(|job| job.target)) else {
            return;
        };
        let Some(Job { module, .. }) = jobs.iter().find(|job| job.image == kernel.image) else {
            self.shortfalls
                .push(format!("{name} on {target}: there is no image `{}`", kernel.image));
            return;
        };
        let mut missing = Vec::new();
        let elsewhere = |entry| {
            let has = |other: &SmTarget| images::has_entry(kernel.image, entry, *other);
            SmTarget::GENERATED.iter().any(has)
        };
        let absent = |entry| module.entry(entry).is_none();
        for entry in kernel.entries.iter().filter(|entry| absent(entry) && !elsewhere(entry)) {
            missing.push(format!("{name} on {target}: `{entry}` is not in the image"));
        }
        for problem in Problem::samples(&SIZES) {
            let Some(dispatch) = (kernel.dispatch)(&problem, target) else { continue };
            let threads = dispatch.block.iter().product();
            let seen = self.launched.entry((dispatch.entry, target)).or_default();
            seen.threads = seen.threads.max(threads);
            seen.shared_bytes = seen.shared_bytes.max(dispatch.shared_bytes);
            if absent(dispatch.entry) {
                let entry = dispatch.entry;
                missing.push(format!("{name} on {target}: `{entry}` is not in the image"));
            }
            if !kernel.entries.contains(&dispatch.entry) {
                missing.push(format!(
                    "{name} on {target}: dispatch launches `{}`, which is not in the warm set; add \
                     it to the entries of the kernel",
                    dispatch.entry
                ));
            }
        }
        missing.sort();
        missing.dedup();
        self.shortfalls.extend(missing);
    }

    /// The largest launch of `entry` on `target`; zeros if there was none.
    pub(crate) fn of(&self, entry: &str, target: SmTarget) -> Launched {
        let mut all = self.launched.iter();
        let found = all.find(|((seen, on), _)| *seen == entry && *on == target);
        found.map_or_else(Launched::default, |(_, launched)| *launched)
    }

    /// The entry points of the warm set that no problem reached.
    pub(crate) fn unreached(&self, kernels: &[&'static Kernel]) -> Vec<&'static str> {
        let entries = kernels.iter().flat_map(|kernel| kernel.entries);
        let mut entries: Vec<_> = entries
            .filter(|entry| !self.launched.keys().any(|(seen, _)| seen == *entry))
            .copied()
            .collect();
        entries.sort_unstable();
        entries.dedup();
        entries
    }
}

#[cfg(test)]
mod tests {
    use retrograph_kernels::Dispatch;

    use super::*;
    use crate::ptxas::jobs;

    /// A kernel that launches an undeclared entry for large problems.
    static FORGETFUL: Kernel = Kernel {
        name: "forgetful",
        image: "silu",
        parameters: &[],
        entries: &["silu_forward"],
        dispatch: |problem, _| {
            let Problem::Items(items) = *problem else { return None };
            let entry = if items > 9000 { "silu_wide" } else { "silu_forward" };
            Some(Dispatch {
                entry,
                grid: [1; 3],
                block: [64, 2, 1],
                shared_bytes: 7,
                persistent: None,
            })
        },
    };

    #[test]
    fn an_entry_point_that_is_missing_from_the_warm_set_is_caught() {
        let target = SmTarget::arch_specific(90);
        let jobs = jobs(&[target]);
        let mut coverage = Coverage::default();
        coverage.add(&FORGETFUL, &jobs);
        let text = coverage.shortfalls.join("\n");
        assert!(text.contains("forgetful on sm_90a: dispatch launches `silu_wide`"), "{text}");
        assert_eq!(
            coverage.launched[&("silu_forward", target)],
            Launched { threads: 128, shared_bytes: 7 }
        );
    }

    #[test]
    fn every_kernel_of_the_workspace_is_covered() {
        let target = SmTarget::portable(75);
        let jobs = jobs(&[target]);
        let mut coverage = Coverage::default();
        retrograph_kernels::all().iter().for_each(|kernel| coverage.add(kernel, &jobs));
        assert_eq!(coverage.shortfalls, Vec::<String>::new());
    }

    #[test]
    fn an_image_that_lacks_an_entry_point_is_caught() {
        let target = SmTarget::arch_specific(90);
        let jobs = jobs(&[target]);
        let with = |name: &'static str| Kernel {
            name: "k",
            image: name,
            parameters: &[],
            entries: &["no_such_entry"],
            dispatch: FORGETFUL.dispatch,
        };
        let mut coverage = Coverage::default();
        coverage.add(&with("silu"), &jobs);
        assert!(coverage.shortfalls.iter().any(|text| text.contains("`no_such_entry` is not in")));
        let mut coverage = Coverage::default();
        coverage.add(&with("absent"), &jobs);
        assert_eq!(coverage.shortfalls, ["k on sm_90a: there is no image `absent`"]);
    }
}
