//! The ledger of a run: every version that an entity had, every call of a client, and which of its
//! requests took effect. Each answer that a call returns is compared with it.
//!
//! The ledger sees each execution of a request at the service, so it needs no model of what may
//! have happened. It does not see how the client reached its answer.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Code, Error, ErrorKind, Result};
use crate::model::{ETag, Entity, Guid};
use crate::store::Condition;

/// The address of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) table: &'static str,
    pub(super) partition: &'static str,
    pub(super) row: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Insert,
    Replace,
    Merge,
    Delete,
}

/// A write of one entity. A replacement sets the property `N`, a merge sets `M`.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) key: Key,
    pub(super) verb: Verb,
    pub(super) condition: Condition,
    pub(super) value: i32,
}

/// What a call is to do.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Read,
    /// A part of a copy or a sync, whose target has no other writer. The ledger does not check it.
    Job,
    Write(Vec<Write>),
    CreateTable(&'static str),
    DeleteTable(&'static str),
}

/// A call of a client, which may send several requests.
#[derive(Debug)]
struct Call {
    action: Action,
    /// The time at which the call began.
    start: u64,
    /// The times at which it took effect.
    effects: Vec<u64>,
    /// Whether an answer left open if the request took effect.
    was_lost: bool,
    /// Whether the service answered that it was busy and had done nothing.
    was_busy: bool,
    /// The result; `None` while the call runs.
    ended: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Success,
    Unknown,
    /// An error that promises that the call had no effect.
    Nothing,
}

/// A state of an entity, from the time `at` to the next version.
#[derive(Debug)]
struct Version {
    at: u64,
    /// `None` if the entity is absent.
    etag: Option<ETag>,
    call: Option<usize>,
    /// Whether the write kept the request id of the version before.
    keeps_id: bool,
}

/// Everything that happened in a run. A time is the number of effects so far.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    now: u64,
    calls: Vec<Call>,
    versions: BTreeMap<Key, Vec<Version>>,
    /// Whether the network of this run has no faults, so that every call must get an answer.
    pub(super) is_quiet: bool,
    /// The first difference.
    pub(super) failure: Option<String>,
}

/// The property in which clients store the id of a request.
pub(super) const ID: &str = "RequestId";

impl Write {
    pub(super) fn entity(&self) -> Entity {
        let name = if self.verb == Verb::Merge { "M" } else { "N" };
        Entity::new(self.key.partition, self.key.row).with(name, self.value)
    }

    /// Whether the condition of the write allows it on this state.
    fn is_allowed(&self, before: Option<&Entity>) -> bool {
        match (&self.condition, self.verb) {
            (_, Verb::Insert) => before.is_none(),
            (Condition::Match(etag), _) => before.and_then(Entity::etag).as_ref() == Some(etag),
            (Condition::Any, _) => before.is_some(),
            (Condition::None, _) => true,
        }
    }

    /// Whether `after` is the state that the write makes of `before`.
    fn is_done(&self, before: Option<&Entity>, after: Option<&Entity>) -> bool {
        let Some(after) = after else { return self.verb == Verb::Delete };
        let expected = match before.filter(|_| self.verb == Verb::Merge) {
            Some(before) => {
                let mut merged = before.clone();
                merged.set("M", self.value);
                merged
            }
            None => self.entity(),
        };
        let own = |row: &Entity| -> BTreeMap<String, String> {
            let own = row.properties().filter(|(name, _)| *name != ID);
            own.map(|(name, value)| (name.to_owned(), format!("{value:?}"))).collect()
        };
        self.verb != Verb::Delete && own(after) == own(&expected)
    }
}

