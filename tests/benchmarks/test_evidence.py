"""The evidence page against its record: scores anew from the tables of the ledgers, by SQL and scipy."""

import csv
import lzma
import re
import sqlite3

import numpy as np
import pytest
from benchmarks.evidence.runs import LEDGERS, RUNS, UNLEARNING, contests
from scipy.stats import spearmanr

from diffcredit.credit import estimate

PAGE = LEDGERS.parent / "results.md"
COLUMNS = {"colourfulness": 0, "heldout_loss": 1, "cluster_entropy": 2}
LOWER_IS_BETTER = ("heldout_loss",)
NUMBER = re.compile(r"[−+]?\d+(?:\.\d+)?")


@pytest.fixture
def first(tmp_path):
    return unpacked(1, tmp_path)


def unpacked(run, folder):
    file = folder / f"run-{run}.db"
    file.write_bytes(lzma.decompress((LEDGERS / f"run-{run}.db.xz").read_bytes()))
    return file


def values(file, recipe, purpose, prop):
    """Helpfulness by coalition, a value a replicate."""
    query = """SELECT coalition, value FROM property_values JOIN evaluations ON evaluations.id = evaluation_id
        JOIN recipes ON recipes.id = recipe_id JOIN properties ON properties.id = property_id
        WHERE recipes.name = ? AND purpose = ? AND properties.name = ? AND status = 'done' ORDER BY replicate"""
    found = {}
    connection = sqlite3.connect(file)
    for coalition, value in connection.execute(query, (recipe, purpose, prop)):
        found.setdefault(coalition, []).append(-value if prop in LOWER_IS_BETTER else value)
    connection.close()
    return found


def rows(coalitions):
    return np.array([[member == "1" for member in coalition] for coalition in coalitions])


def score(file, prop, credits):
    """The LDS of credits."""
    truth = values(file, "from_scratch", "truth", prop)
    assert len(truth) == 40
    assert {len(seeds) for seeds in truth.values()} == {2}
    return spearmanr(rows(truth) @ credits, [np.mean(seeds) for seeds in truth.values()]).statistic


def told(method, prop):
    """What the page's table says."""
    line = next(
        line for line in PAGE.read_text("utf-8").splitlines() if line.replace("*", "").startswith(f"| {method} |")
    )
    cell = line.strip("| ").split(" | ")[2 + COLUMNS[prop]]
    return float(cell.partition(" ")[0].replace("−", "-"))


@pytest.mark.parametrize("prop", COLUMNS)
def test_the_scores_of_the_studys_credits_follow_from_the_ledger(first, prop):
    evaluated = values(first, "sparsified", "estimate", prop)
    ends = values(first, "sparsified", "endpoint", prop)
    credits = estimate(
        rows(evaluated),
        [value for (value,) in evaluated.values()],
        empty=ends["0" * 12][0],
        full=ends["1" * 12],
        size_distribution="uniform",
    ).values
    assert told("shapley, sparsified", prop) == pytest.approx(score(first, prop, credits), abs=0.0051)


@pytest.mark.parametrize(
    ("method", "how", "prop"),
    [
        ("application_scores", "mean", "colourfulness"),
        ("d_trak", "sum", "heldout_loss"),
        ("patch_similarity", "sum", "cluster_entropy"),
    ],
)
def test_the_scores_of_baselines_follow_from_the_files(first, method, how, prop):
    with (LEDGERS / "run-1-baselines.csv").open(encoding="utf-8", newline="") as lines:
        of_method = [row for row in csv.DictReader(lines) if (row["method"], row["aggregation"]) == (method, how)]
    connection = sqlite3.connect(first)
    ((names,),) = connection.execute("SELECT json_extract(settings, '$.contributors') FROM studies")
    connection.close()
    assert names == "[" + ",".join(f'"{row["contributor"]}"' for row in of_method) + "]"
    found = score(first, prop, np.array([float(row["credit"]) for row in of_method]))
    assert told(f"{method} ({how})", prop) == pytest.approx(found, abs=0.0051)


