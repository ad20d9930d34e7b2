"""Study files that are accepted and refused; tests/fuzz has the random ones."""

import pytest
import yaml

from diffcredit.credit.precision import Correlation, TopK, Width
from diffcredit.credit.stopping import AllOf, AnyOf, Evaluations, Money, Time
from diffcredit.errors import UserError
from diffcredit.study.config import read_config
from diffcredit.study.prepared import build_properties
from diffcredit.study.study import Study
from tiny_study import CONFIG, changed, write_study


def refusal(file):
    """What is said against a study file: one line that begins with it."""
    with pytest.raises(UserError) as raised:
        read_config(file)
    message = str(raised.value)
    assert message.startswith(f"{file}: ")
    assert "\n" not in message
    return message.removeprefix(f"{file}: ")


def refused_text(tmp_path, text):
    file = tmp_path / "study.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return refusal(file)


ONE_OF = "evaluations, hours, money, correlation, width, top, any, all"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        # keys that nobody knows, at every level
        ({"contributers": 1}, "contributers: unknown key; accepted: name, seed, contributions, model, "),
        ({"contributions.pth": "x"}, "contributions.pth: unknown key; accepted: source, path, contributor, "),
        ({"model.train.stepz": 1}, "model.train.stepz: unknown key; accepted: steps, batch_size, learning_rate, "),
        ({"validation.share": 0.5}, "validation.share: unknown key; accepted: shares, coalitions, seeds, steps, "),
        ({"stop": {"any": [{"all": [{"evals": 1}]}]}}, f"stop.any.0.all.0.evals: unknown key; accepted: {ONE_OF}"),
        # what is missing
        ({"model": None}, "model: missing; a mapping with the keys family, train, seed is expected"),
        ({"name": None}, "name: missing; a value is expected"),
        ({"model.train.steps": None}, "model.train.steps: missing; a value is expected"),
        ({"properties": [{"clusters": 3}]}, "properties.0.name: missing; a value is expected"),
        ({"validation.retrainings": [{"steps": 1}]}, "validation.retrainings.0.method: missing; a value is expected"),
        ({"stop": {"money": {"amount": 200}}}, "stop.money.per_hour: missing; a value is expected"),
        ({"stop": {"correlation": {"least": 0.9}}}, "stop.correlation.at_least: missing; a value is expected; "),
        # the wrong type
        ({"model": 5}, "model: 5 is not accepted; a mapping with the keys family, train, seed is expected"),
        ({"sampling": "ddim"}, "sampling: 'ddim' is not accepted; a mapping with the keys images, "),
        ({"properties": "colourfulness"}, "properties: 'colourfulness' is not accepted; a list of at least one "),
        ({"properties": []}, "properties: [] is not accepted; a list of at least one is expected"),
        ({"properties": [7]}, "properties.0: 7 is not accepted; a mapping with the keys name, as, prompts is expected"),
        ({"name": 5}, "name: 5 is not accepted; input should be a valid string"),
        ({"model.train.steps": 2.5}, "model.train.steps: 2.5 is not accepted; input should be a valid integer"),
        ({"contributions.holdout": [1]}, "contributions.holdout: [1] is not accepted; input should be a valid number"),
        ({"contributions.path": 3}, "contributions.path: 3 is not accepted; a path"),
        (
            {"validation.retrainings": {"method": "lora"}},
            "validation.retrainings: {'method': 'lora'} is not accepted; ",
        ),
        ({"matters": 0.5}, "matters: 0.5 for 3 properties; a number for each is accepted: {heldout_loss: …, "),
        ({"matters": {"colour": 1.0}}, "matters: 'colour' is not one of the study's properties; accepted: heldout_"),
        (
            {"matters": {"colourfulness": True}},
            "matters: {'colourfulness': True} is not accepted; a number above 0 is ",
        ),
        ({"matters": 0}, "matters: 0 is not accepted; a number above 0 is accepted, or {PROPERTY: number, …} for "),
        ({"validation.shares": ["half"]}, "validation.shares: 'half' is not accepted; input should be a valid number"),
        ({"stop": 5}, f"stop: 5 is not accepted; a mapping with the keys {ONE_OF} is expected"),
        ({"stop": {"any": [1]}}, f"stop.any.0: 1 is not accepted; a mapping with the keys {ONE_OF} is expected"),
        (
            {"stop": {"all": {"evaluations": 5}}},
            "stop.all: {'evaluations': 5} is not accepted; a list of at least one ",
        ),
        ({"stop": {"width": "narrow"}}, "stop.width.at_most: 'narrow' is not accepted; input should be a valid number"),
        ({"stop": {"top": 5}}, "stop.top: 5 is not accepted; a mapping with the keys k, overlap, property is expected"),
        ({1: 2}, "1: 1 is not accepted; keys should be strings"),
        (
            {"contributions.house": 3},
            "contributions.house: 3 is not accepted; a mapping with the keys source, path is ",
        ),
        ({"contributions.house": {"path": 3}}, "contributions.house.path: 3 is not accepted; a path"),
        (
            {"contributions.house": ["ann", 3]},
            "contributions.house.1: 3 is not accepted; input should be a valid string",
        ),
        (
            {"reference": "house"},
            "reference: 'house' needs house images: name them in contributions.house; or accepted",
        ),
        ({"reference": "pretrained"}, "reference: 'pretrained' needs a model that comes trained (model.pretrained); "),
        ({"reference": "hause"}, "reference: 'hause' is not accepted; input should be 'house', 'untrained' or "),
        (
            {"reference": {"heldout_loss": 1, "colourfulness": 2}},
            "reference.cluster_entropy: missing; a number for each ",
        ),
        (
            {"reference": {"heldout_loss": 1, "colourfulness": 2, "cluster_entropy": 3, "a": 4}},
            "reference.a: not one of the study's properties; a number for each is expected: heldout_loss, ",
        ),
        ({"reference": {"colourfulness": True}}, "reference: True is not accepted; a number is expected"),
        # true is not the number 1
        ({"seed": True}, "seed: true and false are not accepted; a number is expected"),
        ({"sampling.seed": False}, "sampling.seed: true and false are not accepted"),
        ({"stop": {"any": [{"hours": 1}, {"width": True}]}}, "stop.any.1.width: true and false are not accepted"),
        # out of range
        ({"seed": -1}, "seed: -1 is not accepted; input should be greater than or equal to 0"),
        ({"model.train.learning_rate": 0}, "model.train.learning_rate: 0 is not accepted; input should be greater"),
        ({"model.train.learning_rate": float("nan")}, "model.train.learning_rate: nan is not accepted; "),
        (
            {"sampling.guidance": float("inf")},
            "sampling.guidance: inf is not accepted; input should be a finite number",
        ),
        ({"validation.shares": [0.5, 1]}, "validation.shares: 1 is not accepted; input should be less than 1"),
        (
            {"validation.seeds": 1001},
            "validation.seeds: 1001 is not accepted; input should be less than or equal to 1000",
        ),
        ({"stop": {"hours": float("inf")}}, "stop.hours: inf is not accepted; input should be a finite number"),
        ({"stop": {"correlation": 1}}, "stop.correlation.at_least: 1 is not accepted; input should be less than 1"),
        # prompts
        ({"sampling.prompts": []}, "sampling.prompts: [] is not accepted; a list of at least one text is accepted"),
        ({"sampling.prompts": "a"}, "sampling.prompts: 'a' is not accepted; a list of at least one text is accepted"),
        (
            {"sampling.prompts": ["a", "b", "a"]},
            "sampling.prompts: ['a', 'b', 'a'] is not accepted; the prompt 'a' is there twice; once is accepted",
        ),
        (
            {"sampling.prompts": [3]},
            "sampling.prompts: [3] is not accepted; the prompt 3: texts that are not empty are accepted, a number in ",
        ),
        ({"sampling.prompts": [" "]}, "sampling.prompts: [' '] is not accepted; the prompt ' ': texts that are not"),
        # one of a few
        (
            {"model.train.schedule": "step"},
            "model.train.schedule: 'step' is not accepted; input should be 'constant', ",
        ),
        ({"design.distribution": "normal"}, "design.distribution: 'normal' is not accepted; unknown; choose one of "),
        ({"device": "tpu"}, "device: 'tpu' is not accepted; accepted: auto, cpu, cuda, cuda:1, …"),
        # together
        (
            {"model.train.ema": 0.9, "model.train.average_tail": 0.5},
            "model.train: {'steps': 2, 'batch_size': 8, 'learning_rate': 0.001, 'ema': 0.9, 'average_tail… is not "
            "accepted; ema and average_tail both replace the last weights; give one of them",
        ),
        (
            {"properties": ["a", {"name": "a"}]},
            "properties: ['a', {'name': 'a'}] is not accepted; 'a' is there twice; ",
        ),
        (
            {"validation.shares": [0.5, 0.25, 0.5]},
            "validation.shares: [0.5, 0.25, 0.5] is not accepted; each share once is accepted",
        ),
        (
            {"validation.retrainings": [{"method": "sparsified", "steps": 9}]},
            "validation.retrainings: 'sparsified' is there twice, or the study's own; distinguish them with 'name: ",
        ),
        ({"stop": {}}, f"stop: {{}} is not accepted; one rule is expected: {ONE_OF}"),
        (
            {"stop": {"evaluations": 5, "hours": 3}},
            "stop: {'evaluations': 5, 'hours': 3} is not accepted; evaluations and hours are several rules; join them: "
            "any: [{…}, {…}] ends the study with the first one reached, all: [{…}, {…}] when all are",
        ),
        (
            {"stop": {"correlation": 0.95}},
            "stop: {'correlation': 0.95} is not accepted; it might never be reached; bound it by evaluations, hours or "
            "money, as in any: [{evaluations: 500}, {correlation: 0.95}]",
        ),
        (
            {"stop": {"all": [{"hours": 1}, {"width": 2}]}},
            "stop: {'all': [{'hours': 1}, {'width': 2}]} is not accepted; it",
        ),
        (
            {"stop": {"any": [{"hours": 1}, {"width": {"at_most": 2, "property": "beauty"}}]}},
            "stop: property 'beauty' is not one of the study's; accepted: heldout_loss, colourfulness, cluster_entropy",
        ),
        # paths
        ({"results": "a\0b"}, "results: 'a\\x00b' is not accepted; a path without the character NUL is accepted"),
    ],
    ids=str,
)
def test_refused(tmp_path, changes, said):
    file = tmp_path / "study.yaml"
    content = changed(CONFIG, {key: value for key, value in changes.items() if isinstance(key, str)})
    content |= {key: value for key, value in changes.items() if not isinstance(key, str)}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    assert refusal(file).startswith(said)


