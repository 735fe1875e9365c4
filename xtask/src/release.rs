//! A release: version, changelog entry, tag, publication. All packages share one version.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::workspace::{check, command, output, root};
use crate::{examples, packages, tidy};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The version to release, such as 0.2.0.
    version: String,
    /// Write the files, commit, tag and publish; without it everything is only checked.
    #[arg(long)]
    execute: bool,
}

const UNRELEASED: &str = "## [Unreleased]\n";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let version = &arguments.version;
    let today = output(command("date", &["-u", "+%F"]))?;
    let packages = packages::published()?;
    let folders: Vec<_> = packages.iter().map(packages::Package::folder).collect();
    let changelogs = changelogs(root(), &folders, version, today.trim())?;
    let manifest = root().join("Cargo.toml");
    let bumped = bumped(&std::fs::read_to_string(&manifest)?, version)?;
    let tag = format!("v{version}");
    if !output(command("git", &["tag", "--list", &tag]))?.is_empty() {
        bail!("the tag {tag} exists; choose another version");
    }
    let changes = output(command("git", &["status", "--porcelain"]))?;
    if !changes.is_empty() {
        bail!("the tree has changes; commit or stash them first:\n{changes}");
    }
    tidy::run()?;
    if !arguments.execute {
        packages::package()?;
        packages::publish_dry()?;
        println!("dry run: {tag} can be released; `--execute` writes, commits, tags and publishes");
        return Ok(());
    }
    for (path, text) in changelogs {
        std::fs::write(path, text)?;
    }
    std::fs::write(manifest, bumped)?;
    check(command("cargo", &["update", "--workspace"]))?;
    for folder in examples::folders()? {
        let manifest = folder.join("Cargo.toml");
        let bumped = dependent(&std::fs::read_to_string(&manifest)?, version);
        std::fs::write(&manifest, bumped)?;
        check(command("cargo", &["update", "--workspace", "--manifest-path", utf8(&manifest)?]))?;
    }
    packages::package()?;
    check(command("git", &["commit", "--all", "--message", &format!("Release {version}")]))?;
    check(command("git", &["tag", "--annotate", &tag, "--message", &tag]))?;
    let mut publish = command("cargo", &["publish", "--locked"]);
    publish.args(packages::selection()?);
    check(publish)?;
    println!("{tag} is published; push the commit and the tag");
    Ok(())
}

/// The changelogs of the workspace and of packages that have one, with their unreleased entries
/// under the version. A package without unreleased entries has nothing to move.
fn changelogs(
    workspace: &Path,
    packages: &[&Path],
    version: &str,
    date: &str,
) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut changelogs = Vec::new();
    for folder in std::iter::once(workspace).chain(packages.iter().copied()) {
        let path = folder.join("CHANGELOG.md");
        if !path.is_file() {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let moved = entry(&text, version, date);
        match moved.with_context(|| path.display().to_string())? {
            Some(moved) => changelogs.push((path, moved)),
            None if folder == workspace => {
                bail!("{} has no unreleased entry; describe the release first", path.display())
            }
            None => {}
        }
    }
    Ok(changelogs)
}

/// The changelog with its unreleased entries under the version, if it has any.
fn entry(text: &str, version: &str, date: &str) -> anyhow::Result<Option<String>> {
    let (before, after) = text.split_once(UNRELEASED).context("it has no `## [Unreleased]`")?;
    if after.contains(&format!("## [{version}]")) {
        bail!("it has an entry for {version} already");
    }
    let unreleased = after.split("\n## [").next().unwrap_or_default();
    let moved = || format!("{before}{UNRELEASED}\n## [{version}] - {date}\n{after}");
    Ok((!unreleased.trim().is_empty()).then(moved))
}

