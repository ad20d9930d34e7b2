"""No password of a database in any message, wherever in the URL it stands."""

import pytest

from diffcredit.errors import UserError
from diffcredit.ledger import Ledger


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://me:s3cret@127.0.0.1:1/name",
        "postgresql+psycopg://127.0.0.1:1/name?user=me&password=s3cret",
        "postgresql+psycopg://me:s3cret@127.0.0.1:1/name?no_such_option=1",
        "postgresql+psycopg://me:s3cret@127.0.0.1:1/name?sslmode=s3cret&password=s3cret",
        "postgresql+psycopg://me:s3cret@127.0.0.1:port/name",
        "mysql+nothing://me:s3cret@127.0.0.1/name",
        "//me:s3cret@127.0.0.1/name?password=s3cret",
    ],
)
def test_an_address_that_cannot_be_opened(url, tmp_path, monkeypatch):
    pytest.importorskip("psycopg")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        Ledger.open(url, create=False)
    assert "s3cret" not in str(caught.value).replace("sslmode=s3cret", "").replace('sslmode value: "s3cret"', "")


def test_an_unreachable_server_is_named():
    pytest.importorskip("psycopg")
    with pytest.raises(UserError, match=r"me:\*\*\*@127\.0\.0\.1:1/name: cannot be opened"):
        Ledger.open("postgresql+psycopg://me:s3cret@127.0.0.1:1/name")
