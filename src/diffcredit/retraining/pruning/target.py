"""The number of parameters that a pruned network is to have, and the error where it cannot."""

from collections.abc import Iterable

from diffcredit.errors import UserError

TOLERANCE = 0.02
"""Relative error of the number of parameters that is accepted."""


def target_count(parameters: float, total: int) -> int:
    """Return the number that ``parameters`` means: a share of ``total`` in (0, 1), or a count up to it."""
    if parameters <= 0 or 1 <= parameters < 2 or parameters > total:
        raise UserError(
            f"parameters: {parameters:,} is not accepted; a share between 0 and 1, or a count up to "
            f"the model's {total:,} parameters, is"
        )
    return round(parameters * total) if parameters < 1 else round(parameters)


def check_reached(target: int, total: int, counts: Iterable[int]) -> None:
    """Raise a UserError unless one of the possible ``counts`` is near enough to ``target``."""
    below = max((count for count in counts if count <= target), default=None)
    above = min((count for count in counts if count >= target), default=None)
    near = [count for count in (below, above) if count is not None]
    if any(abs(count - target) <= TOLERANCE * target for count in near):
        return
    said = " and ".join(f"{count:,} ({count / total:.3f})" for count in near)
    why = "would leave a layer empty" if below is None else f"cannot be reached within {TOLERANCE:.0%}"
    raise UserError(
        f"parameters: {target:,} parameters ({target / total:.3f} of the model's) {why}; "
        f"the nearest that this architecture allows: {said}"
    )
