//! Builds the corruption ledger: every byte of small databases is flipped, every file is cut at
//! every length and erased, and each outcome is counted in one of five classes.
//!
//! | class     | means                                                                          |
//! | corrected | all data is present and sound, although the damaged structure matters          |
//! | refused   | an error names the file, and an offset in the damaged structure                |
//! | harmless  | all data is present and sound, because the damaged byte has no meaning         |
//! | torn tail | a killed database lost the last commits, which no durable offset covers        |
//! | wrong     | anything else: lost or changed data, wrong file or offset, silent damage       |

mod judge;
mod place;
mod subject;

use std::collections::BTreeMap;
use std::fmt;

use self::judge::{Case, Harm, Verdict};
use self::subject::Subject;
use crate::options::IoMode;
use crate::rng::Rng;

pub use self::place::FileKind;
pub use self::subject::Origin;

/// The outcomes of all damage that was applied, counted by structure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The seed of the databases.
    pub seed: u64,
    /// One entry for each structure and kind of damage, ordered by file.
    pub entries: BTreeMap<Heading, Counts>,
    /// The reasons for harmless and corrected outcomes, with their frequency.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Descriptions of the first wrong outcomes.
    pub findings: Vec<String>,
}

/// The file, structure and kind of damage of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Heading {
    /// The kind of file.
    pub file: FileKind,
    /// The structure in the file, as FORMAT.md names it.
    pub structure: &'static str,
    /// `flip`, `cut` or `erase`.
    pub damage: &'static str,
}

/// The number of cases of each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All data is present, although the structure matters.
    pub corrected: u64,
    /// An error names the damaged file and an offset in the damaged structure.
    pub refused: u64,
    /// All data is present, because the byte has no meaning.
    pub harmless: u64,
    /// Commits at the end of a killed database are lost, and no durable offset covers them.
    pub torn: u64,
    /// Any other outcome; must be 0.
    pub wrong: u64,
    /// Panics; must be 0.
    pub crashed: u64,
}

/// The maximum number of findings described per entry.
const FINDINGS_MAX: u64 = 3;

/// Damages databases of each [`Origin`], which is how a database was made. Reads each in both I/O
/// modes, and returns the ledger. `progress` receives the number of finished cases and the total.
pub fn ledger(seed: u64, progress: &mut dyn FnMut(u64, u64)) -> Ledger {
    let modes = [IoMode::Mmap, IoMode::Pread];
    let subjects = Origin::ALL.iter().flat_map(|origin| modes.map(|mode| (*origin, mode)));
    ledger_of(&subjects.collect::<Vec<_>>(), seed, 1, progress)
}

/// As [`ledger`], for the given databases. Applies one of `share` cases, chosen by the seed.
pub fn ledger_of(
    subjects: &[(Origin, IoMode)],
    seed: u64,
    share: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Ledger {
    let mut ledger = Ledger { seed, ..Ledger::default() };
    let mut rng = Rng::from_seed(seed);
    let mut written = Vec::new();
    for (origin, mode) in subjects {
        match Subject::new(*origin, *mode, rng.next_u64()) {
            Ok(subject) => written.push(subject),
            Err(error) => {
                ledger.findings.push(format!("{}: cannot be written: {error:?}", origin.name()))
            }
        }
    }
    let mut cases = Vec::new();
    for subject in &written {
        match Case::new(subject) {
            Ok(case) => cases.push(case),
            Err(what) => ledger.findings.push(format!("{}: {what}", subject.origin.name())),
        }
    }
    let mut chosen = |case| {
        let mut harms = harms(case);
        harms.retain(|_| rng.below(share) == 0);
        (case, harms)
    };
    let plans: Vec<_> = cases.iter().map(&mut chosen).collect();
    let all = plans.iter().map(|(_, harms)| harms.len() as u64).sum();
    let mut done = 0;
    for (case, harms) in &plans {
        for (name, harm) in harms {
            ledger.enter(case, name, *harm);
            done += 1;
            if done % 512 == 0 || done == all {
                progress(done, all);
            }
        }
    }
    ledger
}

/// Returns all kinds of damage that are applied to a database.
fn harms<'c>(case: &'c Case<'_>) -> Vec<(&'c str, Harm)> {
    let mut harms = Vec::new();
    for (name, file) in &case.files {
        for at in interesting(&file.bytes) {
            let byte = file.bytes.get(usize::try_from(at).unwrap_or(usize::MAX)).copied();
            // Flips one bit, flips all bits, and sets the byte to zero.
            let one = 1 << (at % 8);
            let masks = [Some(one), Some(0xff), byte.filter(|b| ![0, one, 0xff].contains(b))];
            harms
                .extend(masks.into_iter().flatten().map(|mask| (&**name, Harm::Flip { at, mask })));
            harms.push((&**name, Harm::Cut { to: at }));
        }
        harms.push((&**name, Harm::Erase));
    }
    harms
}

