"""What a payout is, as the ledger records it: immutable, and made of JSON values."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from diffcredit.credit.verdicts import LEVELS, Level
from diffcredit.errors import DiffcreditError
from diffcredit.util.decimals import exactly
from diffcredit.util.sanitize import truncated

FORMAT = 1  # of a payout's content; another meaning of a field needs another number
AMOUNTS = ("fixed", "merit", "amount", "amount_low", "amount_high", "opening", "carried", "paid")
_AS_WRITTEN = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True)
class Row:
    """One contributor's part. Amounts are in the payout's currency.

    ``help`` is beside the average contributor, more is better, with its interval; ``rank`` 1 helps most. ``fixed`` and
    ``merit`` sum to ``amount`` unless a floor or a cap holds, which ``reason`` says. ``amount_low`` to ``amount_high``
    is where the amount by the exact credits lies, at the payout's confidence. ``opening`` + ``amount`` = ``paid`` +
    ``carried``.
    """

    __pydantic_config__ = _AS_WRITTEN

    contributor: str
    accounts: tuple[str, ...]
    """The accounts that belong to the contributor, where several were merged; else empty."""
    images_used: int
    images_given: int | None
    """None where the images were not at hand when the payout was made."""
    excluded: Mapping[str, int]
    """How many of the images given were not used, by reason, such as ``held out``."""
    works: str
    """The SHA-256 of the images used; empty where they were not at hand."""
    lots: int | None
    """Whole lots; None where contributors are not cut into lots."""
    help: float
    help_low: float
    help_high: float
    rank: int
    rank_low: int
    rank_high: int
    above: float
    """The help above the reference, with its interval."""
    above_low: float
    above_high: float
    worth: float
    """The merit in the property's unit, at least 0: what the part that follows merit is divided by."""
    fixed: Decimal
    merit: Decimal
    amount: Decimal
    amount_low: Decimal
    amount_high: Decimal
    opening: Decimal
    carried: Decimal
    paid: Decimal
    overtaken: float | None
    """The probability that the next contributor in rank in truth helps more; None for the last."""
    reason: str
    """Sentences: what changed the amount beside the two rules; empty where nothing did."""
    salt: str
    """Random hexadecimal digits, without which others could guess the row from its hash."""


@dataclass(frozen=True)
class Payout:
    """One period's payout, with all that it follows from.

    ``policy`` are the policy's terms and ``policy_hash`` their hash, ``entered`` when it was entered in the ledger, and
    ``before_evaluations`` whether that was before the study's first evaluation. ``despite`` is the payer's reason for
    paying whatever the verdict says. ``moved`` is the amount that would go to others, on average, if the
    evaluations were made again with other seeds. ``head`` is the ledger's head just before this payout.
    """

    __pydantic_config__ = _AS_WRITTEN

    study: str
    period: str
    created: str
    policy: Mapping[str, Any]
    policy_hash: str
    entered: str
    before_evaluations: bool
    texts: Mapping[str, str]
    """The policy's texts for statements."""
    pool: Decimal
    currency: str
    title: str
    """What contributors are paid for: a property's title, or a mix of them."""
    explanations: Mapping[str, str]
    """What each of these properties is, by its title; empty where nothing is known."""
    higher_is_better: bool
    """Whether a higher value is worth money."""
    reference: str
    """The reference, in words."""
    reference_kind: str
    """Its kind, as study files have it."""
    full: float
    """F(all)."""
    empty: float
    """F of the reference."""
    method: str
    evaluations: int
    finished: bool
    """Whether the study's stopping rule was reached."""
    confidence: float
    level: Level
    verdict: str
    """The verdict's sentence; ``level`` is what may be done with the credits."""
    tested: str
    """The sentence of the credits' test against retrained models, or that there was none."""
    despite: str
    r: Decimal
    r_words: str
    moved: Decimal
    data: str
    """The fingerprint of the contributions."""
    resolution: int
    """The side, in pixels, of the squares that images became before they were hashed and used."""
    recipe: str
    """The fingerprint of the recipe."""
    weights: str
    """The hash of the weights that coalitions' models start from."""
    lot: int | None
    """The images of a whole lot; None where contributors are not cut into lots."""
    head: str
    rows: tuple[Row, ...]

    @property
    def against_verdict(self) -> bool:
        """Whether the verdict is below what the policy asks for."""
        return LEVELS.index(self.level) > LEVELS.index(self.policy["verdict"])

    def row(self, contributor: str) -> Row:
        """Return a contributor's row; raise a KeyError where there is none."""
        return {row.contributor: row for row in self.rows}[contributor]

    @property
    def content(self) -> dict[str, Any]:
        """JSON values, from which :meth:`of` makes the same payout again."""
        return {"format": FORMAT, **_plain(asdict(self))}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Return the payout with this `content`. Raise a DiffcreditError for what is no content of a payout, or whose
        amounts do not add up."""
        try:
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']!r}, expected {FORMAT}")
            given = {name: value for name, value in content.items() if name != "format"}
            found = _reader(cls).validate_json(json.dumps(given))
            _check_sums(found)
            if found.policy["verdict"] not in LEVELS:
                raise ValueError(f"policy.verdict {found.policy['verdict']!r}")
            return found
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            if isinstance(error, ValidationError):
                first = error.errors()[0]
                problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise DiffcreditError(f"a payout in the ledger cannot be read: {truncated(problem)}") from None


@cache
def _reader(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@exactly
def _check_sums(payout: Payout) -> None:
    """Refuse amounts that do not add up, which no payout has."""
    for row in payout.rows:
        if min(getattr(row, name) for name in AMOUNTS) < 0 or row.opening + row.amount != row.paid + row.carried:
            raise ValueError("opening balance and amount are not what is paid and carried forward")
    if not payout.rows or sum(row.amount for row in payout.rows) != payout.pool:
        raise ValueError("the amounts do not sum to the pool")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, Decimal) else value
