"""A payout policy: how a pool of money is divided among contributors, fixed before their credits are known.

    property: colourfulness     # or mix: {colourfulness: 1, heldout_loss: -2}
    fixed: equal                # how the fixed part is divided: equal, images or lots
    merit: help                 # how the rest is: by help above the reference, or above the least helpful (least)
    r: 0.3                      # how much of the pool follows merit: a number from 0 to 1, or reliability
    currency: EUR

A policy stands in a file of its own, or under ``payout:`` in the study file. It is entered in the study's ledger,
together with the reference that contributors are compared with, and is not changed once there are evaluations
(:mod:`diffcredit.study.entered`).
"""

from decimal import Decimal, InvalidOperation
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from unicodedata import category

from pydantic import AfterValidator, BeforeValidator, ValidationError, model_validator

from diffcredit.credit.verdicts import Level
from diffcredit.errors import UserError, located
from diffcredit.study.problems import keys_of, problems_of
from diffcredit.study.sections import Section
from diffcredit.util.decimals import exactly
from diffcredit.util.sanitize import shortened
from diffcredit.util.yamlfile import read_yaml

MOST = Decimal(10) ** 12  # of any amount of money
MOST_DIGITS = 30  # of a number, counted from the decimal point to either side
LEAST_UNIT = Decimal("0.0001")  # of which every coin is a multiple
LONGEST_TEXT = 1_000  # characters of a text on a statement


