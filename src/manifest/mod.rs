//! Which files make up the database: the immutable version, and the manifest that makes every change of it durable.
//!
//! Not here: the bytes of an edit (`format::edit`), opening the files (`sst`), removing what is obsolete (`lsm`).

mod edit_record;
mod publish;
mod salvage;
mod store;
mod tailer;
mod version;

pub(crate) use publish::probe;
pub(crate) use salvage::{SalvagedManifest, salvaged};
pub(crate) use store::{Access, Manifest};
pub(crate) use tailer::ManifestTail;
pub(crate) use version::{FileEntry, FileRange, FileReference, Version};

#[cfg(test)]
mod tests;
