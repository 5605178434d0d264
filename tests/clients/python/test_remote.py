"""The entity that the library's `Remote` wrote, and one that `Remote` reads afterwards."""

import math
import os
from datetime import datetime, timezone
from uuid import UUID

import pytest
from azure.data.tables import EdmType, EntityProperty

ENTITY = {
    "RowKey": "it's 100% é😀",
    "String": "it's \"quoted\" \\ é😀\n",
    "Empty": "",
    "Boolean": True,
    "Int32": -(2**31),
    "Int64": EntityProperty(2**53 + 1, EdmType.INT64),
    "Whole": 2.0,
    "Double": 0.1,
    "Infinite": math.inf,
    "DateTime": datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=timezone.utc),
    "Guid": UUID("0f8fad5b-d9cb-469f-a165-70867728950e"),
    "Binary": b"\x00\xff\x80",
}


@pytest.mark.skipif(
    "ROWSTONE_REFEREES" not in os.environ, reason="tests/clients/run writes the entity first"
)
def test_an_entity_of_remote(service):
    table = service.get_table_client("Referee")
    found = table.get_entity("rust", ENTITY["RowKey"])
    expected = {"PartitionKey": "rust", **ENTITY}
    assert dict(found) == expected
    assert {name: type(found[name]) for name in ("Boolean", "Int32", "Whole", "String")} == {
        "Boolean": bool,
        "Int32": int,
        "Whole": float,
        "String": str,
    }
    assert found["DateTime"].tables_service_value == "2024-02-29T23:59:59.123456Z"
    [listed] = list(table.query_entities("PartitionKey eq 'rust'"))
    assert dict(listed) == expected
    table.create_entity({"PartitionKey": "python", **ENTITY})
