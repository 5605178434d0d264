"""Single entities: insert, get, update, upsert, delete; names, sizes and levels of metadata."""

from datetime import datetime, timezone

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.data.tables import TableEntity, UpdateMode

from conftest import ETAG, refused, unique

KEYS = {"PartitionKey": "p", "RowKey": "r"}


def properties(entity):
    return {name: value for name, value in entity.items() if name not in KEYS}


def test_insert_echoes_the_entity_unless_told_not_to(table, seen):
    result = table.create_entity({**KEYS, "A": 1}, raw_response_hook=seen)
    assert seen.status == 201 and ETAG.match(result["etag"])
    assert "preference_applied" not in result
    address = f"/{table.table_name}(PartitionKey='p',RowKey='r')"
    assert seen.headers["Location"].endswith(address)

    silent = {**KEYS, "RowKey": "silent"}
    result = table.create_entity(
        silent, response_preference="return-no-content", raw_response_hook=seen
    )
    assert seen.status == 204 and ETAG.match(result["etag"])
    assert result["preference_applied"] == "return-no-content" and result["content"] is None
    assert seen.headers["DataServiceId"].endswith("(PartitionKey='p',RowKey='silent')")

    loud = {**KEYS, "RowKey": "loud", "A": 5}
    result = table.create_entity(loud, response_preference="return-content", raw_response_hook=seen)
    assert seen.status == 201 and result["preference_applied"] == "return-content"
    assert result["content"]["A"] == 5 and result["content"]["odata.etag"] == result["etag"]


def test_an_entity_is_inserted_once(table):
    table.create_entity({**KEYS, "A": 1})
    with refused(409, "EntityAlreadyExists", ResourceExistsError):
        table.create_entity({**KEYS, "A": 2})
    assert table.get_entity("p", "r")["A"] == 1


def test_the_etag_and_time_of_a_read_entity(table):
    before = datetime.now(timezone.utc)
    etag = table.create_entity(KEYS)["etag"]
    entity = table.get_entity("p", "r")
    assert isinstance(entity, TableEntity) and dict(entity) == KEYS
    assert entity.metadata["etag"] == etag
    assert abs((entity.metadata["timestamp"] - before).total_seconds()) < 60
    assert list(table.list_entities())[0].metadata["etag"] == etag


def test_the_servers_clock_writes_the_timestamp_and_each_write_is_newer(table):
    table.create_entity({**KEYS, "Timestamp": datetime(2001, 1, 1, tzinfo=timezone.utc)})
    times = []
    for number in range(20):
        times.append(table.get_entity("p", "r").metadata["timestamp"].tables_service_value)
        table.update_entity(
            {**KEYS, "Timestamp": datetime(1999, 1, 1, tzinfo=timezone.utc), "N": number}
        )
    assert all(time > "2024" for time in times)
    assert len(set(times)) == len(times)


def test_a_missing_entity_is_not_found(table, account):
    with refused(404, "ResourceNotFound", ResourceNotFoundError):
        table.get_entity("p", "r")
    for mode in UpdateMode:
        with refused(404, "ResourceNotFound", ResourceNotFoundError):
            table.update_entity(KEYS, mode)
    elsewhere = account.table(unique())
    for attempt in (
        lambda: elsewhere.get_entity("p", "r"),
        lambda: elsewhere.create_entity(KEYS),
        lambda: elsewhere.update_entity(KEYS),
        lambda: elsewhere.upsert_entity(KEYS),
        lambda: list(elsewhere.list_entities()),
        lambda: list(elsewhere.query_entities("A eq 1")),
    ):
        with refused(404, "TableNotFound", ResourceNotFoundError):
            attempt()


def test_merge_keeps_other_properties_and_replace_drops_them(table):
    table.create_entity({**KEYS, "A": 1, "B": "b"})
    table.update_entity({**KEYS, "B": "new", "C": True}, UpdateMode.MERGE)
    assert properties(table.get_entity("p", "r")) == {"A": 1, "B": "new", "C": True}
    table.update_entity({**KEYS, "D": 4}, UpdateMode.REPLACE)
    assert properties(table.get_entity("p", "r")) == {"D": 4}
    table.update_entity(KEYS, UpdateMode.REPLACE)
    assert properties(table.get_entity("p", "r")) == {}


@pytest.mark.parametrize("mode", UpdateMode)
def test_upsert_creates_or_updates_the_entity(table, mode, seen):
    result = table.upsert_entity({**KEYS, "A": 1, "B": 2}, mode, raw_response_hook=seen)
    assert seen.status == 204 and ETAG.match(result["etag"])
    assert properties(table.get_entity("p", "r")) == {"A": 1, "B": 2}
    table.upsert_entity({**KEYS, "B": 3}, mode)
    kept = {"A": 1, "B": 3} if mode == UpdateMode.MERGE else {"B": 3}
    assert properties(table.get_entity("p", "r")) == kept


@pytest.mark.parametrize("mode", UpdateMode)
def test_a_property_may_change_its_type(table, mode):
    table.create_entity({**KEYS, "A": 1})
    for value in ("text", 2.5, True, b"\x00\x01", datetime(2024, 1, 1, tzinfo=timezone.utc), 7):
        table.update_entity({**KEYS, "A": value}, mode)
        found = table.get_entity("p", "r")["A"]
        assert found == value and isinstance(found, type(value))


