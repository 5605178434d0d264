//! Target `program`: the model's programs, decided by the bytes.
#![cfg_attr(fuzzing, no_main)]

rowstone_fuzz::target!(rowstone_fuzz::program);
