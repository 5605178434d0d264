//! Plans a run: its form (`quick` or `full`), and the parameters of each child process.
//!
//! All engines get the same memory, in proportion to the raw data:
//! * caches: twice the data. If the data are larger than memory: a twentieth of the data for
//!   caches, and a tenth for the whole process;
//! * write buffers: a quarter of the data, 16 to 192 MiB. For loads and to measure write
//!   amplification: a sixteenth, so that the load is sustained: background work takes part in it,
//!   and the result does not depend on when the load ends.
//!
//! Not here: starting children (`run.rs`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::engines::Engine;
use crate::results::{Key, Results};
use crate::rows::{ROWS, Session};
use crate::store::Encoding;
use crate::workloads::Spec;

/// Approximate raw size of a reading.
pub const RAW_BYTES: u64 = 210;
const PAYLOAD_RAW_BYTES: u64 = 1_200;
const MIB: u64 = 1 << 20;
/// Memory that a process needs in addition to its data: code, threads, the harness.
const OWN_BYTES: u64 = 24 * MIB;
/// Measurements with more entities than this are not repeated.
const REPEATED_MAX: u64 = 10_000_000;

/// The form of a run: numbers of entities, times and repetitions.
#[derive(Clone, Debug)]
pub struct Form {
    pub name: &'static str,
    pub entities: u64,
    pub cold_entities: u64,
    pub payload_entities: u64,
    pub sizes: Vec<u64>,
    pub repetitions: u32,
    pub time: Duration,
    pub load_time: Duration,
    pub base_time: Duration,
    /// A child is stopped after this time.
    pub child_time: Duration,
}

/// The part of a run that the command line selects.
pub struct Selection {
    /// Measures only report rows with this word in their name, title or group.
    pub word: String,
    pub engines: Vec<Engine>,
    pub csv: PathBuf,
    /// The number of rows in the CSV file.
    pub flights: u64,
    pub seed: u64,
}

/// A child process to be started.
pub struct Step {
    pub spec: Spec,
    /// The memory limit of the child.
    pub limit_bytes: Option<u64>,
}

/// The memory of an engine and of its process.
pub struct Sizes {
    pub cache_bytes: u64,
    pub write_buffer_bytes: u64,
    /// The memory limit of the whole process.
    pub limit_bytes: Option<u64>,
}

impl Form {
    /// Returns the form that measures all rows of the report in about ten minutes on two
    /// processors.
    pub fn quick() -> Self {
        Self {
            name: "quick",
            entities: 200_000,
            cold_entities: 500_000,
            payload_entities: 80_000,
            sizes: vec![50_000, 500_000],
            repetitions: 1,
            time: Duration::from_millis(300),
            load_time: Duration::from_millis(1_500),
            base_time: Duration::from_secs(60),
            child_time: Duration::from_secs(240),
        }
    }

    pub fn full() -> Self {
        Self {
            name: "full",
            entities: 1_000_000,
            cold_entities: 5_000_000,
            payload_entities: 900_000,
            sizes: vec![1_000_000, 10_000_000, 50_000_000],
            repetitions: 3,
            time: Duration::from_secs(2),
            load_time: Duration::from_secs(20),
            base_time: Duration::from_secs(1_800),
            child_time: Duration::from_secs(3 * 3_600),
        }
    }

    /// Returns a form so small that every row takes a moment. It tests the harness, not the
    /// engines.
    #[cfg(test)]
    pub fn tiny() -> Self {
        Self {
            name: "tiny",
            entities: 2_000,
            cold_entities: 2_000,
            payload_entities: 200,
            sizes: vec![500],
            repetitions: 1,
            time: Duration::from_millis(5),
            load_time: Duration::from_secs(60),
            base_time: Duration::from_secs(60),
            child_time: Duration::from_secs(60),
        }
    }

    fn sizes_of(&self, session: Session, selection: &Selection) -> Vec<u64> {
        match session {
            Session::Flights => vec![selection.flights],
            Session::Cold | Session::ColdLoad => vec![self.cold_entities],
            Session::Amplification => vec![self.payload_entities],
            Session::Growth => self.sizes.clone(),
            _ => vec![self.entities],
        }
    }
}

