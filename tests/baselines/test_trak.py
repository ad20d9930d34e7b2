"""TRAK and its relatives against dense algebra, against the traker package, and on a planted copy."""

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity

from diffcredit.baselines import trak as room
from diffcredit.baselines.base import Evidence
from diffcredit.baselines.kernels import kernel
from diffcredit.baselines.registry import baseline_credits
from diffcredit.baselines.trak import (
    DAS,
    DTRAK,
    TRAK,
    GradientSimilarity,
    JourneyTRAK,
    RelativeInfluence,
    RenormalisedInfluence,
)
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.diffusion.training import train
from diffcredit.errors import UserError

from . import made_up

SIMPLE = [GradientSimilarity, TRAK, DTRAK, RelativeInfluence, RenormalisedInfluence]
ALL = [*SIMPLE, JourneyTRAK, DAS]


@pytest.fixture
def rows(monkeypatch):
    """Made-up rows in place of gradients: Φ (20, 6) of the training images, and three queries."""
    generator = np.random.default_rng(0)
    made = {"training": generator.standard_normal((20, 6)), "generated": generator.standard_normal((3, 6))}
    made = {of: array.astype(np.float32) for of, array in made.items()}
    made["asked"] = []

    def gradient_rows(evidence, settings, of, method, replicate):
        made["asked"].append((of, settings, method))
        return made[of]

    monkeypatch.setattr(room, "gradient_rows", gradient_rows)
    return made


def evidence(**others):
    given = made_up.contributions()
    return Evidence(given, given.images[:3], **others)


def trak_of_each_query(rows, lam):
    phi, queries = rows["training"].astype(np.float64), rows["generated"].astype(np.float64)
    inverse = np.linalg.inv(phi.T @ phi + lam * np.eye(phi.shape[1]))
    return phi @ inverse @ queries.T, np.linalg.norm(inverse @ phi.T, axis=0)


@pytest.mark.parametrize("method", [TRAK, DTRAK, JourneyTRAK, RelativeInfluence, RenormalisedInfluence])
def test_scores_are_ridge_regression_averaged_over_queries(method, rows):
    expected, directions = trak_of_each_query(rows, 0.7)
    expected = expected.mean(axis=1)
    if method is RelativeInfluence:
        expected /= directions
    if method is RenormalisedInfluence:
        expected /= np.linalg.norm(rows["training"], axis=1)
    np.testing.assert_allclose(method(lam=0.7).scores(evidence()), expected, rtol=1e-5)


def test_gradient_similarity_is_the_mean_cosine(rows):
    expected = cosine_similarity(rows["training"], rows["generated"]).mean(axis=1)
    np.testing.assert_allclose(GradientSimilarity().scores(evidence()), expected, atol=1e-6)


def test_das_scores_are_squared_output_changes_averaged_over_queries(rows, monkeypatch):
    errors = np.random.default_rng(1).random((20, 3)) + 0.1
    errors[4] = 0
    monkeypatch.setattr(
        room, "root_errors", lambda evidence, count, method, replicate: {(3, 0): errors}[count, replicate]
    )
    monkeypatch.setattr(room, "QUERIES", 2)  # the three come in two parts
    changes, _ = trak_of_each_query(rows, 0.3)
    expected = np.zeros(20)
    for j in set(range(20)) - {4}:
        residual = np.mean([error / np.sqrt(np.sum(errors[j] ** 2)) for error in errors[j]])
        expected[j] = np.mean([(change * residual) ** 2 for change in changes[j]])
    np.testing.assert_allclose(DAS(lam=0.3, time_steps=3).scores(evidence()), expected, rtol=1e-9)


@pytest.mark.parametrize("method", [GradientSimilarity, RelativeInfluence, RenormalisedInfluence])
def test_a_gradient_of_zero_has_the_score_zero(method, rows):
    rows["training"][4] = 0
    rows["generated"][1] = 0
    scores = method().scores(evidence())
    assert scores[4] == 0
    assert np.isfinite(scores).all()
    assert (scores[:4] != 0).all()


def test_lambda_and_fewer_dimensions_than_the_default_are_told(rows):
    asked = TRAK(lam=0.7, dimensions=6)
    asked.scores(evidence())
    assert asked.chosen == {"lambda": 0.7}
    found = TRAK()
    scores = found.scores(evidence())
    assert found.chosen["dimensions"] == 6
    assert found.chosen["lambda"] > 0
    expected, _ = trak_of_each_query(rows, found.chosen["lambda"])
    np.testing.assert_allclose(scores, expected.mean(axis=1), rtol=1e-9)


@pytest.mark.parametrize(
    ("method", "training", "query"),
    [
        (GradientSimilarity, "loss", "loss"),
        (TRAK, "loss", "loss"),
        (DTRAK, "prediction_norm", "prediction_norm"),
        (JourneyTRAK, "loss", "journey_loss"),
        (RelativeInfluence, "loss", "loss"),
        (RenormalisedInfluence, "loss", "loss"),
        (DAS, "prediction_mean", "prediction_mean"),
    ],
)
def test_which_gradients_are_compared(method, training, query, rows, monkeypatch):
    monkeypatch.setattr(room, "root_errors", lambda *_: np.ones((20, 3)))
    method(time_steps=3, dimensions=6, layers=["up"]).scores(evidence(seed=9))
    kinds = {of: settings.kind for of, settings, _ in rows["asked"]}
    assert kinds == {"training": training, "generated": query}
    for _, settings, name in rows["asked"]:
        assert (settings.time_steps, settings.dimensions, settings.layers, settings.seed) == (3, 6, ("up",), 9)
        assert name == method.name


