#[path = "it/cli/mod.rs"]
mod cli;
