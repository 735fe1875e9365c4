//! Macros that declare the structs and unions of cuda.h.

/// Declares structs and unions with the layout of C. Derives are written at each, since unions
/// cannot have most of them.
///
/// One invocation per module: it also lists the layouts for [`crate::layouts`].
macro_rules! structures {
    ($(
        $(#[$meta:meta])*
        pub $kind:tt $name:ident {
            $($(#[$field_doc:meta])* pub $field:ident: $type:ty,)*
        }
    )*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            pub $kind $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }
        )*

        /// The layouts of this module's structs and unions.
        pub(crate) const LAYOUTS: &[crate::layouts::Layout] = &[
            $(crate::layouts::Layout {
                name: stringify!($name),
                kind: stringify!($kind),
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                fields: &[
                    $(crate::layouts::Field {
                        name: stringify!($field),
                        type_name: stringify!($type),
                        offset: std::mem::offset_of!($name, $field),
                        size: size_of::<$type>(),
                    },)*
                ],
            },)*
        ];
    };
}

/// Implements `Default` for structs and unions as all zero bytes, as in C programs.
macro_rules! zeroed {
    ($($name:ident),* $(,)?) => {$(
        impl Default for $name {
            /// All bytes zero: null, 0 and no flags.
            fn default() -> Self {
                // SAFETY: the fields are integers, floats, raw pointers, optional function
                // pointers, and structs of these, for all of which zeros are a value.
                unsafe { std::mem::zeroed() }
            }
        }
    )*};
}

pub(crate) use {structures, zeroed};
