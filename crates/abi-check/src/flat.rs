//! Structs and unions as flat lists of fields.
//!
//! Rust has no anonymous members, so an anonymous member of the header is a named type in
//! our crates. Flattened, both have the same paths and offsets.

use crate::model::{Definition, Description, Kind, Type};

/// A field of a flattened struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The dotted path.
    pub path: String,
    /// Bytes from the start of the outermost struct.
    pub offset: Option<u64>,
    /// The type.
    pub of: Type,
}

/// Returns the fields of a definition from bindgen. Flattens types that bindgen names for anonymous
/// members.
pub fn of_header(header: &Description, tag: &str, definition: &Definition) -> Vec<Place> {
    let mut flattener = HeaderFlattener { header, places: Vec::new() };
    flattener.add(tag, definition, &Start { prefix: String::new(), offset: Some(0) });
    flattener.places
}

struct Start {
    prefix: String,
    offset: Option<u64>,
}

struct HeaderFlattener<'a> {
    header: &'a Description,
    places: Vec<Place>,
}

impl<'a> HeaderFlattener<'a> {
    fn add(&mut self, tag: &str, from: &Definition, start: &Start) {
        let mut end = Some(0);
        for field in from.fields.iter().filter(|field| !field.name.starts_with("_bindgen")) {
            let local = field.offset.or_else(|| self.next_offset(from.kind, end, &field.of));
            end = local.zip(self.measure(&field.of)).map(|(offset, (size, _))| offset + size);
            let offset = start.offset.zip(local).map(|(a, b)| a + b);
            let path = format!("{}{}", start.prefix, field.name);
            let Some((name, inner)) = self.unnamed(tag, &field.of) else {
                self.places.push(Place { path, offset, of: field.of.clone() });
                continue;
            };
            let prefix = match field.name.starts_with("__bindgen_anon_") {
                true => start.prefix.clone(),
                false => format!("{path}."),
            };
            self.add(name, inner, &Start { prefix, offset });
        }
    }

    /// The offset of an anonymous member, which bindgen does not report: the next aligned one after
    /// the previous member.
    fn next_offset(&self, kind: Kind, end: Option<u64>, of: &Type) -> Option<u64> {
        match kind {
            Kind::Union => Some(0),
            _ => Some(end?.next_multiple_of(self.measure(of)?.1)),
        }
    }

    /// Size and alignment.
    fn measure(&self, of: &Type) -> Option<(u64, u64)> {
        let word = size_of::<*const ()>() as u64;
        match self.header.resolve(of) {
            Type::Void => None,
            Type::Char => Some((1, 1)),
            Type::Size | Type::Pointer { .. } | Type::Function { .. } => Some((word, word)),
            Type::Integer { bytes, .. } | Type::Float(bytes) => Some((bytes.into(), bytes.into())),
            Type::Named(name) => {
                let definition = self.header.types.get(&name)?;
                definition.size.zip(definition.align)
            }
            Type::Array { length, of } => {
                self.measure(&of).map(|(size, align)| (size * length, align))
            }
        }
    }

    /// The definition of an anonymous type, or of one that is nested in this one.
    fn unnamed<'d>(&self, tag: &str, of: &'d Type) -> Option<(&'d str, &'a Definition)> {
        let Type::Named(name) = of else { return None };
        let nested = name.strip_prefix(tag).is_some_and(|rest| rest.starts_with('_'));
        let definition = self.header.types.get(name)?;
        (nested || name.contains("__bindgen_ty_")).then_some((name.as_str(), definition))
    }
}

/// Returns the fields of one of our definitions. Flattens types that the header does not name, and
/// adds them to `used`.
pub fn of_ours(
    pair: &Pair<'_>,
    definition: &Definition,
    in_header: &[Place],
    used: &mut Vec<String>,
) -> Vec<Place> {
    let mut flattener = Flattener { pair, in_header, used, places: Vec::new() };
    flattener.add(definition, &Start { prefix: String::new(), offset: Some(0) });
    flattener.places
}

/// One of our crates and one header.
#[derive(Clone, Copy)]
pub struct Pair<'a> {
    /// Our description.
    pub ours: &'a Description,
    /// The description of the header.
    pub header: &'a Description,
}

impl Pair<'_> {
    /// Whether the header has a type of this name.
    pub fn names(&self, name: &str) -> bool {
        self.header.aliases.contains_key(name) || self.header.types.contains_key(name)
    }

    /// A type of ours in terms of the header, as far as the header names it.
    pub fn resolve(&self, of: &Type) -> Type {
        self.header.resolve(&self.plain(of))
    }

    /// A type of ours with flags as integers and without aliases that the header lacks.
    pub fn plain(&self, of: &Type) -> Type {
        of.map_names(&mut |name| match (self.ours.flags.get(name), self.ours.aliases.get(name)) {
            (Some(integer), _) => integer.clone(),
            (None, Some(target)) if !self.names(name) => self.plain(target),
            _ => Type::Named(name.to_owned()),
        })
    }
}

struct Flattener<'a> {
    pair: &'a Pair<'a>,
    in_header: &'a [Place],
    used: &'a mut Vec<String>,
    places: Vec<Place>,
}

impl Flattener<'_> {
    fn add(&mut self, from: &Definition, start: &Start) {
        for field in &from.fields {
            let offset = start.offset.zip(field.offset).map(|(a, b)| a + b);
            let path = format!("{}{}", start.prefix, field.name);
            let Some((name, inner)) = self.unnamed(&field.of) else {
                self.places.push(Place { path, offset, of: field.of.clone() });
                continue;
            };
            self.used.push(name);
            let dotted = format!("{path}.");
            let prefix = match self.in_header.iter().any(|place| place.path.starts_with(&dotted)) {
                true => dotted,
                false => start.prefix.clone(),
            };
            self.add(inner, &Start { prefix, offset });
        }
    }

    fn unnamed<'d>(&self, of: &Type) -> Option<(String, &'d Definition)>
    where
        Self: 'd,
    {
        let Type::Named(name) = of else { return None };
        let definition = self.pair.ours.types.get(name)?;
        let has_fields = matches!(definition.kind, Kind::Struct | Kind::Union);
        (has_fields && !self.pair.names(name)).then(|| (name.clone(), definition))
    }
}
