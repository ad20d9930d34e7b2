import json

import numpy as np
import pytest

from diffcredit.errors import DiffcreditError
from diffcredit.features.extractors import Extractors
from diffcredit.surrogates import SurrogateValues, own_credits
from diffcredit.surrogates import values as tabulating
from diffcredit.surrogates.existing_images import RealImages
from diffcredit.testing.games import additive, airport, brute_force_shapley
from diffcredit.util.progress import silent

from .made_up import COUNTS, LEVELS, material

ROWS = np.array([[1, 0, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0], [0, 1, 1, 1]], dtype=bool)


def by_hand(row):
    return sum(level * count for level, count, member in zip(LEVELS, COUNTS, row, strict=True) if member) / sum(
        count for count, member in zip(COUNTS, row, strict=True) if member
    )


class Counted(RealImages):
    asked = 0

    def images(self, coalition):
        self.asked += 1
        return super().images(coalition)


class Brightness:
    name = "brightness"

    def measure(self, images):
        value = float(images.mean())
        images[:] = 0  # what a property does to its images is its own affair
        return value


class Darkness:
    name = "darkness"

    def measure(self, images):
        return -float(images.mean())


class OfTheModel:
    name = "loss"

    def measure_model(self, model):
        raise AssertionError("no surrogate has a model")


def values_of(folder, properties, source=None):
    if source is None:
        source = Counted()
        source.prepare(material(folder))
    return kept_in(folder, [prop.name for prop in properties], lambda: (source, properties, Extractors())), source


def kept_in(folder, names, load):
    """Values that are kept in files, as a study keeps them."""
    files = {name: folder / f"{name}.json" for name in names}
    known = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}

    def keep(name, values):
        files[name].write_text(json.dumps(values))

    return SurrogateValues("real_data", names, known, keep, load, silent)


def test_one_set_of_images_for_all_properties_and_each_coalition_once(tmp_path):
    values, source = values_of(tmp_path, [Brightness(), Darkness()])
    expected = [by_hand(row) for row in ROWS]
    np.testing.assert_allclose(values.game("brightness")(ROWS), expected)
    np.testing.assert_allclose(values.game("darkness")(ROWS[::-1]), np.negative(expected)[::-1])
    assert source.asked == 3


def test_kept_values_need_neither_surrogate_nor_properties(tmp_path):
    first, _ = values_of(tmp_path, [Brightness(), OfTheModel()])
    expected = first.game("brightness")(ROWS)

    def never():
        raise AssertionError("everything is kept")

    again = kept_in(tmp_path, ["brightness", "loss"], never)
    assert again.stands_in_for("brightness")
    assert not again.stands_in_for("loss")
    assert not again.stands_in_for("beauty")  # nobody's property
    assert not again.is_missing("brightness", ROWS)
    assert again.is_missing("brightness", ~ROWS)
    assert not again.is_missing("loss", ~ROWS)
    np.testing.assert_array_equal(again.game("brightness")(ROWS), expected)


def test_only_what_is_missing_is_asked(tmp_path):
    values_of(tmp_path, [Brightness()])[0].game("brightness")(ROWS[:2])
    values, source = values_of(tmp_path, [Brightness()])
    np.testing.assert_allclose(values.game("brightness")(ROWS), [by_hand(row) for row in ROWS])
    assert source.asked == 1


def test_a_property_added_later_is_measured_alone(tmp_path):
    values_of(tmp_path, [Brightness()])[0].game("brightness")(ROWS)
    before = (tmp_path / "brightness.json").read_text()
    values, _ = values_of(tmp_path, [Brightness(), Darkness()])
    values.game("darkness")(ROWS)
    assert (tmp_path / "brightness.json").read_text() == before


def test_what_was_measured_before_an_interruption_is_kept(tmp_path):
    class Interrupted(Counted):
        def images(self, coalition):
            if self.asked == 2:
                raise KeyboardInterrupt
            return super().images(coalition)

    source = Interrupted()
    source.prepare(material(tmp_path))
    values, _ = values_of(tmp_path, [Brightness()], source)
    with pytest.raises(KeyboardInterrupt):
        values.game("brightness")(ROWS)
    kept = json.loads((tmp_path / "brightness.json").read_text())
    assert kept == {"1000": by_hand(ROWS[0]), "1010": by_hand(ROWS[1])}


@pytest.mark.parametrize("answer", [float("nan"), None, RuntimeError("too dark")])
def test_what_cannot_be_measured_names_surrogate_and_property(tmp_path, answer):
    class Moody:
        name = "moody"

        def measure(self, images):
            if isinstance(answer, Exception):
                raise answer
            return answer

    values, _ = values_of(tmp_path, [Moody()])
    with pytest.raises(DiffcreditError, match="surrogate 'real_data': property 'moody' cannot be measured"):
        values.game("moody")(ROWS)


def test_own_credits_of_a_small_game_are_exact_but_for_their_level():
    game = airport([6.0, 2.0, 3.0, 1.0])
    np.testing.assert_allclose(own_credits(game, 4, most=14).values, brute_force_shapley(game, 4), atol=1e-12)
    raised = own_credits(lambda coalitions: game(coalitions) + 2.0, 4, most=14)  # G of nobody is taken to be 0
    np.testing.assert_allclose(raised.values, brute_force_shapley(game, 4) + 2.0 / 4, atol=1e-12)


@pytest.mark.parametrize(("n", "most"), [(4, 13), (30, 300)])
def test_own_credits_of_a_large_game_are_estimated_from_a_sample(n, most):
    coalitions, design = tabulating.tabulated(n, most)
    assert (design, coalitions.shape) == ("uniform", (most, n))
    weights = np.linspace(-1, 1, n)
    np.testing.assert_allclose(own_credits(additive(weights), n, most).values, weights, atol=1e-4)
    assert (tabulating.tabulated(n, most, seed=1)[0] != coalitions).any()


def test_more_than_the_exhaustive_design_can_list_is_sampled(monkeypatch):
    monkeypatch.setattr(tabulating, "LARGEST", 3)
    assert tabulating.tabulated(3, 21)[1] == "exhaustive"
    assert tabulating.tabulated(4, 21)[1] == "uniform"