impl Ledger {
    pub(super) fn new(is_quiet: bool) -> Self {
        Self { is_quiet, ..Self::default() }
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn fail(&mut self, what: impl FnOnce() -> String) {
        if self.failure.is_none() {
            self.failure = Some(what());
        }
    }

    /// Adds an entity that exists before the first call.
    pub(super) fn begin_with(&mut self, key: Key, etag: Option<ETag>) {
        let version = Version { at: self.now, etag, call: None, keeps_id: false };
        self.versions.entry(key).or_default().push(version);
    }

    pub(super) fn begin(&mut self, action: Action) -> usize {
        let (start, effects) = (self.now, Vec::new());
        let (was_lost, was_busy, ended) = (false, false, None);
        self.calls.push(Call { action, start, effects, was_lost, was_busy, ended });
        self.calls.len() - 1
    }

    pub(super) fn action(&self, call: usize) -> &Action {
        &self.calls[call].action
    }

    pub(super) fn lost(&mut self, call: usize) {
        self.calls[call].was_lost = true;
    }

    pub(super) fn busy(&mut self, call: usize) {
        self.calls[call].was_busy = true;
    }

    /// Compares the entities that a call writes before and after the execution of a request.
    pub(super) fn executed(
        &mut self,
        call: usize,
        before: &[Option<Entity>],
        after: &[Option<Entity>],
    ) {
        let Action::Write(writes) = self.calls[call].action.clone() else { return };
        let etag = |row: &Option<Entity>| row.as_ref().and_then(Entity::etag);
        let changed = before.iter().zip(after).filter(|(a, b)| etag(a) != etag(b)).count();
        if changed == 0 {
            return;
        }
        if changed < writes.len() {
            self.fail(|| format!("a part of a group took effect: {writes:?}"));
        }
        self.effect(call);
        for ((write, before), after) in writes.iter().zip(before).zip(after) {
            if !write.is_allowed(before.as_ref()) {
                self.fail(|| format!("took effect against its condition: {write:?} on {before:?}"));
            }
            if !write.is_done(before.as_ref(), after.as_ref()) {
                self.fail(|| format!("another effect: {write:?} made {before:?} to {after:?}"));
            }
            let id = |row: &Option<Entity>| row.as_ref().and_then(|row| row.get::<Guid>(ID).ok());
            let (at, keeps_id) = (self.now, id(before).is_some() && id(before) == id(after));
            let version = Version { at, etag: etag(after), call: Some(call), keeps_id };
            self.versions.entry(write.key).or_default().push(version);
        }
    }

    /// Notes whether a table existed before and after the execution of a request.
    pub(super) fn executed_on_table(&mut self, call: usize, before: bool, after: bool) {
        if before == after {
            return;
        }
        self.effect(call);
        let Action::DeleteTable(table) = self.calls[call].action else { return };
        for (_, versions) in self.versions.iter_mut().filter(|(key, _)| key.table == table) {
            let (at, call, keeps_id) = (self.now, Some(call), false);
            versions.push(Version { at, etag: None, call, keeps_id });
        }
    }

    /// Notes that a request of this call took effect. After a call has ended it has no effect,
    /// unless its outcome is unknown.
    fn effect(&mut self, call: usize) {
        self.now += 1;
        let now = self.now;
        let call = &mut self.calls[call];
        call.effects.push(now);
        if !matches!(call.ended, None | Some(End::Unknown)) {
            let text = format!("took effect after it had ended: {call:?}");
            self.fail(|| text);
        }
    }

    /// Checks the result of a write of entities or of a table.
    pub(super) fn end(&mut self, call: usize, result: Result<&[Option<ETag>], &Error>) {
        let end = match result {
            Ok(_) => End::Success,
            Err(error) if error.kind() == ErrorKind::OutcomeUnknown => End::Unknown,
            Err(_) => End::Nothing,
        };
        self.calls[call].ended = Some(end);
        let known = &self.calls[call];
        let problem = match result {
            Ok(_) if known.effects.is_empty() && !self.needs_nothing(call) => {
                Some("succeeded without an effect")
            }
            Ok(etags) => self.check_etags(call, etags),
            Err(error) => self.check_error(known, error),
        };
        if let Some(problem) = problem {
            let text = format!("{problem}: {known:?} returned {result:?}");
            self.fail(|| text);
        }
    }

    /// Whether the entity that is to be deleted was absent at some time during the call.
    fn needs_nothing(&self, call: usize) -> bool {
        let Call { action, start, .. } = &self.calls[call];
        let Action::Write(writes) = action else { return false };
        writes.iter().all(|write| {
            let is_delete = write.verb == Verb::Delete && write.condition == Condition::None;
            is_delete && self.was_absent(write.key, *start)
        })
    }

    fn check_error(&self, call: &Call, error: &Error) -> Option<&'static str> {
        let is_environment = matches!(
            error.kind(),
            ErrorKind::OutcomeUnknown | ErrorKind::Busy | ErrorKind::Timeout | ErrorKind::Io
        );
        let is_deleting = error.code() == Code::TableBeingDeleted.as_str();
        match error.kind() {
            ErrorKind::OutcomeUnknown if !call.was_lost => Some("unknown, but no answer was lost"),
            ErrorKind::OutcomeUnknown => None,
            _ if !call.effects.is_empty() => Some("failed with an effect"),
            ErrorKind::Timeout if call.was_lost => Some("timed out after it was sent"),
            ErrorKind::Busy if !call.was_busy && !is_deleting => Some("the service was not busy"),
            ErrorKind::InvalidInput => Some("refused a valid request"),
            _ if is_environment && self.is_quiet => Some("failed without a fault"),
            _ => None,
        }
    }

