//! The arguments of launches.

use std::panic::{AssertUnwindSafe, catch_unwind};

use retrograph_driver::KernelArguments;

/// Why a replacement panicked, if it did.
fn refusal(arguments: &mut KernelArguments, index: usize) -> Option<String> {
    let replaced = catch_unwind(AssertUnwindSafe(|| arguments.set_address(index, 7)));
    let panic = replaced.err()?;
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
}

#[test]
fn an_address_replaces_only_an_address() {
    let mut arguments = KernelArguments::new().address(1).u32(2).u64(3);
    assert_eq!(refusal(&mut arguments, 0), None);
    assert_eq!(arguments.bytes(0), 7u64.to_le_bytes());
    // The kernel would read four bytes of the next argument as the address.
    let refused = refusal(&mut arguments, 1).unwrap();
    assert!(refused.contains("an address has eight bytes"), "{refused}");
    assert!(refusal(&mut arguments, 3).unwrap().contains("index"));
    assert_eq!(arguments.sizes(), [8, 4, 8]);
    assert_eq!(arguments.bytes(1), 2u32.to_le_bytes());
    assert_eq!(arguments.bytes(2), 3u64.to_le_bytes());
}
