//! Parser of the declarations in the sources of driver-sys and nccl-sys, also used by the build
//! script.
//!
//! A declaration that it cannot parse is a problem that fails the comparison.

mod macros;

use std::path::Path;

/// Public constants of both crates that the headers lack.
const NOT_OF_HEADERS: [&str; 2] = ["LIBRARY_NAMES", "MIN_VERSION"];

/// How a header names its declarations.
#[derive(Clone, Copy, Debug)]
pub struct Naming {
    /// The beginnings of all names.
    prefixes: &'static [&'static str],
    /// The enumeration of results.
    result: &'static str,
}

/// The names of cuda.h.
pub const CUDA: Naming = Naming { prefixes: &["CU"], result: "CUresult" };
/// The names of nccl.h.
pub const NCCL: Naming = Naming { prefixes: &["nccl", "NCCL"], result: "ncclResult_t" };

impl Naming {
    fn names(&self, name: &str) -> bool {
        self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// Associated constants of handles with their names in cuda.h.
const OF_HANDLES: [(&str, &str, &str); 2] = [
    ("CUstream", "LEGACY", "CU_STREAM_LEGACY"),
    ("CUstream", "PER_THREAD", "CU_STREAM_PER_THREAD"),
];

/// The declarations.
#[derive(Debug)]
pub struct Source {
    naming: Naming,
    /// Types with a layout.
    pub types: Vec<TypeSource>,
    /// Type aliases with their targets in Rust.
    pub aliases: Vec<(String, String)>,
    /// Integer types of flags, by name.
    pub flags: Vec<(String, String)>,
    /// Constants.
    pub constants: Vec<ConstantSource>,
    /// Declarations that could not be read.
    pub problems: Vec<String>,
}

/// A declared type.
#[derive(Debug)]
pub struct TypeSource {
    /// Its name.
    pub name: String,
    /// `struct`, `union`, `handle`, or the integer type of an enumeration.
    pub form: Form,
    /// Name and Rust type of each field.
    pub fields: Vec<(String, String)>,
}

/// The form of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// A struct of C.
    Struct,
    /// A union of C.
    Union,
    /// A newtype over a pointer.
    Handle,
    /// A newtype over this integer.
    Enumeration(String),
}

/// A declared constant.
#[derive(Debug)]
pub struct ConstantSource {
    /// Its name in the header.
    pub name: String,
    /// The enumeration that it belongs to.
    pub of: Option<String>,
    /// The first version that has it, if earlier ones lack it.
    pub since: Option<i32>,
    /// A Rust expression for it.
    pub expression: String,
}

impl Source {
    /// No declarations yet.
    pub fn new(naming: Naming) -> Self {
        let (types, aliases, flags) = (Vec::new(), Vec::new(), Vec::new());
        Self { naming, types, aliases, flags, constants: Vec::new(), problems: Vec::new() }
    }

    /// Reads the crate whose `lib.rs` is in a folder: every unconditional module.
    pub fn read(folder: &Path, naming: Naming) -> std::io::Result<Self> {
        let mut source = Self::new(naming);
        source.read_module(&folder.join("lib.rs"), folder)?;
        Ok(source)
    }

    /// Reads a file whose modules are in `folder`.
    fn read_module(&mut self, path: &Path, folder: &Path) -> std::io::Result<()> {
        let text = std::fs::read_to_string(path)?;
        let file = match syn::parse_file(&text) {
            Ok(file) => file,
            Err(error) => {
                self.problem(&format!("{}: {error}", path.display()));
                return Ok(());
            }
        };
        self.items(&file.items);
        for item in &file.items {
            let syn::Item::Mod(module) = item else { continue };
            if module.content.is_some() || is_gated(&module.attrs) {
                continue;
            }
            let below = folder.join(module.ident.to_string());
            let beside = below.with_extension("rs");
            let path = if beside.is_file() { beside } else { below.join("mod.rs") };
            self.read_module(&path, &below)?;
        }
        Ok(())
    }

    /// Reads declarations.
    pub fn items(&mut self, items: &[syn::Item]) {
        for item in items {
            self.item(item);
        }
    }

