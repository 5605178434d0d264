//! The statistics section of an SST. It suffices to rebuild the manifest's entry for the file.
//! FORMAT.md §stats.
//!
//! At run time the engine uses the manifest's copy of the statistics (`file_meta`).

use crate::codec::DecodeError;
use crate::format::Kind;
use crate::format::field::{put_content, put_field};
use crate::format::field_set::FieldSet;
use crate::model::Seq;

/// Statistics of the entries of an SST.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SstStats {
    pub(crate) entries: u64,
    /// The number of distinct user keys, which is also the number of entries in the hash index.
    pub(crate) keys: u64,
    pub(crate) tombstones: u64,
    /// Size of keys and rows in bytes, as encoded.
    pub(crate) raw_bytes: u64,
    pub(crate) seq_min: Seq,
    pub(crate) seq_max: Seq,
    pub(crate) key_min: Box<[u8]>,
    pub(crate) key_max: Box<[u8]>,
}

const STRUCTURE: &str = "statistics";

/// The field tags. A statistic that is also part of the manifest's file entry has the same tag
/// there.
mod tag {
    pub(super) const SEQ_MIN: u64 = 4;
    pub(super) const SEQ_MAX: u64 = 5;
    pub(super) const ENTRIES: u64 = 7;
    pub(super) const TOMBSTONES: u64 = 8;
    pub(super) const RAW_BYTES: u64 = 9;
    pub(super) const KEY_MIN: u64 = 10;
    pub(super) const KEY_MAX: u64 = 11;
    pub(super) const KEYS: u64 = 16;
}

impl SstStats {
    /// Counts an entry. The caller sets `keys` and `key_max`.
    #[inline]
    pub(crate) fn count(&mut self, key: &[u8], seq: Seq, kind: Kind, row_len: usize) {
        if self.entries == 0 {
            self.key_min = key.into();
            (self.seq_min, self.seq_max) = (seq, seq);
        }
        self.entries += 1;
        self.tombstones += u64::from(kind == Kind::Delete);
        self.raw_bytes += (key.len() + row_len) as u64;
        self.seq_min = self.seq_min.min(seq);
        self.seq_max = self.seq_max.max(seq);
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_content(out, tag::SEQ_MIN, &self.seq_min);
        put_content(out, tag::SEQ_MAX, &self.seq_max);
        put_content(out, tag::ENTRIES, &self.entries);
        put_content(out, tag::TOMBSTONES, &self.tombstones);
        put_content(out, tag::RAW_BYTES, &self.raw_bytes);
        put_field(out, tag::KEY_MIN, &self.key_min);
        put_field(out, tag::KEY_MAX, &self.key_max);
        put_content(out, tag::KEYS, &self.keys);
    }

    /// Reads the statistics that fill `bytes`; ignores fields of newer formats.
    pub(crate) fn decode(bytes: &[u8]) -> Result<SstStats, DecodeError> {
        let fields = FieldSet::<{ tag::KEYS as usize + 1 }>::decode(STRUCTURE, bytes)?;
        Ok(SstStats {
            entries: fields.get(tag::ENTRIES)?,
            keys: fields.get(tag::KEYS)?,
            tombstones: fields.get(tag::TOMBSTONES)?,
            raw_bytes: fields.get(tag::RAW_BYTES)?,
            seq_min: fields.get(tag::SEQ_MIN)?,
            seq_max: fields.get(tag::SEQ_MAX)?,
            key_min: fields.bytes(tag::KEY_MIN)?.into(),
            key_max: fields.bytes(tag::KEY_MAX)?.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_the_bytes_of_an_example() {
        let stats = SstStats {
            entries: 3,
            keys: 2,
            tombstones: 1,
            raw_bytes: 40,
            seq_min: Seq(100),
            seq_max: Seq(300),
            key_min: b"a"[..].into(),
            key_max: b"bc"[..].into(),
        };
        let mut out = Vec::new();
        stats.encode(&mut out);
        let expected = [
            9, 1, 100, 11, 2, 0xac, 2, 15, 1, 3, 17, 1, 1, 19, 1, 40, 21, 1, b'a', 23, 2, b'b',
            b'c', 33, 1, 2,
        ];
        assert_eq!(out, expected);
        assert_eq!(SstStats::decode(&out), Ok(stats));
        for len in 0..out.len() {
            assert!(SstStats::decode(&out[..len]).is_err());
        }
    }
}
