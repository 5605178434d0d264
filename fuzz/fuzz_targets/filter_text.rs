//! Target `filter_text`: see `rowstone::fuzzing`.
#![cfg_attr(fuzzing, no_main)]

rowstone_fuzz::target!(rowstone::fuzzing::filter_text);
