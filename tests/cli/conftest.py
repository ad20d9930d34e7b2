"""What the tests of commands share."""

import sys
import warnings

import pytest

from diffcredit.cli import main
from diffcredit.errors import DiffcreditWarning


@pytest.fixture
def diffcredit(monkeypatch, capsys):
    """Runs a command in this process: its exit code, output and complaint. With ``warned`` a warning is a complaint,
    as it is for users; without, an error."""

    def call(*arguments, warned=False):
        monkeypatch.setattr(sys, "argv", ["diffcredit", *map(str, arguments)])
        with warnings.catch_warnings():
            if warned:
                warnings.simplefilter("always", DiffcreditWarning)
            with pytest.raises(SystemExit) as ended:
                main()
        output = capsys.readouterr()
        return ended.value.code or 0, output.out, output.err

    return call
