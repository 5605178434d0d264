"""Shared access signatures of the account and of one table: permitted and refused operations."""

from datetime import datetime, timedelta, timezone
from urllib.parse import parse_qsl, urlencode

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.data.tables import (
    AccountSasPermissions,
    ResourceTypes,
    TableAccessPolicy,
    TableClient,
    TableSasPermissions,
    UpdateMode,
    generate_account_sas,
    generate_table_sas,
)

from conftest import OPTIONS, refused, unique

KEYS = {"PartitionKey": "p", "RowKey": "r"}
ALL = ResourceTypes(service=True, object=True, container=True)
FAILED = (403, "AuthenticationFailed", ClientAuthenticationError)
MISMATCH = (403, "AuthorizationPermissionMismatch")
FAILURE = (403, "AuthorizationFailure")


def later(hours=1):
    return datetime.now(timezone.utc) + timedelta(hours=hours)


def refuses(attempt, reason=MISMATCH):
    with refused(*reason):
        attempt()


def operations(table):
    """Returns operations by name, each with the permission letters that it needs."""
    return {
        "get": ("r", lambda: table.get_entity("p", "r")),
        "query": ("r", lambda: list(table.list_entities())),
        "insert": ("a", lambda: table.create_entity({"PartitionKey": "p", "RowKey": unique()})),
        "merge": ("u", lambda: table.update_entity({**KEYS, "A": 1}, UpdateMode.MERGE)),
        "replace": ("u", lambda: table.update_entity({**KEYS, "A": 2}, UpdateMode.REPLACE)),
        "upsert-merge": ("au", lambda: table.upsert_entity({**KEYS, "A": 3}, UpdateMode.MERGE)),
        "upsert-replace": ("au", lambda: table.upsert_entity({**KEYS, "A": 4}, UpdateMode.REPLACE)),
        "group": (
            "a",
            lambda: table.submit_transaction([("create", {**KEYS, "RowKey": unique()})]),
        ),
        "delete": ("d", lambda: table.delete_entity("p", "r")),
    }


def allows_exactly(table, letters):
    for name, (needed, attempt) in operations(table).items():
        if set(needed) <= set(letters):
            attempt()
        else:
            with pytest.raises(HttpResponseError) as caught:
                attempt()
            assert caught.value.status_code == 403, name


@pytest.fixture
def account_sas(account):
    def make(permission="rwdlacu", types=ALL, expiry=None, **options):
        permission = AccountSasPermissions.from_string(permission)
        return generate_account_sas(
            account.credential, types, permission, expiry or later(), **options
        )

    return make


@pytest.fixture
def table_sas(account, table):
    def make(permission="raud", expiry=None, name=None, **options):
        if permission is not None:
            options["permission"] = TableSasPermissions.from_string(permission)
            options["expiry"] = expiry or later()
        return generate_table_sas(account.credential, name or table.table_name, **options)

    return make


@pytest.fixture
def filled(table):
    table.create_entity(KEYS)
    return table


# The account's signature.


def test_a_full_signature_of_the_account_permits_everything(account, account_sas):
    service = account.signed_service(account_sas())
    name = unique()
    table = service.create_table(name)
    assert name in [item.name for item in service.list_tables()]
    table.create_entity(KEYS)
    allows_exactly(table, "raud")
    properties = service.get_service_properties()
    service.set_service_properties(analytics_logging=properties["analytics_logging"])
    service.delete_table(name)


@pytest.mark.parametrize("letters", ["r", "a", "u", "d", "au", "rau", "raud"])
def test_letters_of_the_accounts_signature(account, account_sas, filled, letters):
    allows_exactly(account.signed_table(filled.table_name, account_sas(letters)), letters)


