"""What surrogates are worth: the LDS of their own credits, and of credits that evaluations correct, beside that of
evaluations alone."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from diffcredit.credit import KnownSurrogate, estimate
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.validation.figures import Series, curves
from diffcredit.validation.lds import LDS, lds
from diffcredit.validation.records import Contender, Estimate, RecipeGame, Truth
from diffcredit.validation.sections import Figure, Section, Table
from diffcredit.validation.wording import in_words

COUNTS = (20, 50, 100, 200, 500, 1000)
NONE, ALL = "no surrogate", "all surrogates"
CONTROL = "real_data"
"""The property of the coalition's own training images: a surrogate that is no better needs no model."""
NEAR, SHARE = 0.05, 0.1
"""A surrogate passes that is told apart from the control, and whose LDS is so near to that of all evaluations, at such
a share of their cost."""


@dataclass(frozen=True)
class Worth:
    """Credits of one ``surrogate``, :data:`ALL` or :data:`NONE`, with so many ``evaluations``: what they cost, in
    evaluations, the surrogate's preparation among it; their LDS, less that of all evaluations without a surrogate, and
    less that of the control's own credits (None: there is no control, or this is it), over the same coalitions."""

    surrogate: str
    evaluations: int
    cost: float
    lds: Estimate
    less_evaluated: Estimate | None
    less_control: Estimate | None


@dataclass(frozen=True)
class Surrogacy:
    """``worths`` by surrogate and number of evaluations, at the ``share`` nearest to ½."""

    share: float
    evaluations: int
    worths: tuple[Worth, ...]

    def of(self, surrogate: str) -> tuple[Worth, ...]:
        """Fewest evaluations first."""
        return tuple(each for each in self.worths if each.surrogate == surrogate)

    @property
    def surrogates(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.surrogate for each in self.worths if each.surrogate != NONE))

    @property
    def evaluated(self) -> Worth:
        """All evaluations, without a surrogate."""
        return self.of(NONE)[-1]

    @property
    def enough(self) -> Worth:
        """The fewest evaluations from which on credits without a surrogate are near to those of all."""
        every = self.of(NONE)
        far = [place for place, each in enumerate(every[:-1]) if not _near(each)]
        return every[far[-1] + 1 if far else 0]

    def passing(self, surrogate: str) -> Worth | None:
        """With the fewest evaluations that make a surrogate pass; None: it does not."""
        for each in self.of(surrogate):
            few = each.cost <= SHARE * self.evaluations
            told = each.less_control is not None and each.less_control.low > 0
            if few and told and _near(each):
                return each
        return None


def _near(worth: Worth) -> bool:
    return worth.less_evaluated is not None and worth.less_evaluated.value >= -NEAR


def surrogacy(
    game: RecipeGame,
    known: Mapping[str, KnownSurrogate],
    truths: Sequence[Truth],
    price: Callable[[Sequence[str]], float],
    counts: Sequence[int] = COUNTS,
) -> Surrogacy:
    """Of ``known`` surrogates, whose values are those at the game's coalitions, with none and ``counts`` of the game's
    evaluations. ``price``: how many evaluations it would take to pay for surrogates, by their names, all together.
    What the estimator refuses is left out. Raises UserError where nothing is to be compared."""
    if not known:
        raise UserError("no surrogate stands in for it")
    if not truths:
        raise UserError("no truth coalitions, so no LDS")
    every = len(game.values)
    steps = [*(count for count in counts if count < every), every]
    sets = {NONE: (), **{name: (name,) for name in known}, **({ALL: tuple(known)} if len(known) > 1 else {})}
    prices = {label: price(names) if names else 0.0 for label, names in sets.items()}
    found: dict[tuple[str, int], FloatArray] = {}
    for label, names in sets.items():
        if len(names) == 1:
            found[label, 0] = np.asarray(known[names[0]].credits, np.float64)
        for count in steps:
            with suppress(UserError):
                found[label, count] = _credits(game, [known[name] for name in names], count)
    if (NONE, every) not in found:
        raise UserError(f"{every} evaluations are too few for credits without a surrogate")
    truth = min(truths, key=lambda each: abs(each.share - 0.5))
    contenders = [Contender(_name(*key), "", "", credits) for key, credits in found.items()]
    evaluated, control = _name(NONE, every), _name(CONTROL, 0)
    less_evaluated = _differences(lds([truth], contenders, against=evaluated))
    less_control = _differences(lds([truth], contenders, against=control)) if (CONTROL, 0) in found else {}
    scores = {each.contender.name: each.spearman for each in lds([truth], contenders).scores}
    if (CONTROL, 0) in found and not isfinite(scores[control].value):
        less_control = {name: score for name, score in scores.items() if name != control}  # it orders nothing: chance
    worths = [
        Worth(*key, prices[key[0]] + key[1], scores[name], less_evaluated.get(name), less_control.get(name))
        for key, name in ((key, _name(*key)) for key in found)
    ]
    return Surrogacy(truth.share, every, tuple(worths))


