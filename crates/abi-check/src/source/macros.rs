//! Declarations through macros of the crates.

use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Ident, Token, braced};

use super::{ConstantSource, Form, Source, TypeSource, fields, text};

/// Macros that declare no type or constant of the header. Functions come from `driver_functions!`.
const DECLARE_NOTHING: [&str; 5] =
    ["macro_rules", "layout", "driver_functions", "nccl_functions", "zeroed"];

impl Source {
    pub(super) fn invocation(&mut self, item: &syn::ItemMacro) {
        let name = item.mac.path.segments.last().map(|last| last.ident.to_string());
        let name = name.unwrap_or_default();
        let read = match name.as_str() {
            "enumerations" => item.mac.parse_body().map(|list: List<_>| self.enumerations(list)),
            "flags" => item.mac.parse_body().map(|list: List<_>| self.flags(list)),
            "structures" => item.mac.parse_body().map(|list: List<_>| self.structures(list)),
            "handles" => item.mac.parse_body().map(|list: List<_>| self.handles(list)),
            "result_codes" => item.mac.parse_body().map(|list: List<_>| self.result_codes(list)),
            name if DECLARE_NOTHING.contains(&name) => Ok(()),
            _ => Err(syn::Error::new_spanned(item, "a macro that abi-check does not know")),
        };
        if let Err(error) = read {
            self.problem(&format!("{name}!: {error}"));
        }
    }

    fn enumerations(&mut self, list: List<Enumeration>) {
        for enumeration in list.0 {
            let name = enumeration.name.to_string();
            for Valued { name: constant, since } in enumeration.constants {
                self.enumerator(&name, constant.to_string(), since);
            }
            let form = Form::Enumeration(text(&enumeration.integer));
            self.types.push(TypeSource { name, form, fields: Vec::new() });
        }
    }

    /// The integer that functions take, and constants of it.
    fn flags(&mut self, list: List<Enumeration>) {
        for Enumeration { name, integer, constants } in list.0 {
            self.flags.push((name.to_string(), text(&integer)));
            for Valued { name, since } in constants {
                let (name, of) = (name.to_string(), None);
                let expression = name.clone();
                self.constants.push(ConstantSource { name, of, since, expression });
            }
        }
    }

    fn structures(&mut self, list: List<syn::Item>) {
        for item in list.0 {
            let (form, name, fields) = match &item {
                syn::Item::Struct(item) => (Form::Struct, &item.ident, fields(item.fields.iter())),
                syn::Item::Union(item) => {
                    (Form::Union, &item.ident, fields(item.fields.named.iter()))
                }
                other => return self.problem(&format!("structures!: {}", text(other))),
            };
            self.types.push(TypeSource { name: name.to_string(), form, fields });
        }
    }

    fn handles(&mut self, list: List<Handle>) {
        for Handle(name) in list.0 {
            let form = Form::Handle;
            self.types.push(TypeSource { name: name.to_string(), form, fields: Vec::new() });
        }
    }

    fn result_codes(&mut self, list: List<Valued>) {
        for Valued { name, since } in list.0 {
            self.enumerator(self.naming.result, name.to_string(), since);
        }
    }
}

/// Any number of declarations.
struct List<T>(Vec<T>);

impl<T: Parse> Parse for List<T> {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut list = Vec::new();
        while !input.is_empty() {
            list.push(input.parse()?);
        }
        Ok(Self(list))
    }
}

/// `Name: integer { … }`
struct Enumeration {
    name: Ident,
    integer: syn::Type,
    constants: Vec<Valued>,
}

impl Parse for Enumeration {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        input.call(Attribute::parse_outer)?;
        let name = input.parse()?;
        input.parse::<Token![:]>()?;
        let integer = input.parse()?;
        let content;
        braced!(content in input);
        let constants: List<Valued> = content.parse()?;
        Ok(Self { name, integer, constants: constants.0 })
    }
}

/// `Name;`
struct Handle(Ident);

impl Parse for Handle {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        input.call(Attribute::parse_outer)?;
        let name = input.parse()?;
        input.parse::<Token![;]>()?;
        Ok(Self(name))
    }
}

/// `NAME = value since N;` with an optional `since`.
struct Valued {
    name: Ident,
    since: Option<i32>,
}

impl Parse for Valued {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        input.call(Attribute::parse_outer)?;
        let name = input.parse()?;
        input.parse::<Token![=]>()?;
        let mut since = None;
        while !input.peek(Token![;]) {
            let token: proc_macro2::TokenTree = input.parse()?;
            if token.to_string() == "since" {
                since = Some(input.parse::<syn::LitInt>()?.base10_parse()?);
            }
        }
        input.parse::<Token![;]>()?;
        Ok(Self { name, since })
    }
}
