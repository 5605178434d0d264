"""Entity groups: applied as a whole or not at all, and the operation that failed."""

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.data.tables import RequestTooLargeError, TableTransactionError, TransactionOperation

from conftest import ETAG, code_of, refused, unique

PK = "group"


def entity(row, **properties):
    return {"PartitionKey": PK, "RowKey": row, **properties}


def rows(table):
    return [found["RowKey"] for found in table.list_entities()]


def fails(table, operations, status, code, index):
    """Checks that the group is refused because of operation `index`, and changes nothing."""
    before = [dict(found) for found in table.list_entities()]
    with refused(status, code, TableTransactionError) as caught:
        table.submit_transaction(operations)
    assert caught.value.index == index
    assert caught.value.error_code == code
    assert [dict(found) for found in table.list_entities()] == before


class Disguised(dict):
    """An entity with two PartitionKeys: one that the client checks, and one that it sends."""

    def __getitem__(self, name):
        return PK if name == "PartitionKey" else super().__getitem__(name)


def test_a_hundred_operations(table, seen):
    results = table.submit_transaction(
        [("create", entity(f"{n:03}", N=n)) for n in range(100)], raw_response_hook=seen
    )
    assert seen.status == 202 and len(results) == 100
    listed = list(table.list_entities())
    assert [found["N"] for found in listed] == list(range(100))
    assert [found.metadata["etag"] for found in listed] == [result["etag"] for result in results]


def test_operations_of_each_kind(table):
    for row in ("merge", "replace", "upmerge", "upreplace", "delete"):
        table.create_entity(entity(row, A=1))
    results = table.submit_transaction(
        [
            (TransactionOperation.CREATE, entity("create", B=2)),
            (TransactionOperation.UPDATE, entity("merge", B=2)),
            ("update", entity("replace", B=2), {"mode": "replace"}),
            ("upsert", entity("upmerge", B=2), {"mode": "merge"}),
            ("upsert", entity("upreplace", B=2), {"mode": "replace"}),
            ("upsert", entity("upnew", B=2)),
            (TransactionOperation.DELETE, entity("delete")),
        ]
    )
    assert all(ETAG.match(result["etag"]) for result in results[:6]) and results[6] == {}
    found = {
        row["RowKey"]: {k: v for k, v in row.items() if k in "AB"} for row in table.list_entities()
    }
    assert found == {
        "create": {"B": 2},
        "merge": {"A": 1, "B": 2},
        "replace": {"B": 2},
        "upmerge": {"A": 1, "B": 2},
        "upnew": {"B": 2},
        "upreplace": {"B": 2},
    }


def test_inserts_with_and_without_echo(table):
    results = table.submit_transaction(
        [
            ("create", entity("loud", A=1), {"response_preference": "return-content"}),
            ("create", entity("silent", A=1), {"response_preference": "return-no-content"}),
        ]
    )
    assert [result["etag"] for result in results] == [
        found.metadata["etag"] for found in table.list_entities()
    ]


@pytest.mark.parametrize("index", [0, 1, 57, 99])
def test_an_insert_of_an_existing_entity(table, index):
    table.create_entity(entity(f"{index:03}"))
    operations = [("create", entity(f"{n:03}", N=n)) for n in range(100)]
    fails(table, operations, 409, "EntityAlreadyExists", index)


@pytest.mark.parametrize(
    "kind, options", [("update", {}), ("update", {"mode": "replace"}), ("delete", {})]
)
def test_a_write_to_a_missing_entity(table, kind, options):
    operations = [
        ("create", entity("a")),
        ("upsert", entity("b")),
        (kind, entity("missing"), options),
    ]
    fails(table, operations, 404, "ResourceNotFound", 2)


@pytest.mark.parametrize(
    "kind, options", [("update", {}), ("update", {"mode": "replace"}), ("delete", {})]
)
def test_an_etag_that_is_outdated(table, kind, options):
    old = table.create_entity(entity("a", A=1))["etag"]
    new = table.update_entity(entity("a", A=2))["etag"]
    options = {**options, "match_condition": MatchConditions.IfNotModified}
    group = lambda etag: [
        ("create", entity("b")),
        (kind, entity("a", A=3), {**options, "etag": etag}),
    ]
    fails(table, group(old), 412, "UpdateConditionNotSatisfied", 1)
    table.submit_transaction(group(new))
    assert "b" in rows(table)


