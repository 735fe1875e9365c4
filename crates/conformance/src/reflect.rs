//! Reflection of driver-sys from its source: constants, aliases, enumerations, handles, structures.
//!
//! The build script embeds the source, so the scenario language needs no separate list of names.
//! Every call compares sizes with the compiler's.

mod source;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::types::{Field, Record, Type};

/// The named declarations.
#[derive(Debug, Default)]
pub(crate) struct Reflection {
    constants: HashMap<String, i128>,
    aliases: HashMap<String, String>,
    handles: Vec<String>,
    /// Structures and unions by name.
    records: HashMap<String, source::Written>,
}

/// The reflection of driver-sys.
pub(crate) static DRIVER: LazyLock<Reflection> = LazyLock::new(|| {
    let mut driver = source::read(include_str!(concat!(env!("OUT_DIR"), "/driver_sys.txt")));
    for (name, value) in [("CU_STREAM_LEGACY", 1), ("CU_STREAM_PER_THREAD", 2)] {
        driver.constants.entry(name.to_owned()).or_insert(value);
    }
    driver
});

impl Reflection {
    /// The value of a constant of cuda.h.
    pub(crate) fn constant(&self, name: &str) -> Option<i128> {
        self.constants.get(name).copied()
    }

    /// The type with this Rust spelling.
    pub(crate) fn resolve(&self, text: &str) -> Type {
        self.resolve_within(text, 0)
    }

    fn resolve_within(&self, text: &str, depth: usize) -> Type {
        let text = text.trim();
        for prefix in ["*mut ", "*const "] {
            if let Some(target) = text.strip_prefix(prefix) {
                return Type::Pointer(Box::new(self.resolve_within(target, depth)));
            }
        }
        if text.contains("fn(") || text.contains("fn (") {
            return Type::Function;
        }
        if let Some(inside) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            return self.array(inside, depth);
        }
        let name = text.rsplit("::").next().unwrap_or(text).trim();
        if let Some(primitive) = Type::primitive(name) {
            return primitive;
        }
        if self.handles.iter().any(|handle| handle == name) {
            return Type::Handle(name.to_owned());
        }
        if self.records.contains_key(name) {
            return Type::Record(name.to_owned());
        }
        match self.aliases.get(name) {
            Some(alias) if depth < 8 => self.resolve_within(alias, depth + 1),
            _ => Type::Unknown(name.to_owned()),
        }
    }

    fn array(&self, inside: &str, depth: usize) -> Type {
        let (element, count) = inside.rsplit_once(';').unwrap_or((inside, "0"));
        let count = count.trim().trim_end_matches("usize").trim_end_matches('_');
        let known = self.constant(count).and_then(|count| usize::try_from(count).ok());
        let count = count.parse().ok().or(known).unwrap_or(0);
        Type::Array(Box::new(self.resolve_within(element, depth)), count)
    }

    /// A field of a structure by name, also inside an anonymous union.
    pub(crate) fn field(&self, record: &str, name: &str) -> Option<Field> {
        let fields = self.record(record)?.fields;
        if let Some(found) = fields.iter().find(|field| field.name == name) {
            return Some(found.clone());
        }
        fields.iter().filter(|field| field.name.starts_with("anonymous")).find_map(|outer| {
            let Type::Record(inner) = &outer.of else { return None };
            let found = self.field(inner, name)?;
            Some(Field { offset: outer.offset + found.offset, ..found })
        })
    }

    /// The layout of a structure or union, by the rules of C.
    pub(crate) fn record(&self, name: &str) -> Option<Record> {
        let written = self.records.get(name)?;
        let (mut end, mut size, mut align) = (0, 0, written.align.max(1));
        let mut fields = Vec::new();
        for (field, of) in &written.fields {
            let of = self.resolve(of);
            let (field_size, field_align) = self.size_align(&of)?;
            let offset =
                if written.is_union { 0 } else { usize::next_multiple_of(end, field_align) };
            end = offset + field_size;
            size = size.max(end);
            align = align.max(field_align);
            fields.push(Field { name: field.clone(), offset, of });
        }
        let size = usize::next_multiple_of(size, align);
        Some(Record { is_union: written.is_union, size, align, fields })
    }

    /// Size and alignment of a type, when it is known.
    pub(crate) fn size_align(&self, of: &Type) -> Option<(usize, usize)> {
        Some(match of {
            Type::Integer { size, .. } | Type::Float { size } => (*size, *size),
            Type::Handle(_) | Type::Address | Type::Function | Type::Pointer(_) => (8, 8),
            Type::Char => (1, 1),
            Type::Array(element, count) => {
                let (size, align) = self.size_align(element)?;
                (size * count, align)
            }
            Type::Record(name) => {
                let record = self.record(name)?;
                (record.size, record.align)
            }
            Type::Void | Type::Unknown(_) => return None,
        })
    }

    /// The size of a type, when it is known.
    pub(crate) fn size(&self, of: &Type) -> Option<usize> {
        self.size_align(of).map(|(size, _)| size)
    }
}
