#!/usr/bin/env python3
"""Reads the rows of a rowstone database, written from FORMAT.md and in its order.

    reader.py DATABASE

prints every row as a line of JSON: table, PartitionKey, RowKey, Seq, and each property's name, type
and value. A DateTime is in ticks, a Binary and a Guid are in hexadecimal digits.
Nothing on disk changes. Needs the package zstandard.
"""
import json, struct, sys, zlib
from pathlib import Path
import zstandard

SEQ_MAX = 2650467743999999999

class Damage(Exception): pass
class Unsupported(Exception): pass

def need(holds, problem, error=Damage):
    if not holds:
        raise error(problem)

def crc(*parts):
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value

class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0
    def take(self, length):
        need(length <= len(self.data) - self.at, f'{length} bytes wanted at {self.at}')
        self.at += length
        return self.data[self.at - length:self.at]
    def uint(self, length):
        return int.from_bytes(self.take(length), 'little')
    def varint(self):
        value = 0
        for shift in range(0, 70, 7):
            byte = self.uint(1)
            value |= (byte & 0x7f) << shift
            if byte < 0x80:
                need(value < 1 << 64, 'varint of more than 64 bits')
                return value
        raise Damage('varint of more than ten bytes')
    def bytes(self):
        return self.take(self.varint())
    def rest(self):
        return self.take(len(self.data) - self.at)
    def more(self):
        return self.at < len(self.data)
    def end(self):
        need(not self.more(), f'bytes behind {self.at}')

def fields(data, known):
    """Yields the tagged fields that fill `data`, in the order in which they are written."""
    cursor = Cursor(data)
    while cursor.more():
        head, content = cursor.varint(), cursor.bytes()
        need(head >> 1 in known or not head & 1, f'field {head >> 1}', Unsupported)
        if head >> 1 in known:
            yield head >> 1, Cursor(content)

def span(cursor):
    """Returns the low and the high bound of a span; a high bound of None means no end."""
    low = cursor.bytes()
    high = cursor.bytes() if cursor.more() else None
    cursor.end()
    need(high is None or low < high, 'empty span')
    return low, high

def inside(key, bounds):
    return bounds[0] <= key and (bounds[1] is None or key < bounds[1])

OPEN, GROUP, CATALOG, PROMISE, CLOSE, EDIT = range(1, 7)

class RecordFile:
    def __init__(self, path, kind, number, ident):
        need(path.exists(), f'{path.name} is missing')
        self.name, self.number, self.id, self.data = path.name, number, ident, path.read_bytes()
        head = self.data[:64]
        need(len(head) == 64 and head[:8] == b'rowslog\0', f'{path.name}: no header')
        version, check, found, found_id, code, codec, _, key, features = struct.unpack_from(
            '<IIQQBBHIQ', head, 8)
        need(check == crc(head[:12], head[16:]), f'{path.name}: header')
        need((version, codec, key, features) == (1, 0, 0, 0), path.name, Unsupported)
        need((found, code, found_id) == (number, kind, ident), f'{path.name}: another file')
        self.at = 64
    def header(self, at):
        """Length, kind, flags, Seq, durable offset, payload checksum of a valid header at `at`."""
        raw = self.data[at:at + 48]
        if len(raw) < 48: return None
        check, payload_check, length, kind, flags, reserved, ident, seq, file, offset = (
            struct.unpack('<IIIBBHQQQQ', raw))
        sound = (check == crc(struct.pack('<Q', at), raw[4:]) and flags < 2 and reserved == 0
                 and ident == self.id and (file, offset) <= (self.number, at)
                 and length <= 16 << 20)
        return (length, kind, flags, seq, (file, offset), payload_check) if sound else None
    def records(self, end=None):
        """Offset, kind, Seq and payload of each record up to X; then `self.at` is X."""
        self.at, limit = 64, len(self.data) if end is None else min(end, len(self.data))
        while header := self.header(self.at):
            length, kind, flags, seq, _, payload_check = header
            start, after = self.at + 48, self.at + 48 + (length + 7) // 8 * 8
            if after > limit or crc(self.data[start:after]) != payload_check: return
            offset, self.at = self.at, after
            need(OPEN <= kind <= EDIT or not flags, f'{self.name}: kind {kind}', Unsupported)
            if OPEN <= kind <= EDIT:
                yield offset, kind, seq, self.data[start:start + length]
    def reaches(self, length, end=None):
        need(len(self.data) >= min(length, end or length), f'{self.name} was {length} bytes long')
    def promised(self, at):
        """Returns the highest durable offset in the valid headers from `at` on."""
        places = range(at, len(self.data) - 47, 8)
        return max((h[4] for h in map(self.header, places) if h), default=(0, 0))

