import hashlib
import sys
from pathlib import Path

import pytest

from diffcredit.errors import UserError
from diffcredit.properties import PROPERTIES
from diffcredit.retraining import RETRAININGS
from diffcredit.study.prepared import build_properties
from diffcredit.study.study import Study
from diffcredit.util.plugins import build, settings_of
from tiny_study import write_study

MODULE = '''
from __future__ import annotations
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from annotated_types import Ge

if TYPE_CHECKING:
    from decimal import Decimal

CONSTANT = 3

@dataclass
class Warmth:
    """A property with options of several kinds."""
    strength: Annotated[float, Ge(0)] = 1.0
    channels: tuple[int, ...] = (0, 1)
    title: str | None = None

    def __post_init__(self):
        if self.title == "":
            raise ValueError("a title has letters")

    def measure(self, images):
        return self.strength * float(images[..., 0].mean())

@dataclass(frozen=True)
class Frozen:
    def measure(self, images):
        return 0.0

class Plain:
    name = "plain"
    def __init__(self, needed, *, optional: int = 2, unknown: Decimal = None):
        self.options = needed, optional
    def measure(self, images):
        return 0.0

class Twin:
    name = "plain"
    def measure(self, images):
        return 1.0

class Anything:
    def __init__(self, **options):
        self.options = options
    def measure(self, images):
        return 0.0

class Mute:
    pass

@dataclass
class Unkeepable:
    place: Path = Path(".")
    def measure(self, images):
        return 0.0

class HalfRetraining:
    def prepare(self, context):
        pass
'''


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """A folder with a user's module in it."""
    folder = tmp_path_factory.mktemp("beside")
    (folder / "mine.py").write_text(MODULE)
    (folder / "users_typo.py").write_text("def f(:\n")
    (folder / "users_crash.py").write_text("1 / 0\n")
    return folder


def made(beside, name, options=None, registry=PROPERTIES):
    return build(f"mine:{name}", options or {}, registry, where="s.yaml: properties.0", beside=beside)


def refused(beside, reference, options=None, registry=PROPERTIES):
    with pytest.raises(UserError) as raised:
        build(reference, options or {}, registry, where="s.yaml: properties.0", beside=beside)
    return str(raised.value)


def test_a_module_beside_the_study_file(beside):
    warmth = made(beside, "Warmth", {"strength": "2.5", "channels": [0, 2]})
    assert (warmth.strength, warmth.channels) == (2.5, (0, 2))
    # a plug-in's settings name the very program it is: the hash of its module's file
    file = Path(sys.modules[type(warmth).__module__].__file__)
    assert file.parent == beside
    code = hashlib.sha256(file.read_bytes()).hexdigest()
    assert settings_of(warmth, {}) == {"strength": 2.5, "channels": (0, 2), "title": None, "code": code}
    file.write_text(file.read_text() + "# changed\n")
    assert settings_of(warmth, {})["code"] != code
    plain = made(beside, "Plain", {"needed": {"a": [1]}, "unknown": "x"})
    assert plain.options == ({"a": [1]}, 2)
    assert settings_of(plain, {"needed": 1}).items() >= {"needed": 1}.items()
    assert made(beside, "Anything", {"whatever": 1}).options == {"whatever": 1}


@pytest.mark.parametrize("registry", [PROPERTIES, RETRAININGS], ids=["properties", "retrainings"])
def test_our_own_names_lead_to_classes(registry, beside):
    for name in registry:
        needed = {"class_share": {"classes": [0]}}.get(name, {})
        built = build(name, needed, registry, where="", beside=beside)
        assert type(built).__module__ == registry[name].partition(":")[0]


