//! Counts the events of a simulation run.

use std::fmt;

use crate::named::named;

named! {
    /// An event that should occur in at least one run; its name documents it.
    #[expect(missing_docs, reason = "each event is documented by its name")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Event {
        Step "steps",
        Commit "commits",
        Refusal "refusals",
        Row "rows read",
        Ticket "tickets",
        BehindRead "reads beside unpublished commits",
        Snapshot "snapshots",
        Iterator "iterators",
        Query "queries with filters",
        QueryReverse "queries in reverse",
        PageResumed "pages resumed later",
        BlockSkipped "blocks skipped by zones",
        BlockUnread "blocks counted unread",
        GapPassed "gaps passed over",
        Flush "flushes",
        Compaction "compactions",
        RangeSplit "ranges divided",
        RangeMerge "ranges merged",
        FlushPaused "flushes in two halves",
        CompactionPaused "compactions in two halves",
        CompactionDeclined "compactions declined",
        Checkpoint "checkpoints",
        Backup "backups restored",
        Archived "archive steps",
        Displaced "directories displaced",
        Beside "readers beside",
        Fed "feeds replayed",
        Close "clean closes",
        Kill "kills",
        PowerCut "power cuts",
        LongReplay "replays beyond all memtables",
        EndInRecovery "ends during recovery",
        CommitLost "weak commits lost",
        Poisoned "ends of writing",
        DiskFull "refusals by a full disk",
        Eio "input/output errors",
        Enospc "no space",
        Eintr "interruptions",
        ShortWrite "writes cut short",
        ShortTransfer "short transfers",
        FailedOpen "openings that failed",
        Gate "gates closed",
        HeldBack "reads of closed spans refused",
        Moved "spans moved out and in",
        Throttled "requests beyond targets refused",
        Capped "refusals near the limit on disk use",
        Given "drops of the oldest near the limit on disk use",
        Rot "bits rotten at rest",
        RotMet "answers of corruption",
        DamageRefused "damaged copies refused",
        DamageHarmless "damaged copies read right",
        Healed "damaged copies healed",
        Repaired "damaged copies repaired",
        ClockBack "clock set back",
        Settled "settled",
        Verified "verified",
    }

    /// Returns the name in the output.
    pub fn name;
    pub const ALL;
}

/// A count of each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts([u64; Event::ALL.len()]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; Event::ALL.len()])
    }
}

impl Counts {
    /// Counts one event.
    pub fn note(&mut self, event: Event) {
        self.add(event, 1);
    }

    /// Counts `count` events.
    pub fn add(&mut self, event: Event, count: u64) {
        self.0[event as usize] += count;
    }

    /// Returns the number of occurrences.
    pub fn get(&self, event: Event) -> u64 {
        self.0[event as usize]
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Counts) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    /// Returns the events that never occurred.
    pub fn missing(&self) -> Vec<Event> {
        Event::ALL.into_iter().filter(|event| self.get(*event) == 0).collect()
    }
}

/// Prints one line per event.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Event::ALL.into_iter();
        lines.try_for_each(|event| writeln!(f, "{:>12}  {}", self.get(event), event.name()))
    }
}

#[test]
fn counts_add_up_and_name_missing_events() {
    let (mut one, mut other) = (Counts::default(), Counts::default());
    one.add(Event::Step, 3);
    other.note(Event::Step);
    one.merge(&other);
    assert_eq!(one.get(Event::Step), 4);
    assert_eq!(one.missing().len(), Event::ALL.len() - 1);
    assert!(one.to_string().starts_with("           4  steps\n"));
}
