//! Executes the requests of commands that write: in this process or, if another process has the
//! database open and listens on its control socket, in that process. The requests are the same.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use super::failure::{Failure, Outcome};
use super::open::{Create, open_durable};
use crate::control::answer::answer;
use crate::control::client::Client;
#[cfg(feature = "remote")]
use crate::db::Position;
use crate::db::{Db, PartitionRange};
use crate::error::{Error, ErrorKind};
use crate::json::Object;
use crate::json::answer::Answer;
use crate::json::exec::read_request;
use crate::json::object;
use crate::options::Durability;
use crate::table::QueryCounts;

/// The database that a command changes.
pub(super) enum Writer {
    /// This process has the database open.
    Here(Db),
    /// Another process has the database open.
    There(RefCell<Remote>),
}

/// The connection to the process that has the database open.
pub(super) struct Remote {
    client: Client,
    /// The durability that the command requests. The other process may commit with a weaker one.
    /// So a request to sync follows each request, unless `Buffered` is enough.
    durability: Durability,
    /// The paths in requests: each as it was sent, absolute, and as the user gave it.
    paths: Vec<(String, String)>,
}

impl Writer {
    /// Opens the database, or connects to the process that has it open.
    pub(super) fn open(path: &Path, create: Create) -> Outcome<Self> {
        Self::open_durable(path, create, Durability::Sync)
    }

    /// Like [`open`](Self::open), with this durability of each change.
    pub(super) fn open_durable(
        path: &Path,
        create: Create,
        durability: Durability,
    ) -> Outcome<Self> {
        match open_durable(path, create, durability) {
            Err(Failure::Open(error)) if error.kind() == ErrorKind::Locked => {
                Self::connect(path, error, durability)
            }
            // The lock file cannot be opened for writing, for example on a read-only mount. Another
            // process may have the database open where it can be written.
            Err(Failure::Open(error)) if error.kind() == ErrorKind::Io => {
                match Client::connect(path) {
                    Ok(Some(client)) => Ok(Self::there(client, durability)),
                    _ => Err(Failure::Open(error)),
                }
            }
            opened => opened.map(Self::Here),
        }
    }

    /// Connects to the process that has the database open. Returns the error `locked` if it does
    /// not listen.
    pub(super) fn connect(path: &Path, locked: Error, durability: Durability) -> Outcome<Self> {
        let client = Client::connect(path).map_err(Failure::Open)?;
        let client = client.ok_or(Failure::Open(locked))?;
        Ok(Self::there(client, durability))
    }

    fn there(client: Client, durability: Durability) -> Self {
        Self::There(RefCell::new(Remote { client, durability, paths: Vec::new() }))
    }

    /// Returns a path as text for requests. For another process the path is made absolute, because
    /// that process may have another working directory.
    pub(super) fn path(&self, path: &Path) -> Outcome<String> {
        let text = |path: &Path| {
            let problem = || Failure::Usage(format!("{} is not UTF-8", path.display()));
            path.to_str().map(str::to_owned).ok_or_else(problem)
        };
        let given = text(path)?;
        let Self::There(remote) = self else { return Ok(given) };
        let absolute = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
        let absolute = text(&absolute)?;
        remote.borrow_mut().paths.push((absolute.clone(), given));
        Ok(absolute)
    }