def test_letters_for_tables(account, account_sas, table):
    make = lambda letters: account.signed_service(account_sas(letters))
    listing = make("l")
    assert table.table_name in [item.name for item in listing.list_tables()]
    refuses(lambda: listing.create_table(unique()))
    refuses(lambda: listing.delete_table(table.table_name))
    refuses(lambda: list(make("rwdacu").list_tables()))
    for letter in "cw":
        name = unique()
        make(letter).create_table(name)
        refuses(lambda: make(letter).delete_table(name))
        make("d").delete_table(name)


@pytest.mark.parametrize("kind", ["service", "container", "object"])
def test_types_of_resource(account, account_sas, filled, kind):
    types = ResourceTypes(**{kind: True})
    service = account.signed_service(account_sas(types=types))
    table = account.signed_table(filled.table_name, account_sas(types=types))
    other = (403, "AuthorizationResourceTypeMismatch")
    attempts = {
        "service": service.get_service_properties,
        "container": lambda: list(service.list_tables()),
        "object": lambda: table.create_entity({"PartitionKey": "p", "RowKey": "new"}),
    }
    for name, attempt in attempts.items():
        if name == kind:
            attempt()
        else:
            refuses(attempt, other)


def test_policies_are_for_the_owner_alone(account, account_sas, table_sas, table):
    for token in (account_sas(), table_sas()):
        signed = account.signed_table(table.table_name, token)
        for attempt in (signed.get_table_access_policy, lambda: signed.set_table_access_policy({})):
            with pytest.raises(HttpResponseError) as caught:
                attempt()
            assert caught.value.status_code == 403


def test_times_of_the_accounts_signature(account, account_sas, filled):
    read = lambda token: account.signed_table(filled.table_name, token).get_entity("p", "r")
    read(account_sas(start=later(-1)))
    refuses(lambda: read(account_sas(expiry=later(-1))), FAILED)
    refuses(lambda: read(account_sas(start=later(1), expiry=later(2))), FAILED)


def test_addresses_and_protocols(account, account_sas, table_sas, filled):
    read = lambda token: account.signed_table(filled.table_name, token).get_entity("p", "r")
    for make in (account_sas, table_sas):
        for address in ("127.0.0.1", "127.0.0.0-127.0.0.255"):
            read(make(ip_address_or_range=address))
        for address in ("10.1.2.3", "10.0.0.1-10.0.0.9"):
            refuses(
                lambda: read(make(ip_address_or_range=address)),
                (403, "AuthorizationSourceIPMismatch"),
            )
        read(make(protocol="https,http"))
        refuses(lambda: read(make(protocol="https")), (403, "AuthorizationProtocolMismatch"))


def test_a_signature_that_was_tampered_with(account, account_sas, table_sas, filled):
    for token in (account_sas("r"), table_sas("r")):
        fields = dict(parse_qsl(token))
        for change in ({"sp": "ra"}, {"se": "2040-01-01T00:00:00Z"}, {"sig": "A" * 43 + "="}):
            changed = urlencode({**fields, **change})
            refuses(
                lambda: account.signed_table(filled.table_name, changed).get_entity("p", "r"),
                FAILED,
            )


def test_a_signature_by_another_key(account, filled):
    stranger = AzureNamedKeyCredential(account.name, "QUJD" * 21 + "QQ==")
    token = generate_account_sas(stranger, ALL, AccountSasPermissions(read=True), later())
    refuses(lambda: account.signed_table(filled.table_name, token).get_entity("p", "r"), FAILED)


def test_a_signature_within_the_address_or_the_connection_string(
    account, account_sas, table_sas, filled
):
    name, endpoint = filled.table_name, account.endpoint
    for token in (account_sas(), table_sas()):
        text = f"TableEndpoint={endpoint};SharedAccessSignature={token}"
        for client in (
            TableClient(f"{endpoint}?{token}", name, **OPTIONS),
            TableClient.from_table_url(f"{endpoint}/{name}?{token}", **OPTIONS),
            TableClient.from_connection_string(text, name, **OPTIONS),
        ):
            client.upsert_entity({**KEYS, "A": 1})
            assert client.get_entity("p", "r")["A"] == 1
            assert len(list(client.query_entities("A eq 1", results_per_page=1))) == 1


