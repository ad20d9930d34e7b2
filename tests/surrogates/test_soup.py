import numpy as np
import pytest

from diffcredit.errors import UserError
from diffcredit.retraining import contributor_models
from diffcredit.surrogates.soup import Soup

from .made_up import COUNTS, LEVELS, Models, material


def test_images_of_the_members_average_weighted_by_data(tmp_path, monkeypatch):
    monkeypatch.setattr(contributor_models, "ContributorModels", Models)
    soup = Soup()
    soup.prepare(material(tmp_path, images=3))
    images = soup.images(np.array([True, False, False, True]))
    level = (COUNTS[0] * LEVELS[0] + COUNTS[3] * LEVELS[3]) / (COUNTS[0] + COUNTS[3])
    np.testing.assert_array_equal(images[:, 0, 0, 0], round(level) + np.arange(3))
    assert (soup.work(4, 60).fine_tunings, soup.work(4, 60).samplings) == (4, 60)


def test_coalitions_must_start_from_a_model(tmp_path):
    with pytest.raises(UserError, match="surrogate 'soup' fine-tunes"):
        Soup().prepare(material(tmp_path, weights=""))