/// Returns the offsets to damage: every offset, but in long runs of zeros only every 512th.
fn interesting(bytes: &[u8]) -> Vec<u64> {
    let zero = |at: usize| bytes.get(at).is_none_or(|byte| *byte == 0);
    let run = |at: usize| (at.saturating_sub(16)..=at + 16).all(zero);
    let chosen = |at: &usize| !run(*at) || at.is_multiple_of(512);
    (0..bytes.len()).filter(chosen).map(|at| at as u64).collect()
}

impl Ledger {
    /// Returns the number of wrong and crashed cases, which must be 0.
    pub fn faults(&self) -> u64 {
        let faults = self.entries.values().map(|counts| counts.wrong + counts.crashed);
        faults.sum::<u64>().max(self.findings.len() as u64)
    }

    /// Returns the sum of the counts for a kind of file.
    pub fn of(&self, file: FileKind) -> Counts {
        let entries = self.entries.iter().filter(|(heading, _)| heading.file == file);
        entries.fold(Counts::default(), |sum, (_, counts)| sum.plus(counts))
    }

    /// Returns the sum of all counts.
    pub fn total(&self) -> Counts {
        self.entries.values().fold(Counts::default(), Counts::plus)
    }

    fn enter(&mut self, case: &Case<'_>, name: &str, harm: Harm) {
        let Some(file) = case.files.get(name) else { return };
        let structure = file.unit(harm.at()).map_or("end of file", |unit| unit.structure);
        let (damage, structure) = match harm {
            Harm::Flip { .. } => ("flip", structure),
            Harm::Cut { .. } => ("cut", structure),
            Harm::Erase => ("erase", "whole file"),
        };
        let verdict = case.judge(name, harm);
        let counts =
            self.entries.entry(Heading { file: file.kind, structure, damage }).or_default();
        match &verdict {
            Verdict::Corrected(_) => counts.corrected += 1,
            Verdict::Refused => counts.refused += 1,
            Verdict::Harmless(_) => counts.harmless += 1,
            Verdict::Torn => counts.torn += 1,
            Verdict::Wrong(_) => counts.wrong += 1,
            Verdict::Crashed(_) => counts.crashed += 1,
        }
        let known = counts.wrong + counts.crashed > FINDINGS_MAX;
        match verdict {
            Verdict::Corrected(why) | Verdict::Harmless(why) => {
                *self.reasons.entry(why).or_default() += 1;
            }
            Verdict::Wrong(what) | Verdict::Crashed(what) if !known => {
                let origin = case.subject.origin.name();
                let len = file.bytes.len();
                self.findings.push(format!(
                    "{origin}: {name} of {len} bytes, {structure}, {harm:?}: {what}"
                ));
            }
            _ => {}
        }
    }
}

impl Counts {
    fn plus(self, other: &Counts) -> Counts {
        let (ours, others) = (self.columns(), other.columns());
        let [corrected, refused, harmless, torn, wrong, crashed] =
            std::array::from_fn(|column| ours[column] + others[column]);
        Counts { corrected, refused, harmless, torn, wrong, crashed }
    }

    fn columns(&self) -> [u64; 6] {
        [self.corrected, self.refused, self.harmless, self.torn, self.wrong, self.crashed]
    }

    /// Returns each count with its name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COLUMNS.into_iter().zip(self.columns())
    }
}

const COLUMNS: [&str; 6] = ["corrected", "refused", "harmless", "torn tail", "wrong", "crashed"];

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:9}{:19}{:6}", "file", "structure", "damage")?;
        COLUMNS.iter().try_for_each(|name| write!(f, "{name:>11}"))?;
        let mut line = |names: [&str; 3], counts: &Counts| {
            let [file, structure, damage] = names;
            write!(f, "\n{file:9}{structure:19}{damage:6}")?;
            counts.columns().iter().try_for_each(|count| write!(f, "{count:>11}"))
        };
        for (heading, counts) in &self.entries {
            line([heading.file.name(), heading.structure, heading.damage], counts)?;
        }
        line(["all", "", ""], &self.total())?;
        for (why, count) in &self.reasons {
            write!(f, "\n{count:>10}  {why}")?;
        }
        self.findings.iter().try_for_each(|what| write!(f, "\nwrong: {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_has_a_text_form_and_a_json_form() {
        let mut ledger = Ledger { seed: 3, ..Ledger::default() };
        assert_eq!((ledger.faults(), ledger.total()), (0, Counts::default()));
        let heading = Heading { file: FileKind::Wal, structure: "open record", damage: "cut" };
        let counts = Counts { refused: 7, wrong: 1, ..Counts::default() };
        ledger.entries.insert(heading, counts);
        ledger.reasons.insert("space", 2);
        ledger.findings.push("lost".to_owned());
        assert_eq!((ledger.faults(), ledger.of(FileKind::Wal)), (1, counts));
        assert_eq!(ledger.of(FileKind::Sst), Counts::default());
        let text = ledger.to_string();
        assert!(text.contains("wal      open record        cut"), "{text}");
        assert!(text.ends_with("2  space\nwrong: lost"), "{text}");
    }
}
