"""The committed CIFAR-20 ledgers: their chains, and the credits from them."""

from pathlib import Path
from typing import Any

import pytest

from guards import names
from guards.golden import golden

ARCHIVES = {"ledger.zip": True, "paper.zip": True, "unlearning.zip": False}
"""And whether they have credits."""


def found(archive: str, folder: Path, head: str | None = None) -> dict[str, Any]:
    study = names.cifar20(archive, folder)
    audit = names.audit(study, head)
    recipes, properties = names.records(study)
    credits = study.credits() if ARCHIVES[archive] else {}
    return {
        "head": audit.head,
        "rows": audit.rows,
        "problems": list(audit.problems),
        "recipes": {each.name: each.fingerprint for each in recipes},
        "properties": {each.name: each.fingerprint for each in properties},
        "credits": {name: each.values.tolist() for name, each in credits.items()},
        "errors": {name: each.standard_error.tolist() for name, each in credits.items()},
    }


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("archive", ARCHIVES)
def test_ledger_verifies_and_gives_the_same_credits(archive, tmp_path):
    expected = golden("cifar20")[archive]
    now = found(archive, tmp_path / "study", expected["head"])
    assert now["problems"] == []
    for what in ("credits", "errors"):
        numbers, before = now.pop(what), expected.pop(what)
        assert numbers.keys() == before.keys()
        for name, values in before.items():
            assert numbers[name] == pytest.approx(values, rel=1e-9), name
    assert now == expected
