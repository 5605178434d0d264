"""The server's address, clients for it, and known differences of the emulator.

The suite starts no server. It reads these variables from the environment:
  ROWSTONE_CONNECTION  the connection string of an account that it may change;
  ROWSTONE_SECONDARY   the address of the account's secondary, by default its own + `-secondary`;
  ROWSTONE_PEER        `azurite` if the server is that emulator: `EMULATOR` then lists the
                       tests that must fail.
The tests expect the behaviour of the production service.
"""

import json
import os
import re
import uuid
from contextlib import contextmanager
from xml.etree import ElementTree

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableClient, TableServiceClient

from emulator import EMULATOR

CONNECTION = os.environ.get("ROWSTONE_CONNECTION", "")
SETTINGS = dict(part.split("=", 1) for part in CONNECTION.split(";") if part)
# Failures must be reported, not retried.
OPTIONS = {"retry_total": 0}


def pytest_configure(config):
    if not CONNECTION:
        raise pytest.UsageError("ROWSTONE_CONNECTION is not set")


def pytest_collection_modifyitems(items):
    """Marks the tests that `EMULATOR` lists: with the emulator each of them must fail."""
    if os.environ.get("ROWSTONE_PEER") != "azurite":
        return
    for item in items:
        for pattern, reason in EMULATOR.items():
            if re.fullmatch(pattern, item.name):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def code_of(error):
    """Returns the service's code in the body of an error, JSON or XML."""
    text = error.response.text().lstrip("\ufeff")
    if text.startswith("<"):
        return ElementTree.fromstring(text).findtext("Code")
    return json.loads(text)["odata.error"]["code"] if text else None


@contextmanager
def refused(status, code, kind=HttpResponseError):
    """Checks that the block raises an error of this status, code and class."""
    with pytest.raises(kind) as caught:
        yield caught
    found = (caught.value.status_code, code_of(caught.value))
    assert found == (status, code), caught.value


class Account:
    """The account under test, and clients of it."""

    def __init__(self):
        self.name = SETTINGS["AccountName"]
        self.endpoint = SETTINGS["TableEndpoint"].rstrip("/")
        self.secondary = os.environ.get("ROWSTONE_SECONDARY") or self.endpoint + "-secondary"
        self.credential = AzureNamedKeyCredential(self.name, SETTINGS["AccountKey"])

    def service(self, credential=None, endpoint=None, **options):
        credential = credential or self.credential
        return TableServiceClient(
            endpoint or self.endpoint, credential=credential, **{**OPTIONS, **options}
        )

    def table(self, name, credential=None, endpoint=None, **options):
        credential = credential or self.credential
        return TableClient(
            endpoint or self.endpoint, name, credential=credential, **{**OPTIONS, **options}
        )

    def signed_service(self, token):
        return self.service(AzureSasCredential(token))

    def signed_table(self, name, token):
        return self.table(name, AzureSasCredential(token))


class Seen:
    """A hook that keeps the last response."""

    def __call__(self, response):
        self.response = response.http_response

    @property
    def status(self):
        return self.response.status_code

    @property
    def headers(self):
        return self.response.headers

    @property
    def request(self):
        return self.response.request


def unique(prefix="t"):
    return prefix + uuid.uuid4().hex


@pytest.fixture(scope="session")
def account():
    return Account()


@pytest.fixture(scope="session")
def service(account):
    return account.service()


@pytest.fixture
def table(service):
    created = service.create_table(unique())
    yield created
    created.delete_table()


@pytest.fixture
def seen():
    return Seen()


ETAG = re.compile(r"""^W/"datetime'\d{4}-\d\d-\d\dT\d\d%3A\d\d%3A\d\d(\.\d{1,7})?Z'"$""")
