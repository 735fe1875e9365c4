//! Formatting of outputs as text that does not depend on the run.

use crate::arena::{ArenaAddress, UNWRITTEN, word};
use crate::names::Names;
use crate::reflect::DRIVER;
use crate::types::{Record, Type};
use crate::variables::Variable;

/// The text for an unwritten output.
pub(crate) const NOTHING: &str = "-";

/// Formats the value of a variable. `listed` is the length of a list that the driver returned.
pub(crate) fn variable(variable: &Variable, names: &mut Names, listed: Option<usize>) -> String {
    let size = DRIVER.size(&variable.of).unwrap_or(1);
    match variable.count {
        Some(count) if variable.of == Type::Char => characters(&variable.place.read(count)),
        Some(count) => array(variable.place, count, &variable.of, names),
        None => {
            let bytes = variable.place.read(size);
            match (&variable.of, listed) {
                (Type::Pointer(target), _) if **target == Type::Char => string_at(&bytes),
                (Type::Pointer(target), Some(count)) if is_written(&bytes) => {
                    list(word(&bytes), count, target, names)
                }
                (of, _) => one(&bytes, of, names),
            }
        }
    }
}

fn is_written(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| *byte != UNWRITTEN)
}

/// Text that the driver points to.
fn string_at(bytes: &[u8]) -> String {
    match (is_written(bytes), word(bytes)) {
        (false, _) => NOTHING.to_owned(),
        (true, 0) => "null".to_owned(),
        (true, address) => format!("{:?}", ArenaAddress::of_address(address).text()),
    }
}

fn characters(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    format!("{:?}", String::from_utf8_lossy(&bytes[..end]))
}

fn list(address: u64, count: usize, of: &Type, names: &mut Names) -> String {
    match address {
        0 => "null".to_owned(),
        _ => array(ArenaAddress::of_address(address), count, of, names),
    }
}

/// `[1, 2, 7*30]`: four or more equal values in a row are shown once.
fn array(place: ArenaAddress, count: usize, of: &Type, names: &mut Names) -> String {
    let size = DRIVER.size(of).unwrap_or(1);
    let show = |at: usize| one(&place.offset(at * size).read(size), of, names);
    runs((0..count).map(show).collect())
}

/// Formats values in brackets, with runs of four or more abbreviated.
pub(crate) fn runs(values: Vec<String>) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = values.as_slice();
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|value| *value == first).count();
        if count >= 4 {
            parts.push(format!("{first}*{count}"));
        } else {
            parts.extend(rest[..count].iter().cloned());
        }
        rest = &rest[count..];
    }
    format!("[{}]", parts.join(", "))
}

/// Shows one value.
pub(crate) fn one(bytes: &[u8], of: &Type, names: &mut Names) -> String {
    if !matches!(of, Type::Record(_)) && bytes.len() > 1 && !is_written(bytes) {
        return NOTHING.to_owned();
    }
    let number = word(bytes);
    match of {
        Type::Integer { size, signed: true } => {
            let shift = 64 - 8 * size;
            (((number << shift) as i64) >> shift).to_string()
        }
        Type::Float { size: 4 } => float(f32::from_bits(number as u32)),
        Type::Float { .. } => format!("{:?}", f64::from_bits(number)),
        Type::Handle(kind) => names.handle(kind, number),
        Type::Address | Type::Pointer(_) | Type::Function => names.address(number),
        Type::Record(name) => record(bytes, name, names),
        Type::Array(element, count) => {
            let size = DRIVER.size(element).unwrap_or(1);
            let show = |at: usize| one(&bytes[at * size..(at + 1) * size], element, names);
            runs((0..*count).map(show).collect())
        }
        _ => number.to_string(),
    }
}

fn float(value: f32) -> String {
    if value.is_nan() { format!("nan:{:08x}", value.to_bits()) } else { format!("{value:?}") }
}

/// Shows the fields that are neither zero nor unwritten.
fn record(bytes: &[u8], name: &str, names: &mut Names) -> String {
    if !is_written(bytes) {
        return NOTHING.to_owned();
    }
    let Some(record) = DRIVER.record(name) else {
        return "?".to_owned();
    };
    if record.is_union {
        return union(bytes, &record, names);
    }
    let mut parts = Vec::new();
    for field in &record.fields {
        let size = DRIVER.size(&field.of).unwrap_or(0);
        let inside = &bytes[field.offset..field.offset + size];
        let is_empty = inside.iter().all(|byte| *byte == 0) || !is_written(inside);
        if !is_empty && !is_private(&field.name) {
            parts.push(format!("{}={}", field.name, one(inside, &field.of, names)));
        }
    }
    format!("{{{}}}", parts.join(" "))
}

/// Whether a field is padding or belongs to the driver. Its bytes may differ between runs.
fn is_private(field: &str) -> bool {
    ["reserved", "pad", "_"].iter().any(|prefix| field.starts_with(prefix))
}

/// Formats a union. Except for unions with a single public field, the active field is unknown:
/// formats them word by word up to the last one that is neither zero nor unwritten. Words that may
/// be addresses are formatted as addresses.
fn union(bytes: &[u8], record: &Record, names: &mut Names) -> String {
    let mut public = record.fields.iter().filter(|field| !is_private(&field.name));
    if let (Some(only), None) = (public.next(), public.next()) {
        let size = DRIVER.size(&only.of).unwrap_or(0);
        return one(&bytes[..size], &only.of, names);
    }
    let mut words: Vec<String> = Vec::new();
    let mut kept = 0;
    for chunk in bytes.chunks(8) {
        // A four-byte field leaves the other half of its word unwritten.
        let (low, high) = chunk.split_at(chunk.len().min(4));
        let chunk = if is_written(high) { chunk } else { low };
        words.push(match word(chunk) {
            _ if !is_written(chunk) => NOTHING.to_owned(),
            number if number < 1 << 32 => number.to_string(),
            number => names.address(number),
        });
        if is_written(chunk) && word(chunk) != 0 {
            kept = words.len();
        }
    }
    words.truncate(kept);
    runs(words)
}
