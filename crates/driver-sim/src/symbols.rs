//! Resolves driver function names to symbols for a caller's CUDA version.
//!
//! Driver functions have versions with separate symbols: since CUDA 3.2, `cuMemAlloc` means
//! `cuMemAlloc_v2`. The list comes from the typedefs that CUDA 13.0 ships for `cuGetProcAddress`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

type Forms = Vec<(i32, &'static str)>;

static FORMS: LazyLock<BTreeMap<&'static str, Forms>> = LazyLock::new(|| {
    let mut forms = BTreeMap::<_, Forms>::new();
    for line in include_str!("symbols.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(name), Some(version), Some(symbol)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if let Ok(version) = version.parse() {
            forms.entry(name).or_default().push((version, symbol));
        }
    }
    forms
});

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// This symbol.
    Symbol(&'static str),
    /// A function that is newer than the caller's version.
    Later,
    /// Not a driver function.
    Nothing,
}

/// Returns the newest symbol of a function up to `version`, which is 1000 × major + 10 × minor.
///
/// ```
/// use retrograph_driver_sim::symbols::{Meaning, meaning};
///
/// assert_eq!(meaning("cuMemAlloc", 13000), Meaning::Symbol("cuMemAlloc_v2"));
/// assert_eq!(
///     meaning("cuStreamGetCaptureInfo", 12020),
///     Meaning::Symbol("cuStreamGetCaptureInfo_v2")
/// );
/// assert_eq!(meaning("cuGraphAddNode", 12000), Meaning::Later);
/// assert_eq!(meaning("cuMemAlloc_v2", 13000), Meaning::Nothing);
/// ```
pub fn meaning(name: &str, version: i32) -> Meaning {
    let Some(forms) = FORMS.get(name) else { return Meaning::Nothing };
    let known = forms.iter().filter(|(since, _)| *since <= version);
    match known.max_by_key(|(since, _)| *since) {
        Some((_, symbol)) => Meaning::Symbol(symbol),
        None => Meaning::Later,
    }
}

/// Returns all symbols of the list as (name, version, symbol).
pub fn all() -> impl Iterator<Item = (&'static str, i32, &'static str)> {
    let forms = FORMS.iter();
    forms.flat_map(|(name, forms)| forms.iter().map(|(since, symbol)| (*name, *since, *symbol)))
}
