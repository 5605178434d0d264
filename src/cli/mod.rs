//! The binary: arguments, progress, tables for people, JSON for programs.

mod csv;
mod import;
mod window;
