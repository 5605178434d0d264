//! Lived time, the clock by which rows expire. It advances with the wall clock, but does not follow
//! jumps of the wall clock of more than a day. It also records when the wall clock was wrong.
//! FORMAT.md §edit.
//!
//! Invariants
//! * there are at most [`ERAS_MAX`] eras, [`MARKS_MAX`] marks and [`MARKS_MAX`] doubts; marks and
//!   doubts ascend by `lived` and by `seq`;
//! * a clock that was never wrong is encoded as one number.
//!
//! `lsm::background::ttl` advances the clock.

use crate::codec::{Cursor, DecodeError, put_varint};
use crate::format::field::Content;
use crate::model::Seq;

/// The maximum number of eras (periods in which the wall clock did not jump) that are remembered.
pub(crate) const ERAS_MAX: usize = 8;
/// The maximum number of marks. Marks may be as far apart as one sixteenth of their age, so this
/// suffices for a TTL of a year together with a TTL of a minute.
pub(crate) const MARKS_MAX: usize = 256;

/// The expiry clock. Times are ticks since 1601.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LivedTime {
    /// Zero if no time was ever recorded.
    pub(crate) now: u64,
    /// Eras, the most recently used first. Empty if the wall clock always agreed with this clock.
    pub(crate) eras: Vec<Era>,
    pub(crate) marks: Vec<Mark>,
    /// A doubt means: a commit that existed at time `lived` and has a Seq above `seq` may have been
    /// made as late as `lived`, although its Seq looks older.
    pub(crate) doubts: Vec<Mark>,
    /// If set, it is unknown whether the wall clock has been right since the commit with this Seq.
    pub(crate) unsure: Option<Seq>,
}

/// A pair of readings of the wall clock and the lived clock, taken at the same moment. Both advance
/// together as long as the wall clock does not jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Era {
    pub(crate) wall: u64,
    pub(crate) lived: u64,
    /// Whether the wall clock matched this era at a later open.
    pub(crate) is_known: bool,
}

/// States that every commit up to `seq` existed at time `lived`. Seqs are derived from the wall
/// clock. Marks are needed for Seqs that were made while the wall clock was ahead of the expiry
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) lived: u64,
    pub(crate) seq: Seq,
}

impl From<u64> for LivedTime {
    /// Creates the clock at `now`, with a wall clock that was never found wrong.
    fn from(now: u64) -> Self {
        Self { now, ..Self::default() }
    }
}

impl LivedTime {
    /// Whether the wall clock was ever wrong, so that more than `now` must be encoded.
    pub(crate) fn was_wrong(&self) -> bool {
        let is_plain = self.eras.is_empty() && self.marks.is_empty() && self.doubts.is_empty();
        !is_plain || self.unsure.is_some()
    }
}

/// Encodes all members except `now`, which is encoded as a separate field.
impl Content for LivedTime {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.eras.len() as u64);
        for era in &self.eras {
            put_varint(out, era.wall);
            put_varint(out, era.lived);
            out.push(u8::from(era.is_known));
        }
        put_marks(out, &self.marks);
        put_marks(out, &self.doubts);
        // A Seq is stored plus one, and 0 means `None`.
        put_varint(out, self.unsure.map_or(0, |seq| seq.0 + 1));
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let mut time = Self::default();
        for _ in 0..cursor.count(ERAS_MAX)? {
            let (wall, lived) = (ticks(cursor, 0)?, ticks(cursor, 0)?);
            let is_known = match cursor.u8()? {
                0 => false,
                1 => true,
                other => return Err(cursor.error(format!("{other} is neither 0 nor 1"))),
            };
            time.eras.push(Era { wall, lived, is_known });
        }
        time.marks = marks(cursor)?;
        time.doubts = marks(cursor)?;
        time.unsure = ticks(cursor, 0)?.checked_sub(1).map(Seq);
        Ok(time)
    }
}

fn put_marks(out: &mut Vec<u8>, marks: &[Mark]) {
    put_varint(out, marks.len() as u64);
    let mut before = Mark { lived: 0, seq: Seq::ZERO };
    for mark in marks {
        put_varint(out, mark.lived - before.lived);
        put_varint(out, mark.seq.0 - before.seq.0);
        before = *mark;
    }
}

fn marks(cursor: &mut Cursor<'_>) -> Result<Vec<Mark>, DecodeError> {
    let mut marks = Vec::new();
    let mut before = Mark { lived: 0, seq: Seq::ZERO };
    for _ in 0..cursor.count(MARKS_MAX)? {
        let lived = ticks(cursor, before.lived)?;
        let seq = Seq(ticks(cursor, before.seq.0)?);
        if lived == before.lived || seq == before.seq {
            return Err(cursor.error("marks do not ascend"));
        }
        before = Mark { lived, seq };
        marks.push(before);
    }
    Ok(marks)
}

/// Reads a distance in ticks and adds it to `before`; the sum must be a valid Seq.
fn ticks(cursor: &mut Cursor<'_>, before: u64) -> Result<u64, DecodeError> {
    let ticks = before.checked_add(cursor.varint()?).filter(|ticks| *ticks <= Seq::MAX.0);
    ticks.ok_or_else(|| cursor.error("a time beyond the year 9999"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn wrong() -> LivedTime {
        LivedTime {
            now: 0,
            eras: vec![
                Era { wall: 900, lived: 400, is_known: true },
                Era { wall: 7, lived: 300, is_known: false },
            ],
            marks: vec![Mark { lived: 300, seq: Seq(800) }, Mark { lived: 310, seq: Seq(850) }],
            doubts: vec![Mark { lived: 350, seq: Seq(7) }],
            unsure: Some(Seq::ZERO),
        }
    }

    fn encoded(time: &LivedTime) -> Vec<u8> {
        let mut out = Vec::new();
        time.encode(&mut out);
        out
    }

    fn decoded(bytes: &[u8]) -> Result<LivedTime, DecodeError> {
        let mut cursor = Cursor::new("lived time", bytes);
        let time = LivedTime::decode(&mut cursor)?;
        cursor.finish().map(|()| time)
    }

    #[test]
    fn lived_times_round_trip() {
        for time in [LivedTime::default(), wrong()] {
            assert_eq!(decoded(&encoded(&time)), Ok(time));
        }
    }

    #[test]
    fn excessive_counts_and_times_are_errors_without_allocation() {
        let bytes = encoded(&wrong());
        for len in 0..bytes.len() {
            assert!(decoded(&bytes[..len]).is_err(), "{len}");
        }
        let many = |count: u64| {
            let mut out = Vec::new();
            put_varint(&mut out, count);
            out
        };
        assert!(decoded(&many(u64::MAX)).is_err());
        assert!(decoded(&[&many(0)[..], &many(1 << 40)].concat()).is_err());
        assert!(
            decoded(&[&many(0)[..], &many(1), &many(0), &many(0), &many(0), &many(0)].concat())
                .is_err()
        );
        assert!(
            decoded(&[&many(1)[..], &many(Seq::MAX.0 + 1), &many(0), &many(0)].concat()).is_err()
        );
    }
}
