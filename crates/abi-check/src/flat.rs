//! Structs and unions as lists of named places.
//!
//! Rust has no unnamed members, so that what the header nests without a name is a type of its own
//! in driver-sys. Flattened, both are the same list of paths and offsets.

use crate::model::{Definition, Description, Kind, Type};

/// A place in a struct that has a name in C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name, with dots where members of members are meant.
    pub path: String,
    /// Bytes from the start of the outermost struct.
    pub offset: Option<u64>,
    /// The type.
    pub of: Type,
}

/// The places of a definition by bindgen; its names for unnamed types are looked through.
pub fn of_header(header: &Description, definition: &Definition) -> Vec<Place> {
    let mut places = Vec::new();
    add_header(header, definition, &Start { prefix: String::new(), offset: Some(0) }, &mut places);
    places
}

struct Start {
    prefix: String,
    offset: Option<u64>,
}

fn add_header(header: &Description, from: &Definition, start: &Start, places: &mut Vec<Place>) {
    for field in &from.fields {
        let offset = start.offset.zip(field.offset).map(|(a, b)| a + b);
        let unnamed = match &field.of {
            Type::Named(name) if name.contains("__bindgen_ty_") => header.types.get(name),
            _ => None,
        };
        let path = format!("{}{}", start.prefix, field.name);
        let Some(inner) = unnamed else {
            places.push(Place { path, offset, of: field.of.clone() });
            continue;
        };
        let prefix = match field.name.starts_with("__bindgen_anon_") {
            true => start.prefix.clone(),
            false => format!("{path}."),
        };
        add_header(header, inner, &Start { prefix, offset }, places);
    }
}

/// The places of a definition of driver-sys. Types that the header does not name are looked
/// through and added to `used`.
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

/// Driver-sys and one header.
#[derive(Clone, Copy)]
pub struct Pair<'a> {
    /// The description of driver-sys.
    pub ours: &'a Description,
    /// The description of the header.
    pub header: &'a Description,
}

impl Pair<'_> {
    /// Whether the header has a type of this name.
    pub fn names(&self, name: &str) -> bool {
        self.header.aliases.contains_key(name) || self.header.types.contains_key(name)
    }

    /// A type of ours in terms of the header, as far as that has names for it.
    pub fn resolve(&self, of: &Type) -> Type {
        let ours = of.map_names(&mut |name| match self.ours.aliases.get(name) {
            Some(target) if !self.names(name) => self.resolve(target),
            _ => Type::Named(name.to_owned()),
        });
        self.header.resolve(&ours)
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