def test_the_first_runs_truth_serves_the_second_where_the_property_is_the_same(first):
    with contests() as (_, second, _):
        for prop in ("colourfulness", "heldout_loss"):
            (truth,) = second.truths(prop)
            expected = values(first, "from_scratch", "truth", prop)
            for row, seeds in zip(truth.coalitions, truth.values, strict=True):
                assert expected["".join("1" if member else "0" for member in row)] == seeds.tolist()
        assert second.truths("cluster_entropy") == []


def test_distances_and_verdicts_of_unlearning_are_those_that_the_run_wrote():
    text, columns = PAGE.read_text("utf-8"), ("distance", "above another seed", "above the closest")
    with (UNLEARNING / "unlearning.csv").open(encoding="utf-8", newline="") as lines:
        written = {row["recipe"] or row["unlearning"]: row for row in csv.DictReader(lines)}
    lines = text[text.index("| recipe | model | distance |") :].partition("\n\n")[0].splitlines()[2:]
    shown = {cells[0]: cells[2:] for cells in (line.strip("| ").split(" | ") for line in lines)}
    assert list(shown) == list(written)
    for name, row in written.items():
        for cell, column in zip(shown[name], columns, strict=True):
            expected = [float(row[column + end]) for end in ("", " low", " high") if row[column + end]]
            assert [float(each.replace("−", "-")) for each in NUMBER.findall(cell)] == pytest.approx(expected, abs=6e-4)
    line = next(line for line in text.splitlines() if line.startswith("- **What differs significantly.**"))
    farther, _, close = line.partition(", not than ")
    closest, *others = re.findall(r"(?<!\*)\*([\w-]+)\*", farther)
    assert set(others) == {name for name, row in written.items() if float(row["above the closest low"] or -1) > 0}
    recipes = {name: float(row["distance"]) for name, row in written.items() if row["recipe"]}
    assert closest == min(recipes, key=recipes.get)
    assert {closest, *others, *re.findall(r"\*([\w-]+)\*", close)} == set(recipes)
    assert all(float(row["above another seed low"] or -1) < 0 for row in written.values())


def test_every_recipe_unlearned_the_same_coalitions(tmp_path):
    connection = sqlite3.connect(unpacked(3, tmp_path))
    query = """SELECT recipes.name, coalition, COUNT(*) FROM evaluations JOIN recipes ON recipes.id = recipe_id
        WHERE purpose = 'validation' AND status = 'done' GROUP BY recipes.name, coalition"""
    found = {}
    for recipe, coalition, count in connection.execute(query):
        found.setdefault(recipe, {})[coalition] = count
    connection.close()
    scratch = found.pop("from_scratch")
    assert set(scratch.values()) == {2}
    with (UNLEARNING / "unlearning.csv").open(encoding="utf-8", newline="") as lines:
        assert set(found) == {row["recipe"] for row in csv.DictReader(lines) if row["recipe"]}
    assert all(set(each) == set(scratch) for each in found.values())
    sizes = ", ".join(str(size) for size in sorted(coalition.count("1") for coalition in scratch))
    assert f"nearly everybody: of {' and '.join(sizes.rsplit(', ', 1))} contributors" in PAGE.read_text("utf-8")


@pytest.mark.parametrize("run", RUNS)
def test_no_machine_or_place_is_named(run, tmp_path):
    file = unpacked(run, tmp_path)
    content = file.read_bytes()
    for place in (b"/home/", b"/tmp/", b"/root/", b"/work/", b"site-packages"):
        assert place not in content
    connection = sqlite3.connect(file)
    workers = [worker for (worker,) in connection.execute("SELECT DISTINCT worker FROM evaluations")]
    connection.close()
    assert workers
    assert all(re.fullmatch(r"worker-\d+", worker) for worker in workers)


@pytest.mark.slow
def test_the_page_is_what_the_code_makes_of_the_ledgers():
    from benchmarks.evidence.findings import findings
    from benchmarks.evidence.page import page

    with contests() as runs:
        made = page(findings(runs))
    there = PAGE.read_text("utf-8")
    assert NUMBER.sub("#", made) == NUMBER.sub("#", there)
    # rounding may differ between machines
    numbers = [np.array([float(each.replace("−", "-")) for each in NUMBER.findall(text)]) for text in (made, there)]
    np.testing.assert_allclose(*numbers, rtol=0.02, atol=0.011)
