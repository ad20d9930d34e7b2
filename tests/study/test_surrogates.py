"""Surrogates in a study file: prepared once, their values in the ledger, corrected by evaluations."""

import json
import shutil

import numpy as np
import pytest
import torch
import yaml

import tampering
from diffcredit.coalitions import encode, make_design
from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
from diffcredit.execution import InProcess
from diffcredit.execution.threads import limited_threads
from diffcredit.ledger import ChangedRecord, Evaluation, Value
from diffcredit.report.composing import write_results
from diffcredit.study.crediting import estimate_all
from diffcredit.study.manifest import enter_terms
from diffcredit.study.published import published
from diffcredit.study.study import Study
from diffcredit.testing.games import brute_force_shapley, learning
from test_architecture import HEAVY, RUN, loaded
from tiny_study import CONFIG, files_below, recorded_values, run_here, write_small

ASKED = {"pools": 20, "soup": 12, "reweighting": 20, "real_data": 12}


@pytest.fixture(scope="module")
def surrogate_study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("surrogates")
    changes = {
        "contributions": {"path": "images", "resolution": 16, "holdout": 0.2},
        "properties": CONFIG["properties"],
        "surrogates": [{"name": name, "coalitions": coalitions} for name, coalitions in ASKED.items()],
    }
    with limited_threads(1):
        Study.load(write_small(folder, {**changes, "stop.evaluations": 10}, "a b c d e f")).run(InProcess())
    return folder


def kept(folder):
    """The surrogates' entries: by surrogate and property, the values."""
    found = {}
    study = Study.load(folder)
    with study.ledger(create=False) as ledger:
        for each in (entry.content for entry in ledger.entries(study.name, "surrogate")):
            values = found.setdefault((each["surrogate"], each["property"]), each["values"])
            assert values is each["values"] or not values.keys() & each["values"].keys(), "each is entered once"
            if values is not each["values"]:
                values |= each["values"]
    return found


def test_each_is_measured_for_each_property_of_images(surrogate_study):
    values = kept(surrogate_study)
    assert set(values) == {(s, p) for s in ASKED for p in ("colourfulness", "cluster_entropy", "heldout_loss")}
    assert {key for key, each in values.items() if each is None} == {(s, "heldout_loss") for s in ASKED}
    evaluated = {key[1] for key in recorded_values(surrogate_study)} - {"0" * 6}
    for name, least in ASKED.items():
        assert evaluated <= set(values[name, "colourfulness"])
        assert least <= len(values[name, "colourfulness"]) <= least + 11
    # of all, in closed form: the images that everybody gave
    study = Study.load(surrogate_study)
    colourfulness = next(prop for prop in study.prepared.properties if prop.name == "colourfulness")
    assert values["real_data", "colourfulness"]["1" * 6] == colourfulness.measure(study.contributions.images)


def test_credits_use_them_and_say_so(surrogate_study):
    study = Study.load(surrogate_study)
    corrected, alone = study.credits(), study.credits(corrected=False)
    assert "anchor_1" in corrected["colourfulness"].diagnostics
    assert "anchor_1" not in alone["colourfulness"].diagnostics
    np.testing.assert_array_equal(corrected["heldout_loss"].values, alone["heldout_loss"].values)
    unshrunk = study.credits("unshrunk")["colourfulness"]  # takes none
    np.testing.assert_array_equal(unshrunk.values, study.credits("unshrunk", corrected=False)["colourfulness"].values)
    assert study.surrogates.without() == ["heldout_loss"]
    assert study.surrogates.ready()


def test_reading_kept_values_loads_no_torch(surrogate_study):
    assert loaded(RUN.format([["credits", str(surrogate_study)]]), {*HEAVY, "numpy"}) == {"numpy"}


def test_running_again_prepares_nothing(surrogate_study):
    models = surrogate_study / "results/models"
    before = {name: (models / name).stat().st_mtime_ns for name in files_below(models)}
    assert run_here(surrogate_study / "study.yaml") == []
    assert {name: (models / name).stat().st_mtime_ns for name in files_below(models)} == before


