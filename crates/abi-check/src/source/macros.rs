//! The declarations that driver-sys makes with macros of its own.

use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Ident, Token, braced};

use super::{Form, Source, TypeSource, text};

/// Macros that declare nothing of the header: functions are taken from `driver_functions!`.
const DECLARE_NOTHING: [&str; 4] = ["macro_rules", "layout", "driver_functions", "define_table"];

impl Source {
    pub(super) fn invocation(&mut self, item: &syn::ItemMacro) {
        let name = item.mac.path.segments.last().map(|last| last.ident.to_string());
        let name = name.unwrap_or_default();
        let read = match name.as_str() {
            "enumerations" => item.mac.parse_body().map(|list: List<_>| self.enumerations(list)),
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
            for constant in enumeration.constants {
                self.enumerator(&name, constant.to_string());
            }
            let form = Form::Enumeration(text(&enumeration.integer));
            self.types.push(TypeSource { name, form, fields: Vec::new() });
        }
    }

    fn handles(&mut self, list: List<Handle>) {
        for Handle(name) in list.0 {
            let form = Form::Handle;
            self.types.push(TypeSource { name: name.to_string(), form, fields: Vec::new() });
        }
    }

    fn result_codes(&mut self, list: List<Valued>) {
        for Valued(name) in list.0 {
            self.enumerator("CUresult", name.to_string());
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
    constants: Vec<Ident>,
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
        let constants = constants.0.into_iter().map(|Valued(name)| name).collect();
        Ok(Self { name, integer, constants })
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

/// `NAME = anything;`
struct Valued(Ident);

impl Parse for Valued {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        input.call(Attribute::parse_outer)?;
        let name = input.parse()?;
        input.parse::<Token![=]>()?;
        while !input.peek(Token![;]) {
            input.parse::<proc_macro2::TokenTree>()?;
        }
        input.parse::<Token![;]>()?;
        Ok(Self(name))
    }
}
