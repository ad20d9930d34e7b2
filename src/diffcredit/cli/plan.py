"""``diffcredit plan``: the expected cost of a study, and how it splits its budget between evaluations and images.

The same time buys many evaluations of few images or few evaluations of many; which is better depends on where a
property's noise comes from.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffcredit.cli.console import Bars, console, duration, say, stopping_gently, table
from diffcredit.cli.memory import print_memory
from diffcredit.cli.near_copies import tell_near_copies
from diffcredit.cli.options import StudyArgument, WorkersOption
from diffcredit.errors import UserError
from diffcredit.util.sanitize import single_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from diffcredit.credit import Credits
    from diffcredit.credit.planning import Costs, Noise, Split
    from diffcredit.ledger import Evaluation
    from diffcredit.study.plan import Plan, Stage
    from diffcredit.study.study import Study

LONG = 5.0  # seconds of compiling from which it gets a line
LEAST_IMAGES = 32  # with fewer, entropies and percentiles are too biased to compare


def plan(study: StudyArgument, workers: WorkersOption = None) -> None:
    """Estimate a study's memory, and its cost from a few timed steps on this machine; nothing is trained or kept."""
    from diffcredit.study.pilot import signal_sentences
    from diffcredit.study.prepared import build_properties
    from diffcredit.study.study import Study

    with stopping_gently(), Bars() as bars:
        loaded = Study.load(study, bars)
        build_properties(loaded.config, loaded.file)  # mistakes show before the first number
        print_memory(loaded.memory())
        planned = loaded.plan(workers)
        tell_near_copies(loaded, write=False)
    print_plan(loaded, planned)
    for sentence in signal_sentences(loaded.recipe):
        say(sentence)
    print_split(loaded)


def print_plan(study: "Study", planned: "Plan") -> None:
    """Print the stages with their times."""
    times = [(what, "done" if stage.done else duration(stage.seconds)) for what, stage in stages(study, planned)]
    grid = table(("stage", "time"), times)
    low, high = map(duration, planned.range_left)
    grid.add_row("total left", low if low == high else f"{low} to {high}", style="bold")
    if planned.compiling >= LONG:
        grid.add_row("compiling, just done; a run on this machine reuses it", duration(planned.compiling))
    console.print(grid)
    if planned.busy:
        say(f"This machine is busy: {planned.busy}. A few steps were timed beside that; alone, a run is faster.")
    images = study.config.sampling.images
    for name, count in planned.measured.items():
        say(f"{single_line(name)}: measured on {count:,} of the {images:,} images, those for its prompts.")
    for name, why in planned.evaluation.measuring.left_out.items():
        say(f"Not timed: {name}, which cannot be measured on random images: {single_line(why)}")


def stages(study: "Study", planned: "Plan") -> "Iterator[tuple[str, Stage]]":
    """Yield the description of each stage, and the stage."""
    training, sampling = study.config.model.train, study.config.sampling
    yield "start: programs and models", planned.startup
    base = "comes trained" if study.prepared.family.trained else f"{training.steps:,} steps"
    yield f"base model: {base}, then {sampling.images:,} images", planned.base
    if planned.preparation is not None:
        yield f"preparing the retraining: {planned.preparation_steps:,} steps", planned.preparation
    if planned.surrogates is not None:
        work = planned.surrogate_work
        yield (
            f"surrogates ({', '.join(study.surrogates.names)}): {work.fine_tunings:,} models of {planned.steps:,} "
            f"steps, {work.samplings:,} × {sampling.images:,} images",
            planned.surrogates,
        )
    if planned.pilot is not None:
        yield f"pilot (diffcredit pilot): {planned.pilot_evaluations:,} evaluations", planned.pilot
    measuring = planned.evaluation.measuring
    measured = f", {duration(measuring.seconds)} of measuring" if measuring.seconds >= 0.5 else ""
    features = f", {duration(measuring.features)} of it for features" if measuring.features >= 0.5 else ""
    yield (
        f"{planned.left:,} evaluations of {'' if planned.total.certain else 'about '}{planned.total.evaluations:,}, "
        f"{duration(planned.evaluation.time.each(planned.side_by_side))} each ({planned.steps:,} steps, "
        f"{sampling.images:,} images{measured}{features}), {planned.side_by_side} at a time",
        planned.evaluations,
    )


