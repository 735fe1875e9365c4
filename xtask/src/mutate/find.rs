//! Search for mutants in a source file, and insertion of their switches.

use std::path::Path;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Stmt};

use super::{Kind, Mutant};

/// Methods that only report, whose calls are not mutated.
const SILENT: [&str; 2] = ["diagnose", "internal_error"];

/// Inserts the mutants of a file. Returns the changed text and appends the mutants to `found`.
pub(super) fn plant(
    file: &Path,
    text: &str,
    skip: &[usize],
    found: &mut Vec<Mutant>,
) -> anyhow::Result<String> {
    let parsed = syn::parse_file(text)?;
    let mut planter = Planter { file, text, skip, found, edits: Vec::new() };
    planter.visit_file(&parsed);
    Ok(planter.apply())
}

struct Planter<'a> {
    file: &'a Path,
    text: &'a str,
    /// Mutants that do not compile.
    skip: &'a [usize],
    found: &'a mut Vec<Mutant>,
    /// Insertions by byte offset. At the same offset, outer nodes open first.
    edits: Vec<(usize, String)>,
}

impl Planter<'_> {
    fn add(&mut self, node: &impl Spanned, kind: Kind) {
        let span = node.span();
        let range = span.byte_range();
        let id = self.found.len();
        let text = self.text[range.clone()].split_whitespace().collect::<Vec<_>>().join(" ");
        let (file, line) = (self.file.to_path_buf(), span.start().line);
        self.found.push(Mutant { id, file, line, kind, text });
        if self.skip.contains(&id) {
            return;
        }
        let (open, close) = match kind {
            Kind::FlipRefusal => (format!("crate::mutant::refusal({id}, "), ")"),
            Kind::FlipCode => (format!("crate::mutant::code({id}, "), ")"),
            Kind::Drop => (format!("if !crate::mutant::is_on({id}) {{ "), " }"),
        };
        self.edits.push((range.start, open));
        self.edits.push((range.end, close.to_owned()));
    }

    fn apply(mut self) -> String {
        // The sort is stable, and outer nodes are visited first, so they open first. Insertions
        // that close at the same offset have the same ending.
        self.edits.sort_by_key(|(at, _)| *at);
        let mut result = String::with_capacity(self.text.len() * 2);
        let mut done = 0;
        for (at, insertion) in &self.edits {
            result.push_str(&self.text[done..*at]);
            result.push_str(insertion);
            done = *at;
        }
        result.push_str(&self.text[done..]);
        result
    }
}

impl<'ast> Visit<'ast> for Planter<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes: &[Attribute] = match item {
            syn::Item::Mod(module) => &module.attrs,
            syn::Item::Fn(function) => &function.attrs,
            _ => &[],
        };
        let constant = matches!(item, syn::Item::Const(_) | syn::Item::Static(_));
        if !constant && !attributes.iter().any(is_test) {
            visit::visit_item(self, item);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Item(syn::Item::Const(_)) = statement {
            return;
        }
        if let Stmt::Expr(expression, Some(_)) = statement
            && changes_state(expression)
        {
            self.add(statement, Kind::Drop);
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Expr::Path(path) = &*call.func
            && let Some(name) = path.path.get_ident()
            && (name == "refuse" || name == "invalid")
        {
            self.add(call, Kind::FlipRefusal);
            return;
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let mut segments = path.path.segments.iter();
        let is_code = segments.next().is_some_and(|first| first.ident == "CUresult")
            && segments.next().is_some_and(|last| last.ident.to_string().starts_with("CUDA_ERROR"));
        if is_code {
            self.add(path, Kind::FlipCode);
        }
    }
}

fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("test")
        || (attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "test"))
}

/// Whether a statement has side effects.
fn changes_state(expression: &Expr) -> bool {
    match expression {
        Expr::Assign(_) => true,
        Expr::Binary(binary) => {
            let operator = binary.op.span().source_text().unwrap_or_default();
            operator.ends_with('=') && !["==", "!=", "<=", ">="].contains(&operator.as_str())
        }
        Expr::MethodCall(call) => !SILENT.iter().any(|name| call.method == name),
        Expr::Call(_) => true,
        Expr::Try(attempt) => changes_state(&attempt.expr),
        _ => false,
    }
}
