"""Queries: filters of every type, selections, pages over several thousand entities."""

from datetime import datetime, timezone
from uuid import UUID

import pytest
from azure.data.tables import EdmType, EntityProperty

from conftest import refused, unique

PARTITIONS = ["a", "b", "c"]
ROWS = 1100
WHEN = datetime(2024, 5, 1, 10, 0, 0, 123456, tzinfo=timezone.utc)
GUID = UUID("0f8fad5b-d9cb-469f-a165-70867728950e")


@pytest.fixture(scope="module")
def many(service):
    """3,300 entities in three partitions."""
    table = service.create_table(unique())
    for partition in PARTITIONS:
        for start in range(0, ROWS, 100):
            table.submit_transaction(
                (
                    "create",
                    {"PartitionKey": partition, "RowKey": f"{n:05}", "N": n, "Even": n % 2 == 0},
                )
                for n in range(start, start + 100)
            )
    yield table
    table.delete_table()


@pytest.fixture(scope="module")
def few(service):
    """A table with one entity for each type of the property V, and one without V."""
    table = service.create_table(unique())
    values = {
        "string": "it's",
        "int32": 5,
        "int64": EntityProperty(5, EdmType.INT64),
        "large": EntityProperty(2**40, EdmType.INT64),
        "double": 2.5,
        "boolean": True,
        "time": WHEN,
        "guid": GUID,
        "binary": b"\x00\xff",
    }
    for row, value in values.items():
        table.create_entity({"PartitionKey": "types", "RowKey": row, "V": value})
    table.create_entity({"PartitionKey": "types", "RowKey": "without"})
    yield table
    table.delete_table()


def rows(table, query, **options):
    return [entity["RowKey"] for entity in table.query_entities(query, **options)]


KEYS_OF_MANY = [(partition, f"{n:05}") for partition in PARTITIONS for n in range(ROWS)]


def keys(entities):
    return [(entity["PartitionKey"], entity["RowKey"]) for entity in entities]


def test_a_listing_has_every_entity_once_in_order(many):
    assert keys(many.list_entities()) == KEYS_OF_MANY


def test_a_page_holds_at_most_a_thousand(many):
    pages = [list(page) for page in many.list_entities().by_page()]
    assert len(pages[0]) == 1000 and len(pages) >= 4
    assert all(len(page) <= 1000 for page in pages)
    assert keys(entity for page in pages for entity in page) == KEYS_OF_MANY


@pytest.mark.parametrize("size", [1, 7, 999, 1000])
def test_pages_of_a_size(many, size):
    query = many.query_entities("PartitionKey eq 'b'", results_per_page=size)
    found = []
    for page in query.by_page():
        page = list(page)
        assert len(page) <= size
        found += page
        if size == 1 and len(found) == 50:
            break
    expected = [key for key in KEYS_OF_MANY if key[0] == "b"]
    assert keys(found) == (expected[:50] if size == 1 else expected)


def test_a_page_of_none_and_pages_that_are_too_large(many):
    pages = many.list_entities(results_per_page=0).by_page()
    assert list(next(pages)) == [] and pages.continuation_token is None
    with refused(400, "InvalidInput"):
        list(many.list_entities(results_per_page=1001))


def test_a_listing_is_resumed_by_its_token(many, account):
    pages = many.query_entities("Even eq true", results_per_page=100).by_page()
    first = list(next(pages))
    token = pages.continuation_token
    assert set(token) == {"PartitionKey", "RowKey"}
    other = account.table(many.table_name)
    rest = other.query_entities("Even eq true", results_per_page=1000).by_page(
        continuation_token=token
    )
    found = keys(first) + keys(entity for page in rest for entity in page)
    assert found == [key for key in KEYS_OF_MANY if int(key[1]) % 2 == 0]


def test_a_token_is_a_position_not_a_snapshot(table):
    for row in "abcdef":
        table.create_entity({"PartitionKey": "p", "RowKey": row})
    pages = table.list_entities(results_per_page=2).by_page()
    assert keys(next(pages)) == [("p", "a"), ("p", "b")]
    for row in "acd":
        table.delete_entity("p", row)
    table.create_entity({"PartitionKey": "p", "RowKey": "ee"})
    table.create_entity({"PartitionKey": "p", "RowKey": "aa"})
    assert [key[1] for page in pages for key in keys(page)] == ["e", "ee", "f"]