# The signature of one table.


@pytest.mark.parametrize("letters", ["r", "a", "u", "d", "au", "ra", "ud", "raud"])
def test_letters_of_a_tables_signature(account, table_sas, filled, letters):
    allows_exactly(account.signed_table(filled.table_name, table_sas(letters)), letters)


def test_which_permission_is_missing(account, table_sas, filled):
    reads = account.signed_table(filled.table_name, table_sas("r"))
    for name, (needed, attempt) in operations(reads).items():
        if needed != "r":
            refuses(attempt)


def test_a_tables_signature_is_for_entities_of_that_table(account, table_sas, filled):
    service = account.signed_service(table_sas())
    for attempt in (
        lambda: service.create_table(unique()),
        lambda: service.delete_table(filled.table_name),
        lambda: list(service.list_tables()),
        lambda: service.get_service_properties(),
    ):
        refuses(attempt, FAILURE)
    other = account.service().create_table(unique())
    with pytest.raises(HttpResponseError) as caught:
        account.signed_table(other.table_name, table_sas()).get_entity("p", "r")
    assert caught.value.status_code == 403
    other.delete_table()


def test_the_tables_name_in_any_case(account, table_sas, filled):
    for name in (filled.table_name.upper(), filled.table_name.lower()):
        account.signed_table(filled.table_name, table_sas("r", name=name)).get_entity("p", "r")
        account.signed_table(name, table_sas("r")).get_entity("p", "r")


def test_times_of_a_tables_signature(account, table_sas, filled):
    read = lambda token: account.signed_table(filled.table_name, token).get_entity("p", "r")
    read(table_sas(start=later(-1)))
    refuses(lambda: read(table_sas(expiry=later(-1))), FAILED)
    refuses(lambda: read(table_sas(start=later(1), expiry=later(2))), FAILED)


RANGES = [
    ({}, "a1 a2 b1 b2 b3 c1 c2"),
    ({"start_pk": "b"}, "b1 b2 b3 c1 c2"),
    ({"end_pk": "b"}, "a1 a2 b1 b2 b3"),
    ({"start_pk": "b", "end_pk": "b"}, "b1 b2 b3"),
    ({"start_pk": "b", "start_rk": "2"}, "b2 b3 c1 c2"),
    ({"end_pk": "b", "end_rk": "2"}, "a1 a2 b1 b2"),
    ({"start_pk": "a", "start_rk": "2", "end_pk": "b", "end_rk": "1"}, "a2 b1"),
    ({"start_pk": "b", "start_rk": "2", "end_pk": "b", "end_rk": "2"}, "b2"),
    ({"start_pk": "d"}, ""),
]


@pytest.mark.parametrize("bounds, inside", RANGES, ids=lambda value: str(value).replace(" ", ""))
def test_ranges_of_a_signature(account, table, table_sas, bounds, inside):
    everything = RANGES[0][1].split()
    for name in everything:
        table.create_entity({"PartitionKey": name[0], "RowKey": name[1]})
    signed = account.signed_table(table.table_name, table_sas(**bounds))
    names = lambda entities: [entity["PartitionKey"] + entity["RowKey"] for entity in entities]
    assert names(signed.list_entities()) == inside.split()
    pages = signed.list_entities(results_per_page=1).by_page()
    assert [name for page in pages for name in names(page)] == inside.split()
    for name in everything:
        entity = {"PartitionKey": name[0], "RowKey": name[1], "A": 1}
        attempts = [
            lambda: signed.get_entity(name[0], name[1]),
            lambda: signed.update_entity(entity),
            lambda: signed.upsert_entity(entity),
            lambda: signed.submit_transaction([("update", entity)]),
            lambda: signed.delete_entity(name[0], name[1]),
            lambda: signed.create_entity(entity),
        ]
        for attempt in attempts:
            if name in inside:
                attempt()
            else:
                refuses(attempt, FAILURE)
    found = {name: "A" in entity for name, entity in zip(everything, table.list_entities())}
    assert found == {name: name in inside for name in everything}


