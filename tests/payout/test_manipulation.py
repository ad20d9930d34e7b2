"""What manipulations change, against sums made by hand."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from tests.payout.made_up_basis import basis_of, every_coalition, exact_credits

from diffcredit import estimate
from diffcredit.errors import UserError
from diffcredit.payout.changes import FORMS, holdings, read_change
from diffcredit.payout.manipulation import Amounts, Effect, what_if
from diffcredit.payout.merit import Contributors
from diffcredit.payout.paying import divide_pool
from diffcredit.util.arrays import BoolArray, FloatArray

WORTH = np.array([4.0, 3.0, 2.0, 1.0])
NAMES = ("Ada", "Ben", "Cy", "Dee")
IMAGES = {"Ada": 8, "Ben": 4, "Cy": 4, "Dee": 4}
POOL = Decimal("1000.00")


def additive(coalitions: BoolArray) -> FloatArray:
    return coalitions @ WORTH


def concave(coalitions: BoolArray) -> FloatArray:
    """A game of the size alone, which has all of its value with the first one."""
    return 10.0 * np.log(2 * coalitions.sum(axis=1) + 1)


def effect(change: str, *, game: object = additive, **policy: object) -> Effect:
    assert callable(game)
    return what_if(basis_of(exact_credits(game, NAMES), IMAGES, **policy), POOL, change)


def test_three_names_have_three_heads_of_six_in_a_fixed_part_by_heads() -> None:
    (ada,) = effect("split=Ada:3").amounts
    assert (ada.before, ada.after) == (Decimal("310.00"), Decimal("460.00"))  # 600/4 + 400·4/10, 600·3/6 + 400·4/10
    assert (ada.gain, ada.low, ada.high, ada.fixed) == (Decimal("150.00"),) * 4


@pytest.mark.parametrize("change", ["split=Ada:2", "split=Ada:3", "split=Ada:8", "split=Ben:4"])
def test_a_split_gains_nothing_where_images_add_up_and_are_what_is_counted(change: str) -> None:
    (who,) = effect(change, fixed="images").amounts
    assert who.gain == who.low == who.high == who.fixed == 0


def test_a_split_gains_by_a_curve_of_the_size() -> None:
    """By hand: names a, b of half a player each, and the whole player w. c(W) = 10·log(2W + 1)."""
    names, images = ("A", "W"), {"A": 2, "W": 2}
    basis = basis_of(exact_credits(concave, names), images, fixed="images", r="1")
    # Two sizes are not enough to see a curve: F̂ is a line, in which halves count half.
    assert what_if(basis, POOL, "split=A:2").amounts[0].gain == 0
    names, images = tuple("ABCDEFGH"), dict.fromkeys("ABCDEFGH", 2)
    basis = basis_of(exact_credits(concave, names), images, fixed="images", r="1")
    gain = what_if(basis, POOL, "split=A:2").amounts[0].gain
    assert gain == pytest.approx(halves_of(8) - Decimal(125), abs=Decimal("0.05"))
    assert gain > 1


def halves_of(n: int) -> Decimal:
    """What two halves of one of n players get of 1000 by the Shapley value of 10·log(2·size + 1)."""
    value = lambda size: np.log(2 * size + 1)  # noqa: E731
    total, q = 0.0, n + 1
    for others in range(n):  # whole players before the one half
        for half in (0, 1):  # whether the other half is before it, too
            before = others + half
            ways = Fraction(1)
            for k in range(others):
                ways = ways * (n - 1 - k) / (k + 1)
            orders = Fraction(1, q)
            for k in range(before):
                orders = orders * (k + 1) / (q - 1 - k)
            total += float(ways * orders) * (value(others + half / 2 + 0.5) - value(others + half / 2))
    return Decimal(2 * total / value(n) * 1000)


def test_what_is_split_along_lots_changes_nothing_by_lots() -> None:
    images = {"Ada · lot 1": 4, "Ada · lot 2": 4, "Ben · lot 1": 4, "Cy · lot 1": 4}
    whose = {name: name.partition(" ")[0] for name in images}
    credits = exact_credits(additive, tuple(images))
    basis = basis_of(credits, images, whose=whose, lot=4, fixed="lots")
    (ada,) = what_if(basis, POOL, "split=Ada:2").amounts
    assert (ada.before, ada.gain) == (Decimal("580.00"), 0)  # 600·2/4 + 400·7/10
    # Four names have two images each: no whole lot, so nothing of the fixed part.
    (ada,) = what_if(basis, POOL, "split=Ada:4").amounts
    assert (ada.after, ada.fixed) == (Decimal("280.00"), Decimal("-300.00"))


def test_a_copier_takes_half_of_what_the_copied_images_are_worth() -> None:
    dee, ada = effect("copy=Dee:Ada", fixed="images").amounts
    assert (dee.before, dee.after) == (Decimal("160.00"), Decimal("377.14"))  # 600·12/28 + 400·(1 + 2)/10
    assert (ada.before, ada.after) == (Decimal("400.00"), Decimal("251.43"))  # 600·8/28 + 400·2/10
    assert dee.fixed == Decimal("137.14")  # 600·(12/28 − 4/20)


def test_who_leaves_leaves_the_amount_to_the_others() -> None:
    found = effect("leave=Ada")
    ada, *others = found.amounts
    assert (ada.after, ada.gain) == (0, Decimal("-310.00"))
    # 600/3 + 400·3/6 instead of 600/4 + 400·3/10, and so on
    assert [(each.name, each.gain) for each in others] == [
        ("Ben", Decimal("130.00")),
        ("Cy", Decimal("103.33")),
        ("Dee", Decimal("76.67")),
    ]
    assert (found.full, found.changed) == (pytest.approx(10), pytest.approx(6))


def test_floors_and_caps_hold_after_a_change() -> None:
    (ada,) = effect("split=Ada:3", floor=100).amounts
    assert ada.after >= 300
    (ada,) = effect("split=Ada:3", cap=260).amounts
    assert (ada.before, ada.after) == (Decimal("260.00"), Decimal("460.00"))


def test_who_was_cut_off_for_making_the_model_worse_stays_so_under_more_names() -> None:
    def harmful(coalitions: BoolArray) -> FloatArray:
        return coalitions @ np.array([-4.0, 3.0, 2.0, 1.0])

    (ada,) = effect("split=Ada:3", game=harmful, negatives="cut").amounts
    assert (ada.before, ada.after, ada.fixed) == (0, 0, 0)
    (ada,) = effect("split=Ada:3", game=harmful, negatives="zero").amounts
    assert (ada.before, ada.after) == (Decimal("150.00"), Decimal("300.00"))


def test_the_gain_has_an_interval_where_credits_are_noisy() -> None:
    generator = np.random.default_rng(0)
    coalitions = every_coalition(4)[1:-1]
    values = additive(coalitions) + 0.3 * generator.normal(size=len(coalitions))
    credits = estimate(coalitions, values, empty=0.0, full=10.0, names=NAMES, method="unshrunk")
    (ada,) = what_if(basis_of(credits, IMAGES, merit="least"), POOL, "split=Ada:2").amounts
    assert ada.low < ada.gain < ada.high
    assert ada.high - ada.low < ada.before


def test_the_effect_reads_as_a_sentence() -> None:
    split, copied, gone = (str(effect(change)) for change in ("split=Ada:3", "copy=Dee:Ada", "leave=Ada"))
    assert split == (
        "split=Ada:3: 3 names would get 460.00 instead of 310.00 EUR: +150.00 (95 % interval +150.00 to +150.00); "
        "the fixed rule gives +150.00 of it."
    )
    assert "Dee would get 270.00 instead of 190.00 EUR" in copied
    assert "Ada would get 230.00 instead of 310.00: -80.00" in copied
    assert "The 310.00 EUR of Ada would go to others, above all: Ben +130.00, Cy +103.33, Dee +76.67." in gone
    assert "quality of everybody's model would be 6 instead of 10" in gone


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("split=Ada", "a number of names from 2 to 100 is expected"),
        ("split=Ada:1", "a number of names from 2 to 100 is expected"),
        ("split=Ada:101", "a number of names from 2 to 100 is expected"),
        ("split=Ada:two", "a number of names from 2 to 100 is expected"),
        ("split=Ada:²", "a number of names from 2 to 100 is expected"),
        ("split=Eve:2", "'Eve' is no contributor; there are: 'Ada', 'Ben'"),
        ("copy=Ada", FORMS),
        ("copy=Ada:Ada", "two different contributors"),
        ("copy=Ada:Eve", "'Eve' is no contributor"),
        ("leave=", "'' is no contributor"),
        ("leave", "'' is no contributor"),
        ("steal=Ada", FORMS),
        ("", FORMS),
    ],
)
def test_what_is_no_change_is_refused(text: str, why: str) -> None:
    with pytest.raises(UserError) as refused:
        read_change(text, ("Ada", "Ben"))
    assert str(refused.value).startswith(f"--what-if: {text!r} is not accepted; ")
    assert why in str(refused.value)


def test_names_may_have_colons_and_equals_signs() -> None:
    names = ("a:b", "b", "c=d", "a", "b:b")
    assert read_change("copy=a:b:b", names).other == 4  # the first cut that names two contributors
    assert read_change("copy=a:b:a", names).who == 0
    assert read_change("copy=a:b:c=d", names).who == 0
    assert read_change("split=a:b:2", names).who == 0
    assert read_change("leave=c=d", names).who == 2


def test_too_few_images_and_nobody_left_are_refused() -> None:
    with pytest.raises(UserError, match="'Ben' has 4 images, too few for 5 names"):
        effect("split=Ben:5")
    alone = Contributors.of({"Ada": 3}, {})
    with pytest.raises(UserError, match="'Ada' is the only contributor"):
        holdings(read_change("leave=Ada", ("Ada",)), alone, [3], None)


def test_amounts_of_a_split_add_up_with_any_number_of_coins() -> None:
    found = effect("split=Ada:3", rounding="0.05").amounts[0]
    assert isinstance(found, Amounts)
    assert all(amount % Decimal("0.05") == 0 for amount in (found.before, found.after, found.gain, found.low))


def test_bounds_that_do_not_fit_more_names_are_refused() -> None:
    with pytest.raises(
        UserError, match=r"--what-if: 'split=Ada:3': payout\.yaml: floor: 6 contributors times the floor"
    ):
        effect("split=Ada:3", floor=200)


def test_what_is_paid_before_the_change_is_what_a_payout_pays() -> None:
    """To the coin that does not divide evenly."""
    basis = basis_of(exact_credits(additive, NAMES), IMAGES, r="0.1")
    coins = divide_pool(basis, Decimal("1000.01")).amounts
    found = [what_if(basis, Decimal("1000.01"), f"leave={name}").amounts[0].before for name in NAMES]
    assert found == [coin * Decimal("0.01") for coin in coins]
