"""``verify``, ``export`` and ``import`` on a small study."""

import pytest
import yaml
from typer.testing import CliRunner

import tampering
from diffcredit.cli import app
from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
from diffcredit.execution import InProcess
from diffcredit.execution.threads import limited_threads
from diffcredit.study.reevaluate import recompute
from diffcredit.study.study import Study
from diffcredit.util.artifacts import canonical_json
from tiny_study import rows


def run(*arguments):
    """What a command prints; what it complains of is raised."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.output


def head_in(output):
    return output.rpartition(": ")[2].strip()


def change(folder, statement):
    tampering.change(folder / "results" / "ledger.db", statement)


def invent(folder, *statements):
    """Change rows, and the chain with them."""
    for statement in statements:
        change(folder, statement)
    tampering.chain_anew(folder / "results" / "ledger.db")


def repeated(folder, count):
    with limited_threads(1):
        return list(recompute(Study.load(folder), InProcess(), count))


def test_an_untouched_ledger_and_a_changed_one(small):
    told = run("verify", small)
    head = head_in(told)
    (count,) = rows(small, "SELECT (SELECT count(*) FROM evaluations) + (SELECT count(*) FROM property_values)")[0]
    assert f"tiny: {count + 5} rows" in told  # one study, one recipe, one property, images, terms
    assert rows(small, "SELECT hash FROM chain ORDER BY number DESC LIMIT 1") == [(head,)]
    assert "rows, all unchanged" in run("verify", small, "--head", head.upper())
    assert head in run("status", small)
    with pytest.raises(UserError, match="--head: 'abc' is not a head"):
        run("verify", small, "--head", "abc")
    with pytest.raises(DiffcreditError, match="the ledger was changed: 1 problems"):
        run("verify", small, "--head", "0" * 64)
    change(small, "UPDATE property_values SET value = value * 1.01 WHERE id = 7")
    with pytest.raises(DiffcreditError, match=r"study\.yaml: the ledger was changed: 1 problems"):
        run("verify", small)


def test_repeated_evaluations_tell_recorded_from_invented_values(small):
    found = repeated(small, 2)
    assert len(found) == 2
    assert {each.tolerance for each in found} == {0.0}
    assert all(each.now == each.recorded and each.agrees for each in found)
    before = rows(small, "SELECT count(*) FROM evaluations")
    invent(small, "UPDATE property_values SET value = value + 0.001")
    assert not any(each.agrees for each in repeated(small, 1))
    assert rows(small, "SELECT count(*) FROM evaluations") == before


def test_another_numerics_class_may_be_a_little_off(small):
    invent(
        small,
        "UPDATE evaluations SET numerics = '{}'",
        "UPDATE property_values SET value = value * (1 + 1e-12)",
    )
    found = repeated(small, 1)
    assert all(each.agrees for each in found)
    assert any(each.now != each.recorded for each in found)
    invent(small, "UPDATE property_values SET value = value + 1000")
    assert not any(each.agrees for each in repeated(small, 1))


TRAINED, SAMPLED = {"path": "graph", "fleet": 16}, {"path": "graph"}
RULED = {"sums_by_rule": True}
GPU = {"device": "cuda NVIDIA H200"}


def test_the_same_bits_are_asked_for_where_they_are_promised(small, monkeypatch):
    eager = {"path": "eager"}
    for numerics, exact in (
        ({"device": "cpu x86_64", "threads": 1, "training": eager, "sampling": eager}, True),
        (GPU | {"training": TRAINED | RULED, "sampling": SAMPLED | RULED}, True),
        (GPU | {"training": {}, "sampling": SAMPLED | RULED}, True),  # nothing is trained
        (GPU | {"training": TRAINED, "sampling": SAMPLED}, False),  # before there was a rule
        (GPU | {"training": TRAINED | RULED, "sampling": eager}, False),
        (GPU | {"training": TRAINED | {"sums_by_rule": False}, "sampling": SAMPLED}, False),
    ):
        invent(small, f"UPDATE evaluations SET numerics = '{canonical_json(numerics)}'")
        monkeypatch.setattr("diffcredit.execution.evaluator.numerics", lambda model, sampling, now=numerics: now)
        (found,) = repeated(small, 1)
        assert (found.tolerance == 0, found.agrees) == (exact, True)


def test_verify_repeats_evaluations(small):
    with limited_threads(1):
        assert "All 1 values agree with the recorded ones." in run("verify", small, "--recompute", 1, "--workers", 1)


def test_a_study_goes_to_another_folder_and_keeps_its_head(small, tmp_path):
    file, folder = tmp_path / "study.zip", tmp_path / "elsewhere"
    content = yaml.safe_load((small / "study.yaml").read_text(encoding="utf-8"))
    ledger = str(small / "results" / "ledger.db")
    (small / "study.yaml").write_text(yaml.safe_dump(content | {"ledger": ledger}), encoding="utf-8")
    head = head_in(run("verify", small))
    assert head in run("export", small, file)
    assert head in run("import", file, folder)
    assert {path.name for path in folder.iterdir()} == {"study.yaml", "ledger.db"}
    assert "rows, all unchanged" in run("verify", folder, "--head", head)
    # another's folders, and a database with its password, stay behind
    assert yaml.safe_load((folder / "study.yaml").read_text(encoding="utf-8")) == content | {"results": "."}
    with pytest.warns(DiffcreditWarning, match=r"not compared with the ledger: the images \(.*images is not here\)"):
        imported = run("credits", folder)
    assert imported == run("credits", small)
    with pytest.raises(UserError, match=r"study\.yaml: already exists"):
        run("import", file, folder)
    with pytest.raises(UserError, match=r"study\.zip: already exists"):
        run("export", small, file)
