//! What the picker asks about files, from the manifest, and of a part of a file from its indexes and zones.
//!
//! A file that cannot be read counts as whole: the job that reads it says what is wrong.

use std::sync::Arc;

use crate::error::Result;
use crate::manifest::FileEntry;
use crate::ranges::Reference;
use crate::sst::{Sst, SstPart};

use super::super::Env;
use super::picker::{Facts, Part};

/// See the module.
pub(super) struct FileFacts<'e> {
    env: &'e Env,
}

impl<'e> FileFacts<'e> {
    pub(super) fn new(env: &'e Env) -> Self {
        Self { env }
    }

    fn ask<T>(&self, file: &FileEntry, ask: impl FnOnce(&Sst) -> Result<T>) -> Option<T> {
        self.env.open_sst(file).and_then(|sst| ask(sst)).ok()
    }
}

impl Facts<Arc<FileEntry>> for FileFacts<'_> {
    fn part(&self, reference: &Reference<Arc<FileEntry>>) -> Part {
        let meta = &reference.file.meta;
        let is_whole =
            reference.clip.contains(&meta.key_min) && reference.clip.contains(&meta.key_max);
        let found = if is_whole {
            None
        } else {
            self.ask(&reference.file, |sst| sst.part(&reference.clip))
        };
        let (bytes, entries, tombstones) = (meta.bytes, meta.entries, meta.tombstones);
        let SstPart { bytes, entries, tombstones } =
            found.unwrap_or(SstPart { bytes, entries, tombstones });
        Part { bytes, entries, tombstones }
    }

    fn key_at(&self, reference: &Reference<Arc<FileEntry>>, bytes: u64) -> Option<Box<[u8]>> {
        self.ask(&reference.file, |sst| sst.key_at(&reference.clip, bytes)).flatten()
    }

    fn tombstones_end(&self, reference: &Reference<Arc<FileEntry>>) -> Option<Box<[u8]>> {
        self.ask(&reference.file, |sst| sst.tombstones_end(&reference.clip)).flatten()
    }
}