@dataclass(frozen=True)
class Advice:
    """One property's signal and noise, and the best split of the budget. ``noise`` is None if values have no standard
    errors, ``best`` also if all noise seems to come from images."""

    property: str
    signal_to_noise: float
    noise: "Noise | None" = None
    present: "Split | None" = None
    best: "Split | None" = None


def print_split(study: "Study") -> None:
    """Print the present split of the study's budget and the best one, or why they are not known."""
    from diffcredit.credit.estimate import DEFAULT
    from diffcredit.study.pilot import ENOUGH

    schedule = study.schedule()
    evaluations = schedule.evaluated()
    if len(evaluations) < ENOUGH:
        say(f"Splitting the budget: shown after {ENOUGH} evaluations; there are {len(evaluations)}.")
        return
    schedule.catch_up()
    total = schedule.total()
    count = max(total.evaluations - len(schedule.endpoints) if total else 0, len(evaluations))
    images = study.config.sampling.images
    try:
        costs = mean_costs(evaluations, images)
        budget = count * costs.evaluation(images)
        advices = [
            advise(name, credits, evaluations, images, costs, budget)
            for name, credits in study.credits(DEFAULT, corrected=False).items()
        ]
    except UserError as error:
        say(f"Splitting the budget: not known: {error}")
        return
    print_advices(advices, images, budget)


def print_advices(advices: "Sequence[Advice]", images: int, budget: float) -> None:
    rows = []
    for advice in advices:
        cells = ["not known", "", "", ""]
        if advice.noise and advice.present:
            cells[0] = f"{100 * (1 - advice.noise.between / advice.noise.variance(images)):.0f} %"
            cells[1] = f"{advice.present.images:,} × {advice.present.evaluations:,}"
            cells[2] = f"{advice.best.images:,} × {advice.best.evaluations:,}" if advice.best else "not known"
            gain = 1 - advice.best.variance / advice.present.variance if advice.best else None
            cells[3] = "" if gain is None else f"−{100 * gain:.0f} %" if gain > 0.005 else "the same"
        rows.append((advice.property, f"{advice.signal_to_noise:.2g}", *cells))
    columns = ("property", "signal/noise", "image noise", "now", "best", "variance")
    console.print(table(columns, rows, title=f"{duration(budget)} of evaluations, as images × evaluations"))
    if any(advice.best for advice in advices):
        say("sampling.images is part of the recipe: to change it, give the retraining another name.")
    if any(advice.noise is None for advice in advices):
        say("Image noise is not known where values have no standard errors.")
    if any(advice.noise and advice.best is None for advice in advices):
        say(
            "Image noise of 100 %: coalitions share their initial noises and so most of this noise, which hides what "
            "training adds."
        )


def advise(
    name: str, credits: "Credits", evaluations: "Sequence[Evaluation]", images: int, costs: "Costs", budget: float
) -> Advice:
    """Return the advice for one property from the evaluations."""
    from diffcredit.credit.planning import best_split, pilot_noise, signal_to_noise, split_of
    from diffcredit.study.pilot import ENOUGH
    from diffcredit.study.schedule import look_step

    sigma, tau = credits.diagnostics["sigma"], credits.diagnostics["tau"]
    n, sizes = len(credits.values), [evaluation.coalition.count("1") for evaluation in evaluations]
    ratio = signal_to_noise(tau, sigma, sizes, n)
    errors = [
        value.standard_error
        for evaluation in evaluations
        for value in evaluation.values
        if value.property == name and value.standard_error is not None
    ]
    noise = pilot_noise(sigma, errors, images) if len(errors) >= ENOUGH else None
    if noise is None or noise.variance(images) == 0:
        return Advice(name, ratio)
    present = split_of(noise, costs, budget, images)
    if noise.between == 0:
        return Advice(name, ratio, noise, present)
    least = {"least_images": min(LEAST_IMAGES, images), "least_evaluations": min(look_step(n), present.evaluations)}
    return Advice(name, ratio, noise, present, best_split(noise, costs, budget, **least))


def mean_costs(evaluations: "Sequence[Evaluation]", images: int) -> "Costs":
    """Return the worker seconds of an evaluation's training and measuring, and of each of its images."""
    from diffcredit.credit.planning import Costs

    def mean(stage: str) -> float:
        return sum(evaluation.seconds.get(stage, 0.0) for evaluation in evaluations) / len(evaluations)

    return Costs(mean("training") + mean("measuring"), mean("sampling") / images)
