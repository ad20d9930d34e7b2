"""How many parameters a pruned network shall have, and what is said when it cannot."""

from collections.abc import Iterable

from diffcredit.errors import UserError

TOLERANCE = 0.02
"""How far, in relation to it, a target may be missed."""


def target_count(parameters: float, total: int) -> int:
    """The number of parameters that ``parameters`` means: a share of ``total`` in (0, 1), or a count up to it."""
    if parameters <= 0 or 1 <= parameters < 2 or parameters > total:
        raise UserError(
            f"parameters: {parameters:,} is not accepted; a share between 0 and 1, or a count up to "
            f"the model's {total:,} parameters, is"
        )
    return round(parameters * total) if parameters < 1 else round(parameters)


def check_reached(target: int, total: int, counts: Iterable[int]) -> None:
    """Raises a UserError unless one of ``counts``, all that were found possible, is near enough to ``target``."""
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