@pytest.mark.parametrize(
    ("stop", "rule"),
    [
        (None, Evaluations(500)),
        ({"evaluations": 16}, Evaluations(16)),
        ({"hours": 1.5}, Time(1.5)),
        ({"money": {"amount": 200, "per_hour": 2.5}}, Money(200, 2.5)),
        ({"any": [{"evaluations": 500}, {"correlation": 0.95}]}, AnyOf((Evaluations(500), Correlation(0.95)))),
        (
            {
                "any": [
                    {"all": [{"evaluations": 9}, {"hours": 1}]},
                    {"width": 0.5},
                    {"width": {"at_most": 0.5, "property": "colourfulness"}},
                    {"correlation": {"at_least": 0.9, "property": "cluster_entropy"}},
                    {"top": {"k": 5, "overlap": 0.8, "property": "heldout_loss"}},
                    {"top": {"k": 3}},
                ]
            },
            AnyOf(
                (
                    AllOf((Evaluations(9), Time(1))),
                    Width(0.5),
                    Width(0.5, property="colourfulness"),
                    Correlation(0.9, property="cluster_entropy"),
                    TopK(5, 0.8, property="heldout_loss"),
                    TopK(3, 0.9),
                )
            ),
        ),
    ],
)
def test_stopping_rules(tmp_path, stop, rule):
    assert read_config(write_study(tmp_path, {"stop": stop})).stop.rule == rule


