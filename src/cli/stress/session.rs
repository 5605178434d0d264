//! Tracks one process under test, and the requests that were sent to it and are not yet answered.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::rc::Rc;
use std::time::Duration;

use super::answer::{Answer, Refused};
use super::child::{Child, Heard};
use super::plan::Plan;
use super::traffic::{Ask, rest_of_table};
use crate::testing::sim::oracle::{Oracle, Table, Tables};
use crate::testing::sim::row::key;

/// A process and the requests that it has not answered.
pub(super) struct Session {
    pub(super) child: Child,
    pub(super) plan: Plan,
    pub(super) waiting: VecDeque<(Ask, usize)>,
    pub(super) waiting_bytes: usize,
    /// Requests to send before the first random request.
    pub(super) first: VecDeque<Ask>,
    /// Number of requests refused because of a full disk or an I/O error.
    pub(super) refused: u64,
    pub(super) poisoned: bool,
    /// Whether the process has answered any request.
    pub(super) heard: bool,
    pub(super) last_commit: Duration,
    /// The time at which a full disk was enlarged; `None` again after the next commit.
    pub(super) relieved: Option<Duration>,
}

/// The reason why the state cannot be read.
pub(super) enum Halt {
    Refused(Refused),
    Ended,
    Wrong(String),
}

/// A request without an answer after this time is considered to hang. Even a busy machine answers
/// far sooner.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(600);

impl From<String> for Halt {
    fn from(what: String) -> Self {
        Halt::Wrong(what)
    }
}

impl Session {
    pub(super) fn start(arguments: &[OsString], plan: Plan) -> Result<Session, String> {
        Ok(Session {
            child: Child::start(arguments, &plan.limits)?,
            plan,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            first: VecDeque::new(),
            refused: 0,
            poisoned: false,
            heard: false,
            last_commit: Duration::ZERO,
            relieved: None,
        })
    }

    /// Sends one request, and returns the answer if it reports success.
    pub(super) fn ask(&mut self, line: &[u8]) -> Result<Vec<u8>, Halt> {
        self.child.send(line);
        match self.child.hear(ANSWER_WITHIN) {
            Heard::Answer(answer) => {
                self.heard = true;
                match Answer::read(&answer)?.refused()? {
                    Some(refused) => Err(Halt::Refused(refused)),
                    None => Ok(answer),
                }
            }
            Heard::Nothing => Err(Halt::Wrong(self.silent())),
            Heard::End => Err(Halt::Ended),
        }
    }

    /// Reads the complete visible state of the database.
    pub(super) fn state(&mut self) -> Result<Tables, Halt> {
        let answer = self.ask(&Ask::Tables.line(&Oracle::new()))?;
        let mut tables = Tables::new();
        for name in Answer::read(&answer)?.tables()? {
            let mut rows = BTreeMap::new();
            let mut from: Option<(String, String)> = None;
            loop {
                let from_key = from.as_ref().map(|(pk, rk)| (&**pk, &**rk));
                let answer = self.ask(&rest_of_table(&name, from_key))?;
                let answer = Answer::read(&answer)?;
                for row in answer.entities()? {
                    let key = key(&row.pk, &row.rk);
                    if rows.last_key_value().is_some_and(|(last, _)| *last >= key) {
                        return Err(Halt::Wrong(format!("{name}: out of order: {row}")));
                    }
                    rows.insert(key, Rc::new(row));
                }
                from = answer.next()?;
                if from.is_none() {
                    break;
                }
            }
            tables.insert(
                name.to_lowercase(),
                Table { name, rows: Rc::new(rows), gates: Default::default() },
            );
        }
        Ok(tables)
    }

    pub(super) fn silent(&self) -> String {
        format!("no answer within {ANSWER_WITHIN:?}, with {} requests waiting", self.waiting.len())
    }
}
