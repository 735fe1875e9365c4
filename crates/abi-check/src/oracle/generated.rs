//! Parser of bindgen's output: the current format, and the format in `cuda-driver-sys` 0.3.
//!
//! Sizes, alignments and offsets come from its layout tests: literals with labels such as
//! `Size of CUuuid_st`.

use std::collections::BTreeMap;

use syn::visit::Visit;

use crate::model::{Constant, Definition, Description, Field, Function, Kind, Type};
use crate::types::{self, UnknownType};

/// A parse error.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Not valid Rust.
    #[error("{0}")]
    Syntax(#[from] syn::Error),
    /// A type that is not part of a C interface.
    #[error("{item}: {source}")]
    Type {
        /// The item.
        item: String,
        /// The type.
        source: UnknownType,
    },
}

/// Describes the declarations of the text.
pub fn read(text: &str) -> Result<Description, Unreadable> {
    let file = syn::parse_file(text)?;
    let mut labels = Labels::default();
    labels.visit_file(&file);
    let mut reader = Reader { description: Description::default(), labels: labels.numbers };
    for item in &file.items {
        reader.item(item)?;
    }
    Ok(reader.description)
}

struct Reader {
    description: Description,
    labels: BTreeMap<String, u64>,
}

impl Reader {
    fn item(&mut self, item: &syn::Item) -> Result<(), Unreadable> {
        match item {
            syn::Item::Struct(item) => self.structure(item),
            syn::Item::Union(item) => {
                let name = item.ident.to_string();
                let fields = self.fields(&name, item.fields.named.iter())?;
                self.define(name, Kind::Union, fields);
                Ok(())
            }
            syn::Item::Enum(item) => {
                self.enumeration(item);
                Ok(())
            }
            syn::Item::Type(item) => {
                let name = item.ident.to_string();
                let target = described(&name, &item.ty)?;
                self.description.aliases.insert(name, target);
                Ok(())
            }
            syn::Item::Const(item) => {
                if let Some(value) = types::integer(&item.expr) {
                    self.constant(item.ident.to_string(), value, None);
                }
                Ok(())
            }
            syn::Item::Use(item) => {
                self.renamed(&item.tree);
                Ok(())
            }
            syn::Item::Impl(item) => {
                self.newtype_constants(item);
                Ok(())
            }
            syn::Item::ForeignMod(block) => self.functions(block),
            _ => Ok(()),
        }
    }

    fn structure(&mut self, item: &syn::ItemStruct) -> Result<(), Unreadable> {
        let name = item.ident.to_string();
        match &item.fields {
            syn::Fields::Named(named) => {
                let fields = self.fields(&name, named.named.iter())?;
                // bindgen gives an opaque type a private field.
                let opaque = fields.iter().all(|field| field.name == "_unused");
                if !opaque {
                    self.define(name, Kind::Struct, fields);
                }
            }
            syn::Fields::Unnamed(one) => {
                let integer = described(&name, &one.unnamed[0].ty)?;
                if let Type::Integer { bytes, signed } = integer {
                    self.labels.insert(format!("Size of {name}"), u64::from(bytes));
                    self.labels.insert(format!("Alignment of {name}"), u64::from(bytes));
                    self.define(name, Kind::Enumeration { signed }, Vec::new());
                }
            }
            syn::Fields::Unit => {}
        }
        Ok(())
    }

