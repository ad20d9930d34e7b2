import math

import pytest

from diffcredit.errors import UserError

from .made_up import report, table


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": (1, 2)}, "images has 2 values, expected 3"),
        ({"contributors": ("A", "B", "A")}, "occurs twice"),
        ({"contributors": ()}, "no contributors"),
        ({"full": math.nan}, "full has a value that is not finite"),
        ({"low": (9.0, 0.0, 0.0)}, "'A' has low 9.0 above high 1.5"),
        ({"rank_low": (1, 1)}, "rank_low has 2 values, expected 3"),
        ({"rank_low": (1, 3, 1), "rank_high": (1, 2, 3)}, "'B' has rank_low 3 above rank_high 2"),
        ({"rank_low": (0, 1, 1)}, "a rank's interval leaves the ranks 1 to 3"),
        ({"rank_high": (3, 4, 3)}, "a rank's interval leaves the ranks 1 to 3"),
        ({"share_low": (9.0, 0.0, 0.0)}, "'A' has share_low 9.0 above share_high 0.1875"),
        ({"contrast_half_width": (1.0,)}, "contrast_half_width has 1 values, expected 3"),
        ({"confidence": 95}, "confidence is 95"),
    ],
)
def test_a_table_that_cannot_be_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        table(**changes)


def test_a_credit_that_is_not_finite_is_refused():
    with pytest.raises(UserError, match="credit has a value that is not finite"):
        table((1.0, math.inf), low=(0.0, 0.0), high=(2.0, 2.0), full=1.0)


def test_a_report_needs_distinct_properties():
    with pytest.raises(UserError, match="no credits"):
        report()
    with pytest.raises(UserError, match="a property occurs twice among colourfulness, colourfulness"):
        report(table(), table())
