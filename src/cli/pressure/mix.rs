//! The requests of a partition stress test: which kinds, in which shares, and how each is sent.

use clap::Args;

use crate::cli::failure::{Failure, Outcome};
use crate::error::Result;
use crate::model::Entity;
use crate::named::named;
use crate::query::{Filter, prop};
use crate::rng::Rng;
use crate::store::{Condition, PageQuery, TableStore};
use crate::table::EntityGroup;

named! {
    /// A kind of request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Kind {
        Get "GET",
        Query "query",
        Group "group",
        Delete "DELETE",
        Put "PUT",
    }

    pub(super) fn name;
    pub(super) const ALL;
}

/// The options of the mix.
#[derive(Args)]
pub(super) struct Mix {
    /// Percentage of requests that are reads of single entities; the rest are PUTs of single
    /// entities
    #[arg(long, value_name = "PERCENT", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(super) reads: u32,
    /// Percentage of requests that are queries of the partition from a random RowKey on
    #[arg(long, value_name = "PERCENT", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(super) queries: u32,
    /// Percentage of requests that are entity groups
    #[arg(long, value_name = "PERCENT", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(super) groups: u32,
    /// Percentage of requests that are deletes
    #[arg(long, value_name = "PERCENT", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(super) deletes: u32,
    /// Entities in a group, and entities that a query returns at most
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) per_request: u32,
    /// A filter of the application's queries, without keys; may be repeated. A finer key is
    /// preferred if the filters name its property
    #[arg(long = "filter", value_name = "FILTER")]
    pub(super) filters: Vec<Filter>,
}

/// The table of the test.
pub(super) const TABLE: &str = "StressTest";

impl Mix {
    /// Fails if the shares exceed 100 %.
    pub(super) fn check(&self) -> Outcome {
        match self.reads + self.queries + self.groups + self.deletes {
            0..=100 => Ok(()),
            sum => {
                let text = format!(
                    "--reads, --queries, --groups and --deletes are {sum} % together; \
                     --reads is 50 unless given"
                );
                Err(Failure::Usage(text))
            }
        }
    }

    pub(super) fn percent(&self, kind: Kind) -> u32 {
        let others = self.reads + self.queries + self.groups + self.deletes;
        match kind {
            Kind::Get => self.reads,
            Kind::Query => self.queries,
            Kind::Group => self.groups,
            Kind::Delete => self.deletes,
            Kind::Put => 100 - others.min(100),
        }
    }

    /// Returns whether requests of `kind` are printed: GETs and PUTs always, others if there are
    /// any.
    pub(super) fn shows(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Get | Kind::Put) || self.percent(kind) > 0
    }

    /// Chooses the kind of the next request.
    pub(super) fn next(&self, rng: &mut Rng) -> Kind {
        let mut at = rng.below(100) as u32;
        for kind in Kind::ALL {
            match at.checked_sub(self.percent(kind)) {
                Some(rest) => at = rest,
                None => return kind,
            }
        }
        Kind::Put
    }

    /// Returns the number of entities of a request that is refused.
    pub(super) fn entities(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Get | Kind::Delete | Kind::Put => 1,
            Kind::Query | Kind::Group => self.per_request.into(),
        }
    }

    /// Sends a request for some of `rows`, which have one PartitionKey. Returns the number of
    /// entities for which the service would charge it.
    pub(super) fn send(
        &self,
        kind: Kind,
        store: &dyn TableStore,
        rows: &[Entity],
        rng: &mut Rng,
    ) -> Result<u64> {
        let at = rng.below(rows.len() as u64) as usize;
        let Some(row) = rows.get(at) else { return Ok(1) };
        let (partition, row_key) = (row.partition_key(), row.row_key());
        match kind {
            Kind::Get => store.get(TABLE, partition, row_key, &[]).map(|_| 1),
            Kind::Put => store.upsert(TABLE, row).map(|_| 1),
            // Another request may have deleted it before.
            Kind::Delete => store.delete(TABLE, partition, row_key, &Condition::None).map(|()| 1),
            Kind::Group => {
                let from = at.min(rows.len().saturating_sub(self.per_request as usize));
                let mut group = EntityGroup::new(partition);
                for row in rows.iter().skip(from).take(self.per_request as usize) {
                    group.upsert(row.clone())?;
                }
                let entities = group.len() as u64;
                store.commit(TABLE, &group).map(|_| entities)
            }
            Kind::Query => {
                let keys = Filter::partition(partition).and(prop("RowKey").ge(row_key));
                let filter = match rng.below(self.filters.len().max(1) as u64) as usize {
                    i if i < self.filters.len() => keys.and(self.filters[i].clone()),
                    _ => keys,
                };
                let (filter, top) = (filter.to_string(), self.per_request as usize);
                let page = PageQuery { filter: &filter, top, ..PageQuery::default() };
                store.query(TABLE, &page).map(|page| page.entities.len().max(1) as u64)
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::db::Db;

    /// A mix of GETs and PUTs.
    pub(in super::super) fn plain(reads: u32) -> Mix {
        let (queries, groups, deletes) = (0, 0, 0);
        Mix { reads, queries, groups, deletes, per_request: 10, filters: Vec::new() }
    }

    #[test]
    fn kinds_have_their_shares_and_charge_their_entities() {
        let mix = Mix { queries: 20, groups: 10, deletes: 5, ..plain(40) };
        let mut rng = Rng::from_seed(1);
        let mut counts = [0u32; 5];
        (0..10_000).for_each(|_| counts[mix.next(&mut rng) as usize] += 1);
        for (kind, count) in Kind::ALL.into_iter().zip(counts) {
            let percent = mix.percent(kind);
            assert!((count / 100).abs_diff(percent) <= 2, "{kind:?}: {count} of {percent} %");
        }
        let db = Db::open_in_memory().unwrap();
        db.create_table(TABLE).unwrap();
        let row = |i| Entity::new("p", format!("{i:02}")).with("Even", i % 2 == 0);
        let rows: Vec<_> = (0..40).map(row).collect();
        let mut send = |kind| mix.send(kind, &db, &rows, &mut rng).unwrap();
        assert_eq!((send(Kind::Group), send(Kind::Put), send(Kind::Get)), (10, 1, 1));
        assert_eq!((send(Kind::Delete), send(Kind::Delete)), (1, 1));
        for _ in 0..40 {
            send(Kind::Group);
        }
        let found: Vec<_> = (0..20).map(|_| send(Kind::Query)).collect();
        assert!(found.iter().all(|rows| (1..=10).contains(rows)) && found.contains(&10));
        db.close().unwrap();
    }

    #[test]
    fn shares_above_100_percent_are_a_usage_error() {
        assert!(Mix { queries: 50, ..plain(50) }.check().is_ok());
        let refused = Mix { queries: 50, deletes: 1, ..plain(50) }.check();
        assert!(matches!(refused, Err(Failure::Usage(text)) if text.contains("101 %")));
    }
}