    /// Executes the request `op`, with the members that `put` adds.
    pub(super) fn ask(&self, op: &str, put: impl FnOnce(&mut Object<'_>)) -> Outcome<Answer> {
        self.ask_with(op, put, |_, _| ())
    }

    /// Like [`ask`](Self::ask); calls `progress` with the amount of work done and the total, which
    /// is 0 if unknown.
    pub(super) fn ask_with(
        &self,
        op: &str,
        put: impl FnOnce(&mut Object<'_>),
        mut progress: impl FnMut(u64, u64),
    ) -> Outcome<Answer> {
        let request = object(|object| {
            object.text("op", op);
            put(object);
        });
        match self {
            Self::Here(db) => {
                let request = read_request(request.as_bytes())?;
                let response = answer(db, request, &mut |done, of| {
                    progress(done, of);
                    Ok(())
                })?;
                let line = String::from_utf8(response.into_line());
                Ok(Answer::read(line.unwrap_or_default())?)
            }
            Self::There(remote) => {
                let remote = &mut *remote.borrow_mut();
                let answer = remote.client.ask(&request, &mut progress);
                let answer = answer.map_err(|error| remote.with_given_paths(&error))?;
                if remote.durability != Durability::Buffered {
                    remote.client.ask(r#"{"op":"sync"}"#, &mut |_, _| ())?;
                }
                let replace = |answer: Answer, (absolute, given): &(String, String)| {
                    answer.replacing(absolute, given)
                };
                Ok(remote.paths.iter().fold(answer, replace))
            }
        }
    }

    /// Creates a table unless it exists.
    pub(super) fn create_missing_table(&self, table: &str) -> Outcome {
        match self.ask("create_table", |request| request.text("table", table)) {
            Err(Failure::Operation(error)) if error.code() == "TableAlreadyExists" => Ok(()),
            created => created.map(drop),
        }
    }

    /// Closes the database, or the connection to the other process.
    pub(super) fn close(self) -> Outcome {
        match self {
            Self::Here(db) => Ok(db.close()?),
            Self::There(_) => Ok(()),
        }
    }
}

/// The ranges of a table with their load, and the number of its queries of each kind.
pub(super) type Load = (Vec<PartitionRange>, QueryCounts);

/// Asks the process that has the database open for the loads of tables, which only it knows.
pub(super) struct Loads(Option<RefCell<Client>>);

impl Loads {
    /// Connects to the process. If it does not listen, or an error occurs, all loads are unknown.
    pub(super) fn of(path: &Path) -> Self {
        Self(Client::connect(path).ok().flatten().map(RefCell::new))
    }

    /// Returns the load of a table, or `None` if it is unknown.
    pub(super) fn of_table(&self, table: &str) -> Option<Load> {
        let request = object(|object| {
            object.text("op", "partitions");
            object.text("table", table);
        });
        let answer = self.0.as_ref()?.borrow_mut().ask(&request, &mut |_, _| ());
        answer.and_then(|answer| answer.load()).ok()
    }
}

/// A cursor of a database that another process may have open.
#[cfg(feature = "remote")]
pub(super) struct CursorThere {
    db: PathBuf,
    name: String,
    /// The connection, unless no process listened or it was closed.
    client: Option<Client>,
}

#[cfg(feature = "remote")]
impl CursorThere {
    pub(super) fn new(db: &Path, name: String) -> Self {
        Self { db: db.to_owned(), name, client: None }
    }

    /// Moves the cursor to a position if one is given. Returns the position of the cursor; `None`
    /// if it has none, if no process listens, or if an error occurs.
    pub(super) fn ask(&mut self, position: Option<Position>) -> Option<Position> {
        let request = object(|object| {
            object.text("op", "cursor");
            object.text("name", &self.name);
            position.iter().for_each(|at| object.text("position", &at.to_string()));
        });
        let mut kept = self.client.take();
        loop {
            let is_kept = kept.is_some();
            let mut client = match kept.take() {
                Some(client) => client,
                None => {
                    let client = Client::connect(&self.db).ok()??;
                    client.bound().ok()?;
                    client
                }
            };
            match client.ask(&request, &mut |_, _| ()) {
                // The process has closed the connection since the last request.
                Err(error) if error.kind() == ErrorKind::Io && is_kept => {}
                // After an error the response may still arrive, so the connection is of no use.
                answer => {
                    let answer = answer.ok()?;
                    self.client = Some(client);
                    return answer.text("position")?.parse().ok();
                }
            }
        }
    }
}

impl Remote {
    /// Replaces the absolute paths in the message of an error by the paths that the user gave.
    fn with_given_paths(&self, error: &Error) -> Error {
        let mut message = error.chain();
        for (absolute, given) in &self.paths {
            message = message.replace(absolute, given);
        }
        let given = error.with_message(message);
        match error.object() {
            Some(object) => given.about(|| object.to_owned()),
            None => given,
        }
    }
}
