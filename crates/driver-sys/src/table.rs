//! [`DriverTable`]: one pointer for each function of the driver.

use crate::missing::MissingFunction;
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
        /// [`DriverTable::load`] fills it from the driver; a simulator fills in its own functions.
        ///
        /// Functions that every driver since CUDA 12.0 has are called as fields. Functions of newer
        /// drivers are `Option`; the method of the same name returns the function, or an error with
        /// the first driver that has it:
        ///
        /// ```
        /// # use retrograph_driver_sys::{CUfunction, DriverTable};
        /// # use std::error::Error;
        /// fn load_now(driver: &DriverTable, function: CUfunction) -> Result<(), Box<dyn Error>> {
        ///     // SAFETY: the caller's function is one of this driver.
        ///     Ok(unsafe { driver.cuFuncLoad()?(function) }.ok()?)
        /// }
        /// ```
        ///
        /// Calling a function is unsafe. Beyond valid pointers, NVIDIA's documentation lists the
        /// requirements of each call: a current context, live handles, no use of memory that queued
        /// work still accesses.
        #[derive(Clone, Copy, Debug)]
        pub struct DriverTable {
            /// The newest CUDA version of the driver, as 1000 × major + 10 × minor.
            pub driver_version: i32,
            $(
                $(#[$doc])*
                #[doc = "\n\nIn every driver since 12000."]
                pub $name: unsafe extern "C" fn($($arg: $type),*) -> CUresult,
            )*
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
                driver_version: i32,
                mut resolve: impl FnMut(&std::ffi::CStr) -> *const crate::c_void,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    driver_version,
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

            /// The optional functions that this driver lacks.
            pub fn missing(&self) -> Vec<MissingFunction> {
                let present = [$(self.$o_name.is_some()),*];
                let missing = Self::OPTIONAL.iter().zip(present).filter(|(_, present)| !present);
                missing.map(|(&(name, since), _)| self.missing_function(name, since)).collect()
            }
        }

        /// The optional functions, or the messages for those that the driver lacks.
        impl DriverTable {
            $(
                #[doc = concat!("`", stringify!($o_name), "`, or an error if it is missing.")]
                pub fn $o_name(
                    &self,
                ) -> Result<unsafe extern "C" fn($($o_type),*) -> CUresult, MissingFunction> {
                    self.$o_name.ok_or_else(|| self.missing_function(stringify!($o_name), $since))
                }
            )*
        }
    };
}

crate::driver_functions!(define_table);

impl DriverTable {
    /// Returns the error for a function that this driver lacks.
    fn missing_function(&self, name: &'static str, since: i32) -> MissingFunction {
        MissingFunction { name, since, driver_version: self.driver_version }
    }
}

/// A symbol name as a C string; `text` ends in its only zero byte.
fn symbol(text: &'static str) -> &'static std::ffi::CStr {
    std::ffi::CStr::from_bytes_with_nul(text.as_bytes()).expect("symbol names hold no zero byte")
}