N = 8
PLANTED = '''
import numpy as np
import torch
from diffcredit.testing.games import learning, random_game

class Level:
    """The number that an image's first bytes are; of a model's images, their mean."""
    name = "level"

    def measure(self, images):
        if len(images) == 1:
            return float(np.frombuffer(images.tobytes()[:8], "<f8")[0])
        return float(images.mean())

class Surrogate:
    coalitions = 254

    def work(self, n, coalitions):
        raise AssertionError

    def prepare(self, material):
        pass

    def images(self, coalition):
        assert torch.get_num_threads() == 1  # the study's, as for evaluations
        (value,) = self.game(coalition[None])
        pixels = np.zeros((1, 16, 16, 3), dtype=np.uint8)
        pixels.reshape(-1)[:8] = np.frombuffer(np.float64(value).tobytes(), dtype=np.uint8)
        return pixels

class Near(Surrogate):
    def game(self, coalitions):
        return 5 - 3 * learning(8, seed=1)(coalitions) + 0.02 * random_game(8, seed=3)(coalitions)

class Sampled(Near):
    coalitions = 60

class Junk(Surrogate):
    def game(self, coalitions):
        return random_game(8, seed=4)(coalitions)
'''


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A study with the planted surrogates, which are prepared."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "planted_surrogates.py").write_text(PLANTED)
    changes = {
        "properties": ["planted_surrogates:Level"],
        "surrogates": [f"planted_surrogates:{name}" for name in ("Near", "Sampled", "Junk")],
    }
    study = Study.load(write_small(folder, changes, "a b c d e f g h"))
    study.prepare()
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        study.surrogates.prepare()
    finally:
        torch.set_num_threads(before)
    return study


def evaluation(coalition, value, replicate=0, purpose="estimate"):
    clock = "2025-01-01T00:00:00.000+00:00"
    return Evaluation(
        coalition, replicate, purpose, "done", (Value("level", value),), None, {}, {}, "somebody", clock, clock
    )


def evaluations(seed, count=40, noise=0.05):
    """The game `learning` with noise, and its endpoints without."""
    game, rng = learning(N, seed=1), np.random.default_rng(seed)
    rows = make_design("uniform", seed).draw(N, 0, count)
    values = game(rows) + noise * rng.normal(size=count)
    times = {}
    made = [
        evaluation("0" * N, 0.0, purpose="endpoint"),
        evaluation("1" * N, float(game(np.ones((1, N), dtype=bool))[0]), purpose="endpoint"),
    ]
    for row, value in zip(map(encode, rows), values, strict=True):
        times[row] = times.get(row, -1) + 1
        made.append(evaluation(row, float(value), times[row]))
    return made