def test_a_plug_in_names_itself(tmp_path):
    stop = {"any": [{"hours": 1}, {"width": {"at_most": 2, "property": "warmth"}}]}
    read_config(write_study(tmp_path, {"stop": stop, "properties": ["mine:Warmth"]}))
    labelled = write_study(tmp_path, {"stop": stop, "properties": [{"name": "mine:Warmth", "as": "cold"}]})
    assert refusal(labelled) == "stop: property 'warmth' is not one of the study's; accepted: cold"


def test_unknown_designs(tmp_path):
    for name in ("subset(x)", "subset(2)", "uniform(0.5)", ""):
        message = refusal(write_study(tmp_path, {"design.distribution": name}))
        assert message.startswith(f"design.distribution: {name!r} is not accepted; ")
        assert "design '" not in message  # said once


def test_all_mistakes_are_reported_at_once(tmp_path):
    message = refusal(write_study(tmp_path, {"seed": -1, "sampling.imgs": 1, "model.train.steps": "x"}))
    assert [part in message for part in ("seed: -1", "sampling.imgs: unknown", "model.train.steps: 'x'")] == [True] * 3


@pytest.mark.parametrize("name", ["../escape", "a\\b", "..", "", "a\n", "a\0b", "~root", "x" * 101, " a", "-rf"])
def test_names_that_are_no_folders(tmp_path, name):
    assert refusal(write_study(tmp_path, {"name": name})).startswith(f"name: {name!r}"[:60])


