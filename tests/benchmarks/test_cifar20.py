"""The page of studies/cifar20-h200: from a record of a study whose games are known."""

import csv
import re
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.cifar20 import recipe, tables
from benchmarks.cifar20.images import retrained
from benchmarks.cifar20.measure import PAGE
from benchmarks.cifar20.page import page
from benchmarks.cifar20.record import CREDITS, LEDGER, RECORD, pack, recorded, unpack
from benchmarks.cifar20.tables import labelers
from scipy.stats import spearmanr

from diffcredit.coalitions import decode, encode
from diffcredit.errors import UserError
from diffcredit.execution import Task
from diffcredit.ledger.archive import read_archive
from diffcredit.report.tables import credit_tables
from diffcredit.study.study import Study
from diffcredit.validation.data import ValidationData
from diffcredit.validation.parts import unlearning
from diffcredit.validation.presentation.sections import Photograph, Section
from diffcredit.validation.presentation.writing import write_section
from diffcredit.validation.statistics import compare_lds
from diffcredit.validation.statistics.records import Contender, Truth, game_credits
from tiny_study import rows
from validated_study import WEIGHTS, additive, planted, record, validated

LEVELS = "F(∅) as measured", "F(N) in its place"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A planted study, its record, and the page that is made of that, without figures."""
    tmp_path = tmp_path_factory.mktemp("cifar20")
    contest = planted(tmp_path / "study", noise=1.0)
    for part in ("unlearning", "contributors"):
        taken = Photograph(f"of-{part}", "A picture", "What it shows.", b"png")
        section = Section(part, f"About {part}", ("Something.",), (), photographs=(taken,))
        write_section(section, contest.study.folder / "validation" / part)
    names = list(contest.study.contributions.contributors)
    with (contest.study.folder / "baselines.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["method", "aggregation", "options", "property", "contributor", "credit"])
        writer.writerows(
            ["image_count", "", "", "", name, credit] for name, credit in zip(names, range(8), strict=True)
        )
    drawn = {"name": "drawn", "design": {"distribution": "kernel"}, "stop": {"evaluations": 120}}
    paper = ValidationData(Study.load(validated(tmp_path / "paper", drawn)))
    games = {name: additive(noise=0.3, seed=place) for place, name in enumerate(contest.properties)}
    record(paper.study.recipe, paper.design(paper.study.recipe).tasks, games, lower=["heldout_loss"])
    unlearned = ValidationData(Study.load(validated(tmp_path / "unlearned", {"name": "unlearned"})))
    record(unlearned.study.recipe, unlearning.work(unlearned)[0].tasks, games, lower=["heldout_loss"])
    folder = tmp_path / "record"
    for name in ("base-1", "sparse-2", "another-3"):
        (contest.study.folder / "models" / name).mkdir(parents=True)
        (contest.study.folder / "models" / name / "model").write_text(name)
    pack(contest.study, folder, paper.study, unlearned.study)
    with pytest.MonkeyPatch.context() as patch, recorded(folder) as found:
        patch.setattr("diffcredit.validation.presentation.drawing.to_svg", lambda canvas, title: "<svg/>")
        patch.setattr(tables, "THINNINGS", 3)
        return contest, found.study.name, page(found, folder, "# The story\n")


def row(text: str, begins: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {begins} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_scores_are_those_of_the_ledger_by_sql_and_scipy(made):
    contest, _, found = made
    truth = rows(
        made[0].study.folder.parent,
        "SELECT coalition, avg(value) FROM evaluations JOIN property_values ON evaluation_id = evaluations.id "
        "JOIN properties ON properties.id = property_id "
        "WHERE purpose = 'truth' AND properties.name = 'colourfulness' GROUP BY coalition",
    )
    coalitions = np.array([decode(coalition) for coalition, _ in truth])
    counted = spearmanr(coalitions @ np.arange(8), [value for _, value in truth]).statistic
    assert float(re.match(r"[−\d.]+", row(found.text, "image_count")[2])[0].replace("−", "-")) == pytest.approx(
        counted, abs=0.0051
    )
    expected = compare_lds(contest.truths("colourfulness"), contest.contenders("colourfulness"))
    own = next(score for score in expected.scores if score.contender.name == "shapley, sparsified")
    assert row(found.text, "**shapley, sparsified**")[1:3] == [
        "30",
        f"{own.spearman.value:.2f} ({own.spearman.low:.2f} to {own.spearman.high:.2f})",
    ]
    assert own.spearman.value > 0.8


def test_what_it_cost_is_what_the_ledger_says(made):
    ((models, *seconds),) = rows(
        made[0].study.folder.parent,
        "SELECT count(*), sum(json_extract(seconds, '$.training')), sum(json_extract(seconds, '$.sampling')) "
        "FROM evaluations WHERE status = 'done'",
    )
    assert row(made[2].text, "**all**")[2:5] == [str(models), *(f"{stage:,.0f} s" for stage in seconds)]


def test_every_part_that_a_ledger_is_enough_for(made):
    _, name, found = made
    assert name == "tiny"
    assert found.text.startswith("# The story\n")
    for file in re.findall(r"\(results/([^)]+)\)", found.text):
        assert file in found.files
    titles = re.findall(r"^## (.+)$", found.text, re.MULTILINE)
    for begins in ("Who predicts", "What it cost", "Do the credits order", "Convergence", "Budget", "Fidelity"):
        assert any(title.startswith(begins) for title in titles), titles
    assert {"lds-scores.csv", "convergence.csv", "of-unlearning.png"} <= found.files.keys()
    assert "## About contributors" in found.text
    assert "of-contributors.png" not in found.files  # their images are not passed on


def test_the_study_goes_on_from_its_record(made, tmp_path):
    contest, _, _ = made
    folder = contest.study.folder.parents[1]
    names = {"study": {}, "paper": {"name": "drawn"}, "unlearned": {"name": "unlearned"}}
    studies = [Study.load(validated(tmp_path / place, settings)) for place, settings in names.items()]
    unpack(folder / "record", *studies)
    for place in names:
        for query in ("SELECT * FROM chain ORDER BY number", "SELECT * FROM property_values ORDER BY id"):
            assert rows(tmp_path / place, query) == rows(folder / place, query)
    models = studies[0].folder / "models"
    assert {each.name: (each / "model").read_text() for each in models.iterdir() if each.is_dir()} == {
        "base-1": "base-1",
        "sparse-2": "sparse-2",
    }
    found = {name: len(ValidationData(studies[0]).games(name)) for name in contest.properties}
    assert found == {name: len(contest.games(name)) for name in contest.properties}
    with pytest.raises(UserError, match=r"ledger\.db: already exists"):
        unpack(folder / "record", *studies)


def test_the_page_is_what_its_record_says():
    """One score of the study's own page, computed again from the archive and the table of baselines."""
    archived, *_ = read_archive(RECORD / LEDGER)
    coalitions = {number: each["coalition"] for number, (_, each) in enumerate(archived, 1) if "coalition" in each}
    truth = {number for number, (_, each) in enumerate(archived, 1) if each.get("purpose") == "truth"}
    values = {}
    for kind, each in archived:
        if kind == "value" and each["property"] == "colourfulness" and each["evaluation"] in truth:
            values.setdefault(coalitions[each["evaluation"]], []).append(each["value"])
    halves = [coalition for coalition in values if coalition.count("1") == 10]
    assert len(halves) == 100
    with (RECORD / CREDITS).open(encoding="utf-8", newline="") as lines:
        method = ("pixel_similarity", "mean", "")
        table = [each for each in csv.DictReader(lines) if tuple(each.values())[:3] == method]
    credits = {each["contributor"]: float(each["credit"]) for each in table}
    worth = np.array([credits[name] for name in archived[0][1]["settings"]["contributors"]])
    scored = [decode(coalition) @ worth for coalition in halves]
    text = PAGE.read_text(encoding="utf-8")
    cell = row(text, "pixel_similarity (mean)")[row(text, "method").index("Colourfulness")]
    expected = spearmanr(scored, [np.mean(values[coalition]) for coalition in halves]).statistic
    assert numbers(cell)[0] == pytest.approx(expected, abs=0.0051)


