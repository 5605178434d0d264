//! Writes a page of copies to the target in groups, and deletes copied entities from the source.
//!
//! Invariants
//! * a member that cannot be written is taken out of its group, and the rest is sent again;
//! * a group whose outcome is not known is sent again: what it wrote is found by the second try.

use super::plan::{Moving, StoreCopy, Tally, key};
use crate::db::{CopyProblem, CopyProblemKind};
use crate::error::{Code, Error, ErrorKind, Result};
use crate::model::{ETag, Entity, GROUP_OPERATIONS_MAX};
use crate::mutants::mutant;
use crate::store::groups::{TRIES_MAX, group_len, is_of_group, is_of_row, range_filter};
use crate::store::pages::{PAGE_MAX, Side};
use crate::store::slice::Slice;
use crate::table::{EntityGroup, quoted_entity};

/// The writing of a page.
pub(super) struct Writing<'w, 's> {
    pub(super) job: &'w StoreCopy<'s>,
    /// The ranges of the source in which earlier runs of the job may have copied entities.
    pub(super) begun: &'w [Slice],
    pub(super) tally: &'w mut Tally,
}

/// How a copy is written.
enum Plan {
    Insert,
    /// Replaces an entity that differs and has this ETag.
    Replace(ETag),
}

/// A member of a group that is not written yet.
struct Member<'m> {
    row: &'m mut Moving,
    plan: Plan,
    /// Whether the outcome of a group with it is unknown, so that the target may have it.
    is_unknown: bool,
}

impl Writing<'_, '_> {
    pub(super) fn page(&mut self, page: Vec<Entity>) -> Result<()> {
        self.tally.summary.rows += page.len() as u64;
        let mut rows = Vec::with_capacity(page.len());
        for entity in page {
            match self.job.copy_of(entity) {
                Ok(row) => match self.job.dialect.map(|known| known.refuses_entity(&row.copy)) {
                    Some(reasons) if !reasons.is_empty() => {
                        let (kind, text) = (CopyProblemKind::Refused, reasons.join("; "));
                        report(self.job, self.tally, &row, kind, text);
                    }
                    _ => rows.push(row),
                },
                Err(refused) => {
                    let (entity, name) = *refused;
                    let message = format!("it has no property '{name}'");
                    let (kind, source) = (CopyProblemKind::Refused, key(&entity));
                    let problem = CopyProblem { source, target: None, kind, message };
                    self.job.report(self.tally, problem);
                }
            }
        }
        if self.job.is_rekeyed() {
            rows.sort_by(|a, b| a.copy.key_bytes().cmp(&b.copy.key_bytes()));
            self.take_shared(&mut rows);
        }
        for partition in rows.chunk_by_mut(|a, b| a.copy.partition_key() == b.copy.partition_key())
        {
            let mut rest = partition;
            while !rest.is_empty() {
                let (group, others) = rest.split_at_mut(copies_len(rest));
                self.group(group.iter_mut().collect())?;
                rest = others;
            }
        }
        if self.job.then_delete { self.delete(&mut rows) } else { Ok(()) }
    }

    /// Takes out rows of the page that would get the same key. `rows` are sorted by new keys.
    fn take_shared(&mut self, rows: &mut Vec<Moving>) {
        let same = |a: &Moving, b: &Moving| a.copy.key_bytes() == b.copy.key_bytes();
        let shared: Vec<bool> = (0..rows.len())
            .map(|i| {
                let before = i.checked_sub(1).is_some_and(|before| same(&rows[before], &rows[i]));
                before || rows.get(i + 1).is_some_and(|after| same(after, &rows[i]))
            })
            .collect();
        let mut shared = shared.into_iter();
        rows.retain(|row| {
            let is_shared = shared.next().unwrap_or(false);
            if is_shared {
                let message = "another row would get the same key";
                report(self.job, self.tally, row, CopyProblemKind::Shared, message.to_owned());
            }
            !is_shared
        });
    }

