//! `copy` from or to a Table service, `copy --check` of one, and `copy --dry-run`.
//!
//! `store::copy` is the engine. Between two directories `db::copy` copies.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Copy, put_summary};
use crate::billing::{Bill, Prices};
use crate::cli::endpoint::{Service, create_missing_table};
use crate::cli::failure::{Failure, Outcome, eprint_line};
use crate::cli::files::{self, append, check_outside};
use crate::cli::open::{Create, open, open_table, open_to_read};
use crate::cli::output::{Format, Output, print};
use crate::cli::progress::Progress;
use crate::clock::{Clock, SystemClock};
use crate::db::{CopyProblem, CopySummary, Db};
use crate::fs::{DiskFs, Fs};
use crate::json;
use crate::json::report::put_problem;
use crate::model::KeyTemplate;
use crate::query::KeyRange;
use crate::store::copy::{StateFile, StoreCopy, Traffic};
use crate::store::pages::Side;
use crate::store::{PageQuery, TableStore};

/// The shortest time between two writes of the file of positions.
const STATE_EVERY: Duration = Duration::from_millis(250);
/// The default number of slices that are copied at once.
const WORKERS: usize = 4;

/// A store of a copy, with the name by which a file of positions knows it.
enum Store {
    Directory(Db, String),
    Service(Service),
}

impl Store {
    fn get(&self) -> &dyn TableStore {
        match self {
            Self::Directory(db, _) => db,
            Self::Service(service) => &**service,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Directory(_, name) => name,
            Self::Service(service) => &service.name,
        }
    }
}

/// The files of a copy.
struct Files {
    state: Option<StateFile>,
    /// Whether the file of positions has positions of this copy.
    is_continued: bool,
    rejects: Option<Mutex<BufWriter<File>>>,
}

/// Returns the name by which a file of positions knows a directory, whether it exists or not.
fn directory_name(path: &Path) -> String {
    files::resolved(path).display().to_string()
}

impl Copy {
    /// Copies if a store is a service, or for a dry run. Returns false otherwise.
    pub(super) fn run_stores(&self) -> Outcome<bool> {
        let from = self.account.open(&self.db)?;
        let to = self.to.as_ref().map(|to| self.account.open(to)).transpose()?;
        if from.is_none() && !matches!(to, Some(Some(_))) {
            self.stores.refuse()?;
            if !self.stores.dry_run {
                return Ok(false);
            }
        }
        from.as_ref().map_or(Ok(()), Service::check_order)?;
        from.as_ref().map(Service::note_hidden_keys);
        let prices = self.stores.prices.read()?;
        let source = self.open_source(from)?;
        let service = to.flatten().map(Store::Service);
        let (name, reads_target) = match (&self.to, &service) {
            (Some(to), None) => (directory_name(to), true),
            (_, service) => {
                let to = service.as_ref().unwrap_or(&source);
                (to.name().to_owned(), self.reads_target(to)?)
            }
        };
        let files = self.open_files(&source, &name)?;
        let target = match (&self.to, service) {
            (Some(to), None) if !self.is_dry() => {
                Some(Store::Directory(self.open_target(to, &files)?, name))
            }
            (_, service) => service,
        };
        let stores = (&source, target.as_ref(), reads_target);
        let is_whole = self.copy_stores(stores, &files, &prices)?;
        [Some(source), target].into_iter().flatten().try_for_each(|store| match store {
            Store::Directory(db, _) => db.close().map_err(Failure::from),
            Store::Service(_) => Ok(()),
        })?;
        // Last, so that a process that is killed before continues, and reports the outcome again.
        files.state.map_or(Ok(()), |state| state.remove())?;
        if is_whole { Ok(true) } else { Err(Failure::Rejected) }
    }

    fn open_source(&self, service: Option<Service>) -> Outcome<Store> {
        let db = match service {
            Some(service) => return Ok(Store::Service(service)),
            None if self.then_delete && !self.is_dry() => open(&self.db, Create::Never)?,
            None => open_to_read(&self.db)?,
        };
        open_table(&db, &self.db, &self.table)?;
        Ok(Store::Directory(db, directory_name(&self.db)))
    }

    /// Returns whether the target can be read.
    ///
    /// # Errors
    /// `Usage` if it cannot, but an option needs that.
    fn reads_target(&self, target: &Store) -> Outcome<bool> {
        let Store::Service(service) = target else { return Ok(true) };
        if service.may_read() {
            return Ok(true);
        }
        let needs = [
            ("--replace", self.replace),
            ("--state", self.stores.state.is_some()),
            ("a new key", self.is_rekeyed()),
        ];
        match needs.into_iter().find(|(_, is_given)| *is_given && !self.is_dry()) {
            Some((name, _)) => Err(Failure::Usage(format!(
                "{name} needs reads of the target, but the signature for {} has no permission to \
                 read (r)",
                service.name
            ))),
            None => Ok(false),
        }
    }

