//! Runs the child processes one after the other, and collects their result lines in a file.
//!
//! Invariants
//! * if a child fails or times out, only its own rows are lost, and they are reported as failed;
//! * a database is removed after the child that uses it has ended.
//!
//! Not here: the work of children (`workloads/`), their order (`plan.rs`).

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::built::Built;
use crate::cgroup::Group;
use crate::limits::{self, Limits};
use crate::plan::{self, Form, Selection, Step};
use crate::process::{drop_cached, in_memory};
use crate::results::{Appender, Line, Results};
use crate::workloads::Spec;

/// Measures the figures that the results file in `dir` lacks, and returns all results.
pub fn run(form: &Form, selection: &Selection, dir: &Path) -> io::Result<Results> {
    fs::create_dir_all(dir)?;
    if let Some(name) = in_memory(dir) {
        let problem = format!("{} is on {name}: a database belongs on a disk", dir.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let lines = dir.join("results.jsonl");
    let mut results = Results::read(&lines)?;
    let mut appender = Appender::open(&lines)?;
    let mut add = |results: &mut Results, line: Line| {
        let appended = appender.append(&line);
        results.add(line);
        appended
    };
    let databases = dir.join("databases");
    let steps = plan::steps(form, selection, &databases, &results);
    let built = (!steps.is_empty()).then(Built::now);
    if let Some(limits) = missing_limits(form, selection, &databases, &results, built)? {
        add(&mut results, Line::Limits { form: form.name.to_owned(), limits })?;
    }
    let (count, start) = (steps.len(), Instant::now());
    for (number, step) in steps.into_iter().enumerate() {
        let spec = &step.spec;
        eprintln!(
            "[{}/{count}, {:.0} s] {:?}, {} {}, {} entities, repetition {}: {} rows",
            number + 1,
            start.elapsed().as_secs_f64(),
            spec.session,
            spec.engine.name(),
            plan::encoding_name(spec.encoding),
            spec.entities,
            spec.repetition + 1,
            spec.rows.len(),
        );
        drop(fs::remove_dir_all(&databases));
        fs::create_dir_all(&databases)?;
        let mut missing = spec.rows.clone();
        let done = carry_out(&step, form.child_time, |line| {
            if let Line::Figure { key, .. } | Line::Unsupported { key } = &line {
                missing.retain(|row| *row != key.row);
            }
            add(&mut results, line)
        })?;
        if let Err(why) = done {
            eprintln!("    FAILED: {why}");
            for row in missing {
                let line = Line::Failed { key: spec.key(&row), why: why.clone() };
                add(&mut results, line)?;
            }
        }
    }
    drop(fs::remove_dir_all(&databases));
    Ok(results)
}

/// Measures the limits that `results` lacks, and adds this build to them. Returns all limits, or
/// `None` if nothing was missing.
fn missing_limits(
    form: &Form,
    selection: &Selection,
    databases: &Path,
    results: &Results,
    built: Option<Built>,
) -> io::Result<Option<Limits>> {
    let time = form.time.min(Duration::from_secs(1));
    let (mut limits, is_new) = match results.limits.get(form.name) {
        Some(limits) => (limits.clone(), false),
        None => {
            eprintln!("limits of the machine");
            fs::create_dir_all(databases)?;
            (limits::measure(databases, time, &selection.csv)?, true)
        }
    };
    let is_larger = limits.add_sizes(&form.sizes, time);
    let another = built.filter(|built| !limits.built.contains(built));
    let is_another = another.is_some();
    limits.built.extend(another);
    Ok((is_new || is_larger || is_another).then_some(limits))
}

/// Runs the child processes of a step. The outer error is a failure of this process, the inner
/// error a failure of a child.
fn carry_out(
    step: &Step,
    time: Duration,
    mut with: impl FnMut(Line) -> io::Result<()>,
) -> io::Result<Result<(), String>> {
    let Some(bytes) = step.limit_bytes else { return child(&step.spec, time, &mut with) };
    if let Err(why) = child(&plan::load_before(&step.spec), time, &mut with)? {
        return Ok(Err(why));
    }
    let group = Group::new(&format!("rowstone-compare-{}", std::process::id()), bytes);
    match &group {
        Ok(_) => eprintln!("    memory limited to {} MiB", bytes >> 20),
        Err(error) => eprintln!("    the memory limit is NOT enforced: {error}"),
    }
    drop_cached(&step.spec.dir);
    let cgroup = group.as_ref().ok().map(|group| group.dir().to_owned());
    child(&Spec { cgroup, ..step.spec.clone() }, time, &mut with)
}

fn child(
    spec: &Spec,
    time: Duration,
    with: &mut dyn FnMut(Line) -> io::Result<()>,
) -> io::Result<Result<(), String>> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("child")
        .arg(serde_json::to_string(spec)?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = lines_of(&mut child);
    let deadline = Instant::now() + time;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(line) => with(line)?,
                // The line is not a result, because engines also print to standard output.
                Err(_) => eprintln!("    {line}"),
            },
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                child.kill()?;
                child.wait()?;
                return Ok(Err(format!("stopped after {} s", time.as_secs())));
            }
        }
    }
    let status = child.wait()?;
    Ok(if status.success() { Ok(()) } else { Err(format!("the child ended with {status}")) })
}

/// Returns the lines of the child's output as they arrive. The channel closes when the child's
/// output ends.
fn lines_of(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let output = child.stdout.take().expect("it is piped");
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}
