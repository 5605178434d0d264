//! Enums whose variants have names, written beside the variants.
//!
//! Not here: enums of which only some variants are named.

/// An enum, the function that gives a variant's name, and on request the list of all variants:
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
            /// All of them, in order.
            $all_vis const $all: [$type; [$($text),*].len()] = [$($type::$item),*];
        }
    };
}

pub(crate) use named;
