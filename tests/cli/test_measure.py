"""``diffcredit measure`` against studies that had the property from the start."""

import shutil
import stat

import pytest
import yaml

from diffcredit.cli.measure import add_to_file
from diffcredit.errors import UserError
from tiny_study import recorded_values, rows, run_here, write_small

SMALL = {
    "contributions": {"path": "images", "resolution": 16, "holdout": 0.2},
    "properties": [{"name": "colourfulness"}, {"name": "cluster_entropy", "clusters": 2}],
    "stop.evaluations": 6,
}
PROPERTIES = {
    "warmth": {"name": "warmth:warmth"},
    "entropy3": {"name": "cluster_entropy", "clusters": 3, "as": "entropy3"},
    "heldout_loss": {"name": "heldout_loss", "time_steps": 2},
}
WARMTH = '''
def warmth(images):
    """Red minus blue."""
    return float(images[..., 0].mean() - images[..., 2].mean())
'''


def study(folder, keep, properties=()):
    file = write_small(folder, {**SMALL, "keep": keep, "properties": [*SMALL["properties"], *properties]})
    (folder / "warmth.py").write_text(WARMTH)
    run_here(file)
    return folder


@pytest.fixture(scope="module")
def from_the_start(tmp_path_factory):
    """Every value of a study that measured all properties as it ran."""
    folder = study(tmp_path_factory.mktemp("start"), "nothing", PROPERTIES.values())
    return recorded_values(folder)


@pytest.fixture(scope="module")
def finished_studies(tmp_path_factory):
    made = {kind: study(tmp_path_factory.mktemp(kind), kind) for kind in ("images", "features", "model")}
    nothing = shutil.copytree(made["images"], tmp_path_factory.mktemp("nothing") / "study")
    shutil.rmtree(nothing / "results" / "kept")
    file = nothing / "study.yaml"
    file.write_text(file.read_text().replace("keep: images", "keep: nothing"))
    return {**made, "nothing": nothing}


@pytest.fixture
def kept(finished_studies, tmp_path):
    """The folder of a finished study that kept so much; the test's own copy."""
    return lambda kind: shutil.copytree(finished_studies[kind], tmp_path / kind)


def values_of(folder, name):
    return wanted(recorded_values(folder), name)


def wanted(values, name):
    return {key: value for key, value in values.items() if key[3] == name}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("images", "warmth"),
        ("images", "entropy3"),
        ("features", "entropy3"),  # of the extractor whose features were kept
        ("model", "warmth"),
        ("model", "heldout_loss"),
    ],
)
def test_as_if_it_had_been_there_from_the_start(kind, name, kept, from_the_start, diffcredit, monkeypatch):
    from diffcredit.retraining.fine_tune import FineTune

    def never(*_):
        raise AssertionError("nothing is retrained")

    folder = kept(kind)
    # the report's pictures retrain two models, unless kept
    assert diffcredit("report", folder)[0] == 0
    monkeypatch.setattr(FineTune, "models_for", never)
    code, out, err = diffcredit(
        "measure", folder, "--workers", 1, "--property", yaml.safe_dump(PROPERTIES[name]), warned=True
    )
    assert (code, "measured on 8 evaluations that were kept" in out) == (0, True), out + err
    assert len(wanted(from_the_start, name)) == 8
    assert values_of(folder, name) == wanted(from_the_start, name)
    assert f"{name}," in (folder / "results" / "credits.csv").read_text()
    assert yaml.safe_load((folder / "study.yaml").read_text())["properties"][2:] == [PROPERTIES[name]]
    if kind == "features":  # the same command again
        out = diffcredit("measure", folder, "--workers", 1, "--property", yaml.safe_dump(PROPERTIES[name]))[1]
        assert f"{name}: measured on every evaluation already" in out
        assert yaml.safe_load((folder / "study.yaml").read_text())["properties"][2:] == [PROPERTIES[name]]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("features", "warmth"), ("features", "heldout_loss"), ("images", "heldout_loss"), ("nothing", "warmth")],
)
def test_what_was_not_kept_is_priced_and_changes_nothing(kind, name, kept, diffcredit):
    folder = kept(kind)
    before = (folder / "study.yaml").read_text()
    code, out, _ = diffcredit("measure", folder, "--workers", 1, "--property", yaml.safe_dump(PROPERTIES[name]))
    assert code == 1
    assert f"too little was kept of 8 evaluations (keep: {kind}) to measure it on" in out
    assert "of one worker in total; --retrain does it" in out
    assert (folder / "study.yaml").read_text() == before
    assert (name,) not in rows(folder, "SELECT name FROM properties")


def test_retraining_once_more_gives_the_same(kept, from_the_start, diffcredit):
    folder = kept("nothing")
    code, out, err = diffcredit(
        "measure", folder, "--property", "warmth:warmth", "--retrain", "--workers", 1, warned=True
    )
    assert code == 0, out + err
    assert values_of(folder, "warmth") == wanted(from_the_start, "warmth")


