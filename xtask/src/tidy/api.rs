//! Rules of public items, so that lists and errors can grow: a constant is a slice instead of an
//! array, and an enum of errors is `#[non_exhaustive]`.

use syn::visit::{self, Visit};
use syn::{Attribute, Ident, ImplItemConst, ItemConst, ItemEnum, ItemStatic, Type, Visibility};

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
        let is_error = item.ident.to_string().ends_with("Error");
        let may_grow = |attribute: &Attribute| attribute.path().is_ident("non_exhaustive");
        if matches!(item.vis, Visibility::Public(_)) && is_error && !item.attrs.iter().any(may_grow)
        {
            self.0.push((item.ident.clone(), "needs `#[non_exhaustive]`"));
        }
        visit::visit_item_enum(self, item);
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
    fn slices_private_items_and_open_errors_are_not() {
        let text = "pub const A: &[u32] = &[1];\npub(crate) const B: [u32; 1] = [1];\n\
                    const C: [u32; 1] = [1];\n#[non_exhaustive] pub enum LoadError { Missing }\n\
                    enum OpenError { Missing }\npub enum Kind { One }";
        assert_eq!(check(&syn::parse_file(text).unwrap()), []);
    }
}
