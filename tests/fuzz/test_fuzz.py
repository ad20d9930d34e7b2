"""Whatever strangers hand over is accepted or refused in one message: no other exception, no hang, and no file outside
the folder is opened, none written, nothing run. ``python -m benchmarks fuzz`` does the same 100,000 times."""

import os
import subprocess

import pytest
from benchmarks.fuzz.targets import TARGETS, prepare
from benchmarks.fuzz.watching import Endless, Escape, outcome, watched
from hypothesis import HealthCheck, given, settings

from diffcredit.errors import UserError
from diffcredit.util.consent import NO_PLUGINS

QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    before = os.environ.get(NO_PLUGINS)
    yield prepare(tmp_path_factory.mktemp("fuzz"))
    os.environ.pop(NO_PLUGINS) if before is None else os.environ.update({NO_PLUGINS: before})


def campaign(name, count, place):
    target, (folder, outside) = TARGETS[name], place
    seen = set()

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=QUIET)
    @given(case=target.cases)
    def run(case):
        target.lay_out(case, folder)
        seen.add(outcome(target.read, folder, outside))

    run()
    assert "refused" in seen  # the cases are damaged enough to tell anything


@pytest.mark.parametrize("name", TARGETS)
def test_accepted_or_refused(name, place):
    campaign(name, 60, place)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_accepted_or_refused_at_length(name, place):
    campaign(name, 3000, place)


def test_the_watch_sees_what_none_may_do(tmp_path, monkeypatch):
    """So that the tests above could have failed."""
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("x")
    (folder / "link").symlink_to(outside / "secret")

    def hang(_):
        while True:
            pass

    def read_outside(_):
        (folder / ".." / "outside" / "secret").read_text()

    for escape in (
        read_outside,
        lambda _: (folder / "link").read_text(),
        lambda _: (folder / "new").write_text("x"),
        lambda _: (folder / "new").mkdir(),
        lambda _: subprocess.run(["true"], check=False),
    ):
        with pytest.raises(Escape):
            outcome(escape, folder, outside)
    monkeypatch.setattr("benchmarks.fuzz.watching.SECONDS", 0.05)
    with pytest.raises(Endless):
        outcome(hang, folder, outside)
    with pytest.raises(ZeroDivisionError):
        outcome(lambda _: 1 / 0, folder, outside)

    def refuse(_):
        raise UserError("no")

    assert outcome(refuse, folder, outside) == "refused"
    assert outcome(lambda _: None, folder, outside) == "accepted"
    with watched(outside):
        pass
    (outside / "secret").read_text()  # and it is off afterwards
