"""The asynchronous client, which builds and signs its addresses differently."""

import asyncio
import inspect
from functools import wraps

import pytest
from azure.core import MatchConditions
from azure.core.credentials import AzureSasCredential
from azure.data.tables import (
    AccountSasPermissions,
    ResourceTypes,
    TableTransactionError,
    generate_account_sas,
)
from azure.data.tables.aio import TableServiceClient

from conftest import OPTIONS, refused, unique
from test_keys import UNUSUAL, ids
from test_sas import later


def with_table(body):
    """Runs a test within one loop, with a client of the service and its own table."""

    async def run(account, *arguments):
        async with TableServiceClient(
            account.endpoint, credential=account.credential, **OPTIONS
        ) as service:
            table = await service.create_table(unique())
            try:
                await body(service, table, *arguments)
            finally:
                await service.delete_table(table.table_name)

    names = list(inspect.signature(body).parameters)[2:]

    @wraps(body)
    def test(account, **arguments):
        asyncio.run(run(account, *(arguments[name] for name in names)))

    fixtures = ["account", *names]
    test.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in fixtures]
    )
    return test


def several(number):
    return [
        ("upsert", {"PartitionKey": f"p{number}", "RowKey": f"{row:03}", "N": row})
        for row in range(100)
    ]


@with_table
async def test_tables_are_listed(service, table):
    names = [item.name async for item in service.list_tables()]
    assert table.table_name in names
    found = service.query_tables("TableName eq @name", parameters={"name": table.table_name})
    assert [item.name async for item in found] == [table.table_name]


@pytest.mark.parametrize("key", UNUSUAL, ids=ids)
@with_table
async def test_asynchronously_with_an_unusual_key(service, table, key):
    keys = {"PartitionKey": key, "RowKey": key}
    await table.create_entity({**keys, "A": 1})
    assert dict(await table.get_entity(key, key)) == {**keys, "A": 1}
    etag = (await table.update_entity({**keys, "B": 2}))["etag"]
    await table.upsert_entity({**keys, "C": 3})
    with refused(412, "UpdateConditionNotSatisfied"):
        await table.delete_entity(
            key, key, etag=etag, match_condition=MatchConditions.IfNotModified
        )
    found = table.query_entities("PartitionKey eq @k and RowKey eq @k", parameters={"k": key})
    assert [dict(entity) async for entity in found] == [{**keys, "A": 1, "B": 2, "C": 3}]
    await table.delete_entity(key, key)
    assert [entity async for entity in table.list_entities()] == []


@with_table
async def test_groups_at_the_same_time_and_pages_over_them(service, table):
    await asyncio.gather(*(table.submit_transaction(several(number)) for number in range(30)))
    expected = [(f"p{p}", f"{row:03}") for p in sorted(range(30), key=str) for row in range(100)]
    found = [(entity["PartitionKey"], entity["RowKey"]) async for entity in table.list_entities()]
    assert found == expected
    pages, rows = table.query_entities("N lt 50", results_per_page=200).by_page(), []
    async for page in pages:
        page = [entity["RowKey"] async for entity in page]
        assert len(page) <= 200
        rows += page
    assert len(rows) == 1500 and pages.continuation_token is None


@with_table
async def test_one_of_many_inserts_wins(service, table):
    insert = lambda number: table.create_entity({"PartitionKey": "p", "RowKey": "r", "N": number})
    results = await asyncio.gather(*map(insert, range(32)), return_exceptions=True)
    assert sorted(getattr(result, "status_code", 201) for result in results) == [201] + [409] * 31


@with_table
async def test_a_group_that_fails(service, table):
    await table.create_entity({"PartitionKey": "p0", "RowKey": "042"})
    operations = [("create", entity) for _, entity in several(0)]
    with pytest.raises(TableTransactionError) as caught:
        await table.submit_transaction(operations)
    assert (caught.value.index, caught.value.error_code) == (42, "EntityAlreadyExists")
    assert len([entity async for entity in table.list_entities()]) == 1


@with_table
async def test_settings_policies_and_signatures(service, table):
    assert (await service.get_service_properties())["hour_metrics"] is not None
    assert await table.get_table_access_policy() == {}
    token = generate_account_sas(
        table.credential, ResourceTypes(object=True), AccountSasPermissions(read=True), later()
    )
    endpoint = table.url
    async with TableServiceClient(
        endpoint, credential=AzureSasCredential(token), **OPTIONS
    ) as signed:
        reader = signed.get_table_client(table.table_name)
        assert [entity async for entity in reader.list_entities()] == []
        with refused(403, "AuthorizationPermissionMismatch"):
            await reader.create_entity({"PartitionKey": "p", "RowKey": "r"})