def test_a_malformed_token(many):
    token = {"PartitionKey": "garbage", "RowKey": "!!"}
    with refused(400, "InvalidInput"):
        list(many.list_entities().by_page(continuation_token=token))


def test_ranges_of_keys(many):
    query = "PartitionKey eq 'b' and RowKey ge '00010' and RowKey lt '00013'"
    assert rows(many, query) == ["00010", "00011", "00012"]
    assert rows(many, "PartitionKey gt 'b' and RowKey le '00001'") == ["00000", "00001"]
    assert rows(many, "PartitionKey eq 'a' and RowKey eq '00042'") == ["00042"]
    assert rows(many, "PartitionKey eq 'a' and RowKey eq 'none'") == []
    assert keys(many.query_entities("RowKey eq '00500'")) == [(p, "00500") for p in PARTITIONS]
    either = (
        "(PartitionKey eq 'a' and RowKey eq '00001') or (PartitionKey eq 'c' and RowKey eq '00002')"
    )
    assert keys(many.query_entities(either)) == [("a", "00001"), ("c", "00002")]
    assert len(rows(many, "PartitionKey ne 'a'")) == 2 * ROWS


def test_a_filter_that_matches_nothing_among_many(many):
    assert rows(many, "N eq 123456") == []
    assert rows(many, "Unknown eq 1") == []


def test_parameters(many):
    query = "PartitionKey eq @partition and N ge @least and N lt @most and Even eq @even"
    parameters = {"partition": "c", "least": 100, "most": 106, "even": False}
    assert rows(many, query, parameters=parameters) == ["00101", "00103", "00105"]


@pytest.mark.parametrize(
    "row, value",
    [
        ("string", "it's"),
        ("large", 2**40),
        ("double", 2.5),
        ("boolean", True),
        ("time", WHEN),
        ("guid", GUID),
        ("binary", b"\x00\xff"),
    ],
)
def test_a_parameter_of_each_type(few, row, value):
    assert rows(few, "V eq @value", parameters={"value": value}) == [row]


@pytest.mark.parametrize(
    "query, found",
    [
        ("V eq 'it''s'", ["string"]),
        ("V eq 5", ["int32", "int64"]),
        ("V eq 5L", ["int64"]),
        ("V eq 2.5", ["double"]),
        ("V eq 2.5D", ["double"]),
        ("V eq 25.0E-1", ["double"]),
        ("V eq true", ["boolean"]),
        ("V", ["boolean"]),
        ("V eq datetime'2024-05-01T10:00:00.123456Z'", ["time"]),
        ("V eq datetime'2024-05-01T12:00:00.123456+02:00'", ["time"]),
        ("V eq guid'0F8FAD5B-D9CB-469F-A165-70867728950E'", ["guid"]),
        ("V eq X'00ff'", ["binary"]),
        ("V eq binary'00FF'", ["binary"]),
    ],
)
def test_literals_of_each_type(few, query, found):
    assert rows(few, query) == found
    assert len(rows(few, f"not ({query})")) == 10 - len(found)


@pytest.mark.parametrize(
    "query, found",
    [
        ("V gt 4", ["int32", "int64", "large"]),
        ("V ge 5L", ["int64", "large"]),
        ("V gt 5L", ["large"]),
        ("V gt 2.4", ["double"]),
        ("V gt datetime'2024-05-01T10:00:00Z'", ["time"]),
        ("V gt 'it'", ["string"]),
        ("V ge X'00'", ["binary"]),
        ("V gt false", ["boolean"]),
    ],
)
def test_greater_than_a_literal_is_only_its_own_type(few, query, found):
    assert rows(few, query) == found


@pytest.mark.parametrize("operator", ["ne", "lt", "le"])
def test_another_type_is_less_than_any_literal(few, operator):
    found = rows(few, f"V {operator} guid'00000000-0000-0000-0000-000000000001'")
    others = ["binary", "boolean", "double", "int32", "int64", "large", "string", "time"]
    assert found == sorted(others + ["guid"] if operator == "ne" else others)