def test_thinned_evaluations_have_the_kernels_sizes(made, monkeypatch):
    contest, given = made[0], []
    real = tables.game_credits

    def spied(game, estimator):
        given.append((game.size_distribution, game.coalitions.sum(axis=1)))
        return real(game, estimator)

    monkeypatch.setattr(tables, "game_credits", spied)
    monkeypatch.setattr(tables, "THINNINGS", 100)
    lines = tables.thinned(contest, {"colourfulness": "Colour"})
    sizes = {name: np.concatenate([each for design, each in given if design == name]) for name in ("kernel", "uniform")}
    assert len(sizes["kernel"]) == len(sizes["uniform"])
    drawn = contest.game(contest.study.recipe, "colourfulness").coalitions.sum(axis=1)
    expected = np.array([sum(1 / (k * (8 - k)) for k in drawn if k == size) for size in range(1, 8)])
    counts = np.bincount(sizes["kernel"], minlength=8)[1:8]
    assert counts / counts.sum() == pytest.approx(expected / expected.sum(), abs=0.03)
    assert lines[0].endswith("evaluations | Colour |")
    assert all("±" in line for line in lines[2:4])


def test_where_nobody_trained_is_far_off_the_papers_estimator_is_freed_of_it(made, monkeypatch):
    contest, prop = made[0], "colourfulness"
    game, worth = contest.game(contest.study.recipe, prop), 3.5 - np.arange(8)  # no sum depends on the size
    far = replace(game, values=game.coalitions @ worth, full=(0.0,), empty=(1e3,))
    monkeypatch.setattr(contest, "game", lambda study, prop: far)
    measured, freed = (row("\n".join(tables.levelled(contest, {prop: "Colour"})), name)[1] for name in LEVELS)
    (truth,) = contest.truths(prop)
    expected = spearmanr(truth.coalitions @ worth, truth.values.mean(axis=1)).statistic
    assert float(freed) == pytest.approx(expected, abs=0.0051)
    assert float(measured.replace("−", "-")) < float(freed) - 0.3


