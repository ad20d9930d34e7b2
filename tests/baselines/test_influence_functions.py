import numpy as np
import pytest
import torch

from diffcredit.baselines import Evidence, aggregate
from diffcredit.baselines.derivatives import Samples
from diffcredit.baselines.influence_functions import DiagonalInfluence, KroneckerInfluence
from diffcredit.errors import UserError

from . import linear_models
from .linear_models import D, every_direction, layers, linear
from .made_up import contributions, generated, near_copies

METHODS = [DiagonalInfluence, KroneckerInfluence]
LAYERS = ["conv_out", "mid_block.attentions"]  # a convolution, linear layers, a norm and biases


def evidence(model, given=None, shown=None, **more):
    return Evidence(given or contributions(), generated() if shown is None else shown, load_model=lambda: model, **more)


def test_ridge_regression_with_the_exact_hessian(monkeypatch):
    """The derivative of the generated images' loss when a training image's weight grows, from ridge regressions that
    are solved exactly; of a linear model the Kronecker-factored curvature is the Hessian."""
    monkeypatch.setattr(Samples, "normal", every_direction(Samples.normal))
    given, shown, J = linear_models.contributions(9), linear_models.images(4, seed=7), 3
    model = layers(linear)
    x, y = inputs_and_targets(Samples(model, given.images, None, J, seed=1))
    damping = 0.3 * 2 / D * np.trace(x.T @ x) / len(x) / D  # tr(H)/P, H = 2/d E[x xᵀ] ⊗ I

    def ridge(weights):
        """Σ_i w_i ‖W x_i − y_i‖²/d + λ/2 ‖W‖² is least at this W."""
        normal = 2 / D * (x.T * weights) @ x + damping * np.eye(D)
        return np.linalg.solve(normal, 2 / D * (x.T * weights) @ y).T

    even = np.full(len(x), 1 / len(x))
    with torch.no_grad():
        model.network[0].weight.copy_(torch.from_numpy(ridge(even)))
    queries, targets = inputs_and_targets(Samples(model, shown, None, J, seed=1))
    changes, step = [], 1e-5
    for image in range(9):
        up = np.where(np.arange(len(x)) // J == image, step / J, 0)
        losses = [((queries @ ridge(even + sign * up).T - targets) ** 2).mean() for sign in (1, -1)]
        changes.append((losses[1] - losses[0]) / (2 * step))
    baseline = KroneckerInfluence(damping=0.3, time_steps=J, draws=D)
    scores = baseline.scores(evidence(model, given, shown, seed=1))
    np.testing.assert_allclose(scores, changes, rtol=1e-5)
    assert baseline.chosen == {"lambda": pytest.approx(damping)}


def inputs_and_targets(samples):
    batch, t, noise = samples.at(range(len(samples)))
    return samples.model.objective.add_noise(batch.x, noise, t).flatten(1).numpy(), noise.flatten(1).numpy()


def test_the_diagonal_by_hand(trained):
    """Explicit gradients of the last layer, of every sample one by one."""
    given, shown = contributions(), generated(2)
    weights = list(trained.network.conv_out.parameters())

    def gradients(samples, of):
        rows = []
        for place in (range(each, each + 1) for each in range(len(samples))):
            rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(of(samples, place), weights)]).double())
        return torch.stack(rows).numpy()

    def pseudo(samples, place):
        batch, t, noise = samples.at(place)
        prediction = trained.predict(trained.objective.add_noise(batch.x, noise, t), t)
        return (prediction * samples.normal(place, "target", 0)).sum() * (2 / 192) ** 0.5

    training, queries = (Samples(trained, each, None, 1, seed=3) for each in (given.images, shown))
    fisher = (gradients(training, pseudo) ** 2).mean(axis=0)
    losses = [gradients(each, lambda s, place: trained.loss(*s.at(place)).sum()) for each in (training, queries)]
    direction = losses[1].mean(axis=0) / (fisher + 0.5 * fisher.mean())
    expected = losses[0] @ direction
    baseline = DiagonalInfluence(damping=0.5, time_steps=1, layers=["conv_out"])
    found = baseline.scores(evidence(trained, given, shown, seed=3))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("method", METHODS)
def test_whose_images_are_nearly_copied_gains(method, trained, tmp_path):
    given, credits = contributions(), {}
    for favourite in (1, 2):  # who gave the fewest and the most
        seen = evidence(trained, given, near_copies(given, favourite), folder=tmp_path)
        credits[favourite] = aggregate(method(time_steps=2).scores(seen), given, "mean")
    assert credits[1][1] > credits[2][1]
    assert credits[2][2] > credits[1][2]
    if method is KroneckerInfluence:  # the diagonal of so small a model is too rough for more
        assert [credits[favourite].argmax() for favourite in (1, 2)] == [1, 2]
    assert len(list(tmp_path.glob("curvature-*"))) == 1  # it knows the training images alone


def test_what_is_dear_is_kept(trained, tmp_path):
    told, method = set(), KroneckerInfluence
    seen = evidence(trained, folder=tmp_path, progress=lambda what, done, total: told.add((what, done == total)))
    first, again = (method(time_steps=1, layers=LAYERS) for _ in range(2))
    scores = first.scores(seen)
    assert {what for what, over in told if over} >= {"curvature", "influence of the training images"}
    assert sorted(file.name.partition("-")[0] for file in tmp_path.iterdir()) == ["curvature", "influence"]
    told.clear()
    np.testing.assert_array_equal(again.scores(seen), scores)
    assert again.chosen == first.chosen
    assert not told
    other = method(time_steps=1, layers=LAYERS, damping=1.0)
    assert not np.allclose(other.scores(seen), scores, rtol=0.01)
    assert other.chosen["lambda"] == pytest.approx(10 * first.chosen["lambda"])
    assert "curvature" not in {what for what, _ in told}  # the same, damped otherwise


def test_layers_that_are_not_there_are_refused(trained):
    with pytest.raises(UserError, match=r"^influence_diagonal: layers: 'attn9'; no trainable parameter"):
        DiagonalInfluence(layers=["attn9"]).scores(evidence(trained))
