"""The content of errors, and requests that fail authentication."""

import json
import re
from wsgiref.handlers import format_date_time

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ClientAuthenticationError
from azure.data.tables import TableErrorCode, TableServiceClient

from conftest import CONNECTION, OPTIONS, refused

KEYS = {"PartitionKey": "p", "RowKey": "r"}
WRONG = "QUJD" * 21 + "QQ=="
TIME = r"Time:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z"


def test_the_body_of_an_error(table, seen):
    with refused(404, "ResourceNotFound") as caught:
        table.get_entity("p", "r", raw_response_hook=seen)
    assert caught.value.error_code == TableErrorCode.RESOURCE_NOT_FOUND
    message = json.loads(seen.response.text())["odata.error"]["message"]
    assert message["lang"] == "en-US"
    first, request, when = message["value"].split("\n")
    assert first == "The specified resource does not exist."
    assert request == f"RequestId:{seen.headers['x-ms-request-id']}"
    assert re.fullmatch(TIME, when)


def test_headers_of_every_answer(table, seen):
    table.create_entity(KEYS)
    table.get_entity("p", "r", raw_response_hook=seen)
    assert re.fullmatch(
        r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", seen.headers["x-ms-request-id"]
    )
    assert seen.headers["x-ms-version"] == "2019-02-02"
    assert seen.headers["X-Content-Type-Options"] == "nosniff"
    assert "GMT" in seen.headers["Date"]
    assert seen.headers["x-ms-client-request-id"] == seen.request.headers["x-ms-client-request-id"]
    first = seen.headers["x-ms-request-id"]
    table.get_entity("p", "r", raw_response_hook=seen)
    assert seen.headers["x-ms-request-id"] != first


@pytest.mark.parametrize("version", ["2019-02-02", "2019-07-07", "2020-12-06"])
def test_versions_of_the_interface(account, table, version, seen):
    client = account.table(table.table_name, api_version=version)
    client.create_entity(KEYS, raw_response_hook=seen)
    assert seen.headers["x-ms-version"] == version
    assert client.submit_transaction([("delete", KEYS)]) == [{}]


def test_the_wrong_key(account, table):
    stranger = AzureNamedKeyCredential(account.name, WRONG)
    client, service = account.table(table.table_name, stranger), account.service(stranger)
    for attempt in (
        lambda: client.get_entity("p", "r"),
        lambda: client.upsert_entity(KEYS),
        lambda: client.submit_transaction([("create", KEYS)]),
        lambda: list(service.list_tables()),
        lambda: service.get_service_properties(),
        lambda: client.get_table_access_policy(),
    ):
        with refused(403, "AuthenticationFailed", ClientAuthenticationError):
            attempt()
    assert list(table.list_entities()) == []


@pytest.mark.parametrize("minutes", [-20, 20])
def test_a_clock_that_is_wrong(table, monkeypatch, minutes):
    late = lambda now: format_date_time(now + 60 * minutes)
    monkeypatch.setattr("azure.data.tables._policies.format_date_time", late)
    with refused(403, "AuthenticationFailed", ClientAuthenticationError):
        table.upsert_entity(KEYS)


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_clock_that_is_a_little_wrong(table, monkeypatch, minutes):
    late = lambda now: format_date_time(now + 60 * minutes)
    monkeypatch.setattr("azure.data.tables._policies.format_date_time", late)
    table.create_entity(KEYS)


def test_an_unknown_account(account):
    stranger = AzureNamedKeyCredential("nobodyhere", WRONG)
    service = account.service(
        stranger, endpoint=account.endpoint.replace(account.name, "nobodyhere")
    )
    with pytest.raises(Exception) as caught:
        list(service.list_tables())
    assert caught.value.status_code in (403, 404)


def test_a_connection_string_with_a_wrong_key():
    parts = [part for part in CONNECTION.split(";") if part and not part.startswith("AccountKey")]
    text = ";".join([*parts, f"AccountKey={WRONG}"])
    with refused(403, "AuthenticationFailed", ClientAuthenticationError):
        list(TableServiceClient.from_connection_string(text, **OPTIONS).list_tables())
