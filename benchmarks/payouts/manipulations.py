"""What a split and a copy gain, by exact Shapley values before and after, beside what ``--what-if`` estimates."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from benchmarks.payouts.worlds import (
    GAMES,
    PEOPLE,
    Accounts,
    FloatArray,
    Game,
    World,
    copied,
    every_coalition,
    honest,
    shapley,
    split,
)
from diffcredit import estimate, make_design
from diffcredit.credit import Credits
from diffcredit.credit.verdicts import Verdict
from diffcredit.payout.basis import Basis
from diffcredit.payout.earnings import earnings, exact
from diffcredit.payout.manipulation import what_if
from diffcredit.payout.merit import Contributors, cut_off, merit, standing
from diffcredit.payout.reliability import followed
from diffcredit.study.policy import PolicySection

POOL = 1_000_000  # coins, so many that rounding changes nothing
R = Decimal("0.3")
EVALUATIONS = 200  # of a study whose fitted game estimates a change, where all coalitions are more


@dataclass(frozen=True)
class Terms:
    """A policy by its ``fixed`` and ``merit`` rules, and the size of ``lots`` or None."""

    fixed: str
    merit: str
    lot: int | None

    @property
    def policy(self) -> PolicySection:
        return PolicySection.model_validate(
            {"property": "value", "fixed": self.fixed, "merit": self.merit, "r": R, "currency": "EUR", "rounding": 1}
        )


TERMS = [
    Terms(fixed, merit, lot)
    for merit in ("help", "least")
    for fixed, lot in (("equal", None), ("images", None), ("equal", 4), ("lots", 4), ("lots", 5))
]


def contributors_of(accounts: Accounts) -> Contributors:
    """The accounts as a payer knows them."""
    sizes = [len(images) for images in accounts.images]
    whole = None if accounts.lot is None else tuple(size // accounts.lot for size in sizes)
    return Contributors(accounts.names, tuple(account for account, _ in accounts.players), tuple(sizes), whole)


def paid(terms: Terms, accounts: Accounts, credits: FloatArray) -> FloatArray:
    """Return (people,): what each person gets under all names, by credits of the players."""
    policy, people = terms.policy, contributors_of(accounts)
    merits = people.sums @ merit(credits, policy, 1, 1e-9 * float(np.abs(credits).max()))
    found = earnings(POOL, R, people.fixed_weights(terms.fixed), exact(merits), people.names)
    return np.bincount(accounts.person, found.amounts, len(PEOPLE)).astype(np.float64)


def manipulated(number: int, kind: str) -> Iterator[dict[str, Any]]:
    """Yield what every person gains by a split into three, and what the last gains by a copy of the others' images, by
    game and policy, as parts of the former amount."""
    world = World(number)
    for name, of in GAMES.items():
        game = of(world)
        for lot in {terms.lot: None for terms in TERMS}:
            before = honest(world, lot)
            credits, fitted = shapley(game, before, len(world.owner)), study(game, before, world)
            for change, after in changes(before, kind):
                changed = shapley(game, after, len(world.owner))
                for terms in (terms for terms in TERMS if terms.lot == lot):
                    who = PEOPLE.index(change.partition("=")[2].partition(":")[0])
                    was, now = (paid(terms, *each)[who] for each in ((before, credits), (after, changed)))
                    guess = what_if(basis(terms, before, fitted), Decimal(POOL), change).amounts[0]
                    yield {
                        "game": name,
                        "fixed": terms.fixed,
                        "merit": terms.merit,
                        "lot": lot,
                        "change": change,
                        "gain": now / was - 1,
                        "estimated": float(guess.gain / guess.before),
                    }


def changes(accounts: Accounts, kind: str) -> Iterator[tuple[str, Accounts]]:
    """Yield changes as ``--what-if`` reads them, with what is handed in then."""
    if kind == "split":
        for who, name in enumerate(PEOPLE):
            yield f"split={name}:3", split(accounts, who, 3)
    elif accounts.lot is None:  # with lots there are too many coalitions
        for whose, name in enumerate(PEOPLE[:-1]):
            yield f"copy={PEOPLE[-1]}:{name}", copied(accounts, len(PEOPLE) - 1, whose)


def study(game: Game, accounts: Accounts, world: World) -> Credits:
    """Return the credits of a study of the game: from all coalitions if there are few."""
    q = len(accounts.players)
    if 2**q <= EVALUATIONS:
        coalitions, method = every_coalition(q)[1:-1], "exact"
    else:
        coalitions, method = make_design("uniform").draw(q, world.number, EVALUATIONS), "shapley"
    ends = np.array([[False] * q, [True] * q])
    values = game(accounts.present(np.vstack([ends, coalitions]), len(world.owner)))
    return estimate(
        coalitions,
        values[2:],
        empty=float(values[0]),
        full=float(values[1]),
        names=[f"{accounts.names[account]} {number}" for number, (account, _) in enumerate(accounts.players)],
        method=method,
    )


def basis(terms: Terms, accounts: Accounts, credits: Credits) -> Basis:
    """Return what a payout by these credits follows from."""
    people, policy = contributors_of(accounts), terms.policy
    found = standing(credits, people, 1)
    images = {name: len(images) for name, (_, images) in zip(credits.names, accounts.players, strict=True)}
    return Basis(
        policy=policy,
        where="payout.yaml",
        credits=credits,
        contributors=people,
        sign=1,
        standing=found,
        cut=cut_off(found, policy),
        verdict=Verdict("use with care", "", ()),
        tested=None,
        followed=followed(policy, credits, None),
        data={"images": images} | ({} if accounts.lot is None else {"lots": {"lot": accounts.lot}}),
        title="value",
        explanations={},
    )
