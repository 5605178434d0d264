//! Checks a whole table file and lists all damage.
//!
//! Everything is read again, regardless of earlier checks. An error is returned only if the file
//! cannot be read at all, for instance because of a failing disk.

use super::Sst;
use super::readahead::Readahead;
use super::reader::{contents_at, hash_section, range, read_directory};
use super::zones::ZoneBuilder;
use crate::codec::{Checksum, DecodeError, hash};
use crate::error::{Corruption, ErrorKind, Result};
use crate::format::Kind;
use crate::format::block::{BlockKind, BlockPlace};
use crate::format::hash_index::{PAGE_BYTES, check_page};
use crate::format::key::{decode_part, decode_user_key};
use crate::format::row_block::RowBlock;
use crate::format::sparse_index::SparsePage;
use crate::format::sst::{HEADER_BYTES, check_header, section};
use crate::format::stats::SstStats;
use crate::format::zones::ZoneSet;
use crate::model::Seq;

/// The result of the verification of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct SstFacts {
    pub(crate) blocks: u64,
    pub(crate) hash_pages: u64,
    /// The statistics as counted from the entries, not as stored in the file.
    pub(crate) stats: SstStats,
    pub(crate) problems: Vec<Corruption>,
}

/// The maximum number of problems in the list. More would add no information.
const PROBLEMS_MAX: usize = 100;

struct Check<'a> {
    sst: &'a Sst,
    facts: SstFacts,
    last_key: Vec<u8>,
    last_seq: Seq,
    zones: ZoneBuilder,
    /// The zone pages computed from the entries so far.
    zone_pages: Vec<Vec<u8>>,
    /// True if a row was unreadable. Then zones cannot be compared with those computed from rows.
    rows_missing: bool,
    ahead: Readahead,
}

impl Sst {
    /// Checks everything in the file. Calls `progress` with the number of bytes of each block read.
    ///
    /// 1. Sections: each against its checksum in the directory; only zeros between them.
    /// 2. Blocks: checksum, layout, keys, rows against their shapes, order within and across
    ///    blocks, separators.
    /// 3. Hash index: page checksums, lines, and one entry per key. The entry must lead to the
    ///    newest version of its key; if entries have no locations, the sparse index must.
    /// 4. Statistics, bounds and Seqs: against the counted values and the manifest.
    /// 5. Zones: against those computed from the entries.
    ///
    /// # Errors
    /// Only problems other than damage: a failing disk, or a newer format.
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<SstFacts> {
        let facts = SstFacts::default();
        let (last_key, last_seq) = (Vec::new(), Seq::MAX);
        let (zones, zone_pages) = (ZoneBuilder::default(), Vec::new());
        let (rows_missing, ahead) = (false, Readahead::new(self.handles.rows(), true));
        let mut check =
            Check { sst: self, facts, last_key, last_seq, zones, zone_pages, rows_missing, ahead };
        check.ends()?;
        check.sections()?;
        for index in 0..self.handles.len() {
            check.block(index, progress)?;
        }
        check.sparse_index()?;
        check.hash_index(progress)?;
        check.statistics()?;
        check.zones()?;
        Ok(check.facts)
    }

    /// Compares the statistics in the file with the file's entry in the manifest or backup
    /// generation. Length, id and directory were already compared when the file was opened.
    ///
    /// # Errors
    /// `Corruption` if they differ, and any error from reading the statistics.
    pub(crate) fn verify_entry(&self) -> Result<()> {
        let (meta, Some(facts)) = (&self.meta, self.statistics()?) else { return Ok(()) };
        let same = (facts.entries, facts.tombstones, facts.raw_bytes)
            == (meta.entries, meta.tombstones, meta.raw_bytes)
            && (facts.seq_min, facts.seq_max) == (meta.seq_min, meta.seq_max)
            && (&facts.key_min, &facts.key_max) == (&meta.key_min, &meta.key_max);
        if same {
            return Ok(());
        }
        let at = meta.section(section::STATISTICS).map_or(0, |section| section.offset);
        let problem = "not what the manifest or generation says about the file";
        Err(self.source.corrupt(at, "statistics", problem))
    }