class Version:
    """The result of applying the edits of a manifest."""
    def __init__(self):
        self.identity, self.flushed, self.close = None, 0, (0, 0)
        self.logs, self.files, self.ranges, self.references = {}, {}, {}, {}
        self.dropped, self.hidden, self.lengths = {}, [], {}
    def apply(self, data):
        order = (1, 5, 11, 9, 8, 6, 10, 7, 4, 3, 12, 13, 15, 19, 14, 18, 16, 28)
        edit = [field for field in fields(data, range(1, 29)) if field[0] in order]
        for tag, c in sorted(edit, key=lambda field: order.index(field[0])):
            if tag == 1:
                need(self.identity is None, 'a second identity')
                self.identity = {tag: c.rest() for tag, c in fields(c.rest(), range(1, 7))}
                need(4 not in self.identity, 'a feature that readers need', Unsupported)
            elif tag == 5:
                self.flushed = c.varint()
            elif tag in (4, 7, 9, 11, 13):
                what = {4: self.logs, 7: self.files, 9: self.ranges, 11: self.references,
                        13: self.dropped}[tag]
                key = (c.varint(), c.varint()) if tag == 11 else c.varint()
                need(key in what, f'{key} leaves and is not there')
                del what[key]
            elif tag == 8:
                number = c.varint()
                self.ranges[number] = c.varint(), span(c)
            elif tag == 6:
                entry = dict(fields(c.rest(), range(1, 14)))
                number = entry.pop(1).varint()
                self.files[number] = {tag: c.rest() for tag, c in entry.items()}
            elif tag == 10:
                key, _, clip = (c.varint(), c.varint()), c.uint(1), span(c)
                need(key[0] in self.ranges and key[1] in self.files, 'a reference to nothing')
                self.references[key] = self.ranges[key[0]][1] if clip == (b'', None) else clip
            elif tag in (3, 12, 28):
                number, what = c.varint(), {3: self.logs, 12: self.dropped, 28: self.lengths}[tag]
                what[number] = c.uint(8) if tag == 3 else c.varint()
            elif tag == 16:
                self.close, self.lengths = (c.varint(), c.varint()), {}
            else:
                since = c.varint()
                hides = since, c.varint() if tag > 15 else since, span(c)
                (self.hidden.append if tag in (14, 18) else self.hidden.remove)(hides)
        need(self.identity, 'no identity')
        if self.close[0] not in self.logs:
            self.close = 0, 0

FIXED = {3: '<?', 4: '<i', 5: '<q', 6: '<d', 7: '<Q', 8: '16s'}

def shape(cursor):
    """Types and names; 1 is String and 2 Binary, which have no fixed width."""
    found = [(cursor.uint(1), cursor.bytes()) for _ in range(cursor.varint())]
    need(all(1 <= kind <= 8 for kind, _ in found), 'type')
    need(all(a[1] < b[1] for a, b in zip(found, found[1:])), 'order of names')
    return [(kind, name.decode()) for kind, name in found]

def row(data, shapes):
    """Name, type and value of each property of a row."""
    cursor = Cursor(data)
    number = cursor.varint()
    need(not number or number - 1 in shapes, f'no shape {number - 1}')
    properties = shapes[number - 1] if number else shape(cursor)
    values, texts = {}, [(kind, name) for kind, name in properties if kind <= 2]
    for kind, name in properties:
        if kind > 2:
            values[name], = struct.unpack(FIXED[kind], cursor.take(struct.calcsize(FIXED[kind])))
    width = cursor.uint(1) if texts else 0
    ends = [0] + [cursor.uint(width) for _ in texts]
    need(ends == sorted(ends), 'ends descend')
    for (kind, name), start, end in zip(texts, ends, ends[1:]):
        value = cursor.take(end - start)
        values[name] = value.decode() if kind == 1 else value
    cursor.end()
    return [(name, kind, values[name]) for kind, name in properties]

