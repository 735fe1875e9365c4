//! The names that each file imports from other files.

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Expr, Item, ItemUse, Macro, Token, Visibility};

use super::Imports;
use super::modules::{Crate, Target, imports_of};

/// The imports of every file of a crate.
pub(super) fn imports(tree: &Crate) -> Imports {
    let mut imports = Imports::new();
    for (at, module) in tree.modules.iter().enumerate() {
        imports.entry(module.file.clone()).or_default();
        let mut names = Names { tree, at, imports: &mut imports };
        // Inline modules are visited as separate modules.
        let own = module.items.iter().filter(|item| !matches!(item, Item::Mod(_)));
        own.for_each(|item| names.visit_item(item));
    }
    imports
}

struct Names<'a> {
    tree: &'a Crate,
    /// The module whose code is visited.
    at: usize,
    imports: &'a mut Imports,
}

impl Names<'_> {
    fn note(&mut self, path: &[String]) {
        // Naming a module is not an import; naming an item in it is.
        let Some(Target::Item(other)) = self.tree.resolve(self.at, path) else { return };
        let (file, other) = (&self.tree.modules[self.at].file, &self.tree.modules[other].file);
        if file != other {
            let name = path.last().cloned().unwrap_or_default();
            let taken = self.imports.entry(file.clone()).or_default();
            taken.entry(other.clone()).or_insert(name);
        }
    }
}

impl<'a> Visit<'a> for Names<'_> {
    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if matches!(item.vis, Visibility::Inherited) {
            imports_of(&item.tree).iter().for_each(|import| self.note(&import.path));
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_none() {
            let names: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
            self.note(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'a Macro) {
        visit::visit_macro(self, invoked);
        // Macro arguments that are not expressions are ignored.
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        if let Ok(arguments) = invoked.parse_body_with(parser) {
            let arguments: Vec<Expr> = arguments.into_iter().collect();
            let mut inner = Names { tree: self.tree, at: self.at, imports: self.imports };
            arguments.iter().for_each(|argument| inner.visit_expr(argument));
        }
    }
}
