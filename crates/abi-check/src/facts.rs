//! A description as a list of statements that can be compared one by one.

use std::collections::BTreeMap;

use crate::flat::{self, Pair, Place};
use crate::model::{Definition, Kind, Type};

/// What is said about each item.
pub type Facts = BTreeMap<String, String>;

/// What driver-sys says, in terms of the header.
pub fn of_ours(pair: &Pair<'_>) -> Facts {
    let mut facts = Facts::new();
    let mut used = Vec::new();
    for (name, definition) in &pair.ours.types {
        if pair.names(name) {
            layout(&mut facts, name, definition);
            for place in places(pair, name, definition, &mut used) {
                put_place(&mut facts, name, &place, &pair.resolve(&place.of));
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

/// The places of a type of ours, named as the header does.
pub fn places(
    pair: &Pair<'_>,
    name: &str,
    definition: &Definition,
    used: &mut Vec<String>,
) -> Vec<Place> {
    let in_header = match pair.header.definition(name) {
        Some((_, theirs)) => flat::of_header(pair.header, theirs),
        None => Vec::new(),
    };
    flat::of_ours(pair, definition, &in_header, used)
}

/// What a header says about the items of driver-sys. Fields that driver-sys lacks are among it.
pub fn of_header(pair: &Pair<'_>) -> Facts {
    let Pair { ours, header } = pair;
    let mut facts = Facts::new();
    for name in ours.types.keys() {
        if let Some((_, definition)) = header.definition(name) {
            layout(&mut facts, name, definition);
            for place in flat::of_header(header, definition) {
                put_place(&mut facts, name, &place, &header.resolve(&place.of));
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
    facts.insert(format!("type of {owner}.{path}"), in_memory(of).to_string());
}

/// Arrays of bytes are the same in memory whether C calls them characters or not.
fn in_memory(of: &Type) -> Type {
    match of {
        Type::Array { length, of } => {
            let of = match &**of {
                Type::Integer { bytes: 1, .. } => Type::Char,
                of => in_memory(of),
            };
            Type::Array { length: *length, of: Box::new(of) }
        }
        other => other.clone(),
    }
}
