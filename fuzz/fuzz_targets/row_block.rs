//! Target `row_block`: see `rowstone::fuzzing`.
#![cfg_attr(fuzzing, no_main)]

rowstone_fuzz::target!(rowstone::fuzzing::row_block);