    fn group(&mut self, rows: Vec<&mut Moving>) -> Result<()> {
        let Some(target) = self.job.target else {
            let table = self.job.source.table;
            let locations = rows.iter().map(|row| location_len(table, &row.copy));
            self.tally.traffic.target.add_group(locations);
            rows.iter().for_each(|row| self.stored(row));
            return Ok(());
        };
        let members =
            rows.into_iter().map(|row| Member { row, plan: Plan::Insert, is_unknown: false });
        let mut groups = vec![members.collect::<Vec<_>>()];
        while let Some(mut members) = groups.pop() {
            let (mut tries, mut is_range_read) = (0, false);
            while !members.is_empty() {
                let Err(error) = self.send(target, &mut members) else { break };
                let index = error.index().or((members.len() == 1).then_some(0));
                let index = index.filter(|index| *index < members.len());
                match (error.kind(), index) {
                    // All members may be in the target now.
                    (ErrorKind::OutcomeUnknown, _) if tries < TRIES_MAX => {
                        (tries, is_range_read) = (tries + 1, false);
                        members.iter_mut().for_each(|member| member.is_unknown = true);
                    }
                    (ErrorKind::AlreadyExists, Some(index)) if !self.job.reads_target => {
                        let row = members.remove(index).row;
                        let text = "the target has an entity under the key, and the signature \
                                    does not permit to read it";
                        report(
                            self.job,
                            self.tally,
                            row,
                            CopyProblemKind::Conflict,
                            text.to_owned(),
                        );
                    }
                    (ErrorKind::AlreadyExists, Some(index)) if !is_range_read => {
                        is_range_read = true;
                        self.resolve_range(target, &mut members, index)?;
                    }
                    (
                        ErrorKind::AlreadyExists
                        | ErrorKind::PreconditionFailed
                        | ErrorKind::NotFound,
                        Some(index),
                    ) if is_of_row(&error) && members[index].row.tries < TRIES_MAX => {
                        members[index].row.tries += 1;
                        self.resolve_one(target, &mut members, index)?;
                    }
                    (ErrorKind::InvalidInput, Some(index)) => {
                        let row = members.remove(index).row;
                        let text = error.chain();
                        report(self.job, self.tally, row, CopyProblemKind::Refused, text);
                    }
                    // The group as a whole is refused, for example because it is too large.
                    (ErrorKind::InvalidInput, None) if members.len() > 1 => {
                        groups.push(members.split_off(members.len() / 2));
                    }
                    _ => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Sends a group. On success all members are in the target.
    fn send(&mut self, target: Side<'_>, members: &mut [Member<'_>]) -> Result<()> {
        let Some(first) = members.first() else { return Ok(()) };
        let mut group = EntityGroup::new(first.row.copy.partition_key());
        for (index, member) in members.iter().enumerate() {
            let copy = member.row.copy.clone();
            let added = match &member.plan {
                Plan::Insert => group.insert(copy),
                Plan::Replace(etag) => group.replace_if(copy, etag),
            };
            added.map_err(|error| match error.index() {
                None if is_of_group(&error) => error,
                _ => error.at_index(index),
            })?;
        }
        target.store.commit(target.table, &group)?;
        self.tally.found = members.last().map(|member| key(&member.row.copy));
        for member in members {
            member.row.is_there = true;
            self.stored(member.row);
            match member.plan {
                Plan::Insert => self.tally.summary.copied += 1,
                Plan::Replace(_) => self.tally.summary.replaced += 1,
            }
        }
        Ok(())
    }

    fn stored(&mut self, row: &Moving) {
        self.tally.traffic.target.add_entities(1, row.copy.size() as u64);
    }

    /// Reads the entities of the target in the range of the members from `index` on. So a group of
    /// which all members are in the target takes two requests more, not two for each member.
    fn resolve_range(
        &mut self,
        target: Side<'_>,
        members: &mut Vec<Member<'_>>,
        index: usize,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (members.get(index), members.last()) else {
            return Ok(());
        };
        let filter = range_filter(&first.row.copy, &last.row.copy);
        let page = target.pages(vec![filter], &[], PAGE_MAX).next()?;
        for found in page.unwrap_or_default() {
            // A broken server may answer with entities of another partition.
            let is_found = |member: &Member<'_>| member.row.copy.key_bytes() == found.key_bytes();
            if let Some(index) = members.iter().position(is_found) {
                self.resolve(members, index, &found)?;
            }
        }
        Ok(())
    }

    fn resolve_one(
        &mut self,
        target: Side<'_>,
        members: &mut Vec<Member<'_>>,
        index: usize,
    ) -> Result<()> {
        let copy = &members[index].row.copy;
        let found = target.store.get(target.table, copy.partition_key(), copy.row_key(), &[])?;
        match found {
            Some(found) => self.resolve(members, index, &found)?,
            None => members[index].plan = Plan::Insert,
        }
        Ok(())
    }

    /// Decides about a member whose key the target has.
    ///
    /// # Errors
    /// `InvalidInput` if the job would delete or change the entity of the source itself.
    fn resolve(
        &mut self,
        members: &mut Vec<Member<'_>>,
        index: usize,
        found: &Entity,
    ) -> Result<()> {
        let row = &members[index].row;
        let is_equal = row.copy.has_properties_of(found);
        let is_harmful = self.job.then_delete || self.job.replace && !is_equal;
        if is_harmful && is_state_of(&row.source, found) {
            return Err(same_table(found));
        }
        self.tally.found = Some(key(found));
        // Under a new key, it may be the copy of another entity.
        let is_begun = || self.begun.iter().any(|range| range.contains(&row.source));
        let is_own = members[index].is_unknown || !self.job.is_rekeyed() || is_begun();
        if is_equal && is_own {
            members.remove(index).row.is_there = true;
            self.tally.summary.present += 1;
            return Ok(());
        }
        if self.job.replace {
            members[index].plan = Plan::Replace(etag_of(found)?);
            return Ok(());
        }
        let row = members.remove(index).row;
        let message = match is_equal {
            true => "the target has an equal entity under the new key, perhaps a copy of another",
            false => "the target has other properties under the key",
        };
        report(self.job, self.tally, row, CopyProblemKind::Conflict, message.to_owned());
        Ok(())
    }

    /// Deletes the entities of the source that have copies.
    fn delete(&mut self, rows: &mut Vec<Moving>) -> Result<()> {
        if self.job.target.is_none() {
            rows.iter_mut().for_each(|row| row.is_there = true);
        }
        rows.retain(|row| row.is_there);
        for partition in rows.chunk_by(|a, b| a.source.partition_key() == b.source.partition_key())
        {
            for rows in partition.chunks(GROUP_OPERATIONS_MAX) {
                match self.job.target {
                    Some(_) => self.delete_group(rows.iter().collect())?,
                    None => self.tally.traffic.source.add_group(rows.iter().map(|_| 0)),
                }
            }
        }
        Ok(())
    }

    fn delete_group(&mut self, mut rows: Vec<&Moving>) -> Result<()> {
        let Side { store, table } = self.job.source;
        let (mut tries, mut alone) = (0, Vec::new());
        while let Some(first) = rows.first() {
            let mut group = EntityGroup::new(first.source.partition_key());
            for row in &rows {
                let (rk, etag) = (row.source.row_key(), etag_of(&row.source)?);
                match mutant!("bare-delete") {
                    true => group.delete(rk)?,
                    false => group.delete_if(rk, etag)?,
                };
            }
            let error = match store.commit(table, &group) {
                Ok(_) => {
                    self.tally.summary.deleted += rows.len() as u64;
                    break;
                }
                Err(error) => error,
            };
            if error.kind() == ErrorKind::OutcomeUnknown && tries < TRIES_MAX {
                tries += 1;
                self.keep_undeleted(&mut rows)?;
                continue;
            }
            let index = error.index().or((rows.len() == 1).then_some(0));
            let is_refused = error.kind() == ErrorKind::InvalidInput;
            let is_of_member = is_refused || is_of_row(&error);
            let Some(index) = index.filter(|index| *index < rows.len() && is_of_member) else {
                return Err(error);
            };
            let row = rows.remove(index);
            match error.kind() {
                ErrorKind::NotFound => self.tally.summary.deleted += 1,
                // A service may read keys of groups differently, as Azurite does.
                ErrorKind::InvalidInput if !rows.is_empty() => alone.push(row),
                ErrorKind::InvalidInput => {
                    let text = format!("it stays in the source: {}", error.chain());
                    report(self.job, self.tally, row, CopyProblemKind::Refused, text);
                }
                _ => self.changed(row),
            }
        }
        alone.into_iter().try_for_each(|row| self.delete_group(vec![row]))
    }

    /// Reads entities whose deletion is not certain, and keeps those that are still to be deleted.
    fn keep_undeleted(&mut self, rows: &mut Vec<&Moving>) -> Result<()> {
        let Side { store, table } = self.job.source;
        let mut kept = Vec::new();
        for row in rows.drain(..) {
            let (pk, rk) = (row.source.partition_key(), row.source.row_key());
            match store.get(table, pk, rk, &[])? {
                None => self.tally.summary.deleted += 1,
                Some(found) if found.etag() == row.source.etag() => kept.push(row),
                Some(_) => self.changed(row),
            }
        }
        *rows = kept;
        Ok(())
    }

    fn changed(&mut self, row: &Moving) {
        let message = "changed by another writer in the meantime".to_owned();
        report(self.job, self.tally, row, CopyProblemKind::Changed, message);
    }
}

fn report(
    job: &StoreCopy<'_>,
    tally: &mut Tally,
    row: &Moving,
    kind: CopyProblemKind,
    message: String,
) {
    let (source, target) = (key(&row.source), Some(key(&row.copy)));
    job.report(tally, CopyProblem { source, target, kind, message });
}

/// Returns the number of rows, at least one, that one group can have.
fn copies_len(rows: &[Moving]) -> usize {
    group_len(rows.iter().map(|row| (&row.copy, row.bytes)))
}

/// Returns about the length of the URL of an entity.
fn location_len(table: &str, entity: &Entity) -> usize {
    // As long as https://account.table.core.windows.net/(PartitionKey='',RowKey='').
    const WITHOUT_KEYS: usize = 66;
    let encoded = |key: &str| -> usize {
        key.bytes().map(|byte| if byte.is_ascii_alphanumeric() { 1 } else { 3 }).sum()
    };
    WITHOUT_KEYS + table.len() + encoded(entity.partition_key()) + encoded(entity.row_key())
}

fn etag_of(entity: &Entity) -> Result<ETag> {
    entity.etag().ok_or_else(|| {
        let entity = quoted_entity((entity.partition_key(), entity.row_key()));
        Error::new(ErrorKind::Unsupported, format!("the service sent {entity} without its ETag"))
    })
}

/// Whether two entities have the same Timestamp, or the same ETag if a Timestamp is not known.
pub(super) fn is_state_of(a: &Entity, b: &Entity) -> bool {
    match a.timestamp().zip(b.timestamp()) {
        Some((a, b)) => a == b,
        None => a.etag().zip(b.etag()).is_some_and(|(a, b)| a == b),
    }
}

/// Returns the error for a source and a target that have the state of an entity in common.
pub(super) fn same_table(entity: &Entity) -> Error {
    let text = format!(
        "{} has one Timestamp in source and target: they are the same table, or one is a restored \
         copy of the other; it was neither deleted nor replaced",
        quoted_entity((entity.partition_key(), entity.row_key()))
    );
    Error::refused_with(Code::InvalidInput, text)
}
