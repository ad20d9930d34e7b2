"""The waterfall from F of the reference to F(all): every step is a credit, so the steps add up exactly."""

from dataclasses import dataclass

from diffcredit.report.plot import Axis
from diffcredit.report.records import CreditTable, Step


@dataclass(frozen=True)
class Bar:
    """One step as drawn, in percent of the axis. ``helps`` is None for the levels at both ends."""

    step: Step
    helps: bool | None
    left: float
    width: float
    end: float  # where the step ends, and the next begins
    low: float | None  # the step's interval, around its end
    high: float | None


@dataclass(frozen=True)
class Waterfall:
    """The bars from F of the reference to F(all), and the axis's ``ticks`` as (position, label)."""

    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]


def waterfall(table: CreditTable) -> Waterfall | None:
    """Lay out the waterfall of the table's ``steps``; None where it has none."""
    if not table.steps:
        return None
    ends = [table.empty]
    for step in table.steps:
        ends.append(ends[-1] + step.value)
    known = [(end, step.half_width) for end, step in zip(ends[1:], table.steps, strict=True) if step.known]
    axis = Axis.around([*ends, *(end + side * half for end, half in known for side in (-1, 1))])
    sign = 1 if table.higher_is_better else -1
    bars = []
    for step, start, end in zip(table.steps, ends, ends[1:], strict=False):
        left, right = sorted((axis.position(start), axis.position(end)))
        low, high = (axis.position(end + side * step.half_width) if step.known else None for side in (-1, 1))
        bars.append(Bar(step, sign * step.value > 0, left, right - left, axis.position(end), low, high))
    first, last = (
        Bar(Step(name, value), None, axis.position(value), 0.0, axis.position(value), None, None)
        for name, value in (("F(reference)", table.empty), ("F(all)", table.full))
    )
    return Waterfall((first, *bars, last), axis.ticks())
