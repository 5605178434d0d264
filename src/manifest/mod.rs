//! Records which files make up the database. A version is an immutable set of files. The manifest
//! is the log of the edits that lead from one version to the next, and makes them durable.
//!
//! `format::edit` encodes edits, `sst` opens the files, and `lsm` removes obsolete files.

mod edit_record;
mod missing;
mod publish;
mod salvage;
mod store;
mod tailer;
mod version;

pub(crate) use publish::probe;
pub(crate) use salvage::{SalvagedManifest, salvaged};
pub(crate) use store::{Access, Manifest, Opened, UnconfirmedLog};
pub(crate) use tailer::ManifestTail;
pub(crate) use version::{FileEntry, FileRange, FileReference, RangeTombstoneBag, Version};

#[cfg(test)]
mod tests;