    /// Returns the statistics stored in the file, if it has that section.
    fn statistics(&self) -> Result<Option<SstStats>> {
        let Some(section) = self.meta.section(section::STATISTICS) else { return Ok(None) };
        let at = range(section);
        let bytes = self.source.single(BlockKind::Stats, at.clone())?;
        let decoded = SstStats::decode(&bytes);
        decoded.map(Some).map_err(|error| self.source.decode(contents_at(&at), error))
    }
}

impl Check<'_> {
    fn ends(&mut self) -> Result<()> {
        let source = &self.sst.source;
        let header = source.read(0..HEADER_BYTES as u64).and_then(|header| {
            check_header(source.id, &header).map_err(|error| source.unreadable(0, error))
        });
        self.record_damage(header)?;
        let directory = read_directory(source, self.sst.meta.bytes);
        let Some((sections, at)) = self.record_damage(directory)? else { return Ok(()) };
        if sections != self.sst.meta.sections {
            self.problem(at, "sst footer", "the directory differs from the one in the manifest");
        }
        Ok(())
    }

    /// Checks the sections against their checksums, and the gaps between them.
    fn sections(&mut self) -> Result<()> {
        const STEP: u64 = 1 << 20;
        let mut end = HEADER_BYTES as u64;
        for section in &self.sst.meta.sections {
            let gap = self.sst.source.read(end..section.offset);
            if let Some(gap) = self.record_damage(gap)?
                && gap.iter().any(|byte| *byte != 0)
            {
                self.problem(end, "sst", "bytes between the sections that are not zero");
            }
            end = section.offset + section.len;
            let mut sum = Checksum::new();
            let mut at = section.offset;
            while at < end {
                self.sst.source.ask(at..end.min(at + STEP));
                let part = self.sst.source.read(at..end.min(at + STEP));
                let Some(part) = self.record_damage(part)? else { break };
                sum = sum.bytes(&part);
                at += STEP;
            }
            let sum = sum.finish();
            if sum != section.checksum {
                let (kind, stored) = (section.kind, section.checksum);
                let problem = format!("section {kind}: checksum {sum:08x}, stored {stored:08x}");
                self.problem(section.offset, "section", problem);
            }
        }
        Ok(())
    }

    fn block(&mut self, index: usize, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let whole = self.entries(index, progress)?;
        self.rows_missing |= !whole;
        if whole {
            self.zones.finish_block();
        }
        Ok(())
    }

    /// Checks the entries of a block. Returns true if all of them were readable.
    fn entries(&mut self, index: usize, progress: &mut dyn FnMut(u64)) -> Result<bool> {
        let range = self.sst.block_range(index)?;
        if let Some(wanted) = self.ahead.visit(&range) {
            self.sst.source.ask_ahead(wanted);
        }
        let contents = self
            .sst
            .source
            .unpack(BlockPlace::new(BlockKind::Rows, self.sst.source.id, index), range.clone());
        progress(range.end - range.start);
        self.facts.blocks += 1;
        let Some(contents) = self.record_damage(contents)? else { return Ok(false) };
        let checked = RowBlock::parse(&contents).and_then(|block| block.check().map(|()| block));
        let checked = checked.map_err(|error| self.sst.bad_block(index, error));
        let Some(block) = self.record_damage(checked)? else { return Ok(false) };
        for slot in 0..block.len() {
            let checked = self.entry(&block, index, slot);
            if self.record_damage(checked)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn entry(&mut self, block: &RowBlock<'_>, index: usize, slot: usize) -> Result<()> {
        let sst = self.sst;
        let bad = |error| sst.bad_block(index, error);
        let entry = block.entry(slot).map_err(bad)?;
        let key = [block.prefix(), entry.suffix].concat();
        let wrong = |problem| Err(bad(DecodeError::new("row block", 0, problem)));
        let (_, partition_key, row_key) = decode_user_key(&key).map_err(bad)?;
        decode_part(partition_key).and(decode_part(row_key)).map_err(bad)?;
        let first = self.facts.stats.entries == 0;
        let newest = first || key != self.last_key;
        if !first && (key < self.last_key || !newest && entry.seq >= self.last_seq) {
            return wrong("entries out of order between blocks");
        }
        if slot == 0 && self.zones.begin_block(newest) {
            self.zone_pages.push(self.zones.take_page());
        }
        if entry.kind == Kind::Put {
            let row = sst.row(index, entry.row)?;
            row.check().map_err(bad)?;
            self.zones.add(newest, entry.seq, entry.kind, Some(&row));
        } else if !entry.row.is_empty() {
            return wrong("a tombstone has a row");
        } else {
            self.zones.add(newest, entry.seq, entry.kind, None);
        }
        if slot == 0 || newest {
            self.reachable(&key, newest, index, slot)?;
        }
        self.facts.stats.count(&key, entry.seq, entry.kind, entry.row.len());
        self.facts.stats.keys += u64::from(newest);
        (self.last_key, self.last_seq) = (key, entry.seq);
        Ok(())
    }

    /// Checks that look-ups through the hash index and the sparse index find this entry.
    fn reachable(&mut self, key: &[u8], newest: bool, index: usize, slot: usize) -> Result<()> {
        let sst = self.sst;
        // Without locations in the hash index, every look-up uses the sparse index.
        if newest && (slot == 0 || !sst.hash.has_locations()) {
            let found = sst.block_of(key, false)?;
            // The look-up of a key that equals the separator before its block begins in the
            // previous block, and continues in the key's own block.
            if found != index && (slot > 0 || found + 1 != index) {
                let problem = format!("key {slot} of block {index} leads to block {found}");
                let at = self.section_at(section::SPARSE_INDEX);
                return Err(sst.source.corrupt(at, "sparse index page", problem));
            }
        }
        if newest && !self.has_location(hash(sst.seed, key), index, slot)? {
            let problem = format!("no entry for slot {slot} of block {index}");
            let at = hash_section(&sst.source, &sst.meta)?.offset;
            return Err(sst.source.corrupt(at, "hash index", problem));
        }
        Ok(())
    }

    fn has_location(&self, hash: u64, index: usize, slot: usize) -> Result<bool> {
        let sst = self.sst;
        let mut number = sst.hash.home(hash);
        for _ in 0..sst.hash.lines() {
            let place = sst.hash.place(number);
            let page = sst.hash_page(place.page)?;
            let at = hash_section(&sst.source, &sst.meta)?.offset;
            let line = sst.hash.line(&page, place);
            let at = at + (place.page * PAGE_BYTES) as u64;
            let line = line.map_err(|error| sst.source.decode(at, error))?;
            let mut matches = line.matches(hash);
            if matches != 0 && !sst.hash.has_locations() {
                return Ok(true);
            }
            while matches != 0 {
                let location = line.location(matches.trailing_zeros());
                if sst.handles.split.unpack(location) == (index, slot) {
                    return Ok(true);
                }
                matches &= matches - 1;
            }
            if !line.goes_on(hash) {
                break;
            }
            number = sst.hash.next(number);
        }
        Ok(false)
    }

    fn section_at(&self, kind: u16) -> u64 {
        self.sst.meta.section(kind).map_or(0, |section| section.offset)
    }

    fn sparse_index(&mut self) -> Result<()> {
        let handles = &self.sst.handles;
        for number in 0..=handles.page_count() {
            let root = number == handles.page_count();
            let range = handles.page(number).unwrap_or_default();
            let first = number * handles.fanout;
            let expected = match root {
                true => handles.page_count(),
                false => handles.fanout.min(handles.len() - first),
            };
            let place = BlockPlace::new(BlockKind::Sparse, self.sst.source.id, number);
            let page = self.sst.source.unpack(place, range.clone()).and_then(|page| {
                let bad = |error| self.sst.source.decode(contents_at(&range), error);
                let page = SparsePage::parse(&page).map_err(bad)?;
                page.check().map_err(bad)?;
                if page.len() != expected {
                    let problem = format!("{} separators, {expected} expected", page.len());
                    return Err(bad(DecodeError::new("sparse index page", 0, problem)));
                }
                Ok(())
            });
            self.record_damage(page)?;
        }
        Ok(())
    }

    fn hash_index(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let source = &self.sst.source;
        let section = hash_section(source, &self.sst.meta)?;
        let (mut entries, mut whole) = (0, true);
        for (number, at) in (0u32..).zip(range(section).step_by(PAGE_BYTES)) {
            let page = source.read(at..at + PAGE_BYTES as u64).and_then(|page| {
                let checked = check_page(source.id, number, &page);
                let checked = checked.and_then(|()| self.sst.hash.check_lines(&page));
                checked.map(|()| page).map_err(|error| source.decode(at, error))
            });
            progress(PAGE_BYTES as u64);
            self.facts.hash_pages += 1;
            match self.record_damage(page)? {
                None => whole = false,
                Some(page) => {
                    let lines = self.sst.hash.lines_of(&page);
                    entries += lines.map(|line| line.len() as u64).sum::<u64>();
                }
            }
        }
        let keys = self.facts.stats.keys;
        if whole && entries != keys && self.facts.problems.is_empty() {
            let problem = format!("{entries} entries for {keys} keys");
            self.problem(section.offset, "hash index", problem);
        }
        Ok(())
    }

    fn statistics(&mut self) -> Result<()> {
        self.facts.stats.key_max = self.last_key.as_slice().into();
        let stored = self.sst.statistics();
        let Some(Some(stored)) = self.record_damage(stored)? else { return Ok(()) };
        if self.facts.problems.is_empty() && stored != self.facts.stats {
            let at = self.section_at(section::STATISTICS);
            self.problem(at, "statistics", "not what was counted");
        }
        let entry = self.sst.verify_entry();
        self.record_damage(entry).map(drop)
    }

    /// Compares each zone page and the summary with those computed from the entries. If a row was
    /// unreadable, checks only their layout.
    fn zones(&mut self) -> Result<()> {
        let comparable = !self.rows_missing;
        if !self.zones.is_empty() {
            self.zone_pages.push(self.zones.take_page());
        }
        let summary = self.sst.read_zones();
        let Some(Some(zones)) = self.record_damage(summary)? else { return Ok(()) };
        let expected = std::mem::take(&mut self.zone_pages);
        for (number, pair) in zones.summary.pages.windows(2).enumerate() {
            let range = pair[0]..pair[1];
            let page = self.sst.source.unpack(
                BlockPlace::new(BlockKind::Zones, self.sst.source.id, number),
                range.clone(),
            );
            let page = page.and_then(|page| {
                let checked = ZoneSet::parse(&page).and_then(|set| set.check());
                let checked = checked.map(|()| page);
                checked.map_err(|error| self.sst.source.decode(contents_at(&range), error))
            });
            let Some(page) = self.record_damage(page)? else { continue };
            if comparable && expected.get(number).is_none_or(|expected| page != expected) {
                self.problem(range.start, "zones", "not what the rows of the blocks make");
            }
        }
        let mut expected = Vec::new();
        self.zones.summary(&mut expected);
        if comparable && zones.contents.get(zones.summary.set_at..) != Some(&*expected) {
            let at = self.section_at(section::ZONE_SUMMARY);
            self.problem(at, "zone summary", "not what the rows of the file make");
        }
        Ok(())
    }

    /// Records damage. Returns any other error, which ends the verification.
    fn record_damage<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        let error = match result {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };
        match error.corruption() {
            Some(corruption) if error.kind() == ErrorKind::Corruption => {
                self.add(corruption.clone());
                Ok(None)
            }
            _ => Err(error),
        }
    }

    fn problem(
        &mut self,
        offset: u64,
        structure: &'static str,
        problem: impl Into<std::borrow::Cow<'static, str>>,
    ) {
        let file = self.sst.source.path.clone();
        let problem = Corruption { file, offset, structure, problem: problem.into(), keys: None };
        self.add(problem);
    }

    fn add(&mut self, problem: Corruption) {
        if self.facts.problems.len() < PROBLEMS_MAX {
            self.facts.problems.push(problem);
        }
    }
}
