"""Keys with characters that are special in addresses, quotes and signatures; refused keys."""

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import ResourceNotFoundError

from conftest import refused

UNUSUAL = [
    "",
    " ",
    " both ends ",
    "O'Hara",
    "''",
    "'",
    '"double"',
    "100%",
    "%25",
    "%2F",
    "a+b",
    "a b",
    "a&b=c",
    "(x,y)",
    "RowKey='r')",
    "a,RowKey='b'",
    ";:@$!*~",
    "[]{}|^`<>",
    "...",
    "größe",
    "名前",
    "😀",
    "e\u0301",
    "\u00a0\u2028\ufeff",
    "x" * 512,
]


def ids(text):
    return f"{len(text)}-{text[:12].encode('unicode_escape').decode()}"


@pytest.mark.parametrize("place", ["PartitionKey", "RowKey", "both"])
@pytest.mark.parametrize("key", UNUSUAL, ids=ids)
def test_every_operation_with_an_unusual_key(table, key, place):
    keys = {"PartitionKey": "p", "RowKey": "r"}
    keys.update({name: key for name in keys if place in (name, "both")})
    names = tuple(keys.values())
    table.create_entity({**keys, "A": 1})
    assert dict(table.get_entity(*names)) == {**keys, "A": 1}
    etag = table.update_entity({**keys, "B": 2})["etag"]
    table.upsert_entity({**keys, "C": 3})
    assert dict(table.get_entity(*names, select=["A", "B", "C"])) == {"A": 1, "B": 2, "C": 3}
    with refused(412, "UpdateConditionNotSatisfied"):
        table.delete_entity(*names, etag=etag, match_condition=MatchConditions.IfNotModified)
    table.submit_transaction([("update", {**keys, "A": 4}, {"mode": "replace"})])
    query = "PartitionKey eq @p and RowKey eq @r"
    found = list(table.query_entities(query, parameters={"p": names[0], "r": names[1]}))
    assert [dict(entity) for entity in found] == [{**keys, "A": 4}]
    table.submit_transaction([("delete", keys)])
    assert list(table.list_entities()) == []
    table.upsert_entity(keys, "replace")
    table.delete_entity(*names)
    assert list(table.list_entities()) == []


def test_unusual_keys_in_one_listing_and_by_pages(table):
    for start in range(0, len(UNUSUAL), 100):
        group = [
            ("create", {"PartitionKey": "p", "RowKey": key}) for key in UNUSUAL[start : start + 100]
        ]
        table.submit_transaction(group)
    expected = sorted(UNUSUAL, key=lambda text: text.encode("utf-16-be"))
    assert [e["RowKey"] for e in table.list_entities()] == expected
    pages = table.list_entities(results_per_page=1).by_page()
    assert [e["RowKey"] for page in pages for e in page] == expected
    for key in UNUSUAL:
        table.upsert_entity({"PartitionKey": key, "RowKey": key})
    pages = table.query_entities("PartitionKey ne 'p'", results_per_page=2)
    assert [e["PartitionKey"] for page in pages.by_page() for e in page] == expected


def test_keys_are_ordered_by_code_unit(table):
    keys = ["", " ", "!", "10", "9", "A", "Z", "_", "a", "aa", "z", "é", "\u4e00", "😀", "\uff5e"]
    table.submit_transaction(
        [("create", {"PartitionKey": "p", "RowKey": key}) for key in reversed(keys)]
    )
    assert [entity["RowKey"] for entity in table.list_entities()] == keys
    assert [e["RowKey"] for e in table.query_entities("RowKey gt '😀'")] == ["\uff5e"]


FORBIDDEN = [
    "a/b",
    "a\\b",
    "a#b",
    "a?b",
    "a\tb",
    "a\nb",
    "a\x00b",
    "a\x1fb",
    "a\x7fb",
    "a\x80b",
    "a\x9fb",
]


@pytest.mark.parametrize("name", ["PartitionKey", "RowKey"])
@pytest.mark.parametrize("key", FORBIDDEN, ids=ids)
def test_an_insert_with_a_forbidden_character(table, key, name):
    keys = {"PartitionKey": "p", "RowKey": "r", name: key}
    with refused(400, "OutOfRangeInput") as caught:
        table.create_entity(keys)
    assert f"The '{name}' parameter of value" in caught.value.response.text()
    assert list(table.list_entities()) == []


@pytest.mark.parametrize(
    "key, code",
    [
        ("a/b", "InvalidInput"),
        ("a\\b", "InvalidInput"),
        ("a#b", "OutOfRangeInput"),
        ("a?b", "OutOfRangeInput"),
    ],
)
def test_forbidden_characters_in_an_address(table, key, code):
    with refused(404, "ResourceNotFound", ResourceNotFoundError):
        table.get_entity("p", key)
    for write in (table.update_entity, table.upsert_entity):
        with refused(400, code):
            write({"PartitionKey": "p", "RowKey": key})
    with refused(400, code):
        table.delete_entity("p", key)


def test_a_long_key_and_one_that_is_too_long(table):
    keys = {"PartitionKey": "p" * 1024, "RowKey": "é" * 1024}
    table.create_entity(keys)
    assert dict(table.get_entity(*keys.values())) == keys
    for name in keys:
        with refused(400, "PropertyValueTooLarge"):
            table.create_entity({"PartitionKey": "p", "RowKey": "r", name: "x" * 2048})
