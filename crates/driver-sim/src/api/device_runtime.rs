//! libcudadevrt, the device runtime, in a link.
//!
//! The archive contains machine code. Two of its functions are simulated:
//! `cudaCGGetIntrinsicHandle` and `cudaCGSynchronize`, with which kernels of cooperative launches
//! wait for their whole grid.

use std::collections::BTreeSet;

use retrograph_ptx::ast::Module;
use retrograph_ptx_exec::{GET_GRID_HANDLE, SYNCHRONIZE_GRID};

/// The first bytes of an archive.
const ARCHIVE: &[u8] = b"!<arch>\n";
/// Bytes of the header of a member.
const HEADER: usize = 60;
/// The only member of libcudadevrt.
const MEMBER: &[u8] = b"cuda_device_runtime.o/";

/// The functions: the names that programs use, and the names that the executor uses.
const FUNCTIONS: [(&str, &str); 2] =
    [("cudaCGGetIntrinsicHandle", GET_GRID_HANDLE), ("cudaCGSynchronize", SYNCHRONIZE_GRID)];

/// Whether bytes are the archive libcudadevrt.
pub(super) fn is_device_runtime(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(ARCHIVE) else { return false };
    // Names of more than 15 bytes are in a member `//`; a member has the offset, `/` and decimal.
    let long =
        members(rest).find(|(name, _)| name == b"//").map_or(&[][..], |(_, content)| content);
    members(rest).any(|(name, _)| {
        let offset = name.strip_prefix(b"/").and_then(decimal);
        let name = offset.map_or(name, |offset| long.get(offset..).unwrap_or_default());
        name.starts_with(MEMBER)
    })
}

/// The names and contents of the members of an archive, up to the first damaged one.
fn members(mut rest: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let (header, content) = rest.split_at_checked(HEADER)?;
        let size = decimal(&header[48..58])?;
        let member = (header[..16].trim_ascii_end(), content.get(..size)?);
        // Members begin at even offsets.
        rest = content.get(size.next_multiple_of(2)..).unwrap_or_default();
        Some(member)
    })
}

fn decimal(field: &[u8]) -> Option<usize> {
    std::str::from_utf8(field).ok()?.trim().parse().ok()
}

/// Binds declarations of functions of the device runtime that no module defines.
pub(super) fn take_from_device_runtime(modules: &mut [Module]) {
    let functions = modules.iter().flat_map(|module| &module.functions);
    let defined = functions.filter(|function| function.is_defined);
    let defined: BTreeSet<_> = defined.map(|function| function.code.name.clone()).collect();
    for function in modules.iter_mut().flat_map(|module| &mut module.functions) {
        let name = &mut function.code.name;
        let taken = FUNCTIONS.iter().find(|(given, _)| given == name && !defined.contains(*given));
        if let Some((_, known)) = taken {
            *name = (*known).to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive with an index, a table of long names and one member of this name.
    fn archive(name: &str) -> Vec<u8> {
        let member = |name: &str, content: &str| {
            let pad = if content.len() % 2 == 1 { "\n" } else { "" };
            format!("{name:<48}{:<10}`\n{content}{pad}", content.len())
        };
        let names = member("//", &format!("other.o/\n{name}/\n"));
        format!("!<arch>\n{}{names}{}", member("/", "odd"), member("/9", "code")).into_bytes()
    }

    #[test]
    fn the_archive_is_recognized_by_its_member() {
        let whole = archive("cuda_device_runtime.o");
        assert!(is_device_runtime(&whole));
        assert!(!is_device_runtime(&archive("another_device_runtime.o")));
        // The name alone is not a member.
        let names = whole.len() - HEADER - "code".len();
        assert!(!is_device_runtime(&whole[..names]) && !is_device_runtime(&whole[4..]));
    }
}
