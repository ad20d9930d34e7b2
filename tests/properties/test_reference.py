import numpy as np
import pytest
from PIL import Image

from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.features.extractors import Extractors
from diffcredit.properties import Context
from diffcredit.properties.kinds import ReferenceProperty, reference_images
from diffcredit.properties.manifolds import Coverage


def pictures(count: int, seed: int, side: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def contributions(training: int = 30, heldout: int = 5) -> Contributions:
    names = tuple(f"{i:03d}" for i in range(training))
    return Contributions(pictures(training, 1), np.arange(training) % 2, ("a", "b"), names, pictures(heldout, 2))


@pytest.fixture
def folder(tmp_path):
    """Five images at two depths, one of them larger, and a file that is none."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for index, image in enumerate(pictures(4, 3)):
        Image.fromarray(image).save(tmp_path / ("deep/er" if index % 2 else "deep") / f"{index}.png")
    Image.fromarray(np.full((16, 32, 3), 200, np.uint8)).save(tmp_path / "large.png")
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


def test_the_words():
    assert (reference_images(contributions(), "contributions") == contributions().images).all()
    assert (reference_images(contributions(), "heldout") == contributions().heldout).all()


def test_a_folder_is_read_at_any_depth(folder):
    images = reference_images(contributions(), str(folder))
    assert images.shape == (5, 8, 8, 3)
    assert images.dtype == np.uint8
    found = {image.tobytes() for image in images}
    assert found == {image.tobytes() for image in pictures(4, 3)} | {bytes([200] * 192)}


def test_an_npz_is_read_and_resized(tmp_path):
    np.savez(tmp_path / "same.npz", images=pictures(6, 4))
    assert (reference_images(contributions(), str(tmp_path / "same.npz")) == pictures(6, 4)).all()
    # each pixel four times as large: shrunk, the inside of flat areas is what it was
    flat = np.full((3, 8, 8, 3), 90, np.uint8)
    np.savez(tmp_path / "large.npz", images=flat.repeat(2, axis=1).repeat(2, axis=2))
    assert (reference_images(contributions(), str(tmp_path / "large.npz")) == flat).all()


def test_at_most_so_many_are_drawn_and_always_the_same(folder):
    given = contributions(training=100)
    drawn = reference_images(given, "contributions", most=40)
    index = {image.tobytes(): row for row, image in enumerate(given.images)}
    rows = [index[image.tobytes()] for image in drawn]
    assert len(set(rows)) == 40
    assert rows == sorted(rows)
    assert 30 < np.mean(rows) < 70
    assert (reference_images(given, "contributions", most=40) == drawn).all()
    assert len(reference_images(given, "contributions", most=100)) == 100
    assert len(reference_images(given, str(folder), most=3)) == 3


def test_features_are_those_of_the_images():
    prop = ReferenceProperty({"name": "pixels", "size": 8}, "heldout")
    context = Context(pictures(2, 9), contributions(), Extractors())
    vectors = prop.reference_vectors(context)
    np.testing.assert_allclose(vectors, context.contributions.heldout.reshape(5, -1) / 255, atol=1e-6)
    assert len(prop.reference_vectors(context, most=3)) == 3


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("heldout", "'heldout', but the study keeps no images out .*holdout"),
        ("nowhere", "'.*nowhere' is neither contributions nor heldout nor the path"),
        ("notes.txt", "'.*notes.txt' is neither"),
        ("empty", "no images in '.*empty'"),
        ("other.npz", ".*other.npz: no array 'images'"),
        ("floats.npz", ".*floats.npz: images is float64"),
    ],
)
def test_mistakes(reference, message, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    np.savez(tmp_path / "other.npz", pictures=pictures(2, 0))
    np.savez(tmp_path / "floats.npz", images=np.zeros((2, 8, 8, 3)))
    given, reference = contributions(heldout=0), reference if reference == "heldout" else str(tmp_path / reference)
    with pytest.raises(UserError, match=f"^reference: {message}"):
        reference_images(given, reference)
    with pytest.raises(UserError, match=f"^reference: {message}"):
        ReferenceProperty(reference=reference).check(given, 10)


def test_an_image_that_cannot_be_read_is_named(folder):
    (folder / "deep" / "broken.png").write_bytes((folder / "large.png").read_bytes()[:60])
    ReferenceProperty(reference=str(folder)).check(contributions(), 10)  # which decodes nothing
    with pytest.raises(UserError, match=r"^reference: .*deep/broken.png: .*; repair or remove it$"):
        reference_images(contributions(), str(folder))


def test_too_few():
    with pytest.raises(UserError, match=r"^reference: 5 images in 'heldout'; at least 6 are needed"):
        Coverage(reference="heldout", neighbours=5).check(contributions(), 10)
    Coverage(reference="heldout", neighbours=4).check(contributions(), 10)
