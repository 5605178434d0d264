"""The eight types, at their limits and beyond."""

import math
from datetime import datetime, timedelta, timezone
from enum import Enum
from uuid import UUID

import pytest
from azure.data.tables import EdmType, EntityProperty

from conftest import refused

KEYS = {"PartitionKey": "p", "RowKey": "r"}
UTC = timezone.utc
INT64 = EdmType.INT64


def stored(table, value):
    """Stores `value` and returns it as a point read does; a listing must return the same."""
    table.upsert_entity({**KEYS, "V": value}, "replace")
    found = table.get_entity("p", "r")["V"]
    [listed] = list(table.list_entities())
    assert repr(listed["V"]) == repr(found)
    return found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        " spaces ",
        'it\'s "quoted" \\ / <&>',
        "tab\tline\r\nfeed\x00\x01\x7f",
        "grüße 名前 😀 \u2028 \ufeff e\u0301",
        '{"json": [1]}',
        "2024-01-01T00:00:00Z",
        "123",
        "x" * 32768,
        "é" * 32768,
        "😀" * 16384,
    ],
    ids=lambda text: f"{len(text)}-{text[:8].encode('unicode_escape').decode()}",
)
def test_strings(table, text):
    assert stored(table, text) == text
    assert stored(table, EntityProperty(text, EdmType.STRING)) == text


@pytest.mark.parametrize("text", ["x" * 32769, "😀" * 16385], ids=["ascii", "pairs"])
def test_a_string_beyond_64_kibibytes_of_utf_16(table, text):
    with refused(400, "PropertyValueTooLarge"):
        table.create_entity({**KEYS, "V": text})


@pytest.mark.parametrize("flag", [True, False])
def test_booleans(table, flag):
    assert stored(table, flag) is flag
    assert stored(table, EntityProperty(flag, EdmType.BOOLEAN)) is flag


@pytest.mark.parametrize("number", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_int32(table, number):
    found = stored(table, number)
    assert found == number and type(found) is int
    assert stored(table, EntityProperty(number, EdmType.INT32)) == number


@pytest.mark.parametrize("number", [0, 1, -1, 2**31, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)])
def test_int64(table, number):
    found = stored(table, EntityProperty(number, INT64))
    assert found == EntityProperty(number, INT64)


@pytest.mark.parametrize(
    "number",
    [
        0.0,
        1.0,
        -5.0,
        0.1,
        1 / 3,
        -123456789.125,
        1e15,
        1e16,
        1e22,
        1e23,
        1.23456789012346e24,
        2.0**53,
        5e-324,
        2.2250738585072014e-308,
        1.7976931348623157e308,
        -1.7976931348623157e308,
        math.pi,
    ],
)
def test_doubles(table, number):
    found = stored(table, number)
    assert found == number and type(found) is float
    assert stored(table, EntityProperty(repr(number), EdmType.DOUBLE)) == number


def test_doubles_that_are_no_numbers(table):
    assert stored(table, math.inf) == math.inf
    assert stored(table, -math.inf) == -math.inf
    found = stored(table, math.nan)
    assert type(found) is float and math.isnan(found)


@pytest.mark.parametrize("text", ["1e400", "-1e400", "one", ""])
def test_a_malformed_double(table, text):
    with refused(400, "InvalidInput"):
        table.create_entity({**KEYS, "V": EntityProperty(text, EdmType.DOUBLE)})