    /// Checks that each returned ETag is one that the entity had after the write, while it still
    /// contained the write. ETags of a group may be unknown.
    fn check_etags(&self, call: usize, etags: &[Option<ETag>]) -> Option<&'static str> {
        let Action::Write(writes) = &self.calls[call].action else { return None };
        let is_missing = writes.iter().zip(etags).any(|(write, etag)| match etag {
            Some(etag) => !self.holds(call, write, etag),
            None => write.verb != Verb::Delete && writes.len() == 1,
        });
        let has_others = writes.len() != etags.len();
        (is_missing || has_others).then_some("returned an ETag of another state")
    }

    fn holds(&self, call: usize, write: &Write, etag: &ETag) -> bool {
        let mut is_own = false;
        for version in self.versions.get(&write.key).into_iter().flatten() {
            is_own = version.call == Some(call) || is_own && version.keeps_id;
            if is_own && version.etag.as_ref() == Some(etag) {
                return true;
            }
        }
        false
    }

    /// The versions that an entity had from `start` on.
    fn since(&self, key: Key, start: u64) -> impl Iterator<Item = Option<&ETag>> {
        let versions = self.versions.get(&key).map(Vec::as_slice).unwrap_or_default();
        let first = versions.iter().rposition(|version| version.at <= start);
        let absent_before = first.is_none().then_some(None);
        let seen = versions.get(first.unwrap_or(0)..).unwrap_or_default();
        absent_before.into_iter().chain(seen.iter().map(|version| version.etag.as_ref()))
    }

    fn was_absent(&self, key: Key, start: u64) -> bool {
        self.since(key, start).any(|etag| etag.is_none())
    }

    /// Checks an entity that a read from `start` on returned.
    pub(super) fn check_get(&mut self, key: Key, start: u64, found: Option<&Entity>) {
        let found = found.and_then(Entity::etag);
        if !self.since(key, start).any(|etag| etag == found.as_ref()) {
            self.fail(|| format!("a read from {start} on found {found:?} at {key:?}"));
        }
    }

    /// Checks the entities of all pages of a query of a partition, which began at `start`.
    pub(super) fn check_query(
        &mut self,
        (table, partition): (&str, &str),
        start: u64,
        rows: &[Entity],
    ) {
        let found: BTreeSet<&str> = rows.iter().map(Entity::row_key).collect();
        if !rows.is_sorted_by(|a, b| a.row_key() < b.row_key()) {
            self.fail(|| format!("a query returned rows twice or out of order: {found:?}"));
        }
        let of_query = |key: &&Key| key.table == table && key.partition == partition;
        let keys: Vec<Key> = self.versions.keys().filter(of_query).copied().collect();
        for key in &keys {
            match rows.iter().find(|row| row.row_key() == key.row) {
                Some(row) => self.check_get(*key, start, Some(row)),
                None if self.was_absent(*key, start) => {}
                None => self.fail(|| format!("a query from {start} on missed {key:?}")),
            }
        }
        if let Some(row) = found.iter().find(|row| keys.iter().all(|key| key.row != **row)) {
            self.fail(|| format!("a query returned {row}, which never existed"));
        }
    }

    /// Checks an error of a read.
    pub(super) fn check_refusal(&mut self, error: &Error, table_may_be_missing: bool) {
        let is_fine = match error.kind() {
            ErrorKind::NotFound => table_may_be_missing,
            ErrorKind::Busy | ErrorKind::Timeout | ErrorKind::Io => !self.is_quiet,
            _ => false,
        };
        if !is_fine {
            self.fail(|| format!("a read or a copy returned {error:?}"));
        }
    }

    /// Checks an error that ended a process of a copy.
    pub(super) fn check_copy_error(&mut self, error: &Error) {
        if self.is_quiet || error.kind() != ErrorKind::OutcomeUnknown {
            self.check_refusal(error, false);
        }
    }

    /// Checks that the counter has all acknowledged increments, and no others than those whose
    /// outcome is unknown.
    pub(super) fn check_counter(&mut self, value: i32, acknowledged: i32, unknown: i32) {
        if !(acknowledged..=acknowledged + unknown).contains(&value) {
            self.fail(|| {
                format!("the counter is {value} after {acknowledged} increments, {unknown} unknown")
            });
        }
    }
}
