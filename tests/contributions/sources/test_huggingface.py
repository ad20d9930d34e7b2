import io
import sys

import datasets
import pyarrow as pa
import pytest
from PIL import Image

from diffcredit.contributions import load_contributions
from diffcredit.contributions.sources.huggingface import HuggingFace
from diffcredit.errors import UserError

from ..pictures import BLUE, GREEN, RED, flat, paint

COLOURS = [RED, GREEN, BLUE]
LABELS = datasets.ClassLabel(names=["bob", "ada"])


def png(colour, form="PNG"):
    file = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(file, form)
    return file.getvalue()


def table(**columns):
    """Three images and the columns of a test, each a pair of a feature and its values."""
    features = {"image": datasets.Image()} | {name: feature for name, (feature, _) in columns.items()}
    values = {"image": [{"bytes": png(colour), "path": None} for colour in COLOURS]}
    values |= {name: column for name, (_, column) in columns.items()}
    return datasets.Dataset.from_dict(values, features=datasets.Features(features))


def owned(**columns):
    return table(artist=(LABELS, [1, 0, 1]), **columns)


def load(path, source=None, **options):
    return load_contributions(path, source=source or HuggingFace(), contributor="artist", resolution=4, **options)


def save(dataset, path):
    dataset.save_to_disk(str(path))
    return path


def test_class_labels_give_their_names(tmp_path):
    found = load(save(owned(), tmp_path / "set"))
    assert found.contributors == ("ada", "bob")
    assert found.owner.tolist() == [0, 1, 0]
    assert flat(found.images) == COLOURS
    assert found.names == ("00000000", "00000001", "00000002")
    assert found.captions is None


def test_captions(tmp_path):
    path = save(owned(words=(datasets.Value("string"), ["red", None, "blue"])), tmp_path / "set")
    assert load(path, HuggingFace(caption="words")).captions == ("red", "", "blue")
    with pytest.raises(UserError, match=f"{path}: no column 'text'; there are: image, artist, words"):
        load(path, HuggingFace(caption="text"))
    with pytest.raises(UserError, match=f"{path}: no column 'contributor'; there are: image, artist, words"):
        load_contributions(path, source="huggingface")


def test_class_labels_and_integers_are_captions(tmp_path):
    kinds = datasets.ClassLabel(names=["a cat", "a dog"])
    columns = {"kind": (kinds, [1, 0, -1]), "number": (datasets.Value("int32"), [7, 0, None])}
    path = save(owned(**columns, part=(datasets.Value("float32"), [0.5, 1, 2])), tmp_path / "set")
    assert load(path, HuggingFace(caption="kind")).captions == ("a dog", "a cat", "")
    assert load(path, HuggingFace(caption="number")).captions == ("7", "0", "")
    with pytest.raises(UserError, match=rf"{path}: 00000000: part 0\.5; a text or an integer is accepted"):
        load(path, HuggingFace(caption="part"))


def test_splits(tmp_path):
    both = datasets.DatasetDict(train=owned(), test=owned().select([2, 1]))
    both.save_to_disk(str(tmp_path / "set"))
    assert flat(load(tmp_path / "set").images) == COLOURS
    assert flat(load(tmp_path / "set", HuggingFace(split="test")).images) == [BLUE, GREEN]
    with pytest.raises(UserError, match=r"split: 'valid' is not in .*; there are: train, test"):
        load(tmp_path / "set", HuggingFace(split="valid"))


def test_another_image_column_and_a_format(tmp_path):
    path = save(owned().rename_column("image", "picture").with_format("numpy", columns=["artist"]), tmp_path / "set")
    assert flat(load(path, HuggingFace(image="picture")).images) == COLOURS
    with pytest.raises(UserError, match="no column 'image'; there are: picture, artist"):
        load(path)
    with pytest.raises(UserError, match=r"column 'artist' is ClassLabel.*; an Image is accepted"):
        load(path, HuggingFace(image="artist"))


@pytest.mark.parametrize(
    ("feature", "values", "message"),
    [
        (datasets.Value("string"), ["x", " ", "y"], "00000001 is an image without contributor: 'artist' is empty"),
        (datasets.Value("string"), ["x", None, "y"], "00000001 is an image without contributor: 'artist' is empty"),
        (LABELS, [0, 1, None], "00000002 is an image without contributor"),
        (datasets.Value("float32"), [0.5, 1, 2], r"artist 0\.5; a text or an integer"),
        (datasets.List(datasets.Value("string")), [["x"]] * 3, "texts, integers or class labels are accepted"),
    ],
)
def test_images_without_contributor(tmp_path, feature, values, message):
    path = save(table(artist=(feature, values)), tmp_path / "set")
    with pytest.raises(UserError, match=f"{path}: .*{message}"):
        load(path)


