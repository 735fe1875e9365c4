//! [`NcclTable`]: one pointer for each function of NCCL.

use std::ffi::{CStr, c_void};

use crate::result::ncclResult_t;

macro_rules! define_table {
    (
        required {
            $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty;)*
        }
        optional {
            $($(#[$o_doc:meta])*
                fn $o_name:ident($($o_arg:ident: $o_type:ty),* $(,)?) since $since:literal;)*
        }
    ) => {
        /// The functions of NCCL, each under its exact symbol.
        ///
        /// [`NcclTable::load`] fills it from the library; a simulated NCCL fills in its own
        /// functions. Functions of newer versions are `Option`.
        ///
        /// Calling a function is unsafe. Beyond valid pointers, NVIDIA's documentation lists the
        /// requirements of each call: the current device, the same order of operations on all
        /// ranks, no use of memory that queued work still accesses.
        #[derive(Clone, Copy, Debug)]
        pub struct NcclTable {
            /// The version, as 10000 × major + 100 × minor + patch.
            pub version: i32,
            $($(#[$doc])* pub $name: unsafe extern "C" fn($($arg: $type),*) -> $result,)*
            $(
                $(#[$o_doc])*
                #[doc = concat!("\n\nSince NCCL ", stringify!($since), "; `None` before.")]
                pub $o_name: Option<unsafe extern "C" fn($($o_arg: $o_type),*) -> ncclResult_t>,
            )*
        }

        impl NcclTable {
            /// The symbols that the library must export.
            pub const REQUIRED: &'static [&'static str] = &[$(stringify!($name)),*];

            /// The symbols that the library may lack, with the version of the first that has them.
            pub const OPTIONAL: &'static [(&'static str, i32)] =
                &[$((stringify!($o_name), $since)),*];

            /// Fills the table from `resolve`, which returns the address of a symbol or null.
            ///
            /// Returns the name of the first required symbol that is missing.
            ///
            /// # Safety
            /// Every address that `resolve` returns is a function of that name and signature, and
            /// stays one for as long as the table or a copy of it is used.
            pub(crate) unsafe fn resolve(
                version: i32,
                mut resolve: impl FnMut(&CStr) -> *const c_void,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    version,
                    $($name: {
                        let address = resolve(symbol(concat!(stringify!($name), "\0")));
                        if address.is_null() {
                            return Err(stringify!($name));
                        }
                        // SAFETY: the address is not null, and the caller guarantees that it is a
                        // function of this signature.
                        unsafe {
                            std::mem::transmute::<
                                *const c_void,
                                unsafe extern "C" fn($($type),*) -> $result,
                            >(address)
                        }
                    },)*
                    $($o_name: {
                        let address = resolve(symbol(concat!(stringify!($o_name), "\0")));
                        // SAFETY: null becomes `None`, which the layout of `Option<fn>` promises;
                        // for every other address the caller guarantees the signature.
                        unsafe {
                            std::mem::transmute::<
                                *const c_void,
                                Option<unsafe extern "C" fn($($o_type),*) -> ncclResult_t>,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

crate::nccl_functions!(define_table);

/// A symbol name as a C string; `text` ends in its only zero byte.
fn symbol(text: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(text.as_bytes()).expect("symbol names hold no zero byte")
}