    fn item(&mut self, item: &syn::Item) {
        match item {
            syn::Item::Struct(item) if is_open(&item.vis, &item.attrs) => self.structure(item),
            syn::Item::Union(item) if is_open(&item.vis, &item.attrs) => {
                let fields = fields(item.fields.named.iter());
                let form = Form::Union;
                self.types.push(TypeSource { name: item.ident.to_string(), form, fields });
            }
            syn::Item::Enum(item) if is_open(&item.vis, &item.attrs) && has_repr(&item.attrs) => {
                let name = &item.ident;
                self.problem(&format!("{name} is an enum, undefined for values it does not list"));
            }
            syn::Item::Type(item) if is_open(&item.vis, &item.attrs) => {
                self.aliases.push((item.ident.to_string(), text(&item.ty)));
            }
            syn::Item::Const(item) if is_open(&item.vis, &item.attrs) => self.constant(item),
            syn::Item::Impl(item) if item.trait_.is_none() && !is_gated(&item.attrs) => {
                self.implementation(item);
            }
            syn::Item::Macro(item) if !is_gated(&item.attrs) => self.invocation(item),
            syn::Item::Mod(item) if !is_gated(&item.attrs) => {
                if let Some((_, items)) = &item.content {
                    self.items(items);
                }
            }
            _ => {}
        }
    }

    fn structure(&mut self, item: &syn::ItemStruct) {
        let name = item.ident.to_string();
        match (repr(&item.attrs).as_deref(), &item.fields) {
            (Some("C"), syn::Fields::Named(named)) => {
                let fields = fields(named.named.iter());
                self.types.push(TypeSource { name, form: Form::Struct, fields });
            }
            (Some("transparent"), syn::Fields::Unnamed(one)) if one.unnamed.len() == 1 => {
                let inner = &one.unnamed[0].ty;
                let form = match inner {
                    syn::Type::Ptr(_) => Form::Handle,
                    inner => Form::Enumeration(text(inner)),
                };
                self.types.push(TypeSource { name, form, fields: Vec::new() });
            }
            (None, _) if !self.naming.names(&name) => {}
            (repr, _) => self.problem(&format!("{name}: a struct with repr {repr:?}")),
        }
    }

    fn constant(&mut self, item: &syn::ItemConst) {
        let name = item.ident.to_string();
        if !self.naming.names(&name) {
            if !NOT_OF_HEADERS.contains(&name.as_str()) {
                self.problem(&format!("{name}: a constant whose name in C is unknown"));
            }
            return;
        }
        let expression = name.clone();
        self.constants.push(ConstantSource { name, of: None, since: None, expression });
    }

    fn implementation(&mut self, item: &syn::ItemImpl) {
        let of = text(&item.self_ty);
        for member in &item.items {
            let syn::ImplItem::Const(constant) = member else { continue };
            let name = constant.ident.to_string();
            let expression = format!("{of}::{name}");
            let known = OF_HANDLES.iter().find(|(ty, short, _)| *ty == of && *short == name);
            if let Some((_, _, name)) = known {
                self.constants.push(ConstantSource {
                    name: (*name).to_owned(),
                    of: None,
                    since: None,
                    expression,
                });
            } else if self.naming.names(&name) {
                self.enumerator(&of, name, None);
            }
        }
    }

    fn enumerator(&mut self, of: &str, name: String, since: Option<i32>) {
        let (of, expression) = (Some(of.to_owned()), format!("{of}::{name}"));
        self.constants.push(ConstantSource { name, of, since, expression });
    }

    fn problem(&mut self, text: &str) {
        self.problems.push(text.to_owned());
    }
}

/// Whether the item is public in every build.
fn is_open(visibility: &syn::Visibility, attributes: &[syn::Attribute]) -> bool {
    matches!(visibility, syn::Visibility::Public(_)) && !is_gated(attributes)
}

fn is_gated(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list)
                if ["test", "feature", "doctest", "windows"]
                    .iter()
                    .any(|word| list.tokens.to_string().starts_with(word)))
    })
}

fn repr(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("repr") => Some(list.tokens.to_string()),
        _ => None,
    })
}

fn has_repr(attributes: &[syn::Attribute]) -> bool {
    repr(attributes).is_some()
}

fn fields<'a>(fields: impl Iterator<Item = &'a syn::Field>) -> Vec<(String, String)> {
    fields.filter_map(|field| Some((field.ident.as_ref()?.to_string(), text(&field.ty)))).collect()
}

fn text(tokens: &impl quote::ToTokens) -> String {
    tokens.to_token_stream().to_string()
}
