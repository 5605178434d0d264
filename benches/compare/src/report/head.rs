//! Builds the text before the tables of a form (`quick` or `full`): the machine, its limits, the
//! builds, and the memory given to the engines.
//!
//! Not here: computing that memory (`plan.rs`).

use std::collections::BTreeSet;

use super::markdown::table;
use super::summary::{Entry, bytes, count};
use super::text::of_machine;
use crate::built::Built;
use crate::plan::{self, Sizes};
use crate::results::Results;
use crate::rows::Session;

/// Returns the blocks of text in the order in which the document shows them.
pub fn blocks(form: &str, entries: &[Entry], results: &Results) -> Vec<String> {
    let mut blocks = vec![form_of(form, entries)];
    if let Some(limits) = results.limits.get(form) {
        blocks.push(of_machine(limits).trim_end().to_owned());
        let built: Vec<String> = limits.built.iter().map(Built::text).collect();
        if !built.is_empty() {
            blocks.push(built.join("\n"));
        }
    }
    let rows = memory(entries);
    if !rows.is_empty() {
        let head = ["session", "entities", "cache", "write buffers", "memory limit"];
        blocks.push(table(&head.map(str::to_owned), rows));
    }
    blocks
}

fn form_of(form: &str, entries: &[Entry]) -> String {
    let cells = entries.iter().flat_map(|entry| &entry.cells);
    let most = cells.map(|cell| cell.repetitions).max().unwrap_or(0);
    let less = entries.iter().any(|entry| entry.cells.iter().any(|cell| cell.repetitions < most));
    let at_most = if less { "at most " } else { "" };
    let repetitions = if most == 1 { "repetition" } else { "repetitions" };
    format!("The {form} form, {at_most}{most} {repetitions}.")
}

/// Returns a line for each session and size that was measured, in the order of the table.
fn memory(entries: &[Entry]) -> Vec<Vec<String>> {
    let mut seen = BTreeSet::new();
    let sessions = entries.iter().map(|entry| (entry.row.session, entry.entities));
    let sessions = sessions.filter(|session| seen.insert(*session));
    // A session under a memory limit reads a database that another process loaded. Lists this load,
    // too.
    let with_loads = sessions.flat_map(|(session, entities)| {
        let load = (session == Session::Cold).then_some((Session::ColdLoad, entities));
        load.into_iter().chain([(session, entities)])
    });
    with_loads.map(|(session, entities)| line(session, entities)).collect()
}

fn line(session: Session, entities: u64) -> Vec<String> {
    let Sizes { cache_bytes, write_buffer_bytes, limit_bytes } = plan::sizes(session, entities);
    vec![
        session.text().to_owned(),
        count(entities as f64),
        bytes(cache_bytes as f64),
        bytes(write_buffer_bytes as f64),
        limit_bytes.map_or("none".to_owned(), |limit| bytes(limit as f64)),
    ]
}