def block_entries(data):
    """User key, Seq, kind and row of each entry of a block of rows."""
    cursor = Cursor(data)
    count, width, seq_width, prefix_len, flags, suffix_len, seq = struct.unpack(
        '<HBBHBBQ', cursor.take(16))
    offsets = [cursor.uint(width) for _ in range(count)] + [len(data)]
    prefix = cursor.take(prefix_len)
    for start, end in zip(offsets, offsets[1:]):
        need(cursor.at == start, 'a gap between entries')
        length = suffix_len if flags & 2 else cursor.varint()
        kind = 1 if flags & 1 else cursor.uint(1)
        need(kind in (1, 2), f'entry kind {kind}')
        difference, suffix = cursor.uint(seq_width), cursor.take(length)
        yield prefix + suffix, seq + difference, kind, cursor.take(end - cursor.at)

def column_entries(data, length):
    """As block_entries, for a block by columns that would have `length` bytes by rows."""
    cursor = Cursor(data)
    count, width, seq_width, prefix_len, flags, suffix_len, seq = struct.unpack(
        '<HBBHBBQ', cursor.take(16))
    def numbers(size):
        columns = [cursor.take(count) for _ in range(size)]
        return [int.from_bytes(bytes(c[i] for c in columns), 'little') for i in range(count)]
    widths = dict((cursor.uint(1), cursor.uint(2)) for _ in range(cursor.uint(1)))
    prefix = cursor.take(prefix_len)
    lengths = [suffix_len] * count if flags & 2 else numbers(2)
    kinds = [1] * count if flags & 1 else list(cursor.take(count))
    differences, row_lengths = numbers(seq_width), numbers(width)
    columns = cursor.take(sum(lengths) if flags & 2 else 0)
    suffixes = [columns[i::count] if flags & 2 else cursor.take(n) for i, n in enumerate(lengths)]
    rows = [bytearray(cursor.take(min(n, 1))) for n in row_lengths]
    for head, places in sorted(widths.items()):
        ours = [(found, n) for found, n in zip(rows, row_lengths) if found[:1] == bytes([head])]
        for place in range(1, places):
            for found in (found for found, n in ours if n > place):
                found += cursor.take(1)
    for found, n in zip(rows, row_lengths):
        found += cursor.take(n - len(found))
    cursor.end()
    varints = 0 if flags & 2 else sum(1 + (n > 127) + (n > 16383) for n in lengths)
    each = count * (width + seq_width + (not flags & 1)) + varints
    need(length == 16 + prefix_len + each + sum(lengths) + sum(row_lengths), 'raw length')
    return [(prefix + suffix, seq + difference, kind, bytes(found))
            for suffix, difference, kind, found in zip(suffixes, differences, kinds, rows)]