const SESSIONS: [Session; 9] = [
    Session::Serve,
    Session::Load,
    Session::Commit,
    Session::Sheets,
    Session::Cold,
    Session::Amplification,
    Session::Compressed,
    Session::Flights,
    Session::Growth,
];

/// Returns the child processes of a run in order. In each session of each repetition, the engines
/// take turns.
pub fn steps(form: &Form, selection: &Selection, dir: &Path, results: &Results) -> Vec<Step> {
    let mut steps = Vec::new();
    for repetition in 0..form.repetitions {
        for session in SESSIONS {
            for entities in form.sizes_of(session, selection) {
                if entities > REPEATED_MAX && repetition > 0 {
                    continue;
                }
                for engine in selection.engines.iter().copied() {
                    for encoding in engine.encodings().iter().copied() {
                        let key = Key {
                            form: form.name.to_owned(),
                            row: String::new(),
                            entities,
                            engine,
                            encoding,
                            repetition,
                        };
                        steps.extend(step(form, selection, dir, results, session, &key));
                    }
                }
            }
        }
    }
    steps
}

/// Returns the child process that measures the missing rows of a session, if any are missing.
fn step(
    form: &Form,
    selection: &Selection,
    dir: &Path,
    results: &Results,
    session: Session,
    key: &Key,
) -> Option<Step> {
    let is_first = key.engine.encodings()[0] == key.encoding;
    let is_wanted = |texts: [&str; 3]| {
        texts.iter().any(|text| text.to_lowercase().contains(&selection.word.to_lowercase()))
    };
    let rows: Vec<String> = ROWS
        .iter()
        .filter(|row| row.session == session && (is_first || row.all_encodings))
        .filter(|row| is_wanted([row.name, row.title, row.group]))
        .filter(|row| !results.has(&Key { row: row.name.to_owned(), ..key.clone() }))
        .map(|row| row.name.to_owned())
        .collect();
    if rows.is_empty() {
        return None;
    }
    let Sizes { cache_bytes, write_buffer_bytes, limit_bytes } = sizes(session, key.entities);
    let spec = Spec {
        form: form.name.to_owned(),
        session,
        engine: key.engine,
        encoding: key.encoding,
        repetition: key.repetition,
        entities: key.entities,
        rows,
        dir: dir.to_owned(),
        seed: selection.seed + u64::from(key.repetition),
        time: form.time,
        load_time: form.load_time,
        base_time: form.base_time,
        cache_bytes,
        write_buffer_bytes,
        csv: (session == Session::Flights).then(|| selection.csv.clone()),
        cgroup: None,
    };
    Some(Step { spec, limit_bytes })
}

/// Returns the memory sizes of a session with `entities` entities. They are the same for every
/// engine.
pub fn sizes(session: Session, entities: u64) -> Sizes {
    let each = if session == Session::Amplification { PAYLOAD_RAW_BYTES } else { RAW_BYTES };
    let raw = entities * each;
    let usual = Sizes {
        cache_bytes: (raw * 2).max(64 * MIB),
        write_buffer_bytes: (raw / 4).clamp(16 * MIB, 192 * MIB),
        limit_bytes: None,
    };
    match session {
        Session::Amplification | Session::Load => {
            Sizes { write_buffer_bytes: (raw / 16).clamp(4 * MIB, 192 * MIB), ..usual }
        }
        Session::ColdLoad => Sizes { cache_bytes: 256 * MIB, ..usual },
        Session::Cold => Sizes {
            cache_bytes: (raw / 20).max(4 * MIB),
            write_buffer_bytes: 4 * MIB,
            limit_bytes: Some(raw / 10 + OWN_BYTES),
        },
        _ => usual,
    }
}

/// Returns the spec of a child process that creates a database. The child process of `spec` then
/// reads this database under a memory limit.
pub fn load_before(spec: &Spec) -> Spec {
    let session = Session::ColdLoad;
    let Sizes { cache_bytes, write_buffer_bytes, .. } = sizes(session, spec.entities);
    Spec { session, rows: Vec::new(), cache_bytes, write_buffer_bytes, ..spec.clone() }
}

/// Returns the name of an encoding in the report.
pub fn encoding_name(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Native => "native",
        Encoding::Json => "json",
        Encoding::Binary => "binary",
        Encoding::Named => "named",
    }
}
