//! [`DriverTable`]: one pointer for each function of the driver.

use crate::result::CUresult;

macro_rules! define_table {
    (
        required { $($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?);)* }
        optional {
            $($(#[$o_doc:meta])* fn $o_name:ident($($o_arg:ident: $o_type:ty),* $(,)?)
                since $since:literal;)*
        }
    ) => {
        /// The functions of a driver, each under its exact symbol.
        ///
        /// A driver is filled in by [`DriverTable::load`]; a simulator writes its own functions.
        /// Functions that only newer drivers have are `Option`; see [`DriverTable::OPTIONAL`].
        ///
        /// Calling a function is unsafe. Beyond valid pointers, the driver demands what NVIDIA's
        /// documentation of the call says: a current context, live handles, no use of memory that
        /// queued work still touches.
        #[derive(Clone, Copy, Debug)]
        pub struct DriverTable {
            $($(#[$doc])* pub $name: unsafe extern "C" fn($($arg: $type),*) -> CUresult,)*
            $(
                $(#[$o_doc])*
                #[doc = concat!("\n\nSince driver ", stringify!($since), "; `None` before.")]
                pub $o_name: Option<unsafe extern "C" fn($($o_arg: $o_type),*) -> CUresult>,
            )*
        }

        impl DriverTable {
            /// The symbols that every driver must export.
            pub const REQUIRED: &'static [&'static str] = &[$(stringify!($name)),*];

            /// The symbols that a driver may lack, with the version of the first driver that has
            /// them.
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
                mut resolve: impl FnMut(&std::ffi::CStr) -> *const crate::c_void,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let address = resolve(symbol(concat!(stringify!($name), "\0")));
                        if address.is_null() {
                            return Err(stringify!($name));
                        }
                        // SAFETY: the address is not null, and the caller guarantees that it is a
                        // function of this signature.
                        unsafe {
                            std::mem::transmute::<
                                *const crate::c_void,
                                unsafe extern "C" fn($($arg: $type),*) -> CUresult,
                            >(address)
                        }
                    },)*
                    $($o_name: {
                        let address = resolve(symbol(concat!(stringify!($o_name), "\0")));
                        // SAFETY: null becomes `None`, which the layout of `Option<fn>` promises;
                        // for every other address the caller guarantees the signature.
                        unsafe {
                            std::mem::transmute::<
                                *const crate::c_void,
                                Option<unsafe extern "C" fn($($o_arg: $o_type),*) -> CUresult>,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

crate::driver_functions!(define_table);

/// A symbol name as C text; `text` ends in its only zero byte.
fn symbol(text: &'static str) -> &'static std::ffi::CStr {
    std::ffi::CStr::from_bytes_with_nul(text.as_bytes()).expect("symbol names hold no zero byte")
}
