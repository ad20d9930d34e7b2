"""The campaign of changes, small: nothing changed is shown, what shows it is a finding, its page is of its record."""

import json
from contextlib import ExitStack
from pathlib import Path

import benchmarks.tamper.measure as measure
import pytest
from benchmarks.tamper.campaign import BESIDE, IN_LEDGER, Campaign, Kind
from benchmarks.tamper.judging import FINDINGS, HARMLESS, REFUSED, SHOWN, TRACEBACK, judge
from benchmarks.tamper.page import page
from tests.tampering import chain_anew, change

from diffcredit.errors import UserError

HERE = Path(measure.__file__).parent


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    with ExitStack() as stack:
        yield Campaign(tmp_path_factory.mktemp("tamper") / "studies", 0, stack)


@pytest.fixture
def kind(campaign, monkeypatch):
    """Adds a kind of change of copies in ``place`` to those that the campaign knows."""

    def add(act, place="file", noted=False):
        monkeypatch.setitem(IN_LEDGER, "own", Kind(1, place, act, noted))
        return campaign.run("own", 0).judgement

    return add


def test_nothing_changed_is_shown(campaign):
    """Two changes of each kind, without a server. A refusal is the rule."""
    kinds = {name for name, kind in (IN_LEDGER | BESIDE).items() if kind.place not in ("server", "artifact")}
    cases = [campaign.run(name, number) for name in kinds for number in range(2)]
    assert [case for case in cases if case.judgement.outcome in FINDINGS] == []
    assert sum(case.judgement.outcome == REFUSED for case in cases) > len(cases) / 2


def test_the_same_number_is_the_same_change(campaign):
    assert campaign.run("values of rows", 7) == campaign.run("values of rows", 7)


def test_what_is_shown_is_a_finding(kind):
    """Who writes the chain anew over another value is found by the noted head alone."""

    def rewrite(copy, random):
        change(copy.ledger, "UPDATE property_values SET value = value + 1 WHERE id = 5")
        chain_anew(copy.ledger)
        return "rewritten"

    assert kind(rewrite).outcome == SHOWN
    noted = kind(rewrite, noted=True)
    assert noted.outcome == REFUSED
    assert "chain was written anew" in noted.words


def test_a_change_that_shows_nothing_is_harmless(kind):
    assert kind(lambda copy, random: "nothing", noted=True).outcome == HARMLESS


def test_exceptions_are_findings_and_refusals_are_not():
    def refuse():
        raise UserError("refused")

    assert judge([refuse], {}).outcome == REFUSED
    assert judge([refuse, dict], {}).outcome == REFUSED
    assert judge([refuse, lambda: {"amount": "2"}], {"amount": "1"}).outcome == SHOWN
    assert judge([lambda: 1 / 0], {}).outcome == TRACEBACK
    assert judge([lambda: {"amount": "2"}], {"amount": "1"}, refuse).outcome == REFUSED


def test_the_page_is_of_its_record():
    found = json.loads((HERE / "results.json").read_text(encoding="utf-8"))
    assert (HERE / "results.md").read_text(encoding="utf-8") == page(found)
    assert found["findings"] == []
