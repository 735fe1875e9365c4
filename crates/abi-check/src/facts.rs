//! A description as a list of facts, to compare one by one.

use std::collections::BTreeMap;

use crate::flat::{self, Pair, Place};
use crate::model::{Definition, Description, Kind, Type};

/// Values by item.
pub type Facts = BTreeMap<String, String>;

/// The facts of our crate, in terms of the header.
pub fn of_ours(pair: &Pair<'_>) -> Facts {
    let mut facts = Facts::new();
    let mut used = Vec::new();
    for (name, definition) in &pair.ours.types {
        if pair.names(name) {
            layout(&mut facts, name, definition);
            for place in places(pair, name, definition, &mut used) {
                let of = in_memory(pair.header, &pair.resolve(&place.of));
                put_place(&mut facts, name, &place, &of);
            }
        }
    }
    for name in pair.ours.types.keys() {
        if !pair.names(name) && !used.contains(name) {
            facts.insert(format!("type {name}"), "declared".to_owned());
        }
    }
    for (name, target) in &pair.ours.aliases {
        facts.insert(format!("alias {name}"), pair.resolve(target).to_string());
    }
    for (name, constant) in &pair.ours.constants {
        facts.insert(format!("value of {name}"), constant.value.to_string());
        if let Some(of) = &constant.of {
            let of = pair.resolve(&Type::Named(of.clone()));
            facts.insert(format!("enumeration of {name}"), of.to_string());
        }
    }
    for (name, function) in &pair.ours.functions {
        let of = |of: &Type| pair.resolve(of);
        facts.insert(format!("signature of {name}"), function.map(of).to_string());
    }
    facts
}

/// The fields of a type of ours, with the names of the header.
pub fn places(
    pair: &Pair<'_>,
    name: &str,
    definition: &Definition,
    used: &mut Vec<String>,
) -> Vec<Place> {
    let in_header = match pair.header.definition(name) {
        Some((tag, theirs)) => flat::of_header(pair.header, &tag, theirs),
        None => Vec::new(),
    };
    flat::of_ours(pair, definition, &in_header, used)
}

/// The facts of a header about our items, including fields that ours lack.
pub fn of_header(pair: &Pair<'_>) -> Facts {
    let Pair { ours, header } = pair;
    let mut facts = Facts::new();
    for name in ours.types.keys() {
        if let Some((tag, definition)) = header.definition(name) {
            layout(&mut facts, name, definition);
            for place in flat::of_header(header, &tag, definition) {
                let of = in_memory(header, &header.resolve(&place.of));
                put_place(&mut facts, name, &place, &of);
            }
        } else if let Type::Pointer { .. } = header.resolve(&Type::Named(name.clone())) {
            let size = size_of::<*const ()>() as u64;
            let (size, fields) = (Some(size), Vec::new());
            let handle = Definition { kind: Kind::Handle, size, align: size, fields };
            layout(&mut facts, name, &handle);
        }
    }
    for name in ours.aliases.keys().filter(|name| pair.names(name)) {
        let target = header.resolve(&Type::Named(name.clone()));
        facts.insert(format!("alias {name}"), target.to_string());
    }
    for (name, constant) in &ours.constants {
        let Some(theirs) = header.constants.get(name) else { continue };
        facts.insert(format!("value of {name}"), theirs.value.to_string());
        if let (Some(of), Some(_)) = (&theirs.of, &constant.of) {
            let of = header.resolve(&Type::Named(of.clone()));
            facts.insert(format!("enumeration of {name}"), of.to_string());
        }
    }
    for name in ours.functions.keys() {
        if let Some(function) = header.functions.get(name) {
            let of = |of: &Type| header.resolve(of);
            facts.insert(format!("signature of {name}"), function.map(of).to_string());
        }
    }
    facts
}

fn layout(facts: &mut Facts, name: &str, definition: &Definition) {
    let kind = match definition.kind {
        Kind::Struct => "struct",
        Kind::Union => "union",
        Kind::Handle => "handle",
        Kind::Enumeration { signed: true } => "signed enumeration",
        Kind::Enumeration { signed: false } => "unsigned enumeration",
    };
    facts.insert(format!("kind of {name}"), kind.to_owned());
    if let Some(size) = definition.size {
        facts.insert(format!("size of {name}"), size.to_string());
    }
    if let Some(align) = definition.align {
        facts.insert(format!("alignment of {name}"), align.to_string());
    }
}

fn put_place(facts: &mut Facts, owner: &str, place: &Place, of: &Type) {
    let Place { path, offset, .. } = place;
    if let Some(offset) = offset {
        facts.insert(format!("offset of {owner}.{path}"), offset.to_string());
    }
    facts.insert(format!("type of {owner}.{path}"), of.to_string());
}

/// Unifies types that are equal inside a struct.
///
/// Arrays of bytes are equal whether C declares them as `char` or not. Later headers have several
/// versions of a struct with the same fields, for calls and for nodes.
fn in_memory(header: &Description, of: &Type) -> Type {
    match of {
        Type::Array { length, of } => {
            let of = match &**of {
                Type::Integer { bytes: 1, .. } => Type::Char,
                of => in_memory(header, of),
            };
            Type::Array { length: *length, of: Box::new(of) }
        }
        Type::Named(tag) => Type::Named(first_version(header, tag).unwrap_or(tag).to_owned()),
        other => other.clone(),
    }
}

/// The first of the versions of a struct with the same fields.
fn first_version<'a>(header: &'a Description, tag: &str) -> Option<&'a str> {
    let definition = header.types.get(tag)?;
    let places = |tag: &str, definition: &Definition| {
        let places = flat::of_header(header, tag, definition).into_iter();
        places
            .map(|place| (place.path, place.offset, header.resolve(&place.of)))
            .collect::<Vec<_>>()
    };
    let mine = places(tag, definition);
    let others = header.types.iter().filter(|(name, other)| {
        base(name) == base(tag) && other.size == definition.size && other.kind == definition.kind
    });
    others.filter(|(name, other)| places(name, other) == mine).map(|(name, _)| name.as_str()).min()
}

/// A tag without its version.
fn base(tag: &str) -> &str {
    let name = tag.strip_suffix("_st").unwrap_or(tag);
    crate::since::base(name)
}
