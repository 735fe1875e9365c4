//! Parameters that are tuples: a call cannot tell what their elements are.

use std::path::Path;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{FnArg, Signature, Type};

/// Reports parameters of functions whose type is a tuple. Closures, and references to tuples, may
/// have them: items of iterators are tuples.
pub(super) fn check(path: &Path, file: &syn::File, complaints: &mut Vec<String>) {
    let mut tuples = Tuples::default();
    tuples.visit_file(file);
    complaints.extend(tuples.0.into_iter().map(|(function, line)| {
        format!(
            "{}:{line}: `{function}` has a tuple as a parameter; use several or a struct",
            path.display(),
        )
    }));
}

/// The functions with such parameters, and the lines of these.
#[derive(Default)]
struct Tuples(Vec<(String, usize)>);

impl<'ast> Visit<'ast> for Tuples {
    fn visit_signature(&mut self, signature: &'ast Signature) {
        for input in &signature.inputs {
            let FnArg::Typed(parameter) = input else { continue };
            if matches!(&*parameter.ty, Type::Tuple(tuple) if !tuple.elems.is_empty()) {
                let line = parameter.span().start().line;
                self.0.push((signature.ident.to_string(), line));
            }
        }
        visit::visit_signature(self, signature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let mut complaints = Vec::new();
        check(Path::new("a.rs"), &syn::parse_file(text).unwrap(), &mut complaints);
        complaints
    }

    #[test]
    fn tuples_are_reported_by_function_and_line() {
        let text =
            "impl A {\n    fn first(&self, (a, b): (u32, u32)) {}\n}\nfn second(c: (u8, u8)) {}";
        let found = complaints(text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.rs:2: ") && found[0].contains("`first`"), "{found:?}");
        assert!(found[1].starts_with("a.rs:4: ") && found[1].contains("`second`"), "{found:?}");
    }

    #[test]
    fn other_parameters_are_not() {
        let text = "fn f(a: u32, (): (), [b, c]: [u32; 2], d: &(u8, u8)) -> (u8, u8) {\n    \
                    g(|(a, b): (u8, u8)| a + b)\n}";
        assert_eq!(complaints(text), Vec::<String>::new());
    }
}
