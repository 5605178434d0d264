//! Macros for enums and counters in which each variant or counter is declared together with its
//! name.

/// Defines an enum, the function that returns a variant's name, and on request the list of all
/// variants:
/// `pub enum Kind { One "one", Other "other", } pub fn name; pub const ALL;`
macro_rules! named {
    (
        $(#[$outer:meta])*
        $vis:vis enum $type:ident {
            $($(#[$inner:meta])* $item:ident $(= $code:literal)? $text:literal,)*
        }

        $(#[$doc:meta])*
        $name_vis:vis fn $name:ident;
    ) => {
        $(#[$outer])*
        $vis enum $type {
            $($(#[$inner])* $item $(= $code)?,)*
        }

        impl $type {
            $(#[$doc])*
            $name_vis fn $name(self) -> &'static str {
                match self {
                    $($type::$item => $text,)*
                }
            }
        }
    };
    (
        $(#[$outer:meta])*
        $vis:vis enum $type:ident {
            $($(#[$inner:meta])* $item:ident $(= $code:literal)? $text:literal,)*
        }

        $(#[$doc:meta])*
        $name_vis:vis fn $name:ident;
        $(#[$all_meta:meta])*
        $all_vis:vis const $all:ident;
    ) => {
        named! {
            $(#[$outer])*
            $vis enum $type {
                $($(#[$inner])* $item $(= $code)? $text,)*
            }

            $(#[$doc])*
            $name_vis fn $name;
        }

        impl $type {
            /// All variants, in order.
            $(#[$all_meta])*
            $all_vis const $all: [$type; [$($text),*].len()] = [$($type::$item),*];
        }
    };
}

/// Defines a structure of counters, each with a label for messages, and a method that lists them:
/// `pub struct Counts { reads "reads of files", }`. Other members follow in parentheses.
#[cfg(feature = "sim")]
macro_rules! figures {
    (
        $(#[$outer:meta])*
        $vis:vis struct $type:ident { $($name:ident $label:literal,)* }
        $(($($other:ident: $of:ty),*))?
    ) => {
        $(#[$outer])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        $vis struct $type {
            $(#[doc = concat!($label, ".")] $vis $name: u64,)*
            $($($vis $other: $of,)*)?
        }

        impl $type {
            /// Returns name, label and value of each counter.
            $vis fn all(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), $label, self.$name),)*]
            }
        }
    };
}

#[cfg(feature = "sim")]
pub(crate) use figures;
pub(crate) use named;
