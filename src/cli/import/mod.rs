//! Import.

mod infer;
mod template;
