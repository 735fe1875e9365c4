//! Import circles between the source files of a crate.
//!
//! A file imports another one if its code, outside tests, names an item that the other file
//! defines: in a private `use`, or by a path or a re-exported name in its code. Names are followed
//! through re-exports to the file that defines the item. A parent module that only declares and
//! re-exports its children therefore imports none of them, and a child that uses an item of a
//! sibling through the parent imports the sibling. Method calls name no file: an `impl` block may
//! be in any file that imports its type.
//!
//! Files that import each other, directly or through others, form a circle: none of them can be
//! read, tested or moved alone. The crates in [`CRATES`] must have no circles.

mod modules;
mod visit;

use std::collections::{BTreeMap, BTreeSet};

use modules::Crate;

use crate::workspace;

/// The checked crates.
const CRATES: [&str; 4] = ["crates/driver", "crates/runtime", "crates/kernels", "crates/finetune"];

/// The imports of each file: imported files, each with one imported name.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// Adds a complaint for each crate with files in circles.
pub(crate) fn check(complaints: &mut Vec<String>) -> anyhow::Result<()> {
    for folder in CRATES {
        let tree = Crate::parse(&workspace::root().join(folder).join("src"))?;
        let imports = visit::imports(&tree);
        for circle in circles(&imports) {
            complaints.push(format!("{folder}:{}", describe(&circle, &imports)));
        }
    }
    Ok(())
}

fn describe(circle: &BTreeSet<String>, imports: &Imports) -> String {
    let mut text = format!("\n  {} files import each other:", circle.len());
    for file in circle {
        for (other, name) in imports[file].iter().filter(|(other, _)| circle.contains(*other)) {
            text.push_str(&format!("\n    {file} takes {name} from {other}"));
        }
    }
    text
}

/// The strongly connected components of more than one file.
fn circles(imports: &Imports) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|file| (file.as_str(), reachable(file, imports))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (file, reached) in &reach {
        if !reached.contains(file) || found.iter().any(|circle| circle.contains(*file)) {
            continue;
        }
        let back = |other: &&&str| reach.get(**other).is_some_and(|from| from.contains(file));
        found.push(reached.iter().filter(back).map(|other| (*other).to_owned()).collect());
    }
    found
}

/// The files that `file` imports, directly or through others.
fn reachable<'a>(file: &str, imports: &'a Imports) -> BTreeSet<&'a str> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![file]);
    while let Some(at) = open.pop() {
        for next in imports.get(at).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports_of(files: &[(&str, &str)]) -> Imports {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        visit::imports(&Crate::parse(folder.path()).unwrap())
    }

    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let found = circles(&imports_of(files));
        found.into_iter().map(|circle| circle.into_iter().collect()).collect()
    }

    #[test]
    fn files_that_import_each_other_form_a_circle() {
        let found = circles_of(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            ("b.rs", "pub struct B; fn f() -> crate::c::C { todo!() }"),
            ("c.rs", "pub struct C; fn f(_: &super::a::A) {}"),
        ]);
        assert_eq!(found, [["a.rs", "b.rs", "c.rs"]]);
    }

    #[test]
    fn a_facade_is_in_no_circle_and_names_are_followed_through_it() {
        let found = imports_of(&[
            ("lib.rs", "pub mod a; pub use a::First;"),
            ("a/mod.rs", "mod first; mod second; pub use first::First; pub use second::*;"),
            ("a/first.rs", "pub struct First(super::Second);"),
            ("a/second.rs", "pub struct Second;"),
        ]);
        assert_eq!(found["a/first.rs"].keys().collect::<Vec<_>>(), ["a/second.rs"]);
        assert!(found["a/mod.rs"].is_empty() && found["lib.rs"].is_empty());
    }

    #[test]
    fn a_parent_that_uses_what_it_re_exports_imports_it() {
        let found = circles_of(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod child; pub use child::Child; pub struct Parent(Option<Child>);"),
            ("a/child.rs", "use super::Parent; pub struct Child(Box<Parent>);"),
        ]);
        assert_eq!(found, [["a/child.rs", "a/mod.rs"]]);
    }

    #[test]
    fn tests_and_macro_arguments_are_distinguished() {
        let found = imports_of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub fn f() {} #[cfg(test)] mod tests { use crate::b::g; }"),
            ("b.rs", "pub fn g() { assert!(crate::a::f() == ()); }"),
        ]);
        assert!(found["a.rs"].is_empty());
        assert_eq!(found["b.rs"]["a.rs"], "f");
    }
}
