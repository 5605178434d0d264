//! Enums whose variants have names, written beside the variants.
//!
//! Not here: enums of which only some variants are named.

/// An enum, its constant `ALL` in the order of the variants, and the function that gives a variant's name:
/// `pub enum Kind { One "one", Other "other", } pub fn name;`
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
            /// All of them, in order.
            $vis const ALL: [$type; [$($text),*].len()] = [$($type::$item),*];

            $(#[$doc])*
            $name_vis fn $name(self) -> &'static str {
                match self {
                    $($type::$item => $text,)*
                }
            }
        }
    };
}

pub(crate) use named;
