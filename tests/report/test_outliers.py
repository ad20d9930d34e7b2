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


def test_what_fits_is_not_complained_of():
    assert outlier_warning(table((1.0, 4.0, 3.0))) is None


def test_a_coalition_counts_by_its_part_in_the_shapley_value():
    # One of four alone moves its member's credit by a quarter of its residual, a pair its members' by a twelfth.
    assert influential_outliers(odd("1000", 2.0))
    assert not influential_outliers(odd("1000", 1.0))
    assert not influential_outliers(odd("1100", 3.0))
    assert influential_outliers(odd("1100", -4.0))


def test_nothing_is_told_where_no_interval_is_known():
    assert outlier_warning(odd(half_width=float("inf"))) is None


@pytest.mark.parametrize(
    ("coalition", "who"),
    [("1000", "A alone"), ("1010", "A, C together"), ("1101", "everybody but C")],
)
def test_the_coalition_is_named_by_the_shorter_list(coalition, who):
    assert f"the value of {who} is 9 below what all other evaluations predict (12 standard errors)" in str(
        outlier_warning(odd(coalition, -9.0))
    )


def test_advice_is_what_the_evaluations_allow():
    assert "--method exact" in str(outlier_warning(odd(evaluations=14)))
    assert "evaluate all 14 coalitions" in str(outlier_warning(odd(evaluations=10)))
    assert "--method unshrunk" in str(outlier_warning(odd("1" + 11 * "0", 9.0, evaluations=100)))


def test_how_it_counts_is_told():
    assert "The credits use it as measured" in str(outlier_warning(odd()))
    assert "The credits treat it as noise" in str(outlier_warning(odd(apart=0.0)))


def test_many_names_are_counted():
    assert "A, B, C, D and 2 others together" in str(outlier_warning(odd(6 * "1" + 6 * "0", 1e4, evaluations=100)))


def test_names_stay_in_their_line():
    assert "\n" not in str(outlier_warning(odd(names=("a\nb", "c", "d", "e"))))


def test_the_report_says_so_beside_the_credits():
    assert "the value of &lt;b&gt; alone is 2 above" in render(report(odd(names=("<b>", "B", "C", "D"))))
    assert "evaluations predict" not in render(report(table((1.0, 4.0, 3.0))))
