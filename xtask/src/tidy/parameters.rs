//! Parameters that are tuples: a call cannot tell what their elements are.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{FnArg, Signature, Type};

/// Returns the lines of parameters of functions whose type is a tuple. Closures, and references to
/// tuples, may have them: items of iterators are tuples.
pub(super) fn check(file: &syn::File) -> Vec<(usize, String)> {
    let mut tuples = Tuples::default();
    tuples.visit_file(file);
    tuples.0
}

/// The lines of such parameters, each with the rule.
#[derive(Default)]
struct Tuples(Vec<(usize, String)>);

impl<'ast> Visit<'ast> for Tuples {
    fn visit_signature(&mut self, signature: &'ast Signature) {
        for input in &signature.inputs {
            let FnArg::Typed(parameter) = input else { continue };
            if matches!(&*parameter.ty, Type::Tuple(tuple) if !tuple.elems.is_empty()) {
                let line = parameter.span().start().line;
                let rule = "has a tuple as a parameter; use several or a struct";
                self.0.push((line, format!("`{}` {rule}", signature.ident)));
            }
        }
        visit::visit_signature(self, signature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_are_reported_by_function_and_line() {
        let text =
            "impl A {\n    fn first(&self, (a, b): (u32, u32)) {}\n}\nfn second(c: (u8, u8)) {}";
        let found = check(&syn::parse_file(text).unwrap());
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].0 == 2 && found[0].1.contains("`first`"), "{found:?}");
        assert!(found[1].0 == 4 && found[1].1.contains("`second`"), "{found:?}");
    }

    #[test]
    fn other_parameters_are_not() {
        let text = "fn f(a: u32, (): (), [b, c]: [u32; 2], d: &(u8, u8)) -> (u8, u8) {\n    \
                    g(|(a, b): (u8, u8)| a + b)\n}";
        assert_eq!(check(&syn::parse_file(text).unwrap()), []);
    }
}