def test_delete_by_keys_and_by_entity(table, seen):
    table.create_entity(KEYS)
    table.delete_entity("p", "r", raw_response_hook=seen)
    assert seen.status == 204
    with refused(404, "ResourceNotFound"):
        table.get_entity("p", "r")
    table.create_entity(KEYS)
    table.delete_entity(table.get_entity("p", "r"))
    table.delete_entity(KEYS, raw_response_hook=seen)
    assert seen.status == 404
    assert list(table.list_entities()) == []


def test_get_with_a_selection(table):
    table.create_entity({**KEYS, "A": 1, "B": "b", "C": 2.5})
    entity = table.get_entity("p", "r", select=["A", "C"])
    assert dict(entity) == {"A": 1, "C": 2.5}
    assert ETAG.match(entity.metadata["etag"])
    assert dict(table.get_entity("p", "r", select="RowKey,B")) == {"RowKey": "r", "B": "b"}
    assert dict(table.get_entity("p", "r", select="*")) == {**KEYS, "A": 1, "B": "b", "C": 2.5}


def test_a_selected_property_the_entity_lacks_is_null(table):
    table.create_entity({**KEYS, "A": 1})
    assert dict(table.get_entity("p", "r", select=["A", "Lacking"])) == {"A": 1, "Lacking": None}
    assert [dict(e) for e in table.list_entities(select=["Lacking"])] == [{"Lacking": None}]


@pytest.mark.parametrize("level", ["nometadata", "minimalmetadata", "fullmetadata"])
def test_levels_of_metadata(table, level, seen):
    when = datetime(2020, 9, 17, tzinfo=timezone.utc)
    table.create_entity({**KEYS, "When": when})
    form = f"application/json;odata={level}"
    entity = table.get_entity("p", "r", format=form, raw_response_hook=seen)
    assert level in seen.headers["Content-Type"]
    body = seen.response.json()
    assert body["When"] == "2020-09-17T00:00:00Z"
    assert ("When@odata.type" in body) == (level != "nometadata")
    assert ("odata.metadata" in body) == (level != "nometadata")
    assert ("odata.etag" in body) == (level != "nometadata")
    assert ("Timestamp@odata.type" in body) == (level == "fullmetadata")
    if level == "fullmetadata":
        link = f"{table.table_name}(PartitionKey='p',RowKey='r')"
        assert body["odata.editLink"] == link and body["odata.id"].endswith("/" + link)
        assert body["odata.type"].endswith("." + table.table_name)
    if level != "nometadata":
        assert body["odata.metadata"].endswith(f"$metadata#{table.table_name}/@Element")
        assert entity["When"] == when
    listed = list(table.list_entities(format=form))
    assert len(listed) == 1 and dict(listed[0]) == dict(entity)


@pytest.mark.parametrize("name", ["a", "_", "_1", "größe", "名前", "N" * 255, "RowkEy", "odata"])
def test_names_of_properties(table, name):
    table.create_entity({**KEYS, name: "value"})
    assert table.get_entity("p", "r")[name] == "value"
    table.upsert_entity({**KEYS, name: "new"})
    assert dict(table.get_entity("p", "r", select=[name])) == {name: "new"}
    assert [e[name] for e in table.query_entities(f"{name} eq 'new'")] == ["new"]


def test_names_differ_by_case(table):
    table.create_entity({**KEYS, "Name": 1, "name": 2, "NAME": 3})
    assert properties(table.get_entity("p", "r")) == {"Name": 1, "name": 2, "NAME": 3}


@pytest.mark.parametrize("name", ["a-b", "1a", "a b", "a.b", "a'b", "a/b", "€"])
def test_bad_names_of_properties(table, name):
    with refused(400, "PropertyNameInvalid"):
        table.create_entity({**KEYS, name: "value"})


def test_a_name_of_256_characters_is_too_long(table):
    with refused(400, "PropertyNameTooLong"):
        table.create_entity({**KEYS, "N" * 256: "value"})


def test_252_properties_and_no_more(table):
    many = {f"P{number}": number for number in range(252)}
    table.create_entity({**KEYS, **many})
    assert properties(table.get_entity("p", "r")) == many
    with refused(400, "TooManyProperties"):
        table.upsert_entity({**KEYS, **many, "More": 1}, UpdateMode.REPLACE)
    with refused(400, "TooManyProperties"):
        table.update_entity({**KEYS, "More": 1}, UpdateMode.MERGE)


def test_an_entity_of_nearly_a_mebibyte_and_a_larger_one(table):
    large = {f"P{number:02}": "x" * 32000 for number in range(16)}
    table.create_entity({**KEYS, **large})
    assert properties(table.get_entity("p", "r")) == large
    with refused(400, "EntityTooLarge"):
        table.upsert_entity({**KEYS, **large, "More": "x" * 32000}, UpdateMode.REPLACE)
    with refused(400, "EntityTooLarge"):
        table.update_entity({**KEYS, "More": "x" * 32000}, UpdateMode.MERGE)
    assert properties(table.get_entity("p", "r")) == large


def test_a_request_of_more_than_four_mebibytes(table):
    with refused(413, "RequestBodyTooLarge"):
        table.create_entity({**KEYS, **{f"P{number}": "x" * 32000 for number in range(140)}})


@pytest.mark.parametrize("missing", ["PartitionKey", "RowKey"])
def test_both_keys_are_needed(table, missing):
    entity = {name: value for name, value in KEYS.items() if name != missing}
    with pytest.raises(ValueError, match=f"{missing} must be present"):
        table.create_entity(entity)


def test_a_time_out_given_by_the_client(table):
    table.create_entity(KEYS, timeout=20)
    assert dict(table.get_entity("p", "r", timeout=20)) == KEYS
    assert len(list(table.list_entities(timeout=20))) == 1
