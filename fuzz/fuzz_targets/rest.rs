//! Fuzz target `rest`, which is implemented in `rowstone::fuzzing_rest`.
#![cfg_attr(fuzzing, no_main)]

rowstone_fuzz::target!(rowstone::fuzzing_rest::rest);