    fn fields<'a>(
        &self,
        owner: &str,
        fields: impl Iterator<Item = &'a syn::Field>,
    ) -> Result<Vec<Field>, Unreadable> {
        let named = fields.filter_map(|field| Some((field.ident.as_ref()?, &field.ty)));
        named
            .map(|(ident, of)| {
                let written = ident.to_string();
                // bindgen appends `_` to Rust keywords, also in labels.
                let name = written.trim_start_matches("r#");
                let offset = self.labels.get(&format!("Offset of field: {owner}::{written}"));
                let word = name.strip_suffix('_').filter(|name| is_word_of_rust(name));
                let name = word.unwrap_or(name).to_owned();
                Ok(Field { offset: offset.copied(), of: described(owner, of)?, name })
            })
            .collect()
    }

    fn define(&mut self, name: String, kind: Kind, fields: Vec<Field>) {
        let size = self.labels.get(&format!("Size of {name}")).copied();
        let align = self.labels.get(&format!("Alignment of {name}")).copied();
        self.description.types.insert(name, Definition { kind, size, align, fields });
    }

    /// An enumeration as a Rust `enum`, as old versions of bindgen write it.
    fn enumeration(&mut self, item: &syn::ItemEnum) {
        let name = item.ident.to_string();
        let signed = item.attrs.iter().any(|attribute| {
            matches!(&attribute.meta, syn::Meta::List(list)
                if list.path.is_ident("repr") && list.tokens.to_string() == "i32")
        });
        self.labels.insert(format!("Size of {name}"), 4);
        self.labels.insert(format!("Alignment of {name}"), 4);
        for variant in &item.variants {
            if let Some(value) = variant.discriminant.as_ref().and_then(|(_, v)| types::integer(v))
            {
                self.constant(variant.ident.to_string(), value, Some(name.clone()));
            }
        }
        self.define(name, Kind::Enumeration { signed }, Vec::new());
    }

    fn newtype_constants(&mut self, item: &syn::ItemImpl) {
        let syn::Type::Path(of) = &*item.self_ty else { return };
        let Some(of) = of.path.get_ident().map(ToString::to_string) else { return };
        for member in &item.items {
            let syn::ImplItem::Const(constant) = member else { continue };
            let syn::Expr::Call(call) = &constant.expr else { continue };
            if let Some(value) = call.args.first().and_then(types::integer) {
                self.constant(constant.ident.to_string(), value, Some(of.clone()));
            }
        }
    }

    fn constant(&mut self, name: String, value: i128, of: Option<String>) {
        self.description.constants.insert(name, Constant { value, of, since: None });
    }

    /// `pub use self::CUresult_enum as CUresult;` is how bindgen renames an enumeration.
    fn renamed(&mut self, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => self.renamed(&path.tree),
            syn::UseTree::Rename(rename) => {
                let target = Type::Named(rename.ident.to_string());
                self.description.aliases.insert(rename.rename.to_string(), target);
            }
            _ => {}
        }
    }

    fn functions(&mut self, block: &syn::ItemForeignMod) -> Result<(), Unreadable> {
        for item in &block.items {
            let syn::ForeignItem::Fn(function) = item else { continue };
            let name = function.sig.ident.to_string();
            let typed = function.sig.inputs.iter().filter_map(|input| match input {
                syn::FnArg::Typed(typed) => Some(&*typed.ty),
                syn::FnArg::Receiver(_) => None,
            });
            let arguments: Result<_, _> = typed.map(|of| described(&name, of)).collect();
            let result = types::describe_result(&function.sig.output)
                .map_err(|source| Unreadable::Type { item: name.clone(), source })?;
            let function = Function { arguments: arguments?, result, since: None };
            self.description.functions.insert(name, function);
        }
        Ok(())
    }
}

fn described(item: &str, of: &syn::Type) -> Result<Type, Unreadable> {
    types::describe(of).map_err(|source| Unreadable::Type { item: item.to_owned(), source })
}

fn is_word_of_rust(name: &str) -> bool {
    syn::parse_str::<syn::Ident>(name).is_err()
}

/// The numbers of the layout tests by their labels.
#[derive(Default)]
struct Labels {
    numbers: BTreeMap<String, u64>,
}

impl Labels {
    fn insert(&mut self, label: String, number: &syn::Expr) {
        if let Some(number) = types::integer(number).and_then(|n| u64::try_from(n).ok()) {
            // The two generations of bindgen differ in one colon.
            self.numbers.insert(label.replace("Size of: ", "Size of "), number);
        }
    }
}

impl<'ast> Visit<'ast> for Labels {
    /// `["Size of CUuuid_st"][size_of::<CUuuid_st>() - 16usize]`
    fn visit_expr_index(&mut self, index: &'ast syn::ExprIndex) {
        let (syn::Expr::Array(array), syn::Expr::Binary(difference)) =
            (&*index.expr, &*index.index)
        else {
            return;
        };
        if let Some(syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(label), .. })) =
            array.elems.first()
        {
            self.insert(label.value(), &difference.right);
        }
    }

    /// `assert_eq!(size_of::<CUuuid_st>(), 16usize, concat!("Size of: ", stringify!(CUuuid_st)))`
    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        type Arguments = syn::punctuated::Punctuated<syn::Expr, syn::Token![,]>;
        if !item.path.is_ident("assert_eq") {
            return;
        }
        let Ok(arguments) = item.parse_body_with(Arguments::parse_terminated) else { return };
        if let (Some(number), Some(syn::Expr::Macro(label))) = (arguments.get(1), arguments.get(2))
        {
            let parsed = label.mac.parse_body_with(Arguments::parse_terminated);
            let parts: Vec<String> = parsed.iter().flatten().map(part_of_label).collect();
            self.insert(parts.concat(), number);
        }
    }
}

fn part_of_label(part: &syn::Expr) -> String {
    match part {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => text.value(),
        syn::Expr::Macro(stringify) => stringify.mac.tokens.to_string(),
        _ => String::new(),
    }
}