def test_without_a_name_all_that_the_file_has_and_the_ledger_lacks(kept, from_the_start, diffcredit):
    folder = kept("images")
    file = folder / "study.yaml"
    content = yaml.safe_load(file.read_text())
    content["properties"] += [PROPERTIES["warmth"], PROPERTIES["entropy3"]]
    file.write_text(yaml.safe_dump(content))
    assert diffcredit("measure", folder, "--workers", 1, warned=True)[0] == 0
    for name in ("warmth", "entropy3"):
        assert values_of(folder, name) == wanted(from_the_start, name)
    code, out, _ = diffcredit("measure", folder, "--workers", 1, "--property", "warmth", warned=True)
    assert (code, "warmth: measured on every evaluation already" in out) == (0, True)


def test_one_that_fails_for_a_coalition_is_recorded_and_tried_again(kept, diffcredit, monkeypatch):
    folder = kept("images")
    (folder / "moody.py").write_text(
        "import os\n\ndef moody(images):\n    if 'MOODY' in os.environ:\n        raise ValueError('too bright')\n"
        "    return float(images.mean())\n"
    )
    monkeypatch.setenv("MOODY", "yes")
    file = folder / "study.yaml"  # written by hand, it is not tried first
    file.write_text(file.read_text().replace("properties:\n", "properties:\n- moody:moody\n"))
    code, out, _ = diffcredit("measure", folder, "--workers", 1, warned=True)
    assert "8 failures, the first: ValueError: too bright" in out
    assert code == 0  # the others' credits are there
    assert set(values_of(folder, "moody").values()) == {None}
    monkeypatch.delenv("MOODY")
    out = diffcredit.printed("measure", folder, "--workers", 1, "--property", "moody", warned=True)
    query = (
        "SELECT count(*) FROM property_values v JOIN properties p ON p.id = v.property_id WHERE p.name = 'moody' AND "
    )
    assert rows(folder, f"{query} v.value IS NOT NULL") == [(8,)]
    assert rows(folder, f"{query} v.error LIKE '%too bright%'") == [(8,)]


BROKEN = """
def broken(images):
    raise ValueError("too bright")

def fastidious(images):
    if len(set(images.flatten().tolist())) < 2:
        raise ValueError("empty")
    return float(images.min())
"""


@pytest.mark.parametrize(("kind", "more"), [("images", ()), ("nothing", ("--retrain",))])
def test_a_new_property_that_does_not_work_leaves_everything_as_it_was(kind, more, kept, diffcredit):
    folder = kept(kind)
    (folder / "broken.py").write_text(BROKEN)
    before, recorded = (folder / "study.yaml").read_bytes(), rows(folder, "SELECT count(*) FROM chain")
    new = ("--property", "broken:broken", "--property", "broken:fastidious")
    err = diffcredit.refused("measure", folder, "--workers", 1, *new, *more, warned=True)
    assert "broken: cannot be measured, tried on 3 evaluations: ValueError: too bright; the study file and" in err
    assert (folder / "study.yaml").read_bytes() == before
    assert rows(folder, "SELECT count(*) FROM chain") == recorded


def test_a_retired_property_is_shown_to_nobody_and_can_come_back(kept, diffcredit):
    folder = kept("images")
    file, values = folder / "study.yaml", recorded_values(folder)
    for name in ("cluster_entropy", "cluster_entropy"):
        assert name in diffcredit.printed("credits", folder)
        out = diffcredit.printed("measure", folder, "--remove", name)
        assert f"{name}: taken out of {file}; its values stay in the ledger" in out
        content = yaml.safe_load(file.read_text())
        assert (content["properties"], content["retired"]) == ([{"name": "colourfulness"}], [name])
        for command in ("credits", "status", "report"):
            assert name not in diffcredit.printed(command, folder, warned=True)
        assert name not in (folder / "results/credits.csv").read_text()
        assert name not in (folder / "results/report.html").read_text()
        again = yaml.safe_dump({"name": name, "clusters": 2})
        assert "measured on every evaluation already" in diffcredit.printed("measure", folder, "--property", again)
        assert "retired" not in yaml.safe_load(file.read_text())
    assert recorded_values(folder) == values
    code, out, err = diffcredit("measure", folder, "--remove", "colourfulness", "--retrain")
    assert (code, "--remove: given with --property or --retrain" in err) == (2, True)
    for name, said in (("beauty", "accepted: colourfulness, cluster_entropy"),):
        assert said in diffcredit.refused("measure", folder, "--remove", name)
    diffcredit.printed("measure", folder, "--remove", "colourfulness")
    before = file.read_text()
    assert "properties" in diffcredit.refused("measure", folder, "--remove", "cluster_entropy")  # the last one
    assert file.read_text() == before


