//! Decides the outcome of one case of damage, and whether that outcome is allowed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, ErrorKind};
use crate::format::names::FileNumber;
use crate::format::record::{Position, RecordKind};
use crate::testing::sim::engine::PATH;
use crate::testing::sim::oracle::Tables;
use crate::testing::sim::program::panic_text;

use super::place::{
    END, FileKind, Record, SPACE_AHEAD, Unit, highest_durable_claim, records, units,
};
use super::subject::Subject;

/// A kind of damage to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    /// Inverts bits of one byte.
    Flip {
        at: u64,
        mask: u8,
    },
    /// Truncates the file to `to` bytes.
    Cut {
        to: u64,
    },
    Erase,
}

impl Harm {
    /// Returns the offset of the first byte that changed.
    pub(super) fn at(self) -> u64 {
        match self {
            Harm::Flip { at, .. } => at,
            Harm::Cut { to } => to,
            Harm::Erase => 0,
        }
    }
}

/// The outcome of one case of damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All data is present, although the damaged structure matters; the text says why.
    Corrected(&'static str),
    /// An error names the file and the position.
    Refused,
    /// All data is present, because the byte has no meaning; the text says why.
    Harmless(&'static str),
    /// The damage looks like a torn tail: no durable offset covers the lost commits.
    Torn,
    Wrong(String),
    Crashed(String),
}

/// An intact database, and the positions of its structures.
pub(super) struct Case<'a> {
    pub(super) subject: &'a Subject,
    pub(super) files: BTreeMap<String, File>,
    /// The positions of the commits in the logs, in order.
    commits: Vec<Position>,
}

/// A file of the database.
pub(super) struct File {
    pub(super) kind: FileKind,
    number: FileNumber,
    pub(super) bytes: Vec<u8>,
    units: Vec<Unit>,
}

/// A problem that an error or the result of `verify` reports.
#[derive(Clone, Debug)]
struct Complaint {
    file: String,
    offset: Option<u64>,
    text: String,
}

impl File {
    /// Returns the unit (the structure that is written and checked as a whole) with the byte at
    /// `at`.
    pub(super) fn unit(&self, at: u64) -> Option<&Unit> {
        self.units.iter().find(|unit| unit.range.contains(&at))
    }
}

