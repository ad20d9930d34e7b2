import pytest

from diffcredit.coalitions import make_design
from diffcredit.errors import UserError


@pytest.mark.parametrize(
    ("name", "n", "size"),
    [
        ("subset(0.5)", 2, 1),
        ("subset(0.5)", 20, 10),
        ("subset(0.25)", 20, 5),
        ("subset(.75)", 20, 15),
        ("subset(0.26)", 20, 5),
        ("subset(0.01)", 20, 1),
        ("subset(0.99)", 20, 19),
        ("subset(1e-9)", 3, 1),
    ],
)
def test_all_coalitions_have_the_rounded_size(name, n, size):
    rows = make_design(name, seed=1).draw(n, 0, 30)
    assert set(rows.sum(axis=1).tolist()) == {size}


def test_the_same_number_written_otherwise_is_the_same_design():
    assert make_design("subset(0.5)", 3) == make_design("subset(.50)", 3)


@pytest.mark.parametrize("alpha", ["0", "1", "-0.5", "1.50", "nan", "inf", "", "alpha", "half", "0.5, 3"])
def test_alpha_that_is_no_number_between_0_and_1_is_refused(alpha):
    with pytest.raises(UserError) as error:
        make_design(f"subset({alpha})")
    assert str(error.value) == f"design 'subset({alpha})': alpha must be a number between 0 and 1, such as 0.5"


@pytest.mark.parametrize("name", ["subset", "subset(0.5", "subset 0.5", "(0.5)", "uniform(0.5)", "subset(0.5)(0.5)"])
def test_other_names_are_refused_with_the_list(name):
    with pytest.raises(UserError, match=r"unknown; choose one of .*subset\(alpha\).* \(alpha between 0 and 1\)"):
        make_design(name)
