//! The modules of a crate: their files, items and re-exports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use syn::{Attribute, Item, UseTree};

/// The parsed modules of a crate. The first one is the root.
pub(super) struct Crate {
    pub(super) modules: Vec<Module>,
}

/// A module, in its own file or inline in the file of its parent.
pub(super) struct Module {
    /// The path of its file below `src`.
    pub(super) file: String,
    pub(super) parent: Option<usize>,
    pub(super) items: Vec<Item>,
    children: BTreeMap<String, usize>,
    /// Names of the items that the module defines.
    defined: BTreeSet<String>,
    /// Imported names with their paths.
    imported: BTreeMap<String, Vec<String>>,
    /// Modules whose names are imported by `*`.
    globs: Vec<Vec<String>>,
}

/// One name of a `use` item.
pub(super) struct Import {
    pub(super) path: Vec<String>,
    name: String,
    glob: bool,
}

/// An item of the crate.
pub(super) enum Target {
    /// A module.
    Module,
    /// Another item, in this module.
    Item(usize),
}

impl Crate {
    /// Parses the crate whose sources are in `src`.
    pub(super) fn parse(src: &Path) -> anyhow::Result<Self> {
        let mut parsed = Self { modules: Vec::new() };
        parsed.add_file(src, Path::new("lib.rs"), None)?;
        Ok(parsed)
    }

    fn add_file(
        &mut self,
        src: &Path,
        file: &Path,
        parent: Option<usize>,
    ) -> anyhow::Result<usize> {
        let path = src.join(file);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("{}", path.display()))?;
        let stem = file.file_stem().unwrap_or_default();
        let folder = file.parent().unwrap_or(Path::new(""));
        let children = match stem.to_str() {
            Some("lib" | "mod") => folder.to_owned(),
            _ => folder.join(stem),
        };
        self.add(src, file, &children, parsed.items, parent)
    }

    fn add(
        &mut self,
        src: &Path,
        file: &Path,
        folder: &Path,
        items: Vec<Item>,
        parent: Option<usize>,
    ) -> anyhow::Result<usize> {
        let at = self.modules.len();
        let mut module = Module::new(file, parent);
        let items: Vec<Item> =
            items.into_iter().filter(|item| !is_test(attributes(item))).collect();
        items.iter().for_each(|item| module.note(item));
        self.modules.push(module);
        for item in &items {
            let Item::Mod(inner) = item else { continue };
            let name = inner.ident.to_string();
            let child = match &inner.content {
                Some((_, items)) => {
                    self.add(src, file, &folder.join(&name), items.clone(), Some(at))?
                }
                None => self.add_file(src, &child_file(src, folder, &name), Some(at))?,
            };
            self.modules[at].children.insert(name, child);
        }
        self.modules[at].items = items;
        Ok(at)
    }

    /// The item that `path` names in module `at`; `None` for names of other crates and local names.
    pub(super) fn resolve(&self, at: usize, path: &[String]) -> Option<Target> {
        // Re-exports nest a few levels; globs of each other would recurse forever.
        const DEPTH: usize = 16;
        self.resolve_within(at, path, DEPTH)
    }

    fn resolve_within(&self, at: usize, path: &[String], depth: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let depth = depth.checked_sub(1)?;
        let module = &self.modules[at];
        let next = match first.as_str() {
            "crate" => Some(0),
            "self" => Some(at),
            "super" => module.parent,
            name => module.children.get(name).copied(),
        };
        if let Some(next) = next {
            if rest.is_empty() {
                return Some(Target::Module);
            }
            return self.resolve_within(next, rest, depth);
        }
        if module.defined.contains(first) {
            return Some(Target::Item(at));
        }
        if let Some(imported) = module.imported.get(first) {
            // A name imported from another crate may be that crate's own name.
            if imported.first() == Some(first) {
                return None;
            }
            return self.resolve_within(at, &[imported, rest].concat(), depth);
        }
        let through =
            |glob: &Vec<String>| self.resolve_within(at, &[glob.as_slice(), path].concat(), depth);
        module.globs.iter().find_map(through)
    }
}

impl Module {
    fn new(file: &Path, parent: Option<usize>) -> Self {
        Self {
            file: file.display().to_string(),
            parent,
            items: Vec::new(),
            children: BTreeMap::new(),
            defined: BTreeSet::new(),
            imported: BTreeMap::new(),
            globs: Vec::new(),
        }
    }

    fn note(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Use(item) => {
                for Import { path, name, glob } in imports_of(&item.tree) {
                    match glob {
                        true => self.globs.push(path),
                        false => {
                            self.imported.insert(name, path);
                        }
                    }
                }
                return;
            }
            _ => return,
        };
        self.defined.insert(name.to_string());
    }
}

/// The names of a `use` item.
pub(super) fn imports_of(tree: &UseTree) -> Vec<Import> {
    let mut found = Vec::new();
    collect(tree, &mut Vec::new(), &mut found);
    found
}

fn collect(tree: &UseTree, path: &mut Vec<String>, found: &mut Vec<Import>) {
    let leaf = |path: &[String], name: &str, alias: &str, glob: bool| {
        let mut path = path.to_vec();
        if !glob && name != "self" {
            path.push(name.to_owned());
        }
        let own = path.last().cloned().unwrap_or_default();
        let name = if alias == "self" { own } else { alias.to_owned() };
        Import { path, name, glob }
    };
    match tree {
        UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            collect(&inner.tree, path, found);
            path.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| collect(tree, path, found)),
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            found.push(leaf(path, &name, &name, false));
        }
        UseTree::Rename(rename) => {
            found.push(leaf(path, &rename.ident.to_string(), &rename.rename.to_string(), false));
        }
        UseTree::Glob(_) => found.push(leaf(path, "*", "*", true)),
    }
}

fn child_file(src: &Path, folder: &Path, name: &str) -> PathBuf {
    let file = folder.join(format!("{name}.rs"));
    if src.join(&file).is_file() { file } else { folder.join(name).join("mod.rs") }
}

/// Whether an item is compiled only for tests.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    let only_tests = |attribute: &&Attribute| {
        let condition =
            attribute.path().is_ident("cfg").then(|| attribute.parse_args::<syn::Path>());
        condition.is_some_and(|parsed| {
            parsed.is_ok_and(|path| path.is_ident("test") || path.is_ident("doctest"))
        })
    };
    attributes.iter().any(|attribute| only_tests(&attribute))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