def decimal_of(value: Any) -> Decimal:
    """Return a number as it was written: YAML's ``0.1`` is one tenth. Raise a ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError("a number is expected")
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        raise ValueError("a number such as 1250.00 is expected") from None
    if not number.is_finite():
        raise ValueError("a finite number is expected")
    if number.adjusted() >= MOST_DIGITS or int(number.as_tuple().exponent) < -MOST_DIGITS:
        raise ValueError(f"a number of at most {MOST_DIGITS} digits on either side of the point is expected")
    return Decimal(f"{number:f}")  # 1E+3 is 1000: amounts are shown as they are kept


@exactly
def money(value: Any) -> Decimal:
    """Return an amount of money as it was written. Raise a ValueError for anything else."""
    number = decimal_of(value)
    if not 0 <= number <= MOST:
        raise ValueError(f"an amount from 0 to {MOST:,} is expected")
    if number % LEAST_UNIT:
        raise ValueError(f"an amount in multiples of {LEAST_UNIT} is expected")
    return number


def _part(value: Any) -> Decimal:
    number = decimal_of(value)
    if not 0 <= number <= 1:
        raise ValueError("a number from 0 to 1 is expected")
    return number


@exactly
def _coin(value: Any) -> Decimal:
    number = decimal_of(value)
    if not LEAST_UNIT <= number <= MOST or number % LEAST_UNIT:
        raise ValueError("the smallest amount that is paid is expected, such as 0.01, 0.05 or 1")
    return number


def _code(text: str) -> str:
    if len(text) != 3 or not text.isascii() or not text.isalpha() or not text.isupper():
        raise ValueError("a currency's code of three capital letters, such as EUR, is expected")
    return text


def _followed(value: Any) -> Decimal | str:
    if value == "reliability":
        return value
    try:
        return _part(value)
    except ValueError:
        raise ValueError("a number from 0 to 1, or reliability, is expected") from None


def _weighted(value: Any) -> Any:
    """Refuse all but None and weights that are not 0, by property."""
    if value is None:
        return None
    if not isinstance(value, dict) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError("{PROPERTY: weight, …} is expected")
    weights = {name: decimal_of(weight) for name, weight in value.items()}
    if not all(weights.values()):
        raise ValueError("weights other than 0 are expected")
    return weights


def plain_text(text: str) -> str:
    """Return a text that every ledger and page can hold. Raise a ValueError for anything else."""
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"at most {LONGEST_TEXT:,} characters are accepted")
    if any(category(character) in ("Cc", "Cs") and character not in "\n\t" for character in text):
        raise ValueError("a text without control characters is expected")
    return text


Money = Annotated[Decimal, BeforeValidator(money)]
Text = Annotated[str, AfterValidator(plain_text)]


class StatementSection(Section):
    """Words that a payer wants on every statement; they change no amount.

    ``payer`` and ``model`` are names, ``licence`` the basis on which works were used, ``objections`` says how and until
    when a contributor may object.
    """

    payer: Text = ""
    model: Text = ""
    licence: Text = ""
    objections: Text = ""


class PolicySection(Section):
    """A policy. Amounts are in ``currency`` and for one period.

    ``property`` or ``mix`` (weights by property): what contributors are paid for. ``direction``: whether a higher or a
    lower value is worth money (None: as the property has it; of a mix, higher). ``reference``: the study's, repeated
    here so that nobody can change it in the study file alone.
    ``pool``: the amount to divide (None: it is given with each payout).
    ``fixed``: the fixed part is divided equally, by images, or by whole lots. ``merit``: the rest follows help above
    the reference, or above the least helpful contributor. ``negatives``: who makes the model worse has merit 0, or, if
    that is sure, is cut off from all payment.
    ``r``: the part of the pool that follows merit; ``reliability`` takes it from how sure and how well tested the
    credits are, at most ``r_at_most``.
    ``floor`` and ``cap``: the least and the most that one contributor earns. ``minimum``: a smaller balance is carried
    forward. ``rounding``: the smallest coin. ``verdict``: the least verdict on the property that is paid by.
    """

    property: str | None = None
    mix: Annotated[dict[str, Decimal] | None, BeforeValidator(_weighted)] = None
    direction: Literal["higher", "lower"] | None = None
    reference: Literal["house", "pretrained", "untrained", "stated"] | None = None
    currency: Annotated[str, AfterValidator(_code)]
    pool: Money | None = None
    fixed: Literal["equal", "images", "lots"]
    merit: Literal["help", "least"]
    negatives: Literal["zero", "cut"] = "zero"
    r: Annotated[Decimal | Literal["reliability"], BeforeValidator(_followed)]
    r_at_most: Annotated[Decimal, BeforeValidator(_part)] = Decimal("0.5")
    floor: Money = Decimal(0)
    cap: Money | None = None
    minimum: Money = Decimal(0)
    rounding: Annotated[Decimal, BeforeValidator(_coin)] = Decimal("0.01")
    verdict: Level = "use with care"
    statement: StatementSection = StatementSection()

    @model_validator(mode="after")
    @exactly
    def _fits_together(self) -> Self:
        if (self.property is None) == (self.mix is None):
            raise UserError("property: either it or mix is expected: what contributors are paid for")
        if self.negatives == "cut" and self.merit == "least":
            raise UserError("negatives: 'cut' is not accepted with merit: least, which is never negative; zero is")
        if "r_at_most" in self.model_fields_set and self.r != "reliability":
            raise UserError("r_at_most: accepted only with r: reliability, which it limits")
        if self.cap is not None and self.cap < self.floor:
            raise UserError(f"cap: {self.cap} is below the floor, {self.floor}; at least as much is accepted")
        if self.verdict == "do not use":
            raise UserError("verdict: 'do not use' is not accepted; accepted: pay by it, use with care")
        for key in ("pool", "floor", "cap", "minimum"):
            amount = getattr(self, key)
            if amount is not None and amount % self.rounding:
                raise UserError(f"{key}: {amount} is no multiple of rounding, {self.rounding}")
        return self

    @cached_property
    def terms(self) -> dict[str, Any]:
        """All that decides amounts, as JSON values: every key but ``statement``, defaults included."""
        return {name: _plain(getattr(self, name)) for name in sorted(type(self).model_fields) if name != "statement"}

    @cached_property
    def weights(self) -> dict[str, Decimal]:
        """The weight of each property that contributors are paid for."""
        return {str(self.property): Decimal(1)} if self.mix is None else dict(self.mix)


@exactly
def _plain(value: Any) -> Any:
    """Return a decimal as the shortest text of its number, so that 0.30 and 0.3 are the same policy."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return f"{value.normalize():f}" if isinstance(value, Decimal) else value


def read_policy(file: Path) -> PolicySection:
    """Read a policy from a file of its own."""
    content = read_yaml(file, "a policy")
    with located(file):
        if not isinstance(content, dict):
            raise UserError(f"{shortened(content)}: a policy is a mapping with the keys {keys_of(PolicySection)}")
        try:
            return PolicySection.model_validate(content)
        except ValidationError as error:
            raise UserError(problems_of(error.errors(), PolicySection)) from None
