"""A payout for its payer: ``payouts.csv``, and a page with who gets how much, how sure each amount is, and by which
rule.

Both are made from the ledger's record alone, so that they can be written again at any time.
"""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from markupsafe import Markup

from diffcredit.payout.recorded import Recorded
from diffcredit.payout.records import Payout, Row
from diffcredit.payout.table import payouts_csv
from diffcredit.report import payout_words as words
from diffcredit.report.markup import bundled, data_uri, source_hash, template
from diffcredit.report.money import percentage
from diffcredit.report.numbers import decimals_for, number
from diffcredit.report.plot import nice_ticks
from diffcredit.util.artifacts import write_text
from diffcredit.util.decimals import exactly

NAMED, ENDS = 40, 15  # with more contributors than NAMED, only the first and last ENDS bars have names
MARGIN = 1.04  # of the axis, beyond the largest amount


@dataclass(frozen=True)
class Bar:
    """One contributor's amount as drawn, in percent of the axis: the fixed part, all of it, and where it could lie."""

    row: Row
    fixed: float
    amount: float
    low: float
    high: float
    named: bool


@dataclass(frozen=True)
class Bars:
    """All amounts, the largest first, with the axis's ``ticks`` as (position, label)."""

    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]

    @property
    def unnamed(self) -> int:
        return sum(not bar.named for bar in self.bars)


def by_amount(payout: Payout) -> list[Row]:
    """Return the rows, the largest amount first; among equals who helps most."""
    return sorted(payout.rows, key=lambda row: (-row.amount, row.rank, row.contributor))


def bars(payout: Payout) -> Bars:
    """Lay out the amounts. The axis begins at zero: lengths are money."""
    rows = by_amount(payout)
    end = MARGIN * float(max(row.amount_high for row in rows))

    def place(amount: float | Decimal) -> float:
        return round(100 * float(amount) / end, 3)

    found = nice_ticks(0.0, end, 6)
    decimals = max(0, decimals_for(found[1] * (1 + 1e-9)) - 1)
    drawn = (
        Bar(
            row,
            place(min(row.fixed, row.amount)),
            place(row.amount),
            place(row.amount_low),
            place(row.amount_high),
            len(rows) <= NAMED or i < ENDS or i >= len(rows) - ENDS,
        )
        for i, row in enumerate(rows)
    )
    return Bars(tuple(drawn), tuple((place(tick), number(tick, decimals)) for tick in found))


def terms(payout: Payout) -> list[tuple[str, str]]:
    """Return the policy's rules in words, with what they are called."""
    policy, money, r = payout.policy, words.money_format(payout), words.part_by_merit(payout)
    found = [
        ("Paid for", f"{payout.title}. {words.paid_for(payout)}"),
        ("Fixed part", f"{percentage(1 - r)} of the pool, divided {words.fixed_rule(payout)}"),
        ("Part that follows merit", f"{percentage(r)} of the pool, by {words.merit_rule(payout)}. {payout.r_words}"),
        ("Who makes the model worse", words.negatives_rule(payout)),
    ]
    limits = [(key, policy[key]) for key in ("floor", "cap", "minimum")]
    names = {"floor": "Least for one contributor", "cap": "Most for one contributor", "minimum": "Least payment"}
    found += [(names[key], money.exact(Decimal(amount))) for key, amount in limits if amount and Decimal(amount)]
    return [
        *found,
        ("Smallest coin", money.exact(Decimal(policy["rounding"]))),
        ("Verdict asked for", f"at least “{policy['verdict']}”"),
    ]


def record(payout: Payout, head: str) -> list[tuple[str, str]]:
    """Return the hashes that this payout can be checked by, with what they are."""
    return [
        ("head of the ledger with this payout", head),
        ("head before it", payout.head),
        ("policy", payout.policy_hash),
        ("data", payout.data),
        ("recipe", payout.recipe),
        ("starting weights", payout.weights or "none"),
    ]


@exactly
def render_payout(recorded: Recorded) -> str:
    """Return the page's HTML; every text is escaped."""
    payout, style = recorded.payout, bundled("palette.css", "money.css")
    return template("payout.html.jinja").render(
        payout=payout,
        rows=by_amount(payout),
        bars=bars(payout),
        words=words,
        money=words.money_format(payout),
        decimals=words.help_decimals(payout),
        warnings=words.warnings(payout),
        terms=terms(payout),
        record=record(payout, recorded.head),
        head=recorded.head,
        csv=data_uri(payouts_csv(payout).encode(), "text/csv;charset=utf-8"),
        policy=f"default-src 'none'; style-src {source_hash(style)}; base-uri 'none'; form-action 'none'",
        style=Markup(style),
    )


def write_payout(folder: Path, recorded: Recorded, *, last: bool = True) -> list[Path]:
    """Write a payout's table and page into the results ``folder``, and return their paths.

    The last payout's are ``payouts.csv`` and ``payout.html``; those of an earlier period have its name as well.
    """
    suffix = "" if last else f"-{recorded.payout.period}"
    table, page = folder / f"payouts{suffix}.csv", folder / f"payout{suffix}.html"
    write_text(table, payouts_csv(recorded.payout))
    write_text(page, render_payout(recorded))
    return [table, page]