def _credits(game: RecipeGame, known: Sequence[KnownSurrogate], count: int) -> FloatArray:
    """(n,): from the game's first ``count`` evaluations, with what stands in for it."""
    rows = slice(count)
    return estimate(
        game.coalitions[rows],
        game.values[rows],
        empty=game.empty,
        full=game.full,
        size_distribution=game.size_distribution,
        surrogate=[replace(each, values=np.asarray(each.values)[rows]) for each in known] or None,
    ).values


def _name(surrogate: str, evaluations: int) -> str:
    return f"{surrogate}, {evaluations}"


def _differences(result: LDS) -> dict[str, Estimate]:
    return {each.contender: each.spearman for each in result.differences}


def surrogacy_section(results: Mapping[str, Surrogacy]) -> Section:
    """``results`` by the title of the property."""
    return Section(
        "surrogates",
        "Surrogates: how many evaluations do they save?",
        tuple(sentence for title, result in results.items() for sentence in _summary(title, result)),
        (_table(results),),
        (_figure(results),),
        caveats=(
            "With 0 evaluations credits are a surrogate's own. Costs are in evaluations, and count the models that a "
            "surrogate fine-tunes and samples, one for each contributor or none, not what it takes to measure images.",
            f"A surrogate passes if, for at most {100 * SHARE:.0f} % of what all evaluations cost, it is told apart "
            f"from {CONTROL} as better and its LDS is at most {NEAR:g} below that of all evaluations. Each is judged "
            f"by itself. {CONTROL} that says the same of all coalitions orders none of them, and counts as chance, 0.",
        ),
    )


def _summary(title: str, result: Surrogacy) -> list[str]:
    everything = result.evaluated
    if not isfinite(everything.lds.value):
        return [f"{title}: the LDS is not defined, since retrained values or predictions are all equal."]
    sentences = [
        f"{title}: {everything.evaluations} evaluations alone reach an LDS of {in_words(everything.lds)} at "
        f"share {result.share:g}; from {result.enough.evaluations} on they are within {NEAR:g} of it."
    ]
    for name in result.surrogates:
        worth = result.passing(name)
        if worth is not None:
            how = f"with {worth.evaluations} evaluations" if worth.evaluations else "without any evaluation"
            sentences.append(f"{name} passes {how}, at the cost of {worth.cost:.0f}: {in_words(worth.lds)}.")
    if len(sentences) == 1:
        sentences.append("No surrogate passes.")
    return [" ".join(sentences)]


def _table(results: Mapping[str, Surrogacy]) -> Table:
    return Table(
        "surrogates",
        "LDS of surrogates, alone and corrected by evaluations",
        (
            "property",
            "surrogate",
            "evaluations",
            "cost in evaluations",
            "LDS",
            "less all evaluations alone",
            f"less {CONTROL} alone",
        ),
        tuple(
            (title, each.surrogate, each.evaluations, each.cost, each.lds, each.less_evaluated, each.less_control)
            for title, result in results.items()
            for each in result.worths
        ),
    )


def _figure(results: Mapping[str, Surrogacy]) -> Figure:
    panels = {
        title: [
            Series(name, tuple(float(each.evaluations) for each in own), tuple(each.lds for each in own))
            for name in (NONE, *result.surrogates)
            if (own := result.of(name))
        ]
        for title, result in results.items()
    }
    return curves(
        "lds-by-surrogate",
        "LDS against the number of evaluations, by surrogate",
        "LDS of credits from the first evaluations with each surrogate, with 0 evaluations its own credits, at the "
        "share nearest to ½; bars: 95 % intervals over truth coalitions.",
        panels,
        "evaluations",
        "LDS",
    )
