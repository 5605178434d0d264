#[path = "it/cli/mod.rs"]
mod cli;
#[path = "it/loader.rs"]
mod loader;
