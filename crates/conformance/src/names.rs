//! Stable names for handles and addresses, which vary between runs.

use std::collections::HashMap;

/// The names known so far.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Kind, value, name; the oldest first.
    handles: Vec<(String, u64, String)>,
    seen: HashMap<String, usize>,
    /// First address, size, name; the latest counts.
    extents: Vec<(u64, u64, String)>,
}

impl Names {
    /// The name of a handle. An unknown handle is numbered in order of appearance.
    pub(crate) fn handle(&mut self, kind: &str, value: u64) -> String {
        if value == 0 {
            return "null".to_owned();
        }
        if kind == "CUstream" && value <= 2 {
            return ["CU_STREAM_LEGACY", "CU_STREAM_PER_THREAD"][value as usize - 1].to_owned();
        }
        let known = self.handles.iter().find(|(of, number, _)| of == kind && *number == value);
        if let Some((_, _, name)) = known {
            return name.clone();
        }
        let count = self.seen.entry(kind.to_owned()).or_default();
        *count += 1;
        let name = format!("{kind}#{count}");
        self.handles.push((kind.to_owned(), value, name.clone()));
        name
    }

    /// Names a handle after a variable, unless it has a name.
    pub(crate) fn bind_handle(&mut self, kind: &str, value: u64, variable: &str) {
        if value == 0 {
            return;
        }
        let found = self.handles.iter_mut().find(|(of, number, _)| of == kind && *number == value);
        match found {
            Some((_, _, name)) if name.contains('#') => variable.clone_into(name),
            Some(_) => {}
            None => self.handles.push((kind.to_owned(), value, variable.to_owned())),
        }
    }

    /// Removes the name of a handle, whose number the driver may reuse.
    pub(crate) fn forget_handle(&mut self, kind: &str, value: u64) {
        self.handles.retain(|(of, number, _)| of != kind || *number != value);
    }

    /// The name of an address.
    pub(crate) fn address(&self, value: u64) -> String {
        if value == 0 {
            return "null".to_owned();
        }
        let inside = |(base, size, _): &&(u64, u64, String)| value - base < *size;
        let mut below = self.extents.iter().rev().filter(|(base, ..)| *base <= value);
        match below.find(inside) {
            Some((base, _, name)) if *base == value => name.clone(),
            Some((base, _, name)) => format!("{name}+{}", value - base),
            None => "addr".to_owned(),
        }
    }

    /// Names a range of addresses.
    pub(crate) fn bind_address(&mut self, base: u64, size: u64, name: &str) {
        if base != 0 {
            self.extents.push((base, size.max(1), name.to_owned()));
        }
    }

    /// Removes the names of an address, which the driver may reuse.
    pub(crate) fn forget_address(&mut self, base: u64) {
        self.extents.retain(|(first, ..)| *first != base);
    }
}
