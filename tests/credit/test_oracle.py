"""Against shapiq, an independent library."""

import numpy as np
import pytest
import shapiq

from diffcredit.coalitions import make_design
from diffcredit.credit import estimate
from diffcredit.testing import games


@pytest.mark.parametrize("name", ["exact", "kernelshap"])
def test_equals_shapiq_on_all_coalitions(name):
    n = 7
    game = games.learning(n, seed=3)
    coalitions = make_design("exhaustive").draw(n, 0, 2**n - 2)
    ours = estimate(
        coalitions,
        game(coalitions),
        empty=game(np.zeros((1, n), dtype=bool)),
        full=game(np.ones((1, n), dtype=bool)),
        method=name,
        size_distribution="exhaustive",
    )
    if name == "exact":
        theirs = shapiq.ExactComputer(game=game, n_players=n)("SV")
    else:
        theirs = shapiq.KernelSHAP(n=n, random_state=0).approximate(budget=2**n, game=game)
    np.testing.assert_allclose(ours.values, theirs.get_n_order_values(1), atol=1e-6)