class Sst:
    def __init__(self, path, meta):
        need(path.exists(), f'{path.name} is missing')
        self.name, self.data = path.name, path.read_bytes()
        self.id, size = int.from_bytes(meta[2], 'little'), len(self.data)
        need(size == Cursor(meta[3]).varint() and size >= 72, f'{path.name}: length')
        magic, version, features, ident, check = struct.unpack_from('<8sIIQI', self.data)
        need((magic, check) == (b'rwsn.sst', crc(self.data[:24], self.data[28:32])), path.name)
        length, tail_check, tail_id, tail_size, *tail = struct.unpack('<IIQQII8s', self.data[-40:])
        directory = self.data[max(0, size - 40 - length):-40]
        check = crc(directory, struct.pack('<QQQII', length, tail_id, tail_size, *tail[:2]))
        need((tail[2], tail_check) == (b'rwsn.sst', check), f'{path.name}: tail')
        need([version, features] == tail[:2] == [1, 0], path.name, Unsupported)
        need((ident, tail_id, tail_size, directory) == (self.id, self.id, size, meta[12]),
             f'{path.name} is another file')
        cursor, self.sections = Cursor(directory), {}
        for _ in range(cursor.varint()):
            kind, flags = cursor.varint(), cursor.uint(1)
            need(1 <= kind <= 10 or not flags & 1, f'{path.name}: section {kind}', Unsupported)
            start, length, check = cursor.varint(), cursor.varint(), cursor.uint(4)
            self.sections[kind] = start, start + length
            need(check == crc(self.data[start:start + length]), f'{path.name}: section {kind}')
        shapes = Cursor(self.block(2, 0, *self.sections[2])[0])
        self.shapes = {i: shape(Cursor(shapes.bytes())) for i in range(shapes.varint())}
        handles = Cursor(self.block(4, 0, *self.sections[5])[0])
        blocks, _, _, self.slot_bits = (handles.uint(4) for _ in range(4))
        self.offsets = [handles.uint(8) for _ in range(blocks + 1)]
    def block(self, kind, number, start, end):
        """Returns the decompressed contents of a block, its codec, and its raw length."""
        block, where = self.data[start:end], f'{self.name}: block at {start}'
        head, rest = block[:24], block[24:]
        found, codec, flags, dictionary, key, raw, stored, check = struct.unpack('<BBHIIIII', head)
        need(check == crc(struct.pack('<QI', self.id, number), head[:20], rest), where)
        need(found == kind, where)
        codecs, known = (3, 3) if kind == 1 else (2, 1)
        need(codec < codecs and flags <= known and not dictionary and not key, where, Unsupported)
        contents, padding = rest[:stored], rest[stored:]
        need(stored <= len(rest) and not any(padding) and bool(padding) == flags & 1, where)
        need(raw <= 4 << 20 if codec else raw == stored, where)
        if codec:
            room = raw + (4481 if codec == 2 else 0)
            contents = zstandard.ZstdDecompressor().decompress(contents, max_output_size=room)
            need(codec == 2 or len(contents) == raw, where)
        return contents, codec, raw
    def blocks(self):
        """Yields a list of the entries of each block of rows."""
        for number, (start, end) in enumerate(zip(self.offsets, self.offsets[1:])):
            contents, codec, raw = self.block(1, number, start, end)
            yield list(column_entries(contents, raw) if codec == 2 else block_entries(contents))