@pytest.mark.parametrize("lam", [0.7, None])
def test_scores_of_several_models_are_the_mean_of_each_ones_own(lam, monkeypatch):
    generator = np.random.default_rng(0)
    of_model = [{"training": generator.random((20, 6)), "generated": generator.random((3, 6))} for _ in range(3)]
    monkeypatch.setattr(
        room, "gradient_rows", lambda evidence, settings, of, method, replicate: of_model[replicate][of]
    )
    asked = TRAK(models=3, lam=lam, dimensions=6)
    found = asked.scores(evidence(replicate=lambda number: None))
    assert list(asked.chosen) == ["lambda", "lambda[1]", "lambda[2]"]
    assert len(set(asked.chosen.values())) == (3 if lam is None else 1)
    each = [trak_of_each_query(*pair)[0].mean(axis=1) for pair in zip(of_model, asked.chosen.values(), strict=True)]
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-9)


@pytest.mark.parametrize("method", ALL)
def test_other_models_than_the_base_model_must_be_there(method):
    def never():
        raise AssertionError("before any work")

    with pytest.raises(UserError, match=rf"^{method.name}: models: more than 1 .* a pretrained model"):
        method(models=2).scores(evidence(load_model=never))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Gradients of training images are computed once."""
    return tmp_path_factory.mktemp("baselines")


@pytest.mark.parametrize("who", [1, 3])
@pytest.mark.parametrize("method", SIMPLE)
def test_near_copies_point_to_the_contributor(method, who, trained, folder):
    """Contributors 1 and 3 gave few images, so that no sum is the largest by their number."""
    given = made_up.contributions()
    copies = made_up.near_copies(given, who, 3)
    for found in baseline_credits(
        method(time_steps=4, dimensions=256), Evidence(given, copies, load_model=lambda: trained, folder=folder)
    ):
        assert np.argmax(found.credits) == who, found


@pytest.mark.slow  # a model that has learnt little leads nowhere
def test_a_journey_points_to_whom_the_model_learned_from():
    """Of a model that saw contributor 1 alone, every path leads to their pattern."""
    given, model = made_up.contributions(), DDPM.create("tiny", 8, 0)
    settings = Training(steps=1000, batch_size=8, learning_rate=2e-3, schedule="cosine", flip=False)
    train(model, model.encode(given.images[given.owner == 1]), settings, seed=0)
    sampling = Sampling(images=8, steps=10)
    generated = model.sample(sampling.seeds, sampling.steps)
    looked_at = Evidence(given, generated, load_model=lambda: model, sampling=sampling)
    for found in baseline_credits(JourneyTRAK(time_steps=6, dimensions=512), looked_at):
        assert np.argmax(found.credits) == 1, found


@pytest.mark.parametrize("lam", [0.0, 0.05])
def test_agrees_with_traker(lam, tmp_path):
    """A small network's gradients and scores by the TRAK authors' own package."""
    import trak
    from trak.projectors import BasicProjector, ProjectionType

    class SquaredError(trak.modelout_functions.AbstractModelOutput):
        def __init__(self):
            pass

        @staticmethod
        def get_output(model, weights, buffers, x, y):
            return (torch.func.functional_call(model, (weights, buffers), (x[None],)) - y).square().mean()

        def get_out_to_loss_grad(self, model, weights, buffers, batch):
            return torch.ones(len(batch[0]), 1)

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    x, y = torch.randn(50, 6), torch.randn(50, 3)
    queries = torch.randn(4, 6), torch.randn(4, 3)

    def traker():
        """A new one to score with, for after its features are done a projector is spent."""
        size = sum(parameter.numel() for parameter in network.parameters())
        projector = BasicProjector(size, 12, 0, ProjectionType.normal, "cpu", dtype=torch.float32)
        options = {"device": "cpu", "use_half_precision": False, "logging_level": 40}
        return trak.TRAKer(
            network, SquaredError(), len(x), str(tmp_path), projector=projector, lambda_reg=lam, **options
        )

    theirs = traker()
    theirs.load_checkpoint(network.state_dict(), model_id=0)
    theirs.featurize((x, y), num_samples=len(x))
    theirs.finalize_features()
    theirs = traker()
    theirs.start_scoring_checkpoint("queries", network.state_dict(), model_id=0, num_targets=4)
    theirs.score(queries, num_samples=4)
    expected = np.asarray(theirs.finalize_scores("queries"))
    phi = np.array(theirs.saver.current_store["grads"])
    g = np.array(theirs.saver.current_store["queries_grads"])
    # traker divides the inverse by the mean size of its entries, which orders nothing anew
    scale = np.abs(np.linalg.inv(phi.T @ phi + lam * np.eye(12))).mean()
    found = kernel(phi).scores(g, lam) / scale
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3 * np.abs(expected).max())