@pytest.mark.parametrize(
    ("reference", "options", "said"),
    [
        ("warmth", {}, "0: 'warmth' is unknown; accepted: colourfulness, cluster_entropy, heldout_loss, "),
        ("mine:Wramth", {}, "0: 'mine:Wramth' cannot be loaded (AttributeError: "),
        ("no_such_module:Warmth", {}, "0: 'no_such_module:Warmth' cannot be loaded (ModuleNotFoundError: "),
        ("users_typo:X", {}, "0: 'users_typo:X' cannot be loaded (SyntaxError: "),
        ("users_crash:X", {}, "0: 'users_crash:X' cannot be loaded (ZeroDivisionError: "),
        (":Warmth", {}, "0: ':Warmth' cannot be loaded ("),
        ("mine:CONSTANT", {}, "0: 'mine:CONSTANT' is 3; a class is expected"),
        ("mine:Warmth", {"strenght": 1}, "0.strenght: unknown; mine:Warmth accepts strength, "),
        ("mine:Mute", {"x": 1}, "0.x: unknown; mine:Mute accepts no options"),
        ("mine:Warmth", {"strength": -1}, "0.strength: -1 is not accepted; Input should be greater "),
        ("mine:Warmth", {"strength": "hot"}, "0.strength: 'hot' is not accepted; Input should be a "),
        ("mine:Warmth", {"strength": True}, "0.strength: true and false are not accepted; a number "),
        ("mine:Warmth", {"strength": float("inf")}, "0.strength: inf is not accepted; texts, finite "),
        ("mine:Warmth", {"title": ""}, "0: {'title': ''} is not accepted by mine:Warmth; a ti"),
        ("mine:Plain", {}, "0.needed: missing; mine:Plain needs it"),
        ("mine:Anything", {"day": {1, 2}}, "0.day: {1, 2} is not accepted; texts, finite numbers, "),
        ("mine:Unkeepable", {}, "0: mine:Unkeepable has fields that the ledger cannot keep"),
        ("cluster_entropy", {"clusters": 1}, "0.clusters: 1 is not accepted; Input should be greater "),
        ("cluster_entropy", {"cluster": 1}, "0.cluster: unknown; cluster_entropy accepts clusters"),
    ],
)
def test_refused(beside, reference, options, said):
    message = refused(beside, reference, options)
    assert message.startswith(f"s.yaml: properties.{said}")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("reference", "options", "said"),
    [
        ("sparsified", {"stepz": 1}, "0.stepz: unknown; sparsified accepts steps, batch_size, learning_rate, "),
        ("fine_tune", {"schedule": "step"}, "0.schedule: 'step' is not accepted; Input should be 'constant', 'cosine'"),
        ("soup", {"sparse": {"parameter": 0.5}}, "0.sparse.parameter: unknown; accepted: parameters, importance, "),
        ("soup", {"sparse": {"recover_steps": 0}}, "0.sparse.recover_steps: 0 is not accepted; "),
        ("loar", {}, "0: 'loar' is unknown; accepted: from_scratch, fine_tune, sparsified"),
    ],
)
def test_options_of_a_retraining(beside, reference, options, said):
    assert refused(beside, reference, options, RETRAININGS).startswith(f"s.yaml: properties.{said}")


def properties_of(folder, *sections):
    study = Study.load(write_study(folder, {"properties": list(sections)}))
    return build_properties(study.config, study.file)


def test_properties_of_a_study(beside):
    names = [
        prop.name
        for prop in properties_of(
            beside,
            "mine:Warmth",
            {"name": "mine:Warmth", "strength": 2, "as": "hot"},
            "mine:Frozen",
            "mine:Twin",
            {"name": "mine:Twin", "as": "other twin"},
        )
    ]
    assert names == ["Warmth", "hot", "Frozen", "plain", "other twin"]
    with pytest.raises(
        UserError, match=r"study\.yaml: properties\.1: 'plain' is there twice; distinguish them with 'as"
    ):
        properties_of(beside, "mine:Twin", {"name": "mine:Plain", "needed": 1})


def test_a_retraining_that_lacks_methods(beside):
    study = Study.load(write_study(beside, {"retraining": {"method": "mine:HalfRetraining"}}))
    with pytest.raises(UserError, match=r"retraining: 'mine:HalfRetraining' has no method rehearse; a Retraini"):
        study.recipe.build()


def test_a_family_is_known_by_its_program_too(tmp_path):
    module = tmp_path / "my_family.py"
    module.write_text("from diffcredit.diffusion.ddpm import PixelFamily\n\nclass Mine(PixelFamily):\n    pass\n")
    study = Study.load(write_study(tmp_path, {"model.family": "my_family:Mine"}))
    code = hashlib.sha256(module.read_bytes()).hexdigest()
    settings = Study.load(study.file).prepared.model_settings
    assert (settings["preset"], settings["code"]) == ("tiny", code)
    module.write_text(module.read_text() + "# changed\n")
    assert Study.load(study.file).prepared.model_settings["code"] != code
