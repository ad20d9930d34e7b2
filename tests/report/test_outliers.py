import pytest

from diffcredit.report.outliers import influential_outliers, outlier_warning
from diffcredit.report.page import render

from .made_up import report, table


def odd(coalition="1000", size=2.0, names=None, evaluations=14, half_width=0.3, apart=1.0):
    """Four contributors or more, of whom one coalition's value is off by ``size``; intervals of ``half_width``."""
    n = len(coalition)
    credit = tuple(float(i) for i in range(n))
    return table(
        credit,
        contributors=names or tuple("ABCDEFGHIJKL"[:n]),
        low=tuple(value - half_width for value in credit),
        high=tuple(value + half_width for value in credit),
        evaluations=evaluations,
        diagnostics={"sigma": 1.0, "set_apart": apart, f"residual_{coalition}": size, f"studentised_{coalition}": 12.0},
    )


def test_a_coalition_counts_by_its_part_in_the_shapley_value():
    # One of four alone moves its member's credit by a quarter of its residual, a pair its members' by a twelfth.
    assert influential_outliers(odd("1000", 2.0))
    assert not influential_outliers(odd("1000", 1.0))
    assert not influential_outliers(odd("1100", 3.0))
    assert influential_outliers(odd("1100", -4.0))


def test_nothing_is_said_where_values_fit_or_no_interval_is_known():
    assert outlier_warning(table((1.0, 4.0, 3.0))) is None
    assert outlier_warning(odd(half_width=float("inf"))) is None


PREDICTED = "is 9 below what all other evaluations predict (12 standard errors)"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (odd("1000", -9.0), f"the value of A alone {PREDICTED}"),  # the shorter list names the coalition
        (odd("1010", -9.0), f"the value of A, C together {PREDICTED}"),
        (odd("1101", -9.0), f"the value of everybody but C {PREDICTED}"),
        (odd(6 * "1" + 6 * "0", 1e4, evaluations=100), "A, B, C, D and 2 others together"),
        (odd(names=("a\nb", "c", "d", "e")), "a\\nb alone"),
        (odd(evaluations=14), "--method exact"),  # what the evaluations allow
        (odd(evaluations=10), "evaluate all 14 coalitions"),
        (odd("1" + 11 * "0", 9.0, evaluations=100), "--method unshrunk"),
        (odd(), "The credits use it as measured"),
        (odd(apart=0.0), "The credits treat it as noise"),
    ],
)
def test_who_and_how_much_and_what_to_do(made, said):
    assert said in outlier_warning(made)


def test_the_report_says_so_beside_the_credits():
    assert "the value of &lt;b&gt; alone is 2 above" in render(report(odd(names=("<b>", "B", "C", "D"))))
    assert "evaluations predict" not in render(report(table((1.0, 4.0, 3.0))))
