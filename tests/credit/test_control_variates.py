"""Priors and surrogates: φ(F) = b·φ(G) + φ(F − bG)."""

import numpy as np
import pytest

from diffcredit.coalitions import make_design
from diffcredit.credit import KnownSurrogate, estimate, surrogate_credits
from diffcredit.errors import UserError
from diffcredit.testing import games

N = 10


def curved(coalitions):
    """A game with interactions: no additive model fits it."""
    return np.sqrt(coalitions @ np.arange(1.0, N + 1)) + coalitions[:, 0] * coalitions[:, 1]


def pull(game, m, deviation, seed=0, **controls):
    noisy = games.noisy(game, deviation, seed)
    coalitions = make_design("uniform", seed).draw(N, 0, m)
    ends = game(np.array([[False] * N, [True] * N]))
    return estimate(coalitions, noisy(coalitions), empty=ends[0], full=ends[1], **controls)


def rms(errors):
    return np.sqrt(np.mean(np.square(errors)))


def test_a_perfect_surrogate_leaves_nothing_to_estimate():
    truth = games.brute_force_shapley(curved, N)
    # Scale and offset of a surrogate do not matter.
    credits = pull(curved, 14, 0.0, surrogate=lambda x: 5 - 3 * curved(x))
    np.testing.assert_allclose(credits.values, truth, atol=1e-6)
    assert credits.diagnostics["anchor_1"] == pytest.approx(-1 / 3, abs=1e-6)


def test_the_fit_is_a_regression_on_the_surrogate_beside_the_penalised_slopes():
    m = 60
    coalitions = make_design("uniform", 3).draw(N, 0, m)
    generator = np.random.default_rng(0)
    proxy, g = generator.normal(size=N), generator.normal(size=m)
    values = 2 * g + coalitions @ generator.normal(size=N) + 0.5 * generator.normal(size=m)
    own = generator.normal(size=N)
    credits = estimate(coalitions, values, empty=0.0, full=1.0, prior=proxy, surrogate=KnownSurrogate(g, own))
    found = credits.diagnostics
    s = coalitions.sum(axis=1)
    t = s / N
    m_s = s ** -found["slope_exponent"] / np.mean(np.arange(1.0, N) ** -found["slope_exponent"])
    v_s = s ** -found["noise_exponent"] / np.mean(np.arange(1.0, N) ** -found["noise_exponent"])
    x = (coalitions - t[:, None]) * m_s[:, None]
    basis = np.stack([np.ones(m), t, t**2, np.log(s + 0.5), np.log(N - s + 0.5), g, x @ proxy], axis=1)
    full = np.hstack([basis, x])
    penalty = np.diag([0.0] * 7 + [found["lambda"]] * N)
    beta = np.linalg.solve(full.T @ (full / v_s[:, None]) + penalty, full.T @ (values / v_s))
    assert found["stein_weight"] == 0  # so that the credits are the efficient fit's
    assert found["anchor_1"] == pytest.approx(beta[5], rel=1e-6)
    assert found["anchor_2"] == pytest.approx(beta[6], rel=1e-6)
    expected = beta[7:] + beta[5] * own + beta[6] * proxy
    np.testing.assert_allclose(credits.values, expected - expected.mean() + 0.1, atol=1e-7)


# 30 runs are too few for a junk prior: they cost 12 % by chance, where 200 cost 6 % (3.5 % to 8 %).
@pytest.mark.parametrize(("method", "runs"), [pytest.param("prior", 200, marks=pytest.mark.slow), ("surrogate", 15)])
def test_a_good_guess_helps_and_junk_does_no_harm(method, runs):
    truth = games.brute_force_shapley(curved, N)
    generator = np.random.default_rng(1)
    good = truth + 0.3 * truth.std() * generator.normal(size=N)
    errors = {"none": [], "good": [], "junk": []}
    covered = []
    for seed in range(runs):
        coalitions = make_design("uniform", seed).draw(N, 0, 40)
        for name, proxy in (("none", None), ("good", good), ("junk", generator.normal(size=N))):
            guess = proxy if proxy is None or method == "prior" else KnownSurrogate(coalitions @ proxy, proxy)
            credits = pull(curved, 40, 0.5, seed, **{method: guess})
            errors[name].append(credits.values - truth)
            if name == "good":
                covered.append((credits.low <= truth) & (truth <= credits.high))
    assert rms(errors["good"]) < 0.75 * rms(errors["none"])
    assert rms(errors["junk"]) < 1.1 * rms(errors["none"])
    assert np.mean(covered) > 0.93


def test_several_surrogates_and_values_given_are_the_same_as_asked():
    def second(x):
        return x[:, 0] * 1.0 * x[:, 1]

    both = [curved, second]
    coalitions = make_design("uniform").draw(N, 0, 30)
    given = [KnownSurrogate(game(coalitions), games.brute_force_shapley(game, N)) for game in both]
    asked = pull(curved, 30, 0.5, surrogate=both)
    known = pull(curved, 30, 0.5, surrogate=given)
    np.testing.assert_allclose(asked.values, known.values, atol=1e-9)
    np.testing.assert_allclose(asked.high, known.high, atol=1e-9)
    assert {"anchor_1", "anchor_2"} <= set(asked.diagnostics)


