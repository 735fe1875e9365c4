//! The CUDA version that introduced each function, from the typedefs for `cuGetProcAddress`: one
//! per version of a function, named after the CUDA version.

use crate::compare::Difference;
use crate::flat::Pair;
use crate::model::{Description, Function, Type};

/// The oldest driver that must have every required function.
pub const MIN_VERSION: i32 = retrograph_driver_sys::MIN_VERSION;

/// Compares `since` of every function, and its signature at that version, with the typedefs.
pub fn compare(pair: &Pair<'_>) -> Vec<Difference> {
    let mut differences = Vec::new();
    for (name, function) in &pair.ours.functions {
        let signature = function.map(|of| pair.resolve(of));
        let versions = versions(pair, name);
        let Some((first, _)) = of_symbol(&versions, name).filter(|(_, it)| same(it, &signature))
        else {
            let ours = Some(signature.to_string());
            differences.push(difference(format!("version of {name}"), ours, &versions));
            continue;
        };
        let agrees = match function.since {
            Some(since) => since == *first,
            None => *first <= MIN_VERSION,
        };
        if !agrees {
            let since = function.since.map_or("every driver".to_owned(), |since| since.to_string());
            differences.push(difference(format!("since of {name}"), Some(since), &versions));
        }
    }
    differences
}

fn same(theirs: &Function, ours: &Function) -> bool {
    theirs.arguments == ours.arguments && theirs.result == ours.result
}

/// The version of a symbol: `_v3` is the third one.
fn of_symbol<'a>(versions: &'a [(i32, Function)], symbol: &str) -> Option<&'a (i32, Function)> {
    let digits = symbol.strip_prefix(base(symbol)).and_then(|rest| rest.strip_prefix("_v"));
    let number: usize = digits.map_or(Some(1), |digits| digits.parse().ok())?;
    versions.get(number.checked_sub(1)?)
}

fn difference(item: String, ours: Option<String>, versions: &[(i32, Function)]) -> Difference {
    let lines = versions.iter().map(|(version, function)| format!("{version}: {function}"));
    let theirs = (!versions.is_empty()).then(|| lines.collect::<Vec<_>>().join("; "));
    Difference { source: "cudaTypedefs.h 13.0".to_owned(), item, ours, theirs }
}

/// All versions of the function of a symbol, oldest first.
pub fn versions(pair: &Pair<'_>, symbol: &str) -> Vec<(i32, Function)> {
    let prefix = format!("PFN_{}_v", base(symbol));
    let aliases = pair.header.aliases.iter();
    let versions = aliases.filter_map(|(name, of)| {
        let version = name.strip_prefix(&prefix)?.parse().ok()?;
        let Type::Function { arguments, result } = pair.header.resolve(of) else { return None };
        Some((version, Function { arguments, result: *result, since: None }))
    });
    let mut versions: Vec<_> = versions.collect();
    versions.sort_by_key(|(version, _)| *version);
    versions
}

/// The symbol without `_v2` and the like.
pub fn base(symbol: &str) -> &str {
    match symbol.rsplit_once("_v") {
        Some((base, digits)) if digits.chars().all(|digit| digit.is_ascii_digit()) => base,
        _ => symbol,
    }
}

/// Every function that `cuGetProcAddress` resolves: its name, the first CUDA version for which the
/// name means this symbol, and the symbol.
pub fn symbols(header: &Description, typedefs: &Description) -> Vec<(String, i32, String)> {
    let pair = Pair { ours: header, header: typedefs };
    let functions = header.functions.iter().filter(|(name, _)| {
        name.starts_with("cu") && !name.ends_with("_ptsz") && !name.ends_with("_ptds")
    });
    let mut list = Vec::new();
    for (name, function) in functions {
        let versions = versions(&pair, name);
        let signature = function.map(|of| pair.resolve(&header.resolve(of)));
        let found = of_symbol(&versions, name).filter(|(_, theirs)| same(theirs, &signature));
        if let Some((version, _)) = found {
            list.push((base(name).to_owned(), *version, name.clone()));
        }
    }
    list.sort();
    list
}
