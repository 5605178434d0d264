#!/usr/bin/env python3
"""Compares the rows that reader.py finds with those that the program exports.

    check.py DATABASE PROGRAM COPY

PROGRAM opens COPY, a copy of the database, because opening writes to it. The script also looks up
each key in the hash index of its file. Needs the packages zstandard and xxhash.
"""
import base64, json, math, struct, subprocess, sys, uuid
from datetime import datetime, timedelta

import xxhash

from reader import Database, Sst, need


def check_index(table, seed):
    """Finds each user key, and the location of its newest version, by the hash index."""
    form = next(kind for kind in (3, 9, 10) if kind in table.sections)
    start, end = table.sections[form]
    lines = (end - start) // 4096 * 63
    bits = table.slot_bits + max(0, len(table.offsets) - 2).bit_length()
    previous = None
    for block, found in enumerate(table.blocks()):
        for slot, (key, *_) in enumerate(found):
            if key != previous:
                h, location = xxhash.xxh3_64_intdigest(key, seed), block << table.slot_bits | slot
                home = h * lines >> 64
                for number in (*range(home, lines), *range(home)):
                    at = start + number // 63 * 4096 + 64 + number % 63 * 64
                    found_here, goes_on = look(table.data[at:at + 64], form, bits, h)
                    if location in found_here or form == 10 and found_here:
                        break
                    need(goes_on, f'{table.name}: the hash index lacks a key')
            previous = key


def look(line, form, bits, h):
    """Returns the locations with the tag of `h`, and whether `h` may be in a later line."""
    if form == 3:
        tags, locations = struct.unpack('<10H', line[:20]), struct.unpack('<10I', line[24:])
        places = [place for tag, place in zip(tags[:line[20]], locations) if tag == h & 0xffff]
        return places, struct.unpack('<H', line[22:24])[0] >> (h & 15) & 1
    end = struct.unpack('<I', line[60:])[0]
    goes_on = end >> 5 + ((h >> 32 & 0xffff) * 27 >> 16) & 1
    if form == 10:
        tags = struct.unpack('<30H', line[:60])[:end & 31]
        return [tag for tag in tags if tag == h & 0xffff], goes_on
    words = struct.unpack('<15I', line[:60])[:end & 31]
    return [w & (1 << bits) - 1 for w in words if w >> bits == (h & 0xffffffff) >> bits], goes_on


def time(ticks):
    seconds, rest = divmod(ticks, 10 ** 7)
    text = (datetime(1601, 1, 1) + timedelta(seconds=seconds)).isoformat()
    return text + (f'.{rest:07}'.rstrip('0') if rest else '') + 'Z'


def as_json(partition, row_key, seq, values):
    """Returns a row as `rowstone export` writes it."""
    out = {'PartitionKey': partition, 'RowKey': row_key, 'Timestamp': time(seq)}
    for name, kind, value in values:
        edm = {2: 'Binary', 5: 'Int64', 7: 'DateTime', 8: 'Guid'}.get(kind)
        if kind == 6 and not math.isfinite(value):
            edm, value = 'Double', {math.inf: 'Infinity', -math.inf: '-Infinity'}.get(value, 'NaN')
        if edm:
            out[f'{name}@odata.type'] = f'Edm.{edm}'
        out[name] = {2: lambda: base64.b64encode(value).decode(), 3: lambda: value == 1,
                     5: lambda: str(value), 7: lambda: time(value),
                     8: lambda: str(uuid.UUID(bytes=value))}.get(kind, lambda: value)()
    return out


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()


def main(path, program, copy):
    database, rows = Database(path), 0
    seed = int.from_bytes(database.version.identity[3], 'little')
    for number, meta in database.version.files.items():
        check_index(Sst(database.path / f'{number:06}.sst', meta), seed)
    tables = dict(database.tables())
    listed = json.loads(output(program, 'tables', copy, '--format', 'json'))
    need(sorted(tables) == sorted(table['TableName'] for table in listed), 'the tables differ')
    for name, number in tables.items():
        found = [as_json(*row) for row in database.rows(number)]
        expected = [json.loads(line) for line in output(program, 'export', copy, name).splitlines()]
        need(len(found) == len(expected), f'{name}: {len(found)} rows, {len(expected)} exported')
        for ours, theirs in zip(found, expected):
            need(ours == theirs, f'{name}: {ours}, exported as {theirs}')
        rows += len(found)
    print(f'{path}: {rows} rows of {len(tables)} tables, as the program exports them')


if __name__ == '__main__':
    main(*sys.argv[1:])