def test_a_broken_property_in_the_file_can_be_removed(kept, diffcredit):
    folder = kept("images")
    file, whole = folder / "study.yaml", (folder / "study.yaml").read_text()
    file.write_text(whole.replace("properties:\n", "properties:\n- gone:Missing # why\n"))
    diffcredit.printed("measure", folder, "--remove", "Missing")  # neither built nor in the ledger
    assert file.read_text() == whole


def test_a_name_is_not_that_of_another_setting(kept, diffcredit):
    """Of two settings, one with a label, the plain name is the other, whether or not it is there yet."""
    folder = kept("images")
    labelled = yaml.safe_dump({"name": "warmth:warmth", "as": "red"})
    assert diffcredit("measure", folder, "--workers", 1, "--property", labelled, warned=True)[0] == 0
    code, out, err = diffcredit("measure", folder, "--workers", 1, "--property", "warmth:warmth", warned=True)
    assert (code, "added to the properties of" in out) == (0, True), out + err
    values = [list(values_of(folder, name).values()) for name in ("red", "warmth")]
    assert values[0] == values[1]
    assert len(values[0]) == 8
    code, out, _ = diffcredit("measure", folder, "--workers", 1, "--property", "warmth:warmth", warned=True)
    assert (code, "warmth: measured on every evaluation already" in out) == (0, True)


def test_a_study_file_keeps_its_lines_its_rights_and_its_place(tmp_path):
    file, link = tmp_path / "there/study.yaml", tmp_path / "study.yaml"
    file.parent.mkdir()
    file.write_bytes(b"name: x\r\nproperties:\r\n  - a\r\n# the end\r\n")
    file.chmod(0o600)
    link.symlink_to(file)
    add_to_file(link, [{"name": "b"}])
    assert file.read_bytes() == b"name: x\r\nproperties:\r\n  - a\r\n  - {name: b}\r\n# the end\r\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert link.is_symlink()
    add_to_file(link, [{"name": "b"}])  # as when two commands add it at the same time
    assert file.read_bytes().count(b"name: b") == 1
    file.chmod(0o444)
    with pytest.raises(UserError, match=r"cannot be extended \(it is read-only\); add {'name': 'c'} to its"):
        add_to_file(link, [{"name": "c"}])


def test_a_damaged_file_names_itself(kept, diffcredit):
    folder = kept("images")
    damaged = next(folder.glob("results/kept/*/images-*"))
    damaged.write_bytes(damaged.read_bytes()[:100])
    code, out, _ = diffcredit("measure", folder, "--workers", 1, "--property", "warmth:warmth", warned=True)
    assert (code, "measured on 7 evaluations that were kept" in out) == (0, True)
    assert f"1 failures, the first: diffcredit.errors.DiffcreditError: {damaged}: damaged (" in out
    damaged.unlink()
    assert diffcredit("measure", folder, "--workers", 1, "--retrain", warned=True)[0] == 0
    assert None not in values_of(folder, "warmth").values()
    assert len(values_of(folder, "warmth")) == 8
    assert damaged.exists()

    folder = kept("features")
    damaged = next(folder.glob("results/kept/*/features-*"))
    damaged.write_bytes(damaged.read_bytes()[:100])
    code, _, err = diffcredit("measure", folder, "--workers", 1, "--property", yaml.safe_dump(PROPERTIES["entropy3"]))
    assert code == 1
    assert err.startswith(f"error: {damaged}: damaged (")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{name: colourfulness, as: 3}", "--property: as: 3 is not accepted; Input should be a valid string"),
        ("warm", "properties.2: 'warm' is unknown; accepted: colourfulness, "),
        ("[a, b]", "--property: '[a, b]' is not accepted; a name, package.module:Name, or a mapping"),
        ("{clusters: 3}", "is not accepted; a name, package.module:Name, or a mapping"),
        ("{name: cluster_entropy, clusters: 3}", "properties.2: 'cluster_entropy' is there twice"),
        ("{name: cluster_entropy, as: x, cluster: 3}", "properties.2.cluster: unknown; cluster_entropy accepts"),
        ("{name: [", "--property: not valid YAML"),
        ("{name: fid, features: layout}", "properties.2: fid: 4 images for features of 112 dimensions; at least 113"),
        ("{name: inception_score, features: layout}", "properties.2: features: 'layout' gives no class probabilities"),
        (
            "{name: cluster_entropy, as: x, clusters: 2, features: lay}",
            "properties.2: features: 'lay' is unknown; accepted: pixels",
        ),
    ],
)
def test_refused(text, said, finished_studies, diffcredit):
    folder = finished_studies["images"]
    before = (folder / "study.yaml").read_text()
    err = diffcredit.refused("measure", folder, "--workers", 1, "--property", text)
    assert said in err
    assert err.count("\n") == 1
    assert (folder / "study.yaml").read_text() == before


def test_without_evaluations_there_is_nothing_to_measure(tmp_path, diffcredit):
    file = write_small(tmp_path, SMALL)
    err = diffcredit.refused("measure", file, "--property", "colourfulness")
    assert "ledger.db: no ledger is here" in err or "no ledger" in err
