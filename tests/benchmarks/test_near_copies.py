"""The benchmark of near-copies in a small version."""

import numpy as np
import pytest
from benchmarks.near_copies import measure
from benchmarks.near_copies.page import write_page

from contributions.near_copies_made import contributions, picture


@pytest.fixture
def given(monkeypatch):
    monkeypatch.setattr(measure, "SIDE", 128)
    monkeypatch.setattr(measure, "PLANTED", 4)
    monkeypatch.setattr(measure, "FEATURES", "pixels")
    return contributions({who: [picture(10 * place + i) for i in range(5)] for place, who in enumerate("abc")})


def test_copies_are_given_by_the_next_contributor(given):
    rows = np.array([0, 14])
    made = measure.planted(given, measure.EDITS["mirrored"], rows)
    assert made.names[-2:] == ("copy of a/0.png", "copy of c/4.png")
    assert made.owner[-2:].tolist() == [1, 0]
    np.testing.assert_array_equal(made.images[-2:], given.images[rows][:, :, ::-1])


def test_every_edit_changes_the_picture_and_keeps_its_size(given):
    image = measure.Image.fromarray(np.repeat(np.repeat(picture(1), 2, axis=0), 2, axis=1))
    for edit in measure.EDITS.values():
        changed = edit(image)
        assert (changed.size, changed.mode) == (image.size, "RGB")
        assert not np.array_equal(np.asarray(changed), np.asarray(image))


def test_what_is_found_is_on_the_page(given, monkeypatch, tmp_path):
    edits = {"mirrored": measure.EDITS["mirrored"], "other": lambda it: measure.Image.fromarray(picture(99))}
    monkeypatch.setattr(measure, "EDITS", edits)
    found = measure.measured(given)
    assert found["edits"]["mirrored"] == {"pixels": 1.0, "at all": 1.0}
    assert found["edits"]["other"]["pixels"] == 0
    assert found["near-copies"] == {"between": 0, "own": 0}
    write_page({"made up": found}, tmp_path / "page.md")
    assert "| mirrored | 100% | 100% |" in (tmp_path / "page.md").read_text()