@pytest.mark.parametrize("name", ["Ünïcode 2", "v1.2_3", "x" * 100])
def test_the_results_folder_is_below_the_study_file(tmp_path, name):
    config = read_config(write_study(tmp_path, {"name": name, "results": None}))
    assert config.results_folder == tmp_path / "results" / name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a study file is a mapping with the keys name, seed, contributions, model, "),
        ("[1, 2]", "a study file is a mapping with the keys "),
        ("name: [", "not valid YAML (line 1: "),
        ("name: a\n\tseed: 0", "not valid YAML (line 2: found character '\\t'"),
        ("name: a\nname: b", "not valid YAML (line 2: the key 'name' is there twice)"),
        ("name: a\0b", "not valid YAML (unacceptable character #x0000"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "cannot be read (not UTF-8 text); a study file is expected"),
        ("#" * 1_000_001, "over 1,000,000 bytes; a study file is expected"),
        ("seed: 2020-13-45", "not valid YAML (month must be in 1..12)"),
        (
            "!!python/object/apply:os.system ['touch hacked']",
            "not valid YAML (line 1: could not determine a constructor",
        ),
        ("name: &a {x: *a}", "over 10,000 values, aliases counted"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_no_study_file(tmp_path, monkeypatch, text, said):
    monkeypatch.chdir(tmp_path)
    assert refused_text(tmp_path, text).startswith(said)
    assert [file.name for file in tmp_path.iterdir()] == ["study.yaml"]


def test_files_that_cannot_be_read(tmp_path):
    assert refusal(tmp_path / "nothing.yaml") == "cannot be read (No such file or directory); a study file is expected"
    assert refusal(tmp_path) == "cannot be read (Is a directory); a study file is expected"
    with pytest.raises(UserError, match=r"study\.yaml: cannot be read \(No such file"):
        Study.load(tmp_path)


TEXT = """
name: words
contributions: {source: openmoji, resolution: 16, holdout: 1e-1}
model: {preset: tiny, train: {steps: 2, learning_rate: 1e-4, flip: false}}
retraining: {method: sparsified, learning_rate: 5E-5}
properties: [colourfulness, {name: colourfulness, percentile: 90, as: vivid}]
validation: {shares: [0.75, 0.25]}
"""


def test_what_a_user_may_write(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text("\ufeff" + TEXT)
    config = read_config(file)
    assert config.model.train.learning_rate == 1e-4  # which YAML 1.1 reads as a text
    assert config.contributions.holdout == 0.1
    assert config.model.train.flip is False
    assert config.retraining.options == {"learning_rate": 5e-5}
    assert config.retraining.recipe == "sparsified"
    assert [(section.name, section.label) for section in config.properties] == [
        ("colourfulness", None),
        ("colourfulness", "vivid"),
    ]
    assert config.properties[1].options == {"percentile": 90}
    assert config.validation.shares == (0.25, 0.75)  # in order
    assert [prop.name for prop in build_properties(read_config(file), file)] == ["colourfulness", "vivid"]


def test_what_matters_is_a_number_for_each_property(tmp_path):
    config = read_config(write_study(tmp_path, {"matters": {"colourfulness": 2}}))
    assert (config.stated_to_matter("colourfulness"), config.stated_to_matter("heldout_loss")) == (2.0, None)
    single = read_config(write_study(tmp_path, {"properties": ["colourfulness"], "matters": "2e-4"}))
    assert single.stated_to_matter("colourfulness") == 2e-4


def test_quoted_numbers_and_anchors_are_fine(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(TEXT.replace("1e-4", "'1e-4'").replace("steps: 2", "<<: &few {steps: 2}"))
    assert read_config(file).model.train.learning_rate == 1e-4
    assert read_config(file).model.train.steps == 2


def test_paths_start_from_the_study_file(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    section = {"path": "data/images", "holdout": "../held out", "house": "ours"}
    file = write_study(tmp_path / "here", {"contributions": section, "results": "out", "ledger": "all.db"})
    config = read_config(file)
    assert config.contributions.path == tmp_path / "here/data/images"
    assert config.contributions.holdout == tmp_path / "held out"
    assert config.contributions.house.path == tmp_path / "here/ours"
    assert config.results_folder == tmp_path / "here/out"
    assert config.ledger == str(tmp_path / "here/all.db")
    url = "postgresql+psycopg://host/name"
    assert read_config(write_study(tmp_path, {"ledger": url})).ledger == url


def test_the_bundled_study_files_are_valid():
    from importlib.resources import as_file, files

    with as_file(files("diffcredit.cli") / "demo.yaml") as file:
        study = Study.load(file)
        study.recipe.build()
        assert len(build_properties(study.config, study.file)) == len(study.config.properties)


def test_only_models_are_folders_beside_the_study_file(tmp_path):
    for name in ("tiny", "flowers", "my-unet"):
        (tmp_path / name).mkdir()
    options = {"preset": "tiny", "prompt": "flowers", "pretrained": "my-unet", "autoencoder": "user/hub-id"}
    model = read_config(write_study(tmp_path, {f"model.{key}": value for key, value in options.items()})).model
    assert model.options == options | {"pretrained": str(tmp_path.resolve() / "my-unet")}
    text = "a meadow of many colours " * 50  # longer than a file's name can be
    model = read_config(write_study(tmp_path, {"model.prompt": text, "model.pretrained": text})).model
    assert model.options["prompt"] == model.options["pretrained"] == text


@pytest.mark.parametrize(
    ("key", "most"),
    [
        ("sampling.images", 10_000_000),
        ("sampling.batch_size", 1_000_000),
        ("model.train.steps", 1_000_000_000),
        ("stop.evaluations", 1_000_000_000),
        ("design.full_replicates", 1000),
        ("validation.coalitions", 1_000_000),
        ("threads", 1024),
    ],
)
def test_numbers_that_no_machine_could_follow(tmp_path, key, most):
    read_config(write_study(tmp_path, {key: most}))
    said = f"{key}: {most + 1} is not accepted; input should be less than or equal to {most}"
    assert refusal(write_study(tmp_path, {key: most + 1})) == said


@pytest.mark.parametrize("name", ["", "a\nb", "a\u202eb", "x" * 101])
def test_names_that_no_table_could_show(tmp_path, name):
    label = {"properties": [{"name": "colourfulness", "as": name}]}
    assert refusal(write_study(tmp_path, label)).startswith("properties.0.as: ")
    assert refusal(write_study(tmp_path, {"retraining.name": name})).startswith("retraining.name: ")


SECRET = "postgresql+psycopg://me:s3cret@host/name"


def test_no_message_repeats_a_password(tmp_path):
    for ledger in ({"url": SECRET}, SECRET + "\0"):
        message = refusal(write_study(tmp_path, {"ledger": ledger}))
        assert message.startswith("ledger: ")
        assert "me:***@host/name" in message
        assert "s3cret" not in message
    config = read_config(write_study(tmp_path, {"ledger": SECRET}))
    assert config.ledger == SECRET
    assert "s3cret" not in repr(config) + str(config)