def test_of_sizes_near_to_a_half_alone(made, monkeypatch):
    """Contributors' worth is another in small coalitions, which a datamodel of those near to a half does not see."""
    contest, prop = made[0], "colourfulness"
    game, (truth,) = contest.game(contest.study.recipe, prop), contest.truths(prop)
    random = np.random.default_rng(0)
    rows = random.permuted(np.arange(8) < random.integers(1, 8, 400)[:, None], axis=1)
    middle, small = 2.0 ** np.arange(8), 9 * 2.0 ** np.arange(8)[::-1]
    values = np.where(np.abs(rows.sum(axis=1) - 4) <= 1, rows @ middle, rows @ small)
    several = replace(game, coalitions=rows, values=values, training_seconds=values, sampling_seconds=values)
    truth = replace(truth, values=(truth.coalitions @ middle)[:, None])
    monkeypatch.setattr(contest, "game", lambda study, prop: several)
    monkeypatch.setattr(contest, "truths", lambda prop: [truth])
    tasks = [Task(encode(row), 0, "estimate") for row in rows]
    monkeypatch.setattr(contest, "design", lambda study: SimpleNamespace(tasks=tasks))
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in tables.of_sizes(contest, {prop: "Colour"})
    ]
    assert [each[0] for each in lines[2:] if len(each) > 1] == ["1 to 7", "3 to 5", "4 to 4"]
    assert int(lines[3][1]) == int((np.abs(rows.sum(axis=1) - 4) <= 1).sum())
    assert [float(each[2].replace("−", "-")) > 0.99 for each in lines[2:5]] == [False, True, True]


