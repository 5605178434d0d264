"""Shows what a program sees of a service that misbehaves by the rules of ../behave.json.

A program without retries fails, and one with retries passes, with one exception: a retried insert
with a lost answer gets 409. Its remedy is an id of the request in the entity.
"""

import uuid

from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ServiceResponseError,
)

from requests.exceptions import ChunkedEncodingError

from conftest import Account

NONE = {"retry_total": 0}
SOME = {"retry_total": 3, "retry_backoff_factor": 0.01}
# By default the SDK repeats a POST only after an answer of 500, 503 or 504.
ALL = {"retry_on_methods": ["HEAD", "GET", "PUT", "DELETE", "POST", "PATCH"]}


def fails(kind, call, status=None):
    """Runs a call that must raise this error."""
    try:
        call()
    except kind as error:
        assert getattr(error, "status_code", None) == status, error
        return
    raise AssertionError(f"no {kind.__name__}")


def entity(row):
    return {"PartitionKey": "p", "RowKey": row, "RequestId": str(uuid.uuid4())}


def create(account, name):
    """Creates a table; returns a client without retries and one with them."""
    account.service().create_table(name)
    return account.table(name, **NONE), account.table(name, **SOME)


def insert_once(table, row):
    """Inserts an entity. After 409, the id tells whether an earlier try of this very insert did."""
    made = entity(row)
    try:
        table.create_entity(made, **ALL)
        return False
    except ResourceExistsError:
        found = table.get_entity(made["PartitionKey"], made["RowKey"])
        if found["RequestId"] != made["RequestId"]:
            raise
        return True


def main():
    account = Account()
    none, some = create(account, "busy")
    fails(HttpResponseError, lambda: none.create_entity(entity("a")), 503)
    some.create_entity(entity("b"))

    none, some = create(account, "late")
    fails(HttpResponseError, lambda: none.upsert_entity(entity("a"), mode="replace"), 500)
    assert none.get_entity("p", "a"), "it was written"
    some.upsert_entity(entity("b"), mode="replace")

    none, some = create(account, "again")
    fails(ServiceResponseError, lambda: none.upsert_entity(entity("a"), mode="replace"))
    some.upsert_entity(entity("b"), mode="replace")
    fails(ServiceResponseError, lambda: none.get_entity("p", "a"))
    some.get_entity("p", "b")
    assert len(list(some.list_entities())) == 2

    none, some = create(account, "lost")
    fails(ServiceResponseError, lambda: none.create_entity(entity("a")))
    fails(ServiceResponseError, lambda: some.create_entity(entity("b")))
    fails(ResourceExistsError, lambda: some.create_entity(entity("b2"), **ALL), 409)
    assert insert_once(some, "c"), "the first try inserted it"
    fails(ResourceExistsError, lambda: insert_once(some, "c"), 409)

    none, some = create(account, "cut")
    # The SDK repeats no cut answer to a transaction, and passes the error of its transport on.
    for table, row in ((none, "a"), (some, "b")):
        group = [("upsert", entity(row))]
        fails(ChunkedEncodingError, lambda: table.submit_transaction(group))
    fails(HttpResponseError, lambda: none.get_entity("p", "a"))
    assert some.get_entity("p", "b"), "the group was committed"

    none, some = create(account, "pages")
    for row in "abc":
        none.create_entity(entity(row))
    pages = [len(list(page)) for page in none.list_entities().by_page()]
    assert pages == [0, 2, 0, 1], pages
    assert len(list(none.list_entities(results_per_page=10))) == 3
    print("python: passed")


main()
