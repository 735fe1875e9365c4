//! Conversion of Rust types to types of the description.

use syn::{GenericArgument, PathArguments, ReturnType};

use crate::model::Type;

/// A type that cannot be described.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a type that a C interface can have")]
pub struct UnknownType {
    /// The type as written.
    pub text: String,
}

/// Describes a Rust type.
pub fn describe(of: &syn::Type) -> Result<Type, UnknownType> {
    let unknown = || UnknownType { text: quote::quote!(#of).to_string() };
    match of {
        syn::Type::Path(path) => describe_path(path).unwrap_or_else(|| Err(unknown())),
        syn::Type::Ptr(pointer) => {
            Ok(describe(&pointer.elem)?.pointer(pointer.mutability.is_none()))
        }
        syn::Type::Array(array) => {
            let length = integer(&array.len).ok_or_else(unknown)?;
            let length = u64::try_from(length).map_err(|_| unknown())?;
            Ok(Type::Array { length, of: Box::new(describe(&array.elem)?) })
        }
        syn::Type::BareFn(function) => {
            let arguments: Result<_, _> =
                function.inputs.iter().map(|input| describe(&input.ty)).collect();
            let result = Box::new(describe_result(&function.output)?);
            Ok(Type::Function { arguments: arguments?, result })
        }
        syn::Type::Tuple(tuple) if tuple.elems.is_empty() => Ok(Type::Void),
        syn::Type::Paren(inner) => describe(&inner.elem),
        syn::Type::Group(inner) => describe(&inner.elem),
        _ => Err(unknown()),
    }
}

/// Describes the return type of a function.
pub fn describe_result(output: &ReturnType) -> Result<Type, UnknownType> {
    match output {
        ReturnType::Default => Ok(Type::Void),
        ReturnType::Type(_, of) => describe(of),
    }
}

/// The value of an integer literal with or without a sign or a cast.
pub fn integer(expression: &syn::Expr) -> Option<i128> {
    match expression {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(literal), .. }) => {
            literal.base10_parse().ok()
        }
        syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), expr, .. }) => {
            integer(expr).map(|value| -value)
        }
        syn::Expr::Paren(inner) => integer(&inner.expr),
        syn::Expr::Group(inner) => integer(&inner.expr),
        syn::Expr::Cast(cast) => integer(&cast.expr),
        _ => None,
    }
}

fn describe_path(path: &syn::TypePath) -> Option<Result<Type, UnknownType>> {
    let last = path.path.segments.last()?;
    let name = last.ident.to_string();
    if name == "Option" {
        let PathArguments::AngleBracketed(list) = &last.arguments else { return None };
        let Some(GenericArgument::Type(inner @ syn::Type::BareFn(_))) = list.args.first() else {
            return None;
        };
        return Some(describe(inner));
    }
    let of = |bytes, signed| Type::Integer { bytes, signed };
    Some(Ok(match name.as_str() {
        "c_void" => Type::Void,
        "c_char" => Type::Char,
        "usize" => Type::Size,
        "i8" | "c_schar" => of(1, true),
        "u8" | "c_uchar" => of(1, false),
        "i16" | "c_short" => of(2, true),
        "u16" | "c_ushort" => of(2, false),
        "i32" | "c_int" => of(4, true),
        "u32" | "c_uint" => of(4, false),
        "i64" | "c_longlong" => of(8, true),
        "u64" | "c_ulonglong" => of(8, false),
        "c_long" => of(size_of::<std::ffi::c_long>() as u32, true),
        "c_ulong" => of(size_of::<std::ffi::c_ulong>() as u32, false),
        "f32" | "c_float" => Type::Float(4),
        "f64" | "c_double" => Type::Float(8),
        _ => Type::Named(name),
    }))
}
