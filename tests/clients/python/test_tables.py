"""Tables: creation, listing with filters and by pages, deletion."""

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.data.tables import TableClient, TableServiceClient

from conftest import CONNECTION, OPTIONS, refused, unique


@pytest.fixture
def family(service):
    """Creates seven tables in mixed case; yields the prefix of their names and the sorted names."""
    prefix = unique()[:20]
    names = [
        prefix + tail for tail in ("Beta", "alpha", "Delta", "gamma", "EPSILON", "zeta", "Eta")
    ]
    for name in names:
        service.create_table(name)
    yield prefix, sorted(names, key=str.lower)
    for name in names:
        service.delete_table(name)


def within(prefix):
    return f"TableName ge '{prefix}' and TableName lt '{prefix}~'"


def test_a_table_is_created_and_listed_in_its_given_case(service):
    name = unique("Mixed")
    client = service.create_table(name)
    assert isinstance(client, TableClient) and client.table_name == name
    assert name in [item.name for item in service.list_tables()]
    assert [item.name for item in service.query_tables(f"TableName eq '{name}'")] == [name]
    service.delete_table(name)
    assert name not in [item.name for item in service.list_tables()]


def test_creation_answers_201_or_204_as_preferred(account, seen):
    name = unique()
    client = account.table(name)
    assert client.create_table(raw_response_hook=seen).name == name
    assert seen.status == 201
    assert seen.headers["Location"].endswith(f"Tables('{name}')")
    client.delete_table(raw_response_hook=seen)
    assert seen.status == 204
    client.create_table(response_preference="return-no-content", raw_response_hook=seen)
    assert seen.status == 204
    assert seen.headers["Preference-Applied"] == "return-no-content"
    assert seen.headers["DataServiceId"].endswith(f"Tables('{name}')")
    client.delete_table()


def test_a_name_is_unique_whatever_its_case(service, table):
    for name in (table.table_name, table.table_name.upper()):
        with refused(409, "TableAlreadyExists", ResourceExistsError):
            service.create_table(name)
    assert service.create_table_if_not_exists(table.table_name).table_name == table.table_name


def test_any_case_of_the_name_addresses_the_table(account, table):
    table.create_entity({"PartitionKey": "p", "RowKey": "r", "A": 1})
    assert account.table(table.table_name.upper()).get_entity("p", "r")["A"] == 1


def test_deleting_a_missing_table_is_no_error(service, seen):
    service.delete_table(unique(), raw_response_hook=seen)
    assert seen.status == 404


def test_a_deleted_table_is_gone_and_its_name_is_free(service, table):
    table.create_entity({"PartitionKey": "p", "RowKey": "r"})
    table.delete_table()
    with refused(404, "TableNotFound", ResourceNotFoundError):
        table.get_entity("p", "r")
    table.create_table()
    assert list(table.list_entities()) == []


@pytest.mark.parametrize("name", ["1abc", "a-b", "a_bc", "sp ace", "täbelle", "abc.def"])
def test_bad_characters_in_a_name(account, name):
    with pytest.raises(ValueError, match="must be alphanumeric"):
        account.table(name).create_table()


@pytest.mark.parametrize("name", ["ab", "a", "x" * 64, "x" * 255])
def test_bad_lengths_of_a_name(account, name):
    with pytest.raises(ValueError, match="between 3-63 characters"):
        account.table(name).create_table()


@pytest.mark.parametrize("name", ["abc", "Z" + "9" * 62])
def test_shortest_and_longest_names(account, name):
    client = account.table(name)
    client.create_table()
    client.delete_table()


@pytest.mark.parametrize("name", ["Tables", "tables"])
def test_the_reserved_name(account, name):
    with refused(400, "InvalidInput"):
        account.table(name).create_table()


def test_tables_are_listed_in_order_of_their_lower_case_names(service, family):
    prefix, names = family
    assert [item.name for item in service.list_tables() if item.name.startswith(prefix)] == names


def test_filters_on_names(service, family):
    prefix, names = family
    first = names[0]
    assert [
        t.name for t in service.query_tables("TableName eq @name", parameters={"name": first})
    ] == [first]
    found = service.query_tables(f"TableName eq '{names[2]}' or TableName eq '{names[5]}'")
    assert [item.name for item in found] == [names[2], names[5]]
    assert list(service.query_tables(f"TableName eq '{unique()}'")) == []
    with refused(400, "InvalidInput"):
        list(service.query_tables("TableName eq"))


def test_pages_of_tables_and_a_resumed_listing(service, family):
    prefix, names = family
    pages = service.query_tables(within(prefix), results_per_page=3).by_page()
    sizes, found, tokens = [], [], []
    for page in pages:
        page = [item.name for item in page]
        sizes.append(len(page))
        found += page
        tokens.append(pages.continuation_token)
    assert sizes == [3, 3, 1] and found == names and tokens[-1] is None
    again = service.query_tables(within(prefix), results_per_page=3).by_page(
        continuation_token=tokens[0]
    )
    assert [item.name for page in again for item in page] == names[3:]


def test_clients_from_connection_string_and_address(account, table):
    table.create_entity({"PartitionKey": "p", "RowKey": "r", "A": 1})
    name = table.table_name
    from_string = TableClient.from_connection_string(CONNECTION, name, **OPTIONS)
    from_service = TableServiceClient.from_connection_string(
        CONNECTION, **OPTIONS
    ).get_table_client(name)
    from_url = TableClient.from_table_url(
        f"{account.endpoint}/{name}", credential=account.credential, **OPTIONS
    )
    for client in (from_string, from_service, from_url):
        with client:
            assert client.get_entity("p", "r")["A"] == 1
