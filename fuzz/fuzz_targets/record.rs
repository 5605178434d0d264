//! Fuzz target `record`, which is implemented in `rowstone::fuzzing`.
#![cfg_attr(fuzzing, no_main)]

rowstone_fuzz::target!(rowstone::fuzzing::record);