def test_the_same_entity_twice(table):
    fails(table, [("create", entity("a")), ("upsert", entity("a"))], 400, "InvalidDuplicateRow", 1)
    table.create_entity(entity("a"))
    fails(
        table,
        [("create", entity("b")), ("update", entity("a")), ("delete", entity("a"))],
        400,
        "InvalidDuplicateRow",
        2,
    )


def test_several_partitions(table):
    with pytest.raises(ValueError, match="must all be the same"):
        table.submit_transaction(
            [("create", entity("a")), ("create", {**entity("b"), "PartitionKey": "x"})]
        )
    other = Disguised({**entity("b"), "PartitionKey": "other"})
    operations = [("create", entity("a")), ("create", other)]
    fails(table, operations, 400, "CommandsInBatchActOnDifferentPartitions", 1)


def test_a_hundred_and_one_operations(table):
    with refused(400, "InvalidInput"):
        table.submit_transaction([("create", entity(f"{n:03}")) for n in range(101)])
    assert rows(table) == []


def test_no_operation(table, seen):
    assert table.submit_transaction([], raw_response_hook=seen) == []
    assert seen.status == 400


def test_more_than_four_mebibytes(table):
    operations = [("create", entity(f"{n:03}", A="x" * 30000, B="x" * 15000)) for n in range(100)]
    with pytest.raises(RequestTooLargeError) as caught:
        table.submit_transaction(operations)
    assert caught.value.status_code == 413 and code_of(caught.value) == "RequestBodyTooLarge"
    assert rows(table) == []


def test_nearly_four_mebibytes(table):
    # The limit is on the size of the body. As UTF-16, the entities have nearly 8 MiB.
    operations = [("create", entity(f"{n:03}", A="x" * 30000, B="x" * 10000)) for n in range(100)]
    assert len(table.submit_transaction(operations)) == 100
    assert [len(found["A"] + found["B"]) for found in table.list_entities()] == [40000] * 100


@pytest.mark.parametrize(
    "properties, code",
    [
        ({"A": "x" * 32769}, "PropertyValueTooLarge"),
        ({"a-b": 1}, "PropertyNameInvalid"),
        ({"N" * 256: 1}, "PropertyNameTooLong"),
        ({f"P{n}": n for n in range(253)}, "TooManyProperties"),
    ],
)
def test_an_operation_that_breaks_a_limit(table, properties, code):
    operations = [("create", entity("a")), ("create", {**entity("b"), **properties})]
    fails(table, operations, 400, code, 1)


def test_a_table_that_is_missing(account):
    missing = account.table(unique())
    with refused(404, "TableNotFound") as caught:
        missing.submit_transaction([("create", entity("a")), ("create", entity("b"))])
    assert isinstance(caught.value, (TableTransactionError, ResourceNotFoundError))


def test_keys_are_needed_before_anything_is_sent(table):
    with pytest.raises(ValueError, match="were not provided"):
        table.submit_transaction([("create", {"PartitionKey": PK})])
    with pytest.raises(ValueError, match="Unrecognized operation"):
        table.submit_transaction([("insert", entity("a"))])


def test_many_groups_one_after_another(table):
    for group in range(20):
        table.submit_transaction(
            [("upsert", entity(f"{n:03}", G=group), {"mode": "replace"}) for n in range(50)]
        )
    assert {found["G"] for found in table.list_entities()} == {19}


def test_errors_of_a_group_are_errors_of_http(table):
    table.create_entity(entity("a"))
    with pytest.raises(HttpResponseError) as caught:
        table.submit_transaction([("create", entity("a")), ("create", entity("b"))])
    assert caught.value.status_code == 409 and caught.value.reason
    assert caught.value.message.startswith("0:The specified entity already exists.")
