//! Fuzz target `zones`, which is implemented in `rowstone::fuzzing`.
#![cfg_attr(fuzzing, no_main)]

rowstone_fuzz::target!(rowstone::fuzzing::zones);