@pytest.mark.parametrize(("place", "name"), enumerate(["Near", "Sampled", "Junk"]))
def test_good_ones_narrow_the_intervals_and_junk_costs_next_to_nothing(planted, place, name):
    def known(prop, coalitions):
        return [planted.surrogates.known(prop, coalitions)[place]]

    truth = brute_force_shapley(learning(N, seed=1), N)
    errors, plain_errors, widths, plain_widths, covered, moved = [], [], [], [], [], []
    for seed in range(9):
        made = evaluations(seed)
        credits = estimate_all(made, ["level"], planted.config, surrogates=known)[0]["level"]
        plain = estimate_all(made, ["level"], planted.config)[0]["level"]
        errors.append(credits.values - truth)
        plain_errors.append(plain.values - truth)
        widths.append(credits.contrast_half_width.mean())
        plain_widths.append(plain.contrast_half_width.mean())
        covered.append((credits.low <= truth) & (truth <= credits.high))
        moved.append(np.abs(credits.values - plain.values).mean() / plain.standard_error.mean())
    assert np.mean(covered) > 0.9
    if name == "Junk":
        assert np.mean(moved) < 0.25
        assert np.mean(widths) < 1.1 * np.mean(plain_widths)
        return
    assert np.mean(widths) < (0.85 if name == "Near" else 1) * np.mean(plain_widths)
    assert np.mean(np.square(errors)) < 0.6 * np.mean(np.square(plain_errors))
    if name == "Near":  # one table of 60 coalitions errs by the same amount every time
        assert (np.abs(np.mean(errors, axis=0)) < 4 * np.std(errors, axis=0) / 3).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"surrogates": ["pool"]}, "surrogates.0: 'pool' is unknown; accepted: pools, soup, reweighting, real_data"),
        ({"surrogates": [{"name": "pools", "size": 3}]}, "surrogates.0.size: unknown; pools accepts coalitions"),
        ({"surrogates": ["soup", "soup"]}, "surrogates: .* 'soup' is there twice; once is accepted"),
        ({"surrogates": ["pools", "soup", "real_data"]}, "surrogates: 3 for 4 contributors .* at most 2 are accepted"),
        ({"surrogates": [{"name": "soup", "coalitions": 7}]}, r"surrogates\.0\.coalitions: 7 are too few .* least 8"),
        (
            {"surrogates": ["real_data", "pools"], "retraining": {"method": "from_scratch"}},
            "surrogates.1: surrogate 'pools' fine-tunes .*; accepted: a retraining such as fine_tune or sparsified",
        ),
        (
            {"surrogates": ["soup"], "retraining": {"method": "gradient_ascent"}},
            "surrogates.0: surrogate 'soup' fine-tunes .*, and this retraining does not; accepted: ",
        ),
        ({"surrogates": ["json:JSONDecoder"]}, "surrogates.0: 'json:JSONDecoder' has no coalitions; an ImageSurrogate"),
    ],
)
def test_mistakes_show_before_anything_is_trained(tmp_path, changes, said):
    file = write_small(tmp_path, changes, "ada bob cem dan")
    with pytest.raises(UserError, match=said) as raised:
        run_here(file)
    assert str(raised.value).startswith(f"{file}: surrogates")
    assert not (tmp_path / "results").exists()


PLUG_IN = """
from diffcredit.surrogates.existing_images import RealImages

class Mine(RealImages):
    pass
"""


def test_changed_code_of_a_surrogate_shows_no_other_credits(tmp_path):
    """Credits of the evaluations alone would be others than those that were published."""
    file = write_small(tmp_path, {"surrogates": [{"name": "edited_surrogate:Mine", "coalitions": 14}]}, "a b c d")
    code = tmp_path / "edited_surrogate.py"
    code.write_text(PLUG_IN)
    with limited_threads(1):
        Study.load(file).run(InProcess())
    before = Study.load(file).credits()["colourfulness"].values
    code.write_text(PLUG_IN.replace("pass", "more = 1"))
    for shows in (Study.credits, published):
        with pytest.raises(
            ChangedRecord, match=r"study\.yaml: surrogates \(edited_surrogate:Mine\): the credits .* follow from them"
        ):
            shows(Study.load(file))
    with limited_threads(1):
        Study.load(file).run(InProcess())
    assert published(Study.load(file))
    np.testing.assert_array_equal(Study.load(file).credits()["colourfulness"].values, before)


def test_a_property_that_fails_on_a_surrogates_images_is_an_error_with_both_names(tmp_path):
    (tmp_path / "picky_property.py").write_text(
        "class Picky:\n    def measure(self, images):\n        assert len(images) == 4\n        return 1.0\n"
    )
    file = write_small(tmp_path, {"surrogates": ["real_data"], "properties": ["picky_property:Picky"]})
    with pytest.raises(DiffcreditError, match="surrogate 'real_data': property 'Picky' cannot be measured"):
        run_here(file)