impl<'a> Case<'a> {
    /// Opens the intact database.
    ///
    /// # Errors
    /// The difference between the intact database and the expected state.
    pub(super) fn new(subject: &'a Subject) -> Result<Case<'a>, String> {
        let (state, problems) = subject
            .read(&subject.fs.kill_image())
            .map_err(|error| format!("whole, it does not open: {error:?}"))?;
        if Some(&state) != subject.history.last() || !problems.is_empty() {
            return Err(format!("whole, it shows something else, or has problems: {problems:?}"));
        }
        let mut files = BTreeMap::new();
        let mut commits = Vec::new();
        for name in subject.files() {
            let Some((kind, number)) = FileKind::of(&name) else { continue };
            let bytes = subject.fs.read(format!("{PATH}/{name}")).map_err(|e| e.to_string())?;
            let units = units(kind, number, &bytes);
            if kind == FileKind::Wal {
                let is_commit = |record: &Record| {
                    matches!(record.header.kind(), Ok(RecordKind::Group | RecordKind::Catalog))
                };
                let found = records(number, &bytes).into_iter().filter(is_commit);
                commits.extend(found.map(|record| Position { file: number, offset: record.at }));
            }
            files.insert(name, File { kind, number, bytes, units });
        }
        commits.sort_unstable();
        Ok(Case { subject, files, commits })
    }

    /// Applies `harm` to a copy, opens, reads and verifies the copy, and decides whether the
    /// outcome is allowed.
    pub(super) fn judge(&self, name: &str, harm: Harm) -> Verdict {
        let Some(file) = self.files.get(name) else {
            return Verdict::Wrong("no such file".to_owned());
        };
        let copy = self.subject.fs.kill_image();
        let path = format!("{PATH}/{name}");
        let done = match harm {
            Harm::Flip { at, mask } => copy.flip(&path, at, mask),
            Harm::Cut { to } => copy.truncate(&path, to),
            Harm::Erase => copy.erase(&path),
        };
        if let Err(error) = done {
            return Verdict::Wrong(format!("the damage cannot be done: {error}"));
        }
        let bytes = copy.read(&path).unwrap_or_default();
        let read = catch_unwind(AssertUnwindSafe(|| self.subject.read(&copy)));
        match read {
            Err(panic) => Verdict::Crashed(panic_text(&*panic)),
            Ok(Err(error)) => self.refused(name, file, harm, &[complaint(&error)]),
            Ok(Ok((_, problems))) if !problems.is_empty() => {
                let complaints: Vec<_> = problems.iter().map(|text| parse(text)).collect();
                self.refused(name, file, harm, &complaints)
            }
            Ok(Ok((state, _))) => self.shown(name, file, harm, &bytes, &state),
        }
    }

    /// Checks that every complaint mentions the damaged file, and that one of them names the
    /// damaged position.
    fn refused(&self, name: &str, file: &File, harm: Harm, complaints: &[Complaint]) -> Verdict {
        let near = |complaint: &Complaint| match complaint.file == name {
            true => is_near(file, harm, complaint.offset.unwrap_or(u64::MAX)),
            // If two files disagree, either may be damaged. A complaint about the other file is
            // accepted if it also states that the damaged file ends near the damage.
            false => ends_at(&complaint.text, name).is_some_and(|end| is_near(file, harm, end)),
        };
        let about = |complaint: &Complaint| complaint.file == name || complaint.text.contains(name);
        match complaints.iter().find(|complaint| !about(complaint)) {
            Some(other) => Verdict::Wrong(format!("another file is named: {}", other.text)),
            None if complaints.iter().any(near) => Verdict::Refused,
            None => {
                let texts: Vec<_> = complaints.iter().map(|c| &*c.text).collect();
                Verdict::Wrong(format!("another place is named: {}", texts.join("; ")))
            }
        }
    }

    /// Decides the outcome for a database that opened without complaint. No commit covered by a
    /// durable offset may be lost.
    fn shown(&self, name: &str, file: &File, harm: Harm, bytes: &[u8], state: &Tables) -> Verdict {
        let history = &self.subject.history;
        let all = history.len() - 1;
        if history.last() == Some(state) && !self.is_short(file, harm) {
            return self.nothing_lost(file, harm);
        }
        if self.is_short(file, harm) {
            return Verdict::Wrong("a file shorter than it durably was is accepted".to_owned());
        }
        let at = Position { file: file.number, offset: self.stop(file, harm) };
        let left = all - self.commits.iter().filter(|commit| **commit >= at).count();
        if self.subject.origin.is_closed() || file.kind != FileKind::Wal {
            let found = history.iter().rposition(|tables| tables == state);
            return Verdict::Wrong(format!("a sound database of {found:?} of {all} commits"));
        }
        if let Some(durable_up_to) =
            self.vouched(name, bytes).filter(|durable_up_to| *durable_up_to > at)
        {
            return Verdict::Wrong(format!(
                "lost from {at} on, though {durable_up_to} is vouched for"
            ));
        }
        match history.get(left) == Some(state) {
            true => Verdict::Torn,
            false => Verdict::Wrong(format!("not the state of {left} of {all} commits")),
        }
    }

    /// True if the last log or the manifest of a killed database was cut. Such a cut must be
    /// detected, because the lengths of both files are durable.
    fn is_short(&self, file: &File, harm: Harm) -> bool {
        let same = self.files.values().filter(|other| other.kind == file.kind);
        let is_last = same.map(|other| other.number).max() == Some(file.number);
        let has_len = matches!(file.kind, FileKind::Wal | FileKind::Manifest);
        let is_cut = matches!(harm, Harm::Cut { .. });
        is_cut && has_len && is_last && !self.subject.origin.is_closed()
    }

    /// Returns the position at which replay must stop: the start of the damaged record.
    fn stop(&self, file: &File, harm: Harm) -> u64 {
        let at = harm.at();
        file.unit(at).map_or(at, |unit| unit.range.start)
    }

    /// Returns the highest durable offset that any log contains. For the damaged log `name`, reads
    /// `bytes` instead of the intact contents.
    fn vouched(&self, name: &str, bytes: &[u8]) -> Option<Position> {
        let logs = self.files.iter().filter(|(_, file)| file.kind == FileKind::Wal);
        let durable_claims = logs.map(|(other, file)| {
            highest_durable_claim(file.number, if other == name { bytes } else { &file.bytes })
        });
        durable_claims.max().flatten()
    }

    fn nothing_lost(&self, file: &File, harm: Harm) -> Verdict {
        let at = harm.at();
        let structure = file.unit(at).map_or(END, |unit| unit.structure);
        let is_last = file.units.iter().rfind(|unit| ![SPACE_AHEAD, END].contains(&unit.structure));
        let is_last = is_last.is_some_and(|unit| unit.range.contains(&at));
        match (file.kind, structure) {
            (FileKind::Lock, _) => Verdict::Harmless("the lock counts, not what the file holds"),
            (_, SPACE_AHEAD | END) if file.kind != FileKind::Sst => {
                Verdict::Harmless("behind the last record: space ahead, dropped when opened")
            }
            (FileKind::Wal, "promise record") if is_last => {
                Verdict::Corrected("the last record, which commits nothing")
            }
            (FileKind::Manifest, "edit record") if is_last => Verdict::Corrected(
                "the last edit, which no durable offset covers and nothing needs",
            ),
            _ => Verdict::Wrong(format!("unnoticed in {structure}")),
        }
    }
}

/// Whether the error points into the damaged unit. For a cut, it must not point beyond the new end.
fn is_near(file: &File, harm: Harm, offset: u64) -> bool {
    let around = |at: u64| {
        let unit = file.unit(at).map(|unit| unit.range.clone());
        unit.is_some_and(|unit| (unit.start..=unit.end).contains(&offset))
    };
    match harm {
        Harm::Flip { at, .. } => around(at),
        Harm::Cut { to } => offset <= to && around(to),
        Harm::Erase => offset == 0,
    }
}

/// Parses the end of a file from a message such as `… MANIFEST-000001, which ends at byte 808,
/// names it …`.
fn ends_at(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(&format!("{name}, which ends at byte "))?;
    rest.split_once(',')?.0.parse().ok()
}

fn complaint(error: &Error) -> Complaint {
    let text = error.chain();
    match error.corruption() {
        Some(corruption) if error.kind() == ErrorKind::Corruption => {
            let file = corruption.file.strip_prefix(PATH).unwrap_or(&corruption.file);
            let file = file.to_string_lossy().into_owned();
            Complaint { file, offset: Some(corruption.offset), text }
        }
        _ => parse(&text),
    }
}

/// Parses the position from a message such as `… at byte 12 of db/000003.wal: …`.
fn parse(text: &str) -> Complaint {
    let place = text.split_once(" at byte ").and_then(|(_, rest)| {
        let (offset, rest) = rest.split_once(" of ")?;
        let (path, _) = rest.split_once(':')?;
        let file = path.strip_prefix("db/").unwrap_or(path);
        Some((file.to_owned(), offset.parse().ok()))
    });
    let (file, offset) = place.unwrap_or_default();
    Complaint { file, offset, text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::IoMode;
    use crate::testing::sim::corruption_matrix::subject::Origin;

    fn with(origin: Origin, check: impl FnOnce(&Case<'_>)) {
        let subject = Subject::new(origin, IoMode::Pread, 5).unwrap();
        check(&Case::new(&subject).unwrap());
    }

    fn find<'c>(case: &'c Case<'_>, structure: &str) -> (&'c str, &'c File, u64) {
        let mut all = case
            .files
            .iter()
            .flat_map(|(name, file)| file.units.iter().map(move |unit| (&**name, file, unit)));
        let (name, file, unit) = all.find(|(_, _, unit)| unit.structure == structure).unwrap();
        (name, file, unit.range.start)
    }

    fn wrong(verdict: &Verdict, text: &str) {
        assert!(matches!(verdict, Verdict::Wrong(what) if what.contains(text)), "{verdict:?}");
    }

    #[test]
    fn errors_must_name_the_file_and_the_place() {
        with(Origin::Closed, |case| {
            let (name, file, at) = find(case, "group record");
            let harm = Harm::Flip { at: at + 9, mask: 1 };
            let judge = |text: &str| case.refused(name, file, harm, &[parse(text)]);
            let right = format!("record at byte {at} of db/{name}: bad");
            assert_eq!(judge(&right), Verdict::Refused);
            wrong(&judge(&format!("record at byte {at} of db/000099.wal: bad")), "another file");
            wrong(&judge(&format!("record at byte 0 of db/{name}: bad")), "another place");
            wrong(&judge("something is wrong"), "another file");
            let both =
                format!("log at byte 0 of db/9.wal: {name}, which ends at byte {at}, names it");
            assert_eq!(judge(&both), Verdict::Refused);
            wrong(&judge(&both.replace(&format!("byte {at},"), "byte 1,")), "another place");
            let cut = Harm::Cut { to: at + 9 };
            let behind = format!("record at byte {} of db/{name}: bad", at + 10);
            wrong(&case.refused(name, file, cut, &[parse(&behind)]), "another place");
        });
    }

    #[test]
    fn a_missing_commit_under_a_durable_offset_is_wrong() {
        let lost = |case: &Case<'_>, left: usize| case.subject.history[left].clone();
        with(Origin::Closed, |case| {
            let (name, file, at) = find(case, "group record");
            let state = lost(case, case.subject.history.len() - 2);
            let verdict = case.shown(name, file, Harm::Cut { to: at }, &file.bytes, &state);
            wrong(&verdict, "a sound database of");
        });
        with(Origin::Killed, |case| {
            let (name, file, _) = find(case, "group record");
            let (last, all) = (*case.commits.last().unwrap(), case.subject.history.len() - 1);
            let harm = Harm::Flip { at: last.offset, mask: 1 };
            let cut = &file.bytes[..last.offset as usize];
            let judge = |bytes: &[u8], left| case.shown(name, file, harm, bytes, &lost(case, left));
            let shorter =
                case.shown(name, file, Harm::Cut { to: last.offset }, cut, &lost(case, all - 1));
            wrong(&shorter, "shorter than it durably was");
            assert_eq!(judge(cut, all - 1), Verdict::Torn);
            wrong(&judge(cut, all - 2), "not the state of");
            // The uncut file has a later durable offset, which covers the lost commit.
            wrong(&judge(&file.bytes, all - 1), "is vouched for");
        });
    }

    #[test]
    fn unnoticed_damage_must_be_explained_by_its_place() {
        with(Origin::Closed, |case| {
            let judge = |structure: &str| {
                let (_, file, at) = find(case, structure);
                case.nothing_lost(file, Harm::Flip { at, mask: 1 })
            };
            for structure in
                ["row block", "gap", "footer", "group record", "file header", "current"]
            {
                wrong(&judge(structure), "unnoticed in");
            }
        });
        // Uses a killed database, because a clean close releases the reserved space.
        with(Origin::Killed, |case| {
            let (_, file, at) = find(case, SPACE_AHEAD);
            let verdict = case.nothing_lost(file, Harm::Flip { at, mask: 1 });
            assert!(matches!(verdict, Verdict::Harmless(_)));
        });
    }

    #[test]
    fn every_byte_belongs_to_a_unit() {
        with(Origin::Compacted, |case| {
            for (name, file) in &case.files {
                let mut end = 0;
                for unit in &file.units {
                    assert_eq!(unit.range.start, end, "{name}: {unit:?}");
                    assert!(unit.range.end > end || unit.structure == END, "{name}: {unit:?}");
                    end = unit.range.end;
                }
                assert_eq!(end, file.bytes.len() as u64 + 1, "{name}");
            }
            assert!(case.files.values().filter(|file| file.kind == FileKind::Sst).count() > 1);
        });
    }
}
