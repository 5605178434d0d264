//! Lists damaged table files, and replaces them by undamaged copies from a checkpoint or backup.
//!
//! `check` and every read detect damage. `lsm::file_replacement` replaces one file. `repair` saves
//! what is readable if there is no undamaged copy.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use super::Db;
use crate::check::{VerifyReport, verify_logs};
use crate::error::{Error, ErrorKind, Result};
use crate::lsm::{Engine, FileReplacement, Healed, Inspector, OnBytes, SoundCopies};
use crate::manifest::FileEntry;
use crate::options::{Background, Options};

/// A table file that is known to be damaged. It stays in use, and its undamaged parts are still
/// read; reads of the other parts fail with `Corruption`. Compaction avoids the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quarantined {
    /// The file's name.
    pub file: String,
    /// The file's first and last key; only reads between them may encounter the damage.
    pub keys: String,
    /// The number of entries in the file, including deletions.
    pub entries: u64,
    /// The file's size in bytes.
    pub bytes: u64,
    /// The damage that was detected first.
    pub problem: String,
}

/// The result of healing one damaged file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileOutcome {
    /// The damaged file.
    pub damaged: Quarantined,
    /// The path of the undamaged copy that replaced the file, and the name of the new file in the
    /// database.
    pub healed: Option<(String, String)>,
    /// The reason why the file was not replaced, if it was not.
    pub why: Option<String>,
}

/// The result of [`Db::heal`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealReport {
    /// The number of table files that were read and checked.
    pub checked: u64,
    /// The damaged files.
    pub files: Vec<FileOutcome>,
    /// The damage found in logs and in the manifest, which are not replaced. A damaged log that is
    /// kept only for the change feed affects no table. Empty if only one file was to be healed.
    pub problems: Vec<String>,
}

impl HealReport {
    /// Whether no damage remains in the files that were read.
    pub fn is_healed(&self) -> bool {
        self.problems.is_empty() && self.files.iter().all(|file| file.why.is_none())
    }
}

impl Db {
    /// Returns the table files in which a read or a verification since opening found damage.
    pub fn quarantined(&self) -> Vec<Quarantined> {
        self.engine
            .maintenance()
            .quarantined()
            .iter()
            .filter_map(|file| Quarantined::of(file))
            .collect()
    }

    /// Reads all table files, or only the one named `file`, and replaces each damaged or missing
    /// one by an undamaged copy. A copy is a file with the same unique id, under any name, in the
    /// directory `from` or in its subdirectory `files`. The file is copied, and the copy is checked
    /// as a whole before it is used. `from` is a checkpoint, a backup, or any directory with such
    /// files; it is not changed. Without `file`, the manifest and the logs are also read, and the
    /// report lists damage in them. The database may be in use. Reads that began earlier may still
    /// fail with `Corruption`. `progress` is called with the bytes read from table files since the
    /// last call.
    ///
    /// ```
    /// # fn main() -> rowstone::Result<()> {
    /// use rowstone::{Db, Entity, fs::{Fs, MemFs}};
    /// let fs = std::sync::Arc::new(MemFs::new());
    /// let db = Db::options().fs(fs.clone()).open("db")?;
    /// db.create_table("parts")?.insert(Entity::new("bolts", "m4x20"))?;
    /// db.checkpoint("monday")?;
    /// let file = fs.list("db".as_ref()).unwrap().into_iter().find(|name| name.ends_with(".sst"));
    /// fs.remove(&std::path::Path::new("db").join(file.unwrap())).unwrap();
    /// let report = db.heal(None, "monday", |_| ())?;
    /// assert!(report.files.len() == 1 && report.is_healed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is no directory `from`, or no such `file`; `Io`, `StorageFull`,
    /// `Poisoned`. Files that were replaced before the error stay replaced.
    pub fn heal(
        &self,
        file: Option<&str>,
        from: impl AsRef<Path>,
        mut progress: impl FnMut(u64),
    ) -> Result<HealReport> {
        self.heal_while(file, from.as_ref(), &mut |bytes| {
            progress(bytes);
            Ok(())
        })
    }

    /// Like [`heal`](Self::heal); an error of `progress` ends the work before the next file.
    pub(crate) fn heal_while(
        &self,
        file: Option<&str>,
        from: &Path,
        progress: OnBytes<'_>,
    ) -> Result<HealReport> {
        replace_damaged(&self.engine, file, from, progress)
    }
}

impl Options {
    /// As [`Db::heal`], for the database in the directory `path`, which must not be open. This
    /// works even if a damaged catalog prevents the database from opening.
    ///
    /// # Errors
    /// As [`Db::heal`] and [`Options::open`].
    pub fn heal(
        self,
        path: impl AsRef<Path>,
        file: Option<&str>,
        from: impl AsRef<Path>,
        mut progress: impl FnMut(u64),
    ) -> Result<HealReport> {
        let options = self.create_if_missing(false).background(Background::Manual);
        let engine = crate::lsm::open(path.as_ref(), options)?;
        let report = replace_damaged(&engine, file, from.as_ref(), &mut |bytes| {
            progress(bytes);
            Ok(())
        })?;
        engine.close()?;
        Ok(report)
    }
}

fn replace_damaged(
    engine: &Engine,
    name: Option<&str>,
    from: &Path,
    progress: OnBytes<'_>,
) -> Result<HealReport> {
    let ended = Cell::new(None);
    let mut progress = |bytes| {
        if let Err(error) = progress(bytes) {
            ended.set(Some(error));
        }
    };
    let copies = SoundCopies::in_dir(&*engine.env().fs, from)?;
    let files: Vec<Arc<FileEntry>> = engine.reader().pin().version.files().cloned().collect();
    let mut report = HealReport::default();
    let is_meant = |file: &&Arc<FileEntry>| name.is_none_or(|name| name == file.name());
    if let Some(name) = name.filter(|_| !files.iter().any(|file| is_meant(&file))) {
        let problem =
            format!("the database has no table file {name}; without a name, all are read");
        return Err(Error::new(ErrorKind::NotFound, problem));
    }
    for file in files.iter().filter(is_meant) {
        if let Some(error) = ended.take() {
            return Err(Error::io("heal", error));
        }
        report.checked += 1;
        match Inspector::new(engine).verify_file(file, &mut progress) {
            Ok(facts) if facts.problems.is_empty() => continue,
            Err(error) if file.damage().is_none() => return Err(error),
            _ => {}
        }
        let Some(damaged) = Quarantined::of(file) else { continue };
        let (healed, why) =
            match FileReplacement::new(engine).replace(file, &copies, &mut progress)? {
                Healed::From(path, number) => {
                    (Some((path.display().to_string(), number.sst_name())), None)
                }
                Healed::NoCopy => (None, Some(format!("no file in {} has its id", from.display()))),
                Healed::Unsound(error) => {
                    (None, Some(format!("the copy is damaged: {}", error.chain())))
                }
                Healed::Gone => continue,
            };
        report.files.push(FileOutcome { damaged, healed, why });
    }
    if name.is_none() {
        let mut logs = VerifyReport::default();
        verify_logs(engine, &mut logs)?;
        report.problems = logs.problems;
    }
    Ok(report)
}

impl Quarantined {
    fn of(file: &FileEntry) -> Option<Quarantined> {
        let problem = file.damage()?.chain();
        let (entries, bytes) = (file.meta.entries, file.meta.bytes);
        Some(Quarantined { file: file.name(), keys: file.keys(), entries, bytes, problem })
    }
}
