//! Target `row_block`: see `rowstone::fuzzing`.
#![cfg_attr(fuzzing, no_main)]

rowstone_fuzz::target!(row_block);
