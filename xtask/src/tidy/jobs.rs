//! Checks that workflows run every job of CI, and that CONTRIBUTING.md describes it.

use std::fs;
use std::path::Path;

use crate::ci;

/// The workflow with the matrix of the other jobs, and the command that lists them.
const MATRIX: &str = ".github/workflows/ci.yml";
const LIST: &str = "$(cargo xtask ci list)";
/// The page that describes the jobs.
const PAGE: &str = "CONTRIBUTING.md";

/// Reports jobs that no workflow runs or that the page does not describe.
pub(super) fn check(root: &Path, complaints: &mut Vec<String>) {
    let read = |path: &Path| fs::read_to_string(root.join(path)).unwrap_or_default();
    for (file, job) in ci::named_jobs() {
        if !runs(&read(&Path::new(".github/workflows").join(file)), job) {
            complaints.push(format!("{file}: no step runs `cargo xtask ci {job}`"));
        }
    }
    if !read(Path::new(MATRIX)).contains(LIST) {
        complaints.push(format!("{MATRIX}: no step runs `{LIST}`"));
    }
    let page = read(Path::new(PAGE));
    let rows: String = page.lines().filter(|line| line.starts_with("| `")).collect();
    for job in ci::job_names().filter(|job| !rows.contains(&format!("`{job}`"))) {
        complaints.push(format!("{PAGE}: the table of jobs lacks `{job}`"));
    }
}

/// Whether a step of a workflow runs exactly this job.
fn runs(workflow: &str, job: &str) -> bool {
    let step = format!("run: cargo xtask ci {job}");
    workflow.lines().any(|line| line.trim_start_matches([' ', '-']) == step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_runs_one_job() {
        let workflow =
            "  steps:\n      - run: cargo xtask ci docs-rs\n        run: cargo xtask ci a\n";
        assert!(runs(workflow, "docs-rs") && runs(workflow, "a"));
        assert!(!runs(workflow, "docs") && !runs("# run: cargo xtask ci b", "b"));
    }
}