def test_an_absent_property_is_not_even_unequal(few):
    assert "without" not in rows(few, "V ne 'other'")
    assert "without" in rows(few, "not (V eq 'other')")
    assert rows(few, "not (V ne 'other')") == ["without"]
    assert rows(few, "Nowhere ne 1") == []
    assert len(rows(few, "not (Nowhere eq 1)")) == 10


@pytest.mark.parametrize(
    "query, found",
    [
        ("5 lt N and PartitionKey eq 'a' and 8 ge N", ["00006", "00007", "00008"]),
        ("PartitionKey eq 'a' and (N eq 1 or N eq 2)", ["00001", "00002"]),
        ("PartitionKey eq 'a' and N eq 1 or PartitionKey eq 'a' and N eq 2", ["00001", "00002"]),
        ("(PartitionKey eq 'a')and(N le 1)", ["00000", "00001"]),
        ("PartitionKey eq 'a' and not (N gt 2)", ["00000", "00001", "00002"]),
        ("PartitionKey eq 'a' and not Even and N lt 4", ["00001", "00003"]),
        ("PartitionKey eq 'a' and Even and N lt 3", ["00000", "00002"]),
        (
            "PartitionKey eq 'a' and N lt 1 and Timestamp gt datetime'2020-01-01T00:00:00Z'",
            ["00000"],
        ),
        ("PartitionKey eq 'a' and Timestamp lt datetime'2020-01-01T00:00:00Z'", []),
    ],
)
def test_operators_and_precedence(many, query, found):
    assert rows(many, query) == found


def test_fifty_comparisons(many):
    query = " or ".join(f"(PartitionKey eq 'a' and RowKey eq '{n:05}')" for n in range(0, 500, 10))
    assert rows(many, query) == [f"{n:05}" for n in range(0, 500, 10)]


@pytest.mark.parametrize(
    "query, status, code",
    [
        ("N eq", 400, "InvalidInput"),
        ("N eq 'open", 400, "InvalidInput"),
        ("(N eq 1", 400, "InvalidInput"),
        ("N === 1", 400, "InvalidInput"),
        ("1", 400, "InvalidInput"),
        ("N eq 3000000000", 400, "InvalidInput"),
        ("N eq null", 400, "InvalidInput"),
        ("N lt null", 400, "InvalidInput"),
        ("startswith(RowKey, '0')", 501, "NotImplemented"),
        ("substringof('0', RowKey)", 501, "NotImplemented"),
        ("N add 1 eq 2", 501, "NotImplemented"),
        ("N eq N", 501, "NotImplemented"),
    ],
)
def test_filters_that_are_refused(many, query, status, code):
    with refused(status, code):
        rows(many, query)


def test_an_empty_filter_and_an_empty_selection_are_none(few):
    assert len(list(few.query_entities(""))) == 10
    assert len(list(few.list_entities(select=""))) == 10


def test_selections(many):
    query = "PartitionKey eq 'a' and RowKey lt '00002'"
    assert [dict(e) for e in many.query_entities(query, select=["N"])] == [{"N": 0}, {"N": 1}]
    found = many.query_entities(query, select="RowKey,Even")
    assert [dict(e) for e in found] == [
        {"RowKey": "00000", "Even": True},
        {"RowKey": "00001", "Even": False},
    ]
    pages = many.query_entities("Even eq true", select=["N"], results_per_page=500).by_page()
    numbers = [entity["N"] for page in pages for entity in page]
    assert numbers == 3 * list(range(0, ROWS, 2))


def test_a_selection_keeps_types(few):
    [entity] = few.query_entities("RowKey eq 'large'", select=["V"])
    assert dict(entity) == {"V": EntityProperty(2**40, EdmType.INT64)}


def test_quotes_and_signs_in_parameters(table):
    values = ["it's", "a+b", "100%", "a&b=c", "#?/\\", "grüße 😀", "''", "@x", " and "]
    for number, value in enumerate(values):
        table.create_entity({"PartitionKey": "p", "RowKey": str(number), "V": value})
    for number, value in enumerate(values):
        assert rows(table, "V eq @v", parameters={"v": value}) == [str(number)]
