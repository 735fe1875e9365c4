//! The macro that maps words of the PTX language to the variants of an enum.

/// Declares a fieldless enum whose variants are words of PTX, with `ALL`, `text`, `from_text` and
/// `Display` derived from the one list, so that the printer and the parser cannot disagree.
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $( $(#[$doc:meta])* $variant:ident = $text:literal, )* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $( $(#[$doc])* #[doc = concat!("`", $text, "`")] $variant, )* }

        impl $name {
            /// Every variant, in the order of declaration.
            pub const ALL: &'static [Self] = &[ $( Self::$variant, )* ];

            /// The PTX spelling.
            pub const fn text(self) -> &'static str {
                match self { $( Self::$variant => $text, )* }
            }

            /// The variant spelled `text`.
            pub fn from_text(text: &str) -> Option<Self> {
                match text { $( $text => Some(Self::$variant), )* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.text())
            }
        }
    };
}

pub(crate) use words;