def test_a_group_within_and_across_a_range(account, table, table_sas):
    signed = account.signed_table(
        table.table_name, table_sas(start_pk="p", start_rk="b", end_pk="p", end_rk="d")
    )
    create = lambda row: ("create", {"PartitionKey": "p", "RowKey": row})
    signed.submit_transaction([create("b"), create("d")])
    refuses(lambda: signed.submit_transaction([create("c"), create("e")]), FAILURE)
    assert [entity["RowKey"] for entity in table.list_entities()] == ["b", "d"]


# Stored policies.


def test_a_stored_policy_grants_and_revokes(account, filled, table_sas):
    token = table_sas(None, policy_id="reader")
    signed = account.signed_table(filled.table_name, token)
    refuses(lambda: signed.get_entity("p", "r"), FAILED)
    reader = TableAccessPolicy(permission="r", start=later(-1), expiry=later())
    filled.set_table_access_policy({"reader": reader})
    signed.get_entity("p", "r")
    refuses(lambda: signed.create_entity({**KEYS, "RowKey": "new"}))
    filled.set_table_access_policy({"reader": TableAccessPolicy(permission="ra", expiry=later())})
    signed.create_entity({**KEYS, "RowKey": "new"})
    filled.set_table_access_policy({"reader": TableAccessPolicy(permission="ra", expiry=later(-1))})
    refuses(lambda: signed.get_entity("p", "r"), FAILED)
    filled.set_table_access_policy(
        {"reader": TableAccessPolicy(permission="r", start=later(1), expiry=later(2))}
    )
    refuses(lambda: signed.get_entity("p", "r"), FAILED)
    filled.set_table_access_policy({"other": reader})
    refuses(lambda: signed.get_entity("p", "r"), FAILED)
    filled.set_table_access_policy({"reader": reader})
    signed.get_entity("p", "r")


def test_fields_from_the_policy_and_from_the_token(account, filled):
    def token(**options):
        return generate_table_sas(
            account.credential, filled.table_name, policy_id="half", **options
        )

    read = lambda token: account.signed_table(filled.table_name, token).get_entity("p", "r")
    filled.set_table_access_policy({"half": TableAccessPolicy(permission="r")})
    read(token(expiry=later()))
    refuses(lambda: read(token()), FAILED)
    filled.set_table_access_policy({"half": TableAccessPolicy(expiry=later())})
    read(token(permission=TableSasPermissions(read=True)))
    refuses(lambda: read(token()), FAILED)


def test_a_field_in_the_policy_and_in_the_token(account, filled):
    filled.set_table_access_policy({"both": TableAccessPolicy(permission="r", expiry=later())})
    token = generate_table_sas(
        account.credential,
        filled.table_name,
        policy_id="both",
        permission=TableSasPermissions(read=True),
        expiry=later(),
    )
    with pytest.raises(HttpResponseError) as caught:
        account.signed_table(filled.table_name, token).get_entity("p", "r")
    assert caught.value.status_code == 400


def test_a_policy_with_a_range(account, filled):
    filled.create_entity({"PartitionKey": "q", "RowKey": "r"})
    filled.set_table_access_policy({"reader": TableAccessPolicy(permission="r", expiry=later())})
    token = generate_table_sas(
        account.credential, filled.table_name, policy_id="reader", start_pk="q", end_pk="q"
    )
    signed = account.signed_table(filled.table_name, token)
    assert [entity["PartitionKey"] for entity in signed.list_entities()] == ["q"]
    refuses(lambda: signed.get_entity("p", "r"), FAILURE)
