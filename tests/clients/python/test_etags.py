"""Conditions: writes guarded by an ETag, and malformed ETags."""

import re

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import ResourceModifiedError, ResourceNotFoundError
from azure.data.tables import UpdateMode

from conftest import ETAG, refused

KEYS = {"PartitionKey": "p", "RowKey": "r"}
SAME = MatchConditions.IfNotModified


def conditional_writes(table, etag):
    condition = {"etag": etag, "match_condition": SAME}
    return {
        "merge": lambda: table.update_entity({**KEYS, "A": 2}, UpdateMode.MERGE, **condition),
        "replace": lambda: table.update_entity({**KEYS, "A": 2}, UpdateMode.REPLACE, **condition),
        "delete": lambda: table.delete_entity("p", "r", **condition),
    }


KINDS = ["merge", "replace", "delete"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_current_etag_is_accepted(table, kind):
    etag = table.create_entity({**KEYS, "A": 1})["etag"]
    result = conditional_writes(table, etag)[kind]()
    if kind == "delete":
        assert list(table.list_entities()) == []
    else:
        assert ETAG.match(result["etag"]) and result["etag"] != etag
        assert table.get_entity("p", "r").metadata["etag"] == result["etag"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_outdated_etag_is_refused(table, kind):
    old = table.create_entity({**KEYS, "A": 1})["etag"]
    new = table.update_entity({**KEYS, "A": 1})["etag"]
    assert old != new
    with refused(412, "UpdateConditionNotSatisfied", ResourceModifiedError):
        conditional_writes(table, old)[kind]()
    entity = table.get_entity("p", "r")
    assert entity["A"] == 1 and entity.metadata["etag"] == new


@pytest.mark.parametrize("kind", ["merge", "replace"])
def test_no_etag_matches_a_missing_entity(table, kind):
    etag = table.create_entity(KEYS)["etag"]
    table.delete_entity("p", "r")
    with refused(404, "ResourceNotFound", ResourceNotFoundError):
        conditional_writes(table, etag)[kind]()


def test_deleting_a_missing_entity_answers_404(table, seen):
    etag = table.create_entity(KEYS)["etag"]
    table.delete_entity("p", "r")
    table.delete_entity("p", "r", etag=etag, match_condition=SAME, raw_response_hook=seen)
    assert seen.status == 404


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("etag", ["test", 'W/"wrong"', "W/\"datetime'yesterday'\""])
def test_a_malformed_etag(table, kind, etag):
    table.create_entity({**KEYS, "A": 1})
    with refused(400, "InvalidInput"):
        conditional_writes(table, etag)[kind]()
    assert table.get_entity("p", "r")["A"] == 1


def test_colons_need_not_be_escaped(table):
    etag = table.create_entity(KEYS)["etag"]
    assert "%3A" in etag
    conditional_writes(table, etag.replace("%3A", ":"))["merge"]()


def test_an_entity_carries_its_etag(table):
    table.create_entity({**KEYS, "A": 1})
    first, second = table.get_entity("p", "r"), table.get_entity("p", "r")
    first["A"] = 2
    table.update_entity(first, UpdateMode.REPLACE, match_condition=SAME)
    second["A"] = 3
    with refused(412, "UpdateConditionNotSatisfied", ResourceModifiedError):
        table.update_entity(second, UpdateMode.REPLACE, match_condition=SAME)
    with refused(412, "UpdateConditionNotSatisfied", ResourceModifiedError):
        table.delete_entity(second, match_condition=SAME)
    assert table.get_entity("p", "r")["A"] == 2
    table.delete_entity(table.get_entity("p", "r"), match_condition=SAME)
    assert list(table.list_entities()) == []


def test_unconditional_writes_accept_any_state(table):
    table.create_entity({**KEYS, "A": 1})
    table.update_entity({**KEYS, "A": 2})
    table.update_entity({**KEYS, "A": 3}, match_condition=MatchConditions.Unconditionally)
    table.upsert_entity({**KEYS, "A": 4})
    assert table.get_entity("p", "r")["A"] == 4
    table.delete_entity("p", "r", match_condition=MatchConditions.Unconditionally)


def test_the_fraction_of_an_etag_has_no_trailing_zeros(table):
    fractions = [re.search(r"\.(\d+)Z", table.upsert_entity(KEYS)["etag"]) for _ in range(100)]
    assert all(len(found[1]) <= 7 and not found[1].endswith("0") for found in fractions if found)


def test_a_write_that_changes_nothing_changes_the_etag(table):
    etags = [table.create_entity({**KEYS, "A": 1})["etag"]]
    for _ in range(10):
        etags.append(table.update_entity({**KEYS, "A": 1}, UpdateMode.REPLACE)["etag"])
    assert len(set(etags)) == len(etags)


def test_a_race_has_one_winner(table):
    etag = table.create_entity({**KEYS, "N": 0})["etag"]
    for number in range(1, 11):
        condition = {"etag": etag, "match_condition": SAME}
        etag = table.update_entity({**KEYS, "N": number}, **condition)["etag"]
        with refused(412, "UpdateConditionNotSatisfied"):
            table.update_entity({**KEYS, "N": -number}, **condition)
    assert table.get_entity("p", "r")["N"] == 10
