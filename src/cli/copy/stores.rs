//! `copy` from or to a Table service, and `copy --dry-run`.
//!
//! `store::copy` is the engine. Between two directories `db::copy` copies.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Copy;
use crate::cli::endpoint::{Service, create_missing_table};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::files::{append, check_outside};
use crate::cli::open::{Create, open, open_to_read};
use crate::cli::output::print;
use crate::cli::progress::Progress;
use crate::clock::{Clock, SystemClock};
use crate::db::{CopyProblem, Db};
use crate::fs::DiskFs;
use crate::json;
use crate::json::report::put_problem;
use crate::model::KeyTemplate;
use crate::query::KeyRange;
use crate::store::TableStore;
use crate::store::copy::{StateFile, StoreCopy};
use crate::store::pages::{PAGE_MAX, Side};

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

    /// Returns the approximate number of entities, if the store knows it.
    fn size(&self, table: &str) -> Option<u64> {
        let Self::Directory(db, _) = self else { return None };
        db.size_in_files(table, &KeyRange::all()).ok().map(|(rows, _)| rows)
    }
}

impl Copy {
    /// Copies if a store is a service, or for a dry run. Returns false otherwise.
    pub(super) fn run_stores(&self) -> Outcome<bool> {
        let from = self.account.open(&self.db)?;
        let to = self.to.as_ref().map(|to| self.account.open(to)).transpose()?;
        let is_service = from.is_some() || matches!(to, Some(Some(_)));
        if !is_service && !self.stores.dry_run {
            self.stores.refuse()?;
            return Ok(false);
        }
        let directory = |db: Db, path: &Path| {
            let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            Store::Directory(db, path.display().to_string())
        };
        let source = match from {
            Some(service) => Store::Service(service),
            None if self.then_delete && !self.stores.dry_run => {
                directory(open(&self.db, Create::Never)?, &self.db)
            }
            None => directory(open_to_read(&self.db)?, &self.db),
        };
        let target = match (&self.to, to) {
            _ if self.stores.dry_run => None,
            (_, Some(Some(service))) => Some(Store::Service(service)),
            (Some(to), _) => Some(directory(open(to, Create::IfMissing)?, to)),
            (None, _) => None,
        };
        self.copy_stores(&source, target.as_ref())?;
        [Some(source), target].into_iter().flatten().try_for_each(|store| match store {
            Store::Directory(db, _) => db.close().map_err(Failure::from),
            Store::Service(_) => Ok(()),
        })?;
        Ok(true)
    }

    /// Copies into `target`, or into another table of `source` if there is none.
    fn copy_stores(&self, source: &Store, target: Option<&Store>) -> Outcome {
        let clock = Arc::new(SystemClock::new());
        let to = target.unwrap_or(source);
        let (from, into) = ((source.name(), &*self.table), (to.name(), self.target_name()));
        // Names of tables and hosts ignore case. `job` finds other aliases by their entities.
        let is_same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        if is_same(from.0, into.0) && is_same(from.1, into.1) && !self.stores.dry_run {
            let text = format!("source and target are both the table {} of {}", from.1, from.0);
            return Err(Failure::Usage(text));
        }
        let template = |text: &Option<String>| text.as_deref().map(KeyTemplate::parse).transpose();
        let (partition_key, row_key) = (template(&self.partition_key)?, template(&self.row_key)?);
        self.stores.state.as_deref().map_or(Ok(()), check_outside)?;
        let state = self.stores.state.as_ref().map(|path| {
            let parts = (Arc::new(DiskFs::new()) as _, Arc::clone(&clock) as _);
            StateFile::new(parts, path, self.description(from, into), STATE_EVERY)
        });
        let state = state.filter(|_| !self.stores.dry_run);
        let saved = state.as_ref().map(StateFile::read).transpose()?.flatten();
        let is_continued = saved.is_some();
        let open = |path: &Path| match is_continued {
            true => append(path),
            false => self.overwrite.create(path),
        };
        let rejects = self.rejects.as_deref().map(open).transpose()?.map(Mutex::new);
        let on_problem = |problem: &CopyProblem| {
            if let Some(Ok(mut file)) = rejects.as_ref().map(Mutex::lock) {
                let line = json::object(|object| put_problem(object, problem));
                // Flushes before the position is saved. Ignores an error, because the final flush
                // reports it.
                drop(writeln!(file, "{line}").and_then(|()| file.flush()));
            }
        };
        // A new table would lack the entities that an earlier run has copied.
        if !self.stores.dry_run && !is_continued {
            create_missing_table(to.get(), into.1)?;
        }
        let of = source.size(from.1);
        let progress = Progress::new(of);
        let on_progress =
            |rows| of.map_or_else(|| progress.reach(rows), |of| progress.reach_of(rows, of));
        let job = StoreCopy {
            source: Side { store: source.get(), table: from.1 },
            target: (!self.stores.dry_run).then(|| Side { store: to.get(), table: into.1 }),
            filter: self.filter.text().to_owned(),
            select: self.selected(),
            partition_key,
            row_key,
            replace: self.replace,
            then_delete: self.then_delete,
            workers: self.stores.workers.map_or(WORKERS, usize::from),
            page_rows: PAGE_MAX,
            on_problem: &on_problem,
            on_progress: &on_progress,
        };
        let (summary, traffic) = job.run(state.as_ref())?;
        drop(progress);
        if let Some(Ok(mut file)) = rejects.as_ref().map(Mutex::lock) {
            file.flush()?;
        }
        let seconds = clock.monotonic().as_secs_f64();
        print(|output| self.write(output, &summary, &traffic.fields(), seconds))?;
        if summary.problem_count() > 0 { Err(Failure::Rejected) } else { Ok(()) }
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