def test_what_the_recipe_itself_says_of_truths_coalitions(tmp_path):
    contest, prop = planted(tmp_path, noise=0.5), "colourfulness"
    contest.baselines = []
    assert recipe.itself(contest, {prop: "Colour"}) == recipe.misjudged(contest, {prop: "Colour"}, {}) == []
    (truth,), game = contest.truths(prop), {prop: additive(np.arange(8.0))}
    tasks = [Task(encode(row), 0, "validation") for row in truth.coalitions]
    record(contest.study.recipe, tasks[1:], game)
    assert recipe.itself(contest, {prop: "Colour"}) == []  # all of them, or none
    record(contest.study.recipe, tasks[:1], game)
    lines = [line.split("|") for line in recipe.itself(contest, {prop: "Colour"})[2:8]]
    told = {(row[1].strip(), row[2].strip()): numbers(row[3]) for row in lines}
    credits = truth.coalitions @ contest.contenders(prop)[0].credits
    own, retrained = truth.coalitions @ np.arange(8.0), truth.values.mean(axis=1)
    for key, one, other in (
        (("F by the recipe", "retraining"), own, retrained),
        (("the study's credits", "retraining"), credits, retrained),
        (("the study's credits", "F by the recipe"), credits, own),
    ):
        assert told[key][0] == pytest.approx(spearmanr(one, other).statistic, abs=0.0051)
    # what the recipe has without noise an additive model finds but for coalitions that it did not see
    learned, ceiling = (told[f"additive model of {what}", "retraining"] for what in ("F by the recipe", "retraining"))
    assert learned[0] == pytest.approx(told["F by the recipe", "retraining"][0], abs=0.02)
    difference = told["the latter two's difference", ""]
    assert difference[0] == pytest.approx(ceiling[0] - learned[0], abs=0.011)
    assert difference[1] <= difference[0] <= difference[2]


def test_whom_the_recipe_misjudges_is_named(tmp_path):
    """Among contributors whose order is not that of what they are called."""
    contest, prop = planted(tmp_path, noise=0.1), "colourfulness"
    (truth,), names = contest.truths(prop), contest.study.contributions.contributors
    rated = WEIGHTS + np.where(np.array(names) == "cy", 5.0, 0.0)
    tasks = [Task(encode(row), 0, "validation") for row in truth.coalitions]
    record(contest.study.recipe, tasks, {prop: additive(rated, noise=0.1)})
    called = {name: f"{name}'s" for name in reversed(names[1:])}
    lines = [line.split("|") for line in recipe.misjudged(contest, {prop: "Colour"}, called)[2:-1]]
    assert [row[1].strip() for row in lines] == [*called.values(), names[0]]
    found = {row[1].strip(): numbers(row[2])[0] for row in lines}
    assert max(found, key=lambda name: abs(found[name])) == "cy's"
    assert found["cy's"] > recipe.FAR
    assert next(row[2] for row in lines if row[1].strip() == "cy's").strip().startswith("**+")


def test_effects_that_the_recipe_misjudges_are_in_their_own_standard_errors():
    random, found = np.random.default_rng(1), []
    coalitions = np.array([random.permutation(8) < 4 for _ in range(60)])
    for _ in range(400):
        noises = random.normal(0, 0.5, (2, 60))
        found.append(recipe.overrated(recipe.Seen(coalitions, *(coalitions @ np.arange(8.0) + noises))))
    assert np.std(found) == pytest.approx(1, abs=0.1)


@pytest.mark.slow
def test_how_much_depends_on_which_were_evaluated(tmp_path, monkeypatch):
    contest, prop = planted(tmp_path, noise=3.0), "colourfulness"
    monkeypatch.setattr(tables, "SOME_COUNTS", (10, 20))
    (worse, spread), (better, less) = (numbers(line) for line in tables.redrawn(contest, {prop: "Colour"})[2:4])
    assert worse < better < 1
    assert 0 < less < spread


def test_recipes_are_compared_from_as_many_evaluations(tmp_path):
    contest, prop = planted(tmp_path, noise=0.5), "colourfulness"
    line = next(line for line in tables.as_many(contest, {prop: "Colour"}) if "from_scratch" in line)
    _, recipe_name, count, found, _ = map(str.strip, line.split("|"))
    own, scratch = (contest.game(each, prop) for each in (contest.study.recipe, contest.scratch))
    assert (recipe_name, int(count)) == ("from_scratch", min(len(own.values), len(scratch.values)))
    (truth,) = contest.truths(prop)
    means = truth.values.mean(axis=1)
    ours, theirs = (
        spearmanr(truth.coalitions @ game_credits(each, "shapley", slice(int(count))), means).statistic
        for each in (own, scratch)
    )
    assert numbers(found)[0] == pytest.approx(theirs - ours, abs=0.0051)


def numbers(text: str) -> list[float]:
    return [float(each) for each in re.findall(r"-?\d+\.\d+", text.replace("−", "-"))]