def test_only_a_run_prepares_them(tmp_path):
    """Where they were added after the evaluations, the ledger must have that first; then credits wait for them."""
    run_here(write_small(tmp_path))
    before, recorded = files_below(tmp_path / "results"), recorded_values(tmp_path)
    plain = Study.load(tmp_path).credits()["colourfulness"]
    assert Study.load(tmp_path).surrogates.known("colourfulness", np.ones((2, 3), dtype=bool)) == []
    file = write_small(tmp_path, {"surrogates": ["pools"]})
    with pytest.raises(UserError, match=r'surrogates \(absent\) → \[{"name":"pools"}\] .* have diffcredit run enter'):
        Study.load(file).credits()
    study = Study.load(file)
    with study.ledger() as ledger:  # as an interrupted run does
        enter_terms(study, ledger)
    with pytest.warns(DiffcreditWarning, match=r"surrogates \(pools\): not measured at all coalitions yet"):
        credits = Study.load(file).credits()["colourfulness"]
    np.testing.assert_array_equal(credits.values, plain.values)
    Study.load(file).schedule().catch_up()
    assert files_below(tmp_path / "results") == before
    with pytest.warns(DiffcreditWarning, match=r"surrogates \(pools\): not measured at all coalitions yet"):
        write_results(Study.load(file), retrain=False)
    made = files_below(tmp_path / "results/models") - {name.removeprefix("models/") for name in before}
    # images of the base model and of contributors, nothing trained
    assert sorted(name.partition("-")[0] for name in made) == ["generated", "thumbnails"]
    report = (tmp_path / "results/report.html").read_text(encoding="utf-8")
    assert "These surrogates are not measured yet: pools. The credits are those of the evaluations alone." in report
    with limited_threads(1):
        assert Study.load(file).run(InProcess()).evaluations == ()
    assert "anchor_1" in Study.load(file).credits()["colourfulness"].diagnostics
    assert recorded_values(tmp_path) == recorded


def test_the_stopping_rule_sees_the_better_precision(planted):
    """With F known but for little noise from the surrogate, the first look is enough."""
    made = evaluations(0, count=40)
    with planted.ledger() as ledger:
        for each in made:
            ledger.record(planted.name, planted.recipe.name, each)
    credits, plain = planted.credits()["level"], planted.credits(corrected=False)["level"]
    target = float(((credits.high - credits.low).max() + (plain.high - plain.low).max()) / 2)
    stop = {"any": [{"evaluations": 1000}, {"width": target}]}
    content = planted.config.model_dump(mode="json", by_alias=True, exclude_none=True) | {"stop": stop}
    for surrogates, reached in ((content["surrogates"], True), ([], False)):
        planted.file.write_text(yaml.safe_dump(content | {"surrogates": surrogates}))
        schedule = Study.load(planted.file).schedule()
        schedule.catch_up()
        assert schedule.rule_status().reached is reached


def test_values_in_files_of_an_older_study(surrogate_study, tmp_path):
    """They count until somebody writes; then they are in the ledger, and files count no more."""
    before = Study.load(surrogate_study).credits()["colourfulness"].values
    folder = shutil.copytree(surrogate_study, tmp_path / "older")
    study = Study.load(folder)
    with study.ledger(create=False) as ledger:
        kept = {each.name: each.content for each in ledger.entries(study.name, "surrogate")}
        merged = {}
        for each in ledger.entries(study.name, "surrogate"):
            merged[each.name] = merged.get(each.name, {}) | (each.content["values"] or {})
    tampering.change(folder / "results" / "ledger.db", "DELETE FROM entries")
    tampering.chain_anew(folder / "results" / "ledger.db")
    for key, content in kept.items():
        values = None if content["values"] is None else merged[key]
        study.cache.path("surrogate", key, ".json").write_text(json.dumps(content | {"values": values}))
    study = Study.load(folder)
    np.testing.assert_array_equal(study.credits()["colourfulness"].values, before)
    with study.ledger() as ledger:
        enter_terms(study, ledger)
        entered = {each.name: each.content["values"] for each in ledger.entries(study.name, "surrogate")}
    assert entered == {key: content["values"] and merged[key] for key, content in kept.items()}
    for file in study.cache.folder.glob("surrogate-*.json"):
        file.write_text("{}")  # whoever writes another now changes nothing
    np.testing.assert_array_equal(Study.load(folder).credits()["colourfulness"].values, before)
