//! Rules of public items, so that lists, errors and results can grow: a constant is a slice instead
//! of an array, and enums of errors and types of results are `#[non_exhaustive]`.

use syn::visit::{self, Visit};
use syn::{
    Attribute, Fields, Ident, ImplItemConst, ItemConst, ItemEnum, ItemStatic, ItemStruct, Type,
    Visibility,
};

/// How names of results end: types that users only read.
const RESULTS: &[&str] = &["Report", "Outcome", "Profile", "Progress", "Measurement", "Statistics"];

/// Returns the lines of public items that break the rules, each with the rule.
pub(super) fn check(file: &syn::File) -> Vec<(usize, String)> {
    let mut items = Items::default();
    items.visit_file(file);
    let items = items.0.into_iter();
    items.map(|(name, rule)| (name.span().start().line, format!("`{name}` {rule}"))).collect()
}

/// The items, each with the rule that it breaks.
#[derive(Default)]
struct Items(Vec<(Ident, &'static str)>);

impl Items {
    fn constant(&mut self, visibility: &Visibility, name: &Ident, ty: &Type) {
        let ty = match ty {
            Type::Reference(reference) => &reference.elem,
            other => other,
        };
        if matches!((visibility, ty), (Visibility::Public(_), Type::Array(_))) {
            self.0.push((name.clone(), "has its length in its type; use a slice"));
        }
    }

    fn growing(&mut self, visibility: &Visibility, name: &Ident, attributes: &[Attribute]) {
        let may_grow = |attribute: &Attribute| attribute.path().is_ident("non_exhaustive");
        if is_public(visibility) && !attributes.iter().any(may_grow) {
            self.0.push((name.clone(), "needs `#[non_exhaustive]`"));
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_result(name: &str) -> bool {
    RESULTS.iter().any(|end| name.ends_with(end))
}

impl<'ast> Visit<'ast> for Items {
    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        self.constant(&item.vis, &item.ident, &item.ty);
    }

    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        self.constant(&item.vis, &item.ident, &item.ty);
    }

    fn visit_impl_item_const(&mut self, item: &'ast ImplItemConst) {
        self.constant(&item.vis, &item.ident, &item.ty);
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        let name = item.ident.to_string();
        if name.ends_with("Error") || is_result(&name) {
            self.growing(&item.vis, &item.ident, &item.attrs);
        }
        visit::visit_item_enum(self, item);
    }

    /// A struct with private fields can grow anyway.
    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        let Fields::Named(fields) = &item.fields else { return };
        let is_open = fields.named.iter().all(|field| is_public(&field.vis));
        if is_open && is_result(&item.ident.to_string()) {
            self.growing(&item.vis, &item.ident, &item.attrs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_and_closed_errors_are_reported_by_line() {
        let text = "pub const A: [u32; 2] = [1, 2];\npub static B: &[u32; 1] = &[1];\n\
                    impl D { pub const C: [u8; 1] = [0]; }\npub enum LoadError { Missing }";
        let found = check(&syn::parse_file(text).unwrap());
        assert_eq!(found.len(), 4, "{found:?}");
        for ((line, text), (at, name)) in found.iter().zip((1..).zip(["A", "B", "C", "LoadError"]))
        {
            assert!(*line == at && text.starts_with(&format!("`{name}` ")), "{found:?}");
        }
    }

    #[test]
    fn closed_results_are_reported() {
        let text = "pub struct StepReport { pub ms: f32 }\npub enum UpdateOutcome { Done }\n\
                    #[non_exhaustive] pub struct Progress<'a> { pub name: &'a str }\n\
                    pub struct Profile { pub ms: f32, private: u32 }\n\
                    struct Report { pub ms: f32 }\npub struct Reports { pub all: Vec<u8> }";
        let found = check(&syn::parse_file(text).unwrap());
        let rule = "needs `#[non_exhaustive]`";
        let expected = [(1, "StepReport"), (2, "UpdateOutcome")];
        assert_eq!(found, expected.map(|(line, name)| (line, format!("`{name}` {rule}"))));
    }

    #[test]
    fn slices_private_items_and_open_errors_are_not() {
        let text = "pub const A: &[u32] = &[1];\npub(crate) const B: [u32; 1] = [1];\n\
                    const C: [u32; 1] = [1];\n#[non_exhaustive] pub enum LoadError { Missing }\n\
                    enum OpenError { Missing }\npub enum Kind { One }";
        assert_eq!(check(&syn::parse_file(text).unwrap()), []);
    }
}