def test_of_whom_the_recipe_thinks_too_much():
    random = np.random.default_rng(0)
    coalitions = np.array([random.permutation(20) < 10 for _ in range(100)])
    effects, others = random.normal(0, 1, (2, 20))
    noises = random.normal(0, 0.5, (2, 100))
    same = recipe.overrated(recipe.Seen(coalitions, 7 + 0.3 * (coalitions @ effects + noises[0]), coalitions @ effects))
    assert np.abs(same).max() < recipe.FAR  # models that differ less are not otherwise
    wrong = effects + np.eye(20)[4] * 1.5
    found = recipe.overrated(recipe.Seen(coalitions, coalitions @ wrong + noises[0], coalitions @ effects + noises[1]))
    assert [place for place in range(20) if abs(found[place]) > recipe.FAR] == [4]
    assert found[4] > 0
    lost = recipe.overrated(recipe.Seen(coalitions, coalitions @ others + noises[0], coalitions @ effects + noises[1]))
    assert (np.abs(lost) > recipe.FAR).sum() > 10


def test_of_another_share_the_best_of_each_kind_is_told():
    random = np.random.default_rng(0)
    truths, worth = [], {0.5: np.arange(8.0), 0.25: -np.arange(8.0)}
    for share, credits in worth.items():
        members = np.array([random.permutation(8) < 8 * share for _ in range(30)])
        truths.append(Truth(share, members, (members @ credits)[:, None] + random.normal(0, 0.1, (30, 2))))
    contenders = [
        Contender("own", "shapley", "", worth[0.5]),
        Contender("other", "shapley", "", worth[0.25]),
        Contender("near", "banzhaf", "", worth[0.5] + random.normal(0, 0.1, 8)),
        Contender("far", "banzhaf", "", worth[0.25] + random.normal(0, 0.1, 8)),
    ]
    found = {"Colour": compare_lds(truths, contenders, against="own")}
    names = [line.split("|")[1].strip() for line in tables.scores(tables.at_share(found, 0.25), best=True)[4:-1]]
    assert names == ["other", "**own**", "far"]
    assert row("\n".join(tables.scores(tables.at_share(found, 0.25), best=True)), "other")[2].endswith("△")
    assert row("\n".join(tables.scores(found)), "other")[2].endswith("▽")


def test_the_papers_draws_are_credited_by_its_estimator_and_by_ours(made):
    """Of a property that is better low too, credits are the right way round."""
    lines = made[2].text
    for estimator, count in product(("kernelshap", "shapley"), (100, 120)):
        for score in row(lines, f"{estimator}, {count} of the paper's draws")[2:]:
            assert float(score.split()[0]) > 0.8
    assert not re.search(r"kernelshap, (?!100|120)\d+ of the paper's draws", lines)
    assert row(lines, "kernelshap, sparsified")  # by the study's


def test_labelers_by_what_they_are_called(made):
    contest = made[0]
    credited = credit_tables(contest.study)
    (first, second, *_), called = contest.study.contributions.contributors, {}
    called[second] = "roses"
    lines = labelers(credited, called)
    assert lines[2].startswith("| roses | ")
    assert lines[3].startswith(f"| {first} | ")
    credits = contest.study.credits()["colourfulness"].values
    best = contest.study.contributions.contributors[int(np.argmax(credits))]
    column = ["labeler of", *(each.title for each in credited)].index("colourfulness")
    assert row("\n".join(lines), called.get(best, best))[column].startswith("**1**: ")
    assert sum("**" in line for line in lines[2:]) >= 3


def test_retrained_models_of_half_of_the_labelers(made):
    ((models, mean),) = rows(
        made[0].study.folder.parent,
        "SELECT count(*), avg(value) FROM evaluations JOIN property_values ON evaluation_id = evaluations.id "
        "JOIN properties ON properties.id = property_id WHERE purpose = 'truth' "
        "AND properties.name = 'colourfulness' AND length(replace(coalition, '0', '')) = 4",
    )
    average, _ = retrained(made[0], ["heldout_loss", "colourfulness"])  # not in the ledger's order
    assert average[0] == f"images of {models} models retrained on half of the labelers: mean"
    assert average[2] == pytest.approx(mean)
    assert average[1] != pytest.approx(mean)
