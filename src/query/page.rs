//! Pages and the tokens between them.
//!
//! Invariants
//! * a token is a key, not a state: it stays valid for ever, whatever happens to the table in between.

use crate::error::Result;
use crate::model::Entity;
use crate::planted::planted;

use super::{Query, advance, token, too_many};

/// Entities in a page.
const PAGE_ENTITIES_MAX: usize = 1_000;
/// A page ends after the entity that brings it to this many bytes by the size formula.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// Where a page ended: the keys of the first entity not yet returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its PartitionKey.
    pub partition_key: String,
    /// Its RowKey.
    pub row_key: String,
}

/// Some entities, and where the next ones begin.
#[derive(Clone, Debug)]
pub struct Page {
    entities: Vec<Entity>,
    next: Option<Token>,
}

impl Page {
    /// The entities, in key order.
    pub fn entities(&self) -> &[Entity] {
        &self.entities
    }

    /// The entities, to keep.
    pub fn into_entities(self) -> Vec<Entity> {
        self.entities
    }

    /// Where the next page begins; `None` after the last.
    pub fn next(&self) -> Option<&Token> {
        self.next.as_ref()
    }
}

pub(super) fn read(query: Query, count: usize) -> Result<Page> {
    if count > PAGE_ENTITIES_MAX {
        return Err(too_many());
    }
    let count = count.min(query.top.unwrap_or(count));
    let mut page = Page { entities: Vec::new(), next: None };
    let mut scan = query.begin()?;
    if count == 0 {
        return Ok(page);
    }
    let mut projector = query.projector();
    let mut bytes = 0;
    while page.entities.len() < count && bytes < PAGE_BYTES_MAX {
        let Some(entity) = advance(&mut scan, &mut projector)? else { return Ok(page) };
        bytes += entity.size();
        page.entities.push(entity);
    }
    if scan.advance()? {
        if planted!("page-skips-a-row") && !scan.advance()? {
            return Ok(page);
        }
        page.next = Some(token(scan.row()?.key)?);
    }
    Ok(page)
}