def test_a_larger_surrogate_is_sampled_and_its_error_counts():
    n = 13
    game = games.learning(n, seed=1)
    truth = games.brute_force_shapley(game, n)
    coalitions = make_design("uniform").draw(n, 0, 40)
    ends = game(np.array([[False] * n, [True] * n]))
    credits = estimate(coalitions, game(coalitions), empty=ends[0], full=ends[1], surrogate=game)
    assert np.corrcoef(credits.values, truth)[0, 1] > 0.999
    assert (credits.standard_error > 0).all()
    assert np.mean((credits.low <= truth) & (truth <= credits.high)) > 0.9


def test_controls_that_say_nothing_are_left_out():
    plain = pull(curved, 40, 0.5)
    for controls in (
        {"prior": np.ones(N)},
        {"surrogate": lambda x: x.sum(axis=1) * 3.0},
        {"surrogate": lambda x: np.zeros(len(x))},
    ):
        credits = pull(curved, 40, 0.5, **controls)
        np.testing.assert_allclose(credits.values, plain.values, atol=1e-9)
        assert "anchor_1" not in credits.diagnostics
    # The same twice is once.
    twice = pull(curved, 40, 0.5, prior=np.stack([np.arange(N), 2 * np.arange(N)], axis=1))
    np.testing.assert_allclose(twice.values, pull(curved, 40, 0.5, prior=np.arange(N)).values, atol=1e-9)


@pytest.mark.parametrize(
    ("controls", "message"),
    [
        ({"prior": np.ones(3)}, r"prior of shape \(3,\): expected \(10,\)"),
        ({"prior": np.full(N, np.nan)}, "finite"),
        ({"surrogate": lambda x: x}, "surrogate of shape"),
        ({"surrogate": [curved, lambda x: np.full(len(x), np.inf)]}, "surrogate 2 .*finite"),
        ({"surrogate": KnownSurrogate(np.ones(3), np.ones(N))}, "expected 40 finite numbers, one per row"),
        ({"surrogate": KnownSurrogate(np.ones(40), np.ones(3))}, "credits of shape"),
        ({"surrogate": "real_data"}, "expected a function of coalitions"),
        ({"surrogate": KnownSurrogate(np.ones(40), np.ones(N), -np.ones(N))}, "surrogate: standard_error: -1.0"),
        ({"surrogate": KnownSurrogate(np.ones(40), np.ones(N), np.ones(3))}, "surrogate: standard_error of shape"),
        ({"prior": np.ones(N), "method": "kernelshap"}, "takes no prior"),
    ],
)
def test_what_is_no_anchor_is_refused(controls, message):
    with pytest.raises(UserError, match=message):
        pull(curved, 40, 0.5, **controls)


def test_what_a_surrogate_does_to_its_argument_and_its_level_have_no_part():
    def destroys(x):
        values = curved(x)
        x[:] = True
        return values

    plain = pull(curved, 40, 0.5, surrogate=curved)
    for game in (destroys, lambda x: curved(x).tolist(), lambda x: curved(x) + 2.0**30):
        np.testing.assert_allclose(pull(curved, 40, 0.5, surrogate=game).values, plain.values, atol=1e-5)


@pytest.mark.parametrize(
    "controls",
    [
        {"prior": np.random.default_rng(0).normal(size=(N, 2 * N))},
        {"surrogate": [lambda x, i=i: x[:, i] * 1.0 for i in range(N)]},
    ],
)
def test_controls_that_fit_any_credits_are_refused(controls):
    with pytest.raises(UserError, match=f"{N - 1} different ones fit any credits of {N} contributors"):
        pull(curved, 60, 0.5, **controls)


def test_errors_of_a_surrogates_own_credits_widen_the_intervals():
    """Where b ≈ 1, a standard error of the surrogate's credits is one of ours, beside the others."""
    coalitions = make_design("uniform").draw(N, 0, 40)
    values = curved(coalitions)
    ends = curved(np.array([[False] * N, [True] * N]))
    own = games.brute_force_shapley(curved, N)
    known, uncertain = (
        estimate(coalitions, values, empty=ends[0], full=ends[1], surrogate=KnownSurrogate(values, own, errors))
        for errors in (None, np.linspace(0.1, 1, N))
    )
    np.testing.assert_allclose(uncertain.values, known.values, atol=1e-9)
    np.testing.assert_allclose(uncertain.standard_error, np.linspace(0.1, 1, N), rtol=0.05)


def test_surrogate_credits_are_exact_from_all_coalitions_and_else_unshrunk():
    every, some = make_design("exhaustive").draw(5, 0, 30), make_design("uniform").draw(5, 0, 20)
    game = games.random_game(5)
    full = float(game(np.ones((1, 5), bool))[0])
    exact = surrogate_credits(every, game(every), full, "exhaustive")
    truth = games.brute_force_shapley(game, 5)
    np.testing.assert_allclose(exact.values - exact.values.mean(), truth - truth.mean(), atol=1e-12)
    assert surrogate_credits(some, game(some), full, "uniform").method == "unshrunk"
