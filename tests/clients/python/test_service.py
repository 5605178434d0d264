"""The account's settings and statistics, access policies, its secondary, and its name as a host."""

from datetime import datetime, timedelta, timezone

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.data.tables import (
    TableAccessPolicy,
    TableAnalyticsLogging,
    TableCorsRule,
    TableMetrics,
    TableRetentionPolicy,
)

from conftest import SETTINGS, refused, unique

KEYS = {"PartitionKey": "p", "RowKey": "r"}
START = datetime(2024, 1, 1, tzinfo=timezone.utc)
EXPIRY = datetime(2030, 12, 31, 23, 59, 59, tzinfo=timezone.utc)


@pytest.fixture
def settings(service):
    """Restores the account's settings after the test."""
    before = service.get_service_properties()
    yield
    service.set_service_properties(**{**before, "cors": before["cors"] or []})


def plain(value):
    """Returns settings as dictionaries, which can be compared."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if hasattr(value, "__dict__"):
        value = vars(value)
    return {name: plain(item) for name, item in value.items()} if isinstance(value, dict) else value


def retention(days=None):
    return TableRetentionPolicy(enabled=days is not None, days=days)


def test_settings_are_stored(service, settings, seen):
    given = {
        "analytics_logging": TableAnalyticsLogging(
            read=True, write=True, delete=False, retention_policy=retention(5)
        ),
        "hour_metrics": TableMetrics(
            enabled=True, include_apis=True, retention_policy=retention(365)
        ),
        "minute_metrics": TableMetrics(enabled=False, retention_policy=retention()),
        "cors": [
            TableCorsRule(["http://www.example.com"], ["GET", "PUT"], max_age_in_seconds=60),
            TableCorsRule(
                ["*"],
                ["GET", "MERGE", "POST", "OPTIONS", "HEAD", "DELETE"],
                allowed_headers=["x-ms-meta-a", "x-ms-meta-data*"],
                exposed_headers=["x-ms-meta-*", "etag"],
                max_age_in_seconds=0,
            ),
        ],
    }
    service.set_service_properties(**given, raw_response_hook=seen)
    assert seen.status == 202
    assert plain(service.get_service_properties()) == plain(given)


def test_omitted_settings_are_kept_and_an_empty_list_of_rules_clears(service, settings):
    rule = TableCorsRule(["http://a.example"], ["GET"], max_age_in_seconds=5)
    metrics = TableMetrics(enabled=True, include_apis=False, retention_policy=retention(7))
    service.set_service_properties(cors=[rule], hour_metrics=metrics)
    service.set_service_properties(analytics_logging=TableAnalyticsLogging(delete=True))
    found = service.get_service_properties()
    assert plain(found["cors"]) == plain([rule]) and plain(found["hour_metrics"]) == plain(metrics)
    assert found["analytics_logging"].delete is True
    service.set_service_properties(cors=[])
    found = service.get_service_properties()
    assert not found["cors"] and plain(found["hour_metrics"]) == plain(metrics)


@pytest.mark.parametrize("days", [0, 366, -1])
def test_a_retention_that_is_out_of_range(service, days):
    metrics = TableMetrics(enabled=True, include_apis=True, retention_policy=retention(days))
    with refused(400, "InvalidXmlNodeValue"):
        service.set_service_properties(hour_metrics=metrics)


def test_six_rules_are_too_many(service, settings):
    rules = [TableCorsRule([f"http://{n}.example"], ["GET"]) for n in range(6)]
    service.set_service_properties(cors=rules[:5])
    assert len(service.get_service_properties()["cors"]) == 5
    with pytest.raises(HttpResponseError) as caught:
        service.set_service_properties(cors=rules)
    assert caught.value.status_code == 400
    assert len(service.get_service_properties()["cors"]) == 5


@pytest.fixture
def secondary(account):
    """A client that uses the secondary's address as its primary address.

    Its `secondary_hostname` is only a host, so that the client does not repeat the account's path.
    """
    host = account.endpoint.split("/")[2]
    return account.service(endpoint=account.secondary, secondary_hostname=host)


def test_statistics(secondary):
    replication = secondary.get_service_stats()["geo_replication"]
    assert replication["status"] in ("live", "bootstrap", "unavailable")
    if replication["status"] == "live":
        assert replication["last_sync_time"] < datetime.now(timezone.utc) + timedelta(minutes=6)


def test_the_secondary_is_read(account, table):
    table.create_entity({**KEYS, "A": 1})
    copy = account.table(table.table_name, endpoint=account.secondary)
    assert copy.get_entity("p", "r")["A"] == 1
    assert len(list(copy.list_entities())) == 1
    listed = account.service(endpoint=account.secondary).list_tables()
    assert table.table_name in [item.name for item in listed]


def test_the_secondary_is_not_written(account, table):
    table.create_entity({**KEYS, "A": 1})
    copy = account.table(table.table_name, endpoint=account.secondary)
    for write in (
        lambda: copy.create_entity({**KEYS, "RowKey": "new"}),
        lambda: copy.update_entity({**KEYS, "A": 2}),
        lambda: copy.upsert_entity({**KEYS, "A": 2}),
        lambda: copy.delete_entity("p", "r"),
        lambda: copy.submit_transaction([("upsert", {**KEYS, "A": 2})]),
        lambda: copy.delete_table(),
    ):
        with refused(403, "InsufficientAccountPermissions"):
            write()
    assert [dict(entity) for entity in table.list_entities()] == [{**KEYS, "A": 1}]


def test_the_account_is_named_by_the_host(account, table):
    scheme, _, host = account.endpoint.split("/")[:3]
    names = {"Host": f"{SETTINGS['AccountName']}.table.localhost:{host.rsplit(':', 1)[1]}"}
    client = account.table(table.table_name, endpoint=f"{scheme}//{host}", headers=names)
    client.create_entity({**KEYS, "A": 1})
    assert client.get_entity("p", "r")["A"] == 1
    assert table.get_entity("p", "r")["A"] == 1


def policy(permission="r", start=START, expiry=EXPIRY):
    return TableAccessPolicy(permission=permission, start=start, expiry=expiry)


def test_policies_are_stored_and_replaced(table):
    assert table.get_table_access_policy() == {}
    table.set_table_access_policy({"one": policy(), "all": policy("raud"), "open": None})
    found = table.get_table_access_policy()
    assert set(found) == {"one", "all", "open"}
    assert (found["all"].permission, found["all"].start, found["all"].expiry) == (
        "raud",
        START,
        EXPIRY,
    )
    assert found["open"] is None or not found["open"].permission
    table.set_table_access_policy({"two": policy("a", start=None)})
    found = table.get_table_access_policy()
    assert list(found) == ["two"] and found["two"].start is None
    assert (found["two"].permission, found["two"].expiry) == ("a", EXPIRY)
    table.set_table_access_policy({})
    assert table.get_table_access_policy() == {}


def test_policies_with_times_in_other_forms(table):
    given = {
        "day": policy(start="2024-01-01", expiry="2030-12-31"),
        "minute": policy(start="2024-01-01T00:00Z", expiry="2030-12-31T01:02Z"),
        "tick": policy(start="2024-01-01T00:00:00.1234567Z", expiry="2030-12-31T00:00:00.0000000Z"),
        "key-1_ü": policy(start=None, expiry=None),
    }
    table.set_table_access_policy(given)


def test_five_policies_and_six(table):
    five = {f"policy{n}": policy() for n in range(5)}
    table.set_table_access_policy(five)
    assert set(table.get_table_access_policy()) == set(five)
    with pytest.raises(ValueError, match="Too many access policies"):
        table.set_table_access_policy({**five, "sixth": policy()})
    assert set(table.get_table_access_policy()) == set(five)


def test_names_of_policies(table):
    table.set_table_access_policy({"x" * 64: policy()})
    assert list(table.get_table_access_policy()) == ["x" * 64]
    with pytest.raises(HttpResponseError) as caught:
        table.set_table_access_policy({"x" * 65: policy()})
    assert caught.value.status_code == 400


@pytest.mark.parametrize(
    "bad",
    [policy("xyz"), policy("rr"), policy(start="yesterday"), policy(expiry="2024-99-01T00:00:00Z")],
)
def test_policies_that_are_malformed(table, bad):
    with refused(400, "InvalidXmlNodeValue"):
        table.set_table_access_policy({"bad": bad})
    assert table.get_table_access_policy() == {}


def test_policies_of_a_missing_table(account):
    missing = account.table(unique())
    with refused(404, "TableNotFound", ResourceNotFoundError):
        missing.get_table_access_policy()
    with refused(404, "TableNotFound", ResourceNotFoundError):
        missing.set_table_access_policy({"one": policy()})


def test_policies_are_removed_with_their_table(table):
    table.set_table_access_policy({"one": policy()})
    table.delete_table()
    table.create_table()
    assert table.get_table_access_policy() == {}