class Database:
    def __init__(self, path):
        self.path, self.version = Path(path), Version()
        current = (self.path / 'CURRENT').read_bytes()
        need(len(current) == 40 and current[:8] == b'rowscur\0', 'CURRENT')
        version, check, number, ident, synced = struct.unpack_from('<IIQQQ', current, 8)
        need(check == crc(current[:12], current[16:]), 'CURRENT: checksum')
        need(version == 1, 'CURRENT: version', Unsupported)
        manifest = RecordFile(self.path / f'MANIFEST-{number:06}', 2, number, ident)
        for offset, kind, seq, payload in manifest.records():
            need(kind == EDIT and seq == 0, f'{manifest.name}: record at {offset}')
            self.version.apply(payload)
        manifest.reaches(self.version.lengths.get(number, 0))
        self.manifest_end = number, manifest.at
        kinds = ('sst', self.version.files), ('wal', self.version.logs)
        there = all((self.path / f'{n:06}.{kind}').exists() for kind, named in kinds for n in named)
        need(manifest.at >= synced and manifest.promised(manifest.at) <= self.manifest_end
             and (there or not any(manifest.data[manifest.at:])),
             f'{manifest.name}: the record at {manifest.at} was durable')
        self.entries, self.hidden, self.dropped = {}, self.version.hidden, self.version.dropped
        for number, meta in self.version.files.items():
            table = Sst(self.path / f'{number:06}.sst', meta)
            clips = [clip for (_, file), clip in self.version.references.items() if file == number]
            for block in table.blocks():
                for key, seq, kind, data in block:
                    if any(inside(key, clip) for clip in clips):
                        self.add(key, seq, row(data, table.shapes) if kind == 1 else None)
        self.replay()
    def add(self, key, seq, values):
        """Keeps the entry if it is the newest of its user key; for a delete, `values` is None."""
        if seq >= self.entries.get(key, (0, None))[0]: self.entries[key] = seq, values
    def opened(self, log):
        """The predecessor in a log's first record, [] if it has none; None without a record."""
        for _, kind, _, payload in log.records():
            need(kind == OPEN, f'{log.name}: the first record is no open')
            found = dict(fields(payload, (1, 2)))
            self.require(found[1])
            return [found[2].varint(), found[2].uint(8), found[2].varint()] if 2 in found else []
        return None
    def sound_logs(self):
        """Yields every WAL of the directory with a valid first record, even if no edit names it."""
        for path in self.path.glob('*.wal'):
            ident = int.from_bytes(path.read_bytes()[24:32], 'little')
            try:
                log = RecordFile(path, 1, int(path.stem), ident)
                if next(log.records())[1] == OPEN: yield log
            except (Damage, Unsupported, StopIteration): pass
    def require(self, position):
        need((position.varint(), position.varint()) <= self.manifest_end, 'the manifest was cut')
    def replay(self):
        logs = [RecordFile(self.path / f'{number:06}.wal', 1, number, ident)
                for number, ident in self.version.logs.items()]
        for log in self.sound_logs():
            self.opened(log)
        opens, previous = [self.opened(log) for log in logs] + [None], 0
        for i, log in enumerate(logs):
            after, shapes, closed = opens[i + 1], {}, False
            length = self.version.lengths.get(log.number, 0)
            end = after[2] if after and after[:2] == [log.number, log.id] else None
            for offset, kind, seq, payload in log.records(end):
                need(kind != EDIT and (kind == OPEN) == (offset == 64) and not closed
                     and seq <= SEQ_MAX, f'{log.name}: record at {offset}')
                closed = kind == CLOSE
                for tag, c in fields(payload, (4, 9)) if kind == PROMISE else ():
                    length = max(length, c.varint() if tag == 9 else 0)
                if closed: self.require(dict(fields(payload, (1, 3)))[1])
                if kind in (GROUP, CATALOG):
                    counts = seq > self.version.flushed
                    need(not counts or seq > previous, f'{log.name}: order of Seqs at {offset}')
                    self.group(Cursor(payload), seq, shapes, counts)
                    previous = max(previous, seq)
            log.reaches(0 if closed else length, end)
            if log.at != end:
                for later in logs[i + 1:]: later.reaches(self.version.lengths.get(later.number, 0))
                vouched = [later.promised(64) for later in logs[i + 1:]]
                vouched = max(log.promised(log.at), self.version.close, *vouched)
                need(vouched <= (log.number, log.at), f'{log.name}: {log.at} was durable')
                return
    def group(self, c, seq, shapes, counts):
        for _ in range(c.varint()):
            number = c.varint()
            shapes[number] = shape(Cursor(c.bytes()))
        prefix = c.bytes()
        for _ in range(c.varint()):
            kind, key = c.uint(1), prefix + c.bytes()
            need(kind in (1, 2) and len(key) > 4 and 0 in key[4:], 'entry of a group')
            values = row(c.bytes(), shapes) if kind == 1 else None
            if counts: self.add(key, seq, values)
        for tag, change in fields(c.rest(), (5, 6, 7, 8)):
            if counts and tag == 6: self.dropped[change.varint()] = seq
            elif counts and tag > 6:
                below = change.varint() if tag == 8 else seq
                self.hidden.append((seq, below, span(change)))
    def rows(self, table):
        """Yields PartitionKey, RowKey, Seq and properties of the rows of a table, in order."""
        for key in sorted(key for key in self.entries if key[:4] == struct.pack('>I', table)):
            seq, values = self.entries[key]
            hidden = any(seq < below and inside(key, bounds) for _, below, bounds in self.hidden)
            if values is not None and not hidden and table not in self.dropped:
                texts = key[4:].replace(b'\xf5', b'\xee').replace(b'\xf6', b'\xef')
                partition, _, row_key = texts.partition(b'\0')
                yield partition.decode(), row_key.decode(), seq, values
    def tables(self):
        for partition, _, _, values in self.rows(0):
            if partition == 'table':
                found = {name: value for name, _, value in values}
                yield found['Name'], found['Id']

if __name__ == '__main__':
    database = Database(sys.argv[1])
    for name, number in database.tables():
        for found in database.rows(number):
            print(json.dumps([name, *found], ensure_ascii=False, default=bytes.hex))
