//! Counts the instructions of the hot paths with callgrind. A busy machine does not change the
//! counts.
//!
//! `cargo bench --bench instructions` prints the counts next to the stored ones of
//! `instructions.txt`; words after `--` select cases by name. `-- --check` fails if a case takes
//! over 5 % more than its stored count, and `-- --write` rewrites the file. Nothing is compared if
//! the compiler, target, valgrind, C library or processor features differ from those of the file.
//!
//! Each case has one thread, no background work, a fixed seed and clock, and a database on disk.
//! Waiting and instructions of the kernel are not counted. Not here: the cases (`cases.rs`).

#![expect(clippy::disallowed_methods, reason = "a benchmark makes files of its own")]

#[path = "instructions/cases.rs"]
mod cases;

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cases::{CASES, Case};

/// The check fails for a case that exceeds its stored count by more than this share.
const TOLERANCE: f64 = 0.05;
/// The first argument of a child process, which runs a single case.
const CASE: &str = "--case";

/// The contents of `instructions.txt`: the versions of the tools that counted, and a count per
/// case.
struct Figures {
    made_with: String,
    cases: Vec<(String, u64)>,
}

fn main() -> ExitCode {
    // Removes the argument `--bench`, which cargo adds.
    let mut words: Vec<String> =
        std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [flag, name] = words.as_slice()
        && flag == CASE
    {
        let case = CASES.iter().find(|case| case.name == name).expect("a case");
        (case.run)(case.operations);
        return ExitCode::SUCCESS;
    }
    let mut take = |flag: &str| {
        let before = words.len();
        words.retain(|word| word != flag);
        words.len() < before
    };
    let (check, write) = (take("--check"), take("--write"));
    let Some(valgrind) = first_line("valgrind", &["--version"]) else {
        println!("valgrind is not installed: no instructions were counted");
        return ExitCode::from(u8::from(check || write));
    };
    let wanted =
        |case: &&Case| words.is_empty() || words.iter().any(|word| case.name.contains(word));
    let cases: Vec<&Case> = CASES.iter().filter(wanted).collect();
    let counted = count_all(&cases);
    let now = Figures { made_with: versions(&valgrind), cases: counted };
    if write {
        assert!(words.is_empty(), "--write writes all cases");
        std::fs::write(path(), now.to_text()).expect("the package's directory can be written");
        println!("{}\nwritten to {}", now.to_text(), path().display());
        return ExitCode::SUCCESS;
    }
    let stored = Figures::read();
    let dearer = compare(&now, &stored, words.is_empty());
    ExitCode::from(u8::from(check && dearer > 0))
}

/// Runs the measured part of a case. Only instructions of this call are counted.
#[inline(never)]
pub fn measured_part(run: &mut dyn FnMut()) {
    run();
    // Prevents a tail call of `run`, which callgrind would take for the end of this function.
    black_box(());
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.txt")
}

/// Counts the instructions per operation of each case. As many cases as there are processors run in
/// parallel.
fn count_all(cases: &[&Case]) -> Vec<(String, u64)> {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("instructions");
    drop(std::fs::remove_dir_all(&dir));
    let (next, counted) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(case) = cases.get(at)
                {
                    let count = count(case, &dir.join(at.to_string()));
                    counted.lock().expect("no panic").push((at, case.name.to_owned(), count));
                }
            });
        }
    });
    let mut counted = counted.into_inner().expect("no panic");
    counted.sort();
    counted.into_iter().map(|(_, name, count)| (name, count)).collect()
}

/// Runs one case under callgrind in `dir`. The file `callgrind.out` is left there for
/// `callgrind_annotate`.
fn count(case: &Case, dir: &Path) -> u64 {
    std::fs::create_dir_all(dir).expect("the target directory can be written");
    let done = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*measured_part*"])
        .arg("--callgrind-out-file=callgrind.out")
        .arg(std::env::current_exe().expect("it runs"))
        .args([CASE, case.name])
        // Keep the environment equal on all machines and shells.
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .current_dir(dir)
        .output()
        .expect("valgrind runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {}\n{said}", case.name, done.status);
    let total =
        said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    let total: u64 = total.expect("callgrind says what it collected");
    assert!(total > 0, "{}: callgrind did not find measured_part", case.name);
    total.div_ceil(case.operations)
}

fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let done = Command::new(program).args(arguments).output().ok()?;
    String::from_utf8(done.stdout).ok()?.lines().next().map(str::to_owned)
}

/// Returns the versions that the counts depend on, apart from the source.
fn versions(valgrind: &str) -> String {
    let rustc = Command::new("rustc").arg("-vV").output().expect("cargo needs a compiler");
    let rustc = String::from_utf8_lossy(&rustc.stdout).into_owned();
    let of = |name: &str| rustc.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?");
    let libc = first_line("getconf", &["GNU_LIBC_VERSION"]).unwrap_or_else(|| "libc ?".to_owned());
    let features = if cfg!(feature = "sim") { "with mutants" } else { "plain" };
    let parts = [
        format!("rustc {} {}", of("release: "), of("commit-hash: ")),
        of("host: ").to_owned(),
        valgrind.to_owned(),
        libc,
        processor(),
        features.to_owned(),
    ];
    parts.join(", ")
}

/// Returns the processor features by which the checksum code and the C library select an
/// implementation. Lists only features that valgrind supports.
fn processor() -> String {
    #[cfg(target_arch = "x86_64")]
    {
        let has = [
            ("avx2", std::arch::is_x86_feature_detected!("avx2")),
            ("pclmulqdq", std::arch::is_x86_feature_detected!("pclmulqdq")),
            ("bmi2", std::arch::is_x86_feature_detected!("bmi2")),
        ];
        has.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
    }
    #[cfg(not(target_arch = "x86_64"))]
    "any processor".to_owned()
}

impl Figures {
    fn to_text(&self) -> String {
        let mut text = String::from(
            "# Instructions of one operation, made by `cargo bench --bench instructions -- --write` with\n",
        );
        writeln!(text, "# {}", self.made_with).expect("memory");
        for (name, count) in &self.cases {
            writeln!(text, "{count:>10}  {name}").expect("memory");
        }
        text
    }

    /// Reads the stored counts. Returns none if the file is missing.
    fn read() -> Figures {
        let text = std::fs::read_to_string(path()).unwrap_or_default();
        let made_with = text.lines().nth(1).and_then(|line| line.strip_prefix("# "));
        let case = |line: &str| {
            let (count, name) = line.trim().split_once("  ")?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        let cases = text.lines().filter_map(case).collect();
        Figures { made_with: made_with.unwrap_or("nothing").to_owned(), cases }
    }

    fn of(&self, name: &str) -> Option<u64> {
        self.cases.iter().find(|(other, _)| other == name).map(|(_, count)| *count)
    }
}

/// Prints a table; returns the number of cases that fail the check.
fn compare(now: &Figures, stored: &Figures, all: bool) -> usize {
    let comparable = now.made_with == stored.made_with;
    let (mut dearer, mut cheaper) = (Vec::new(), 0);
    println!("{:>10} {:>10} {:>8}  instructions of one operation", "now", "stored", "");
    for (name, count) in &now.cases {
        let Some(before) = stored.of(name) else {
            println!("{count:>10} {:>10} {:>8}  {name}", "-", "");
            dearer.push(format!("{name}: has no figure"));
            continue;
        };
        let change = *count as f64 / before as f64 - 1.0;
        println!("{count:>10} {before:>10} {:>+7.1}%  {name}", change * 100.0);
        cheaper += usize::from(change < -TOLERANCE);
        if change > TOLERANCE {
            dearer.push(format!("{name}: {count}, {:+.1} % on {before}", change * 100.0));
        }
    }
    let gone = stored.cases.iter().filter(|(name, _)| all && now.of(name).is_none());
    dearer.extend(gone.map(|(name, _)| format!("{name}: has a figure and is no case")));
    if !comparable {
        println!("NOT COMPARED: these counts were made with\n  {}", now.made_with);
        println!("and the stored figures with\n  {}", stored.made_with);
        return 0;
    }
    dearer.iter().for_each(|problem| println!("DEARER {problem}"));
    if cheaper > 0 {
        println!("CHEAPER by more than 5 %: {cheaper}; write new figures with -- --write");
    }
    dearer.len()
}