@pytest.mark.parametrize(
    "when, text",
    [
        (datetime(1601, 1, 1, tzinfo=UTC), "1601-01-01T00:00:00Z"),
        (datetime(1970, 1, 1, tzinfo=UTC), "1970-01-01T00:00:00Z"),
        (datetime(2020, 10, 1, 0, 38, 38, 475060, tzinfo=UTC), "2020-10-01T00:38:38.47506Z"),
        (datetime(2024, 2, 29, 23, 59, 59, 1, tzinfo=UTC), "2024-02-29T23:59:59.000001Z"),
        (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "9999-12-31T23:59:59.999999Z"),
        (
            datetime(2024, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
            "2023-12-31T19:00:00Z",
        ),
    ],
)
def test_times(table, when, text):
    found = stored(table, when)
    assert found == when and found.tables_service_value == text


@pytest.mark.parametrize(
    "given, text",
    [
        ("2024-05-01T10:00:00.1234567Z", "2024-05-01T10:00:00.1234567Z"),
        ("2024-05-01T10:00:00.1000000Z", "2024-05-01T10:00:00.1Z"),
        ("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.9999999Z"),
        ("2024-05-01T10:00:00", "2024-05-01T10:00:00Z"),
        ("2024-05-01T10:00:00+02:00", "2024-05-01T08:00:00Z"),
        ("2024-05-01T10:00:00.5-03:30", "2024-05-01T13:30:00.5Z"),
    ],
)
def test_times_in_ticks_and_zones(table, given, text):
    found = stored(table, EntityProperty(given, EdmType.DATETIME))
    assert found.tables_service_value == text
    again = stored(table, found)
    assert again.tables_service_value == text


@pytest.mark.parametrize("given", ["1600-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
def test_times_out_of_range(table, given):
    with refused(400, "OutOfRangeInput"):
        table.create_entity({**KEYS, "V": EntityProperty(given, EdmType.DATETIME)})


@pytest.mark.parametrize("given", ["", "yesterday", "2024-13-01T00:00:00Z", "2023-02-29T00:00:00Z"])
def test_a_malformed_time(table, given):
    with refused(400, "InvalidInput"):
        table.create_entity({**KEYS, "V": EntityProperty(given, EdmType.DATETIME)})


@pytest.mark.parametrize("text", ["0f8fad5b-d9cb-469f-a165-70867728950e", "0" * 32, "F" * 32])
def test_guids(table, text):
    guid = UUID(text)
    assert stored(table, guid) == guid
    assert stored(table, EntityProperty(str(guid).upper(), EdmType.GUID)) == guid


@pytest.mark.parametrize("text", ["", "0f8fad5b", "0f8fad5b-d9cb-469f-a165-70867728950g"])
def test_a_malformed_guid(table, text):
    with refused(400, "InvalidInput"):
        table.create_entity({**KEYS, "V": EntityProperty(text, EdmType.GUID)})


@pytest.mark.parametrize(
    "data", [b"", b"\x00", bytes(range(256)), b"\xff" * 65536], ids=lambda data: str(len(data))
)
def test_binary(table, data):
    assert stored(table, data) == data
    assert stored(table, EntityProperty(data, EdmType.BINARY)) == data


def test_binary_beyond_64_kibibytes(table):
    with refused(400, "PropertyValueTooLarge"):
        table.create_entity({**KEYS, "V": b"\xff" * 65537})


def test_an_enumeration_is_its_name_and_none_is_absent(table):
    class Colour(Enum):
        RED = 1

    assert stored(table, Colour.RED) == "Colour.RED"
    table.upsert_entity({**KEYS, "V": None, "W": EntityProperty(None, INT64)}, "replace")
    assert dict(table.get_entity("p", "r")) == KEYS


def test_all_types_in_one_entity_survive_two_round_trips(table):
    entity = {
        **KEYS,
        "String": "text",
        "Boolean": True,
        "Int32": -7,
        "Int64": EntityProperty(2**40, INT64),
        "Double": 2.0,
        "DateTime": datetime(2024, 1, 31, 12, 30, tzinfo=UTC),
        "Guid": UUID("0f8fad5b-d9cb-469f-a165-70867728950e"),
        "Binary": b"\x01\x02\x03",
    }
    table.create_entity(entity)
    read = table.get_entity("p", "r")
    assert dict(read) == entity
    table.update_entity(read, "replace")
    assert dict(table.get_entity("p", "r")) == entity
    table.submit_transaction([("upsert", read, {"mode": "replace"})])
    [listed] = list(table.list_entities())
    assert dict(listed) == entity
    assert [type(value) for value in listed.values()] == [type(value) for value in read.values()]