    /// Opens the files of a copy to the store `to`, and checks the source, so that no target is
    /// created if one of them fails.
    fn open_files(&self, source: &Store, to: &str) -> Outcome<Files> {
        let (from, into) = ((source.name(), &*self.table), (to, self.target_name()));
        // Names of tables and hosts ignore case. `job` finds other aliases by their entities.
        let is_same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        if is_same(from.0, into.0) && is_same(from.1, into.1) && !self.is_dry() {
            let (table, of) = (from.1, from.0);
            let text = format!("source and target are both the table {table} of {of}; use --into");
            return Err(Failure::Usage(text));
        }
        let (positions, rejects) = (&self.stores.state, &self.rejects);
        let paths = [positions, rejects].into_iter().flatten();
        paths.into_iter().try_for_each(|path| self.check_file(path))?;
        if let (Some(positions), Some(rejects)) = (positions, rejects)
            && files::is_same(positions, rejects)
        {
            return Err(Failure::Usage("--state and --rejects are one file: name two".to_owned()));
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let state = self.stores.state.as_ref().filter(|_| !self.is_dry()).map(|path| {
            let parts = (Arc::new(DiskFs::new()) as _, clock);
            StateFile::open(parts, path, self.description(from, into), STATE_EVERY)
        });
        let state = state.transpose()?;
        let is_continued = state.as_ref().map(StateFile::read).transpose()?.flatten().is_some();
        if !self.is_dry() && !is_continued {
            self.check_source(source)?;
        }
        let open = |path: &Path| match is_continued {
            true => append(path),
            false => self.overwrite.create(path),
        };
        let rejects = self.rejects.as_deref().map(open).transpose()?.map(Mutex::new);
        Ok(Files { state, is_continued, rejects })
    }

    /// Fails if a file is in the directory of a database, or in the target.
    fn check_file(&self, path: &Path) -> Outcome {
        check_outside(path)?;
        let is_in = |dir: &Path| files::resolved(path).starts_with(files::resolved(dir));
        match self.to.as_deref().filter(|to| is_in(to)) {
            Some(to) => {
                let (path, to) = (path.display(), to.display());
                let text = format!("{path} is in the target {to}: name a file elsewhere");
                Err(Failure::Usage(text))
            }
            None => Ok(()),
        }
    }

    /// Fails if the source cannot be read, before a target is created.
    fn check_source(&self, source: &Store) -> Outcome {
        let Store::Service(service) = source else { return Ok(()) };
        // A signature may cover only what matches the filter.
        let filter = self.filter.text();
        let query = PageQuery { filter, select: &["PartitionKey"], top: 1, continuation: None };
        Ok(service.query(&self.table, &query).map(drop)?)
    }

    /// Opens the directory of the target. Only a copy from the beginning creates it.
    fn open_target(&self, to: &Path, files: &Files) -> Outcome<Db> {
        if !files.is_continued {
            return open(to, Create::IfMissing);
        }
        if DiskFs::new().exists(to).is_ok_and(|exists| !exists) {
            let text = format!(
                "the copy cannot continue: its target {} is gone; remove its --state file to begin \
                 again",
                to.display()
            );
            return Err(Failure::Usage(text));
        }
        open(to, Create::Never)
    }

    /// Whether nothing is written.
    fn is_dry(&self) -> bool {
        self.stores.dry_run || self.check
    }

    /// Copies into the target, or into another table of the source if there is none. Reports the
    /// outcome, and returns whether nothing was refused.
    fn copy_stores(
        &self,
        (source, target, reads_target): (&Store, Option<&Store>, bool),
        files: &Files,
        prices: &Prices,
    ) -> Outcome<bool> {
        let clock = SystemClock::new();
        let to = target.unwrap_or(source);
        let Files { state, is_continued, rejects } = files;
        let on_problem = |problem: &CopyProblem| {
            if let Some(Ok(mut file)) = rejects.as_ref().map(Mutex::lock) {
                let line = json::object(|object| put_problem(object, problem));
                // Flushes before the position is saved. Ignores an error, because the final flush
                // reports it.
                drop(writeln!(file, "{line}").and_then(|()| file.flush()));
            }
        };
        let is_table_refused = self.dialect.is_some_and(|dialect| self.announce(dialect));
        // A new table would lack the entities that an earlier run has copied.
        if !self.is_dry() && !is_continued {
            create_missing_table(to.get(), self.target_name())?;
        }
        let of = self.total(source, *is_continued);
        let progress = Progress::new(of);
        let on_progress =
            |rows| of.map_or_else(|| progress.reach(rows), |of| progress.reach_of(rows, of));
        let sides = [(source, &*self.table), (to, self.target_name())];
        let sides = sides.map(|(store, table)| Side { store: store.get(), table });
        let job = self.store_job(sides, &on_problem, &on_progress)?;
        let job = StoreCopy { reads_target, ..job };
        let (summary, traffic) = job.run(state.as_ref())?;
        drop(progress);
        if let Some(Ok(mut file)) = rejects.as_ref().map(Mutex::lock) {
            file.flush()?;
        }
        let seconds = clock.monotonic().as_secs_f64();
        let bill = self.bill(source, target, &traffic);
        print(|output| self.write_billed(output, (&summary, seconds), bill.as_ref(), prices))?;
        if let Store::Directory(db, _) = source {
            self.note(&db.table(&self.table)?, &self.filter.read()?, summary.rows);
        }
        match (*is_continued, summary.rows) {
            (false, _) => {}
            (true, 0) => eprint_line("continued: an earlier run had copied everything"),
            (true, _) => {
                eprint_line("continued: the counts are of this run only; problems are of all runs");
            }
        }
        Ok(summary.problem_count() == 0 && !is_table_refused)
    }

    /// Returns about the number of entities to copy, if it is known.
    fn total(&self, source: &Store, is_continued: bool) -> Option<u64> {
        match source {
            Store::Directory(db, _) if self.filter.text().is_empty() && !is_continued => {
                let size = db.size_in_files(&self.table, &KeyRange::all());
                size.ok().map(|part| part.puts())
            }
            _ => None,
        }
    }

    fn store_job<'s>(
        &self,
        [source, target]: [Side<'s>; 2],
        on_problem: &'s (dyn Fn(&CopyProblem) + Sync),
        on_progress: &'s (dyn Fn(u64) + Sync),
    ) -> Outcome<StoreCopy<'s>> {
        let template = |text: &Option<String>| text.as_deref().map(KeyTemplate::parse).transpose();
        Ok(StoreCopy {
            target: (!self.is_dry()).then_some(target),
            filter: self.filter.text().to_owned(),
            select: self.selected(),
            partition_key: template(&self.partition_key)?,
            row_key: template(&self.row_key)?,
            replace: self.replace,
            then_delete: self.then_delete,
            dialect: self.dialect,
            workers: self.stores.workers.map_or(WORKERS, usize::from),
            on_problem,
            on_progress,
            ..StoreCopy::new([source, target])
        })
    }

