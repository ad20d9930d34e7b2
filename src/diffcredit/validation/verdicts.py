"""A study's verdicts: what may be done with each property's credits, by all that its ledger knows.

    from diffcredit import Study

    study = Study.load("study.yaml")
    study.verdicts()["colourfulness"].reason

Neither models nor images are needed. How far the credits were tested follows from the ledger's truth evaluations of
exactly this study; `diffcredit.validation.validate` makes these.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from diffcredit.coalitions import decode, encode
from diffcredit.credit import Credits
from diffcredit.credit.materiality import Yardstick, seed_yardstick, stated_yardstick
from diffcredit.credit.outliers import outliers_in
from diffcredit.credit.verdicts import Tested, Verdict, verdict
from diffcredit.ledger import Evaluation
from diffcredit.ledger.purposes import TRUTH_REPLICATE
from diffcredit.study.crediting import estimate_all
from diffcredit.study.identity import recorded_base
from diffcredit.study.pilot import signals
from diffcredit.study.reserved import LEAST_TRUTH, truth_coalitions, truth_tasks
from diffcredit.study.sections import ValidationSection
from diffcredit.util.cache import artifact_name
from diffcredit.util.progress import duration
from diffcredit.validation.statistics.datamodeling import compare_lds
from diffcredit.validation.statistics.records import Contender, Truth

if TYPE_CHECKING:
    from diffcredit.study.config import StudyConfig
    from diffcredit.study.study import Study


def study_verdicts(study: "Study", credits: Mapping[str, Credits]) -> dict[str, Verdict]:
    """Return the verdict on each property's ``credits``, which are the study's own by any method."""
    found, untested, strength = score_against_truth(study, credits), cost_of_a_test(study), signals(study, credits)
    return {
        name: verdict(
            each,
            yardstick=yardstick(study, each),
            tested=found.get(name),
            untested=untested,
            signal=strength.get(name),
            misfit=misfit(each),
        )
        for name, each in credits.items()
    }


def yardstick(study: "Study", credits: Credits) -> Yardstick:
    """Return the help from which a contributor matters: what the study states, or the spread between seeds."""
    stated = study.config.stated_to_matter(credits.property_name)
    return seed_yardstick(credits) if stated is None else stated_yardstick(stated)


def misfit(credits: Credits) -> str:
    """Return a sentence where values of some coalitions, which the estimator's model does not fit, move a credit by
    more than its interval; else nothing."""
    moving = [
        each for each in outliers_in(credits.diagnostics) if (np.abs(each.moves) > credits.high - credits.values).any()
    ]
    if not moving:
        return ""
    values = "the value of one coalition does" if len(moving) == 1 else f"the values of {len(moving)} coalitions do"
    return f"Of the evaluations, {values} not fit the others and moves a credit by more than its interval."


def score_against_truth(study: "Study", credits: Mapping[str, Credits]) -> dict[str, Tested]:
    """Return what models retrained from scratch say of each property's ``credits``; without properties for which there
    are too few of these."""
    config = study.config
    truth = study.recipe_with((config.validation or ValidationSection()).truth, 1).evaluations("done", "truth")
    found = {}
    for name, each in credits.items() if truth else ():
        sign = 1 if each.higher_is_better else -1
        values = {one.key: sign * value for one in truth if (value := _measured(each, one)) is not None}
        truths = truths_of(config, len(each.values), values)
        fair = _without(study, each, {encode(row) for one in truths for row in one.coalitions}) if truths else None
        if fair is not None:
            middle = min(truths, key=lambda one: abs(one.share - 0.5))
            found[name] = compare_lds([middle], [Contender("credits", "", "", sign * fair.values)]).tested()
    return found


def _measured(credits: Credits, evaluation: Evaluation) -> float | None:
    """Return an evaluation's value of the property that is credited, or of the mix of properties."""
    terms = [(factor, part.property_name) for factor, part in credits.parts] or [(1.0, credits.property_name)]
    if not all(name in evaluation.measured for _, name in terms):
        return None
    return sum(factor * evaluation.measured[name] for factor, name in terms)


def truths_of(config: "StudyConfig", n: int, values: Mapping[tuple[str, int], float]) -> list[Truth]:
    """Return the truth of each share that has enough coalitions among ``values``, by coalition and replicate: those
    with all seeds done, or if they are too few, those with fewer seeds done."""
    settings, found = config.validation or ValidationSection(), []
    for share in settings.shares:
        coalitions = [encode(row) for row in truth_coalitions(config, n, share)]
        for seeds in range(settings.seeds, 0, -1):
            keys = {each: [(each, TRUTH_REPLICATE + seed) for seed in range(seeds)] for each in coalitions}
            whole = [each for each in coalitions if all(key in values for key in keys[each])]
            if len(whole) >= min(LEAST_TRUTH, len(coalitions)) or seeds == 1:
                break
        if len(whole) >= LEAST_TRUTH:
            rows = np.array([decode(each) for each in whole])
            found.append(Truth(share, rows, np.array([[values[key] for key in keys[each]] for each in whole])))
    return found


def _without(study: "Study", credits: Credits, truth: set[str]) -> Credits | None:
    """Return the credits estimated without the coalitions of ``truth``; None where the rest are too few. A design
    leaves these out only where the study file has a section ``validation``."""
    evaluations = study.evaluations()
    others = [each for each in evaluations if each.purpose != "estimate" or each.coalition not in truth]
    if len(others) == len(evaluations):
        return credits
    name = credits.property_name
    return estimate_all(others, [name], study.config, credits.method, names=credits.names)[0].get(name)


def cost_of_a_test(study: "Study") -> str:
    """Return a sentence for credits that were never tested: what a test would cost, as far as that is known."""
    with study.ledger(create=False) as ledger:
        n = len(ledger.settings(study.name)["contributors"])
        recipe = study.recipe.recorded(ledger)
    tasks, command = truth_tasks(study.config, n), f"diffcredit validate {study.file.name}"
    if not tasks:
        return f"The credits were never tested: {n} contributors have too few coalitions for a test."
    seconds = None if recipe is None else _seconds_of_a_truth(study, recipe.settings)
    price = (
        f"; {command} --plan says what that costs"
        if seconds is None
        else (f", about {duration(len(tasks) * seconds)} of one worker: {command}")
    )
    return f"The credits were never tested. A test retrains {len(tasks):,} models from scratch{price}."


def _seconds_of_a_truth(study: "Study", recipe: Mapping[str, Any]) -> float | None:
    """Return the seconds of a truth evaluation: a training as long as the base model's, and what the study's own
    evaluations took beside training; None where that was not recorded."""
    base = study.cache.seconds(artifact_name("base", recorded_base(recipe)))
    done = [each.seconds for each in study.evaluations("done", "estimate")]
    if base is None or not done:
        return None
    trained, settings = study.config.model.train.steps, study.config.validation or ValidationSection()
    beside = sum(seconds for each in done for stage, seconds in each.items() if stage != "training")
    return base * (settings.steps or trained) / trained + beside / len(done)