def replaced(path, image):
    """The saved dataset with another first image, as a stranger might have written it."""
    (file,) = path.glob("*.arrow")
    with pa.ipc.open_stream(file.read_bytes()) as reader:
        whole = reader.read_all()
    images = [image, *whole["image"].to_pylist()[1:]]
    changed = whole.set_column(0, whole.schema.field("image"), pa.array(images, whole.schema.field("image").type))
    with pa.ipc.new_stream(file, whole.schema) as writer:
        writer.write_table(changed)
    return path


def test_paths_within_the_dataset_only(tmp_path):
    path = save(owned(), tmp_path / "set")
    inside, outside = paint(path / "own.png", GREEN), paint(tmp_path / "secret.png", BLUE)
    (path / "link.png").symlink_to(outside)
    assert flat(load(replaced(path, {"bytes": None, "path": str(inside)})).images) == [GREEN, GREEN, BLUE]
    for leak in (str(outside), f"{path}/../secret.png", f"{path}/link.png", "https://example.org/a.png", None):
        with pytest.raises(UserError, match=f"{path}: 00000000: its path .* leads out of the dataset"):
            load(replaced(path, {"bytes": None, "path": leak}))
    # where the bytes are there, the path is a mere label
    assert flat(load(replaced(path, {"bytes": png(RED), "path": str(outside)})).images) == COLOURS


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ({"bytes": b"", "path": None}, "empty"),
        ({"bytes": b"no image", "path": None}, "not an image in an accepted format"),
        ({"bytes": png(RED, "EPS"), "path": None}, "not an image in an accepted format"),
        ({"bytes": png(RED)[:-30], "path": None}, "cannot be decoded"),
        (None, "the row has no image"),
    ],
)
def test_unreadable_images_name_themselves(tmp_path, image, why):
    path = replaced(save(owned(), tmp_path / "set"), image)
    with pytest.raises(UserError, match=f"{path}: 00000000: .*{why}"):
        load(path)
    kept = load(path, unreadable="skip")
    assert flat(kept.images) == [GREEN, BLUE]
    assert kept.skipped[0].startswith("00000000: ")


def test_either_a_path_or_the_hub(tmp_path):
    with pytest.raises(UserError, match="path and dataset: one of them"):
        load(None)
    with pytest.raises(UserError, match="path and dataset: one of them"):
        load(tmp_path, HuggingFace(dataset="user/name"))
    for name in ("name", "../user/name", "/etc", "https://x.org/y", "user/name/more"):
        with pytest.raises(UserError, match="user/name of a dataset on the hub is accepted"):
            load(None, HuggingFace(dataset=name))


def test_what_the_hub_is_asked_for(tmp_path, monkeypatch):
    """The package's own cache is followed, and nothing beside it."""
    asked = []

    def load_dataset(name, **options):
        asked.append((name, options))
        return hub

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    cached = paint(tmp_path / "hub/datasets--user--name/snapshots/1/a.png", BLUE)
    other = paint(tmp_path / "hub/datasets--other--name/snapshots/1/a.png", BLUE)
    source = HuggingFace(dataset="user/name", split="test", revision="v1")
    features = datasets.Features({"image": datasets.Image(), "artist": datasets.Value("string")})
    paths = [str(cached), str(cached)]
    hub = datasets.Dataset.from_dict({"image": paths, "artist": ["x", "y"]}, features=features)
    assert flat(load(None, source).images) == [BLUE, BLUE]
    assert asked == [("user/name", {"split": "test", "revision": "v1"})]
    hub = datasets.Dataset.from_dict({"image": [str(cached), str(other)], "artist": ["x", "y"]}, features=features)
    with pytest.raises(UserError, match=r"user/name.*: 00000001: its path .* leads out of the dataset"):
        load(None, source)


def test_offline(monkeypatch):
    def offline(*_arguments, **_options):
        raise ConnectionError("no connection\nand more")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(UserError) as caught:
        load(None, HuggingFace(dataset="user/name"))
    assert str(caught.value).startswith("dataset: 'user/name' cannot be loaded from the hub (ConnectionError: no con")
    assert "\n" not in str(caught.value)


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r'pip install "diffcredit\[datasets\]"'):
        load(tmp_path)