    /// Returns what the services bill together: the requests that were sent to them, and those that
    /// a dry run would send. `None` without a service.
    fn bill(&self, source: &Store, target: Option<&Store>, traffic: &Traffic) -> Option<Bill> {
        let mut bill = None::<Bill>;
        for store in [Some(source), target].into_iter().flatten() {
            if let Store::Service(service) = store {
                bill.get_or_insert_default().add(&service.bill());
            }
        }
        // Without --to, the target is the source. --check has no target.
        let to = if self.to.is_some() { target } else { Some(source).filter(|_| !self.check) };
        for (store, part) in [(Some(source), &traffic.source), (to, &traffic.target)] {
            if let (Some(Store::Service(_)), Some(bill)) = (store, &mut bill) {
                bill.add(part);
            }
        }
        bill
    }

    /// Writes the summary and the bill, which has prices if it is for a dry run or if the prices
    /// are given.
    fn write_billed(
        &self,
        output: &mut Output,
        (summary, seconds): (&CopySummary, f64),
        bill: Option<&Bill>,
        prices: &Prices,
    ) -> io::Result<()> {
        let options = &self.stores;
        let priced = bill.filter(|_| options.dry_run || options.prices.is_given());
        let is_text = self.format.get() == Format::Table;
        let mut fields = summary.fields().to_vec();
        if let Some(bill) = bill.filter(|_| priced.is_none() || self.format.get() == Format::Csv) {
            fields.push(("transactions", bill.transactions));
            fields.push(("bytes_out", bill.bytes_out));
            fields.extend(priced.map(|bill| ("bytes_stored", bill.bytes_stored)));
        }
        if matches!(self.format.get(), Format::Json | Format::Ndjson) {
            return output.object(|object| {
                put_summary(object, summary, &fields, seconds);
                if let Some(bill) = priced {
                    options.prices.put(object, bill, prices);
                }
            });
        }
        self.write_summary(output, summary, &fields)?;
        let Some(bill) = priced.filter(|_| is_text) else { return Ok(()) };
        writeln!(output)?;
        options.prices.write(output, bill, prices)
    }

    /// Returns the selected names; none means all.
    fn selected(&self) -> Vec<String> {
        let names = self.select.clone().unwrap_or_default();
        if names.iter().any(|name| name == "*") { Vec::new() } else { names }
    }

    /// Describes the job, so that the positions of another job are not used.
    fn description(&self, from: (&str, &str), into: (&str, &str)) -> String {
        json::object(|object| {
            object.text("from", from.0);
            object.text("table", from.1);
            object.text("to", into.0);
            object.text("into", into.1);
            object.text("filter", self.filter.text());
            object.texts("select", self.selected().iter());
            self.partition_key.iter().for_each(|key| object.text("partition_key", key));
            self.row_key.iter().for_each(|key| object.text("row_key", key));
            object.raw("replace", self.replace);
            object.raw("then_delete", self.then_delete);
        })
    }
}
