//! The options of the device, the sync and the service in a run. The seed chooses them.

use super::super::strict::Strict;
use crate::rng::Rng;

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choices {
    pub(super) reader: Reader,
    /// Whether the sync drops the tables at the target that the device drops.
    pub(super) allow_drop: bool,
    /// Whether rows are imported into the device.
    pub(super) imports: bool,
    /// Whether the device drops rows near a limit on disk use. Then rows are large.
    pub(super) is_full: bool,
    /// Whether rows of one table expire at the device.
    pub(super) has_ttl: bool,
    pub(super) stamps: Stamps,
    /// Whether every comparison deletes the rows that only the target has.
    pub(super) delete_missing: bool,
    /// Whether the comparison after a restore or a repair does.
    pub(super) mirrors: bool,
    /// The additional limits of the service.
    pub(super) strict: Strict,
}

/// The way in which a sync reads the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Writer,
    Follower,
    /// A client of a server in the writer's process.
    Client,
}

/// The stamps of carried rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamps {
    None,
    Kept,
    /// Rows whose stamp says that the device has let them go are deleted.
    Expire,
}

impl Choices {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let allow_drop = rng.chance(1, 2);
        let imports = rng.chance(1, 4);
        let is_full = rng.chance(1, 6);
        let strict = Strict::new(rng, if is_full { 400_000 } else { 500 });
        let is_remote = rng.chance(1, 5);
        let local = *rng.pick(&[Reader::Writer, Reader::Follower]);
        let reader = if is_remote { Reader::Client } else { local };
        let keeps_all = !is_full && rng.chance(1, 4);
        // Not permitted if the source lets rows go. A server does not tell whether it does.
        let may_delete = keeps_all && reader != Reader::Client;
        Self {
            reader,
            allow_drop,
            imports,
            is_full,
            has_ttl: !is_full && !keeps_all,
            stamps: *rng.pick(&[Stamps::None, Stamps::None, Stamps::Kept, Stamps::Expire]),
            delete_missing: may_delete && rng.chance(1, 2),
            mirrors: may_delete && rng.chance(1, 2),
            strict,
        }
    }
}