/// The workspace's manifest with another version of its packages.
fn bumped(text: &str, version: &str) -> anyhow::Result<String> {
    let parts: Vec<_> = version.split('.').map(str::parse::<u64>).collect();
    if parts.len() != 3 || parts.iter().any(Result::is_err) {
        bail!("`{version}` is not a version such as 0.2.0");
    }
    let manifest: toml::Table = toml::from_str(text)?;
    let old = manifest["workspace"]["package"]["version"].as_str().context("no version")?;
    let field = |version: &str| format!("version = \"{version}\"");
    let lines = text.lines().map(|line| {
        let ours = line == field(old) || line.contains("path = \"");
        if ours { line.replace(&field(old), &field(version)) } else { line.to_owned() }
    });
    Ok(lines.map(|line| line + "\n").collect())
}

/// The manifest of an example with another version of our packages, its dependencies by path.
fn dependent(text: &str, version: &str) -> String {
    let lines = text.lines().map(|line| {
        let start = line.find("version = \"").filter(|_| line.contains("path = \"../../crates/"));
        let Some(start) = start.map(|start| start + "version = \"".len()) else {
            return line.to_owned();
        };
        let end = line[start..].find('"').map_or(line.len(), |end| start + end);
        format!("{}{version}{}", &line[..start], &line[end..])
    });
    lines.map(|line| line + "\n").collect()
}

fn utf8(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreleased_entries_move_under_the_version() {
        let text = "# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [0.1.0] - 2026-01-01\n";
        let expected = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-02-03\n\n- New.\n\n\
                        ## [0.1.0] - 2026-01-01\n";
        assert_eq!(entry(text, "0.2.0", "2026-02-03").unwrap().unwrap(), expected);
        assert_eq!(entry(expected, "0.3.0", "2026-02-04").unwrap(), None);
        assert!(entry(text, "0.1.0", "2026-02-04").unwrap_err().to_string().contains("already"));
    }

    #[test]
    fn packages_with_a_changelog_of_their_own_are_released_with_the_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, quiet, without) =
            (folder.path().join("ours"), folder.path().join("quiet"), folder.path().join("none"));
        for (place, entries) in [(folder.path(), "- New.\n"), (&ours, "- Own.\n"), (&quiet, "")] {
            std::fs::create_dir_all(place).unwrap();
            let text = format!("# Changelog\n\n{UNRELEASED}\n{entries}");
            std::fs::write(place.join("CHANGELOG.md"), text).unwrap();
        }
        let packages = [&*ours, &quiet, &without];
        let moved = changelogs(folder.path(), &packages, "0.2.0", "2026-02-03").unwrap();
        let paths: Vec<_> = moved.iter().map(|(path, _)| path.clone()).collect();
        assert_eq!(paths, [folder.path(), &ours].map(|place| place.join("CHANGELOG.md")));
        assert!(moved[1].1.ends_with("## [0.2.0] - 2026-02-03\n\n- Own.\n"), "{}", moved[1].1);
        let error = changelogs(&quiet, &[], "0.2.0", "2026-02-03").unwrap_err();
        assert!(error.to_string().contains("no unreleased entry"), "{error}");
    }

    #[test]
    fn only_the_version_of_the_workspace_changes() {
        let text = "[workspace.package]\nversion = \"0.1.0\"\n[workspace.dependencies]\n\
                    ours = { path = \"ours\", version = \"0.1.0\" }\n\
                    other = { version = \"0.1.0\" }\n";
        let expected = "[workspace.package]\nversion = \"0.2.0\"\n[workspace.dependencies]\n\
                        ours = { path = \"ours\", version = \"0.2.0\" }\n\
                        other = { version = \"0.1.0\" }\n";
        assert_eq!(bumped(text, "0.2.0").unwrap(), expected);
        assert!(bumped(text, "2").is_err());
    }

    #[test]
    fn examples_depend_on_the_released_version() {
        let text = "[package]\nversion = \"0.0.0\"\n[dependencies]\n\
                    ours = { path = \"../../crates/ours\", version = \"0.1.0\", optional = true }\n\
                    other = \"0.1.0\"\n";
        let expected = text.replace("ours\", version = \"0.1.0\"", "ours\", version = \"0.2.0\"");
        assert_eq!(dependent(text, "0.2.0"), expected);
    }
}
