"""From the findings to the page."""

import csv
import io
import re
from collections.abc import Iterable, Sequence, Sized
from math import exp, isfinite

from scipy.stats import t as student

from benchmarks.evidence.figures import TITLES
from benchmarks.evidence.findings import FIRST, Findings
from benchmarks.markdown import MARKS, best_of, cell, difference_of, mark, marked, scores_of, table
from diffcredit.validation.parts.lds import ADDITIVE, REPLICATES
from diffcredit.validation.presentation.sections import in_words
from diffcredit.validation.statistics.counterfactual import ACTIONS, RANDOM, TrainingNoise
from diffcredit.validation.statistics.datamodeling import LDSResult, MethodScore
from diffcredit.validation.statistics.intervals import satterthwaite_estimate
from diffcredit.validation.statistics.records import UNCLEAR, Estimate

PROPERTIES = tuple(TITLES)
KINDS = {
    "leave-one-out": "leave-one-out, any retraining",
    "application": "application scores",
    "control": "the property of a contributor's own images",
    "similarity": "similarity",
    "gradient": "TRAK family, D-TRAK, DAS, gradient similarity",
    "influence": "influence functions, In-Run Shapley",
    "floor": "image count, a random ranking",
}
BUDGETS = (1, 2, 5, 10, 20)
SEED, BASE = "retrained with another seed", "base model, nothing unlearned"


def page(found: Findings) -> str:
    sections = (_opening, _scores, _rivals, _diversity, _repetition, _fidelity, _unlearning, _counterfactual)
    sections += (_budget, _runtime)
    text = "\n".join([line for section in sections for line in section(found)] + list(LIMITS)) + "\n"
    return re.sub(r"(?<=[ (])-(?=\d)", "−", text)


def scores_csv(found: Findings) -> str:
    """Every score and difference of both runs, with all digits."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    lds, difference = ("LDS", "LDS low", "LDS high"), ("difference", "difference low", "difference high", "verdict")
    writer.writerow(["run", "property", "method", "category", "retraining", "evaluations", *lds, *difference])
    for (run, name), result in found.scores.items():
        for score in result.scores:
            contender, other = score.contender, difference_of(result, score.contender.name)
            cells = [*_numbers(other.spearman), other.verdict] if other else [""] * 4
            about = [run, name, contender.name, contender.category, contender.recipe, contender.evaluations or ""]
            writer.writerow([*about, *_numbers(score.spearman), *cells])
    return text.getvalue()


def _opening(found: Findings) -> list[str]:
    own = {name: _score(found.scores[1, name], FIRST).spearman for name in PROPERTIES}
    return [
        "# Do the credits predict retrained models?",
        "",
        "`python -m benchmarks evidence` makes this page from the ledgers of three runs of [`study.yaml`](study.yaml) "
        "([`ledgers/`](ledgers); in them workers are numbered, and the third's chain of hashes is that of its rows so "
        "changed; nothing else is), and its section on unlearning from [`unlearning/`](unlearning). It trains nothing.",
        "",
        "**In short.** Shapley values by sparsified fine-tuning order models that were retrained from scratch on half "
        f"of the contributors with a rank correlation (LDS) of {in_words(own['colourfulness'])} by colourfulness and "
        f"{in_words(own['heldout_loss'])} by held-out loss: higher than leave-one-out by any recipe and than each of "
        "the baselines, though for colourfulness not significantly above those that look at contributors' own images; "
        f"at the cost of {found.budgets['colourfulness'].prices['sparsified'].of(120):.1f} retrainings for 120 "
        f"coalitions. Their order by diversity, {in_words(own['cluster_entropy'])}, may be chance, and similarity of "
        "patches is significantly better. One study, one set of seeds; "
        "[what it does not show](#what-this-does-not-show) is at the end.",
        "",
        "**The study.** The twelve OpenMoji designers that come with the package (491 images at 16 px), a DDPM of a "
        "quarter of a million parameters trained for 1,200 steps, 256 images of 20 DDIM steps a model. The study's "
        "recipe keeps 55 % of the parameters, recovers for 400 steps and fine-tunes 60 steps a coalition; 120 "
        "coalitions, uniform over sizes. Beside it, on the first 40 of the same coalitions: sparsified with 20 and "
        "180 steps, dense fine-tuning (60 steps), gradient ascent and influence unlearning, dense and sparse with "
        "default settings, and retraining from scratch (second run). Truth is 40 other coalitions of six "
        "contributors, retrained from scratch with two seeds each (first run). All of it is smaller than the paper's "
        "studies (`studies/`): the model, the images, the contributors; and truth is of one share of the "
        "contributors, α = 0.5.",
        "",
        "The first two runs took ten minutes each on one NVIDIA H200 that 16 worker processes shared, the third, for "
        "[unlearning](#how-close-unlearning-comes-to-retraining) alone, five and a half (torch 2.11, diffusers 0.42).",
        "",
    ]


def _scores(found: Findings) -> list[str]:
    first = [found.scores[1, name] for name in PROPERTIES]
    lines = [
        "## LDS at α = 0.5",
        "",
        "![LDS of each method](lds.svg)",
        "",
        "First run: 40 coalitions, mean of two seeds; 95 % intervals over coalitions. △ and ▽: significantly better "
        f"or worse than *{FIRST}*, which means that the interval of the difference over the same coalitions excludes "
        "0; each judged by itself, so that a few of so many come out by chance. Credits by *from_scratch* rest on "
        "models of the second run, which had other clusters: no score for diversity. The ceiling of F without noise is "
        "what perfect prediction would reach; the additive one what an additive model of the other truth coalitions "
        "does, which methods that learn from more may exceed.",
        "",
    ]
    ceilings = [result.ceilings_at(result.middle).spearman for result in first]
    rows = [
        [f"*{REPLICATES}*", "", *(cell(each.replicates) for each in ceilings)],
        [f"*{ADDITIVE}*", "", *(cell(each.additive) for each in ceilings)],
    ]
    for name in _methods(first):
        evaluations = next(score.contender.evaluations for result in first for score in scores_of(result, name))
        cells = [" ".join(marked(result, score) for score in scores_of(result, name)) or "–" for result in first]
        label = f"**{name}**" if name == FIRST else name
        rows.append([label, str(evaluations or "–"), *cells])
    lines += table(["method", "evaluations", *TITLES.values()], rows)
    shapley = found.artefacts["heldout_loss"].agreement, found.artefacts["colourfulness"].agreement
    return [
        *lines,
        "Estimators other than these on the other recipes, and all of the second run: [`lds.csv`](lds.csv).",
        "",
        "*kernelshap*, the paper's estimator, is out of its depth on these evaluations, which were drawn uniformly "
        "over sizes and not by its own kernel. An untrained network is so far from any trained one that the step "
        "from F(∅) drowns the differences between contributors: a game with these endpoints and one value for all "
        f"other coalitions gives nearly the same order of contributors (Spearman {shapley[0]:.2f} for held-out loss, "
        f"{shapley[1]:.2f} for colourfulness).",
        "",
    ]


def _rivals(found: Findings) -> list[str]:
    lines = [
        "## Is it ahead of the other kinds of method, as in the paper?",
        "",
        f"The best of each kind by this very truth, which favours it, less *{FIRST}*:",
        "",
    ]
    rows = []
    for kind, words in KINDS.items():
        cells = []
        for name in PROPERTIES:
            best = best_of(found.scores[1, name], kind)
            other = best and difference_of(found.scores[1, name], best.contender.name)
            cells.append(f"{best.contender.name}: {_signed(other.spearman)}{mark(other)}" if best and other else "none")
        rows.append([words, *cells])
    lines += table(["kind", *TITLES.values()], rows)
    for name, title in TITLES.items():
        result = found.scores[1, name]
        judged = [difference_of(result, best.contender.name) for kind in KINDS if (best := best_of(result, kind))]
        words = {
            "significantly behind": [each.contender for each in judged if each and each.verdict == "worse"],
            UNCLEAR: [each.contender for each in judged if each and each.verdict == UNCLEAR],
            "significantly ahead": [each.contender for each in judged if each and each.verdict == "better"],
        }
        listed = "; ".join(f"{word}: *{'*, *'.join(names)}*" for word, names in words.items() if names)
        lines.append(f"- {title}: {listed}.")
    return [
        *lines,
        "",
        "So for colourfulness and held-out loss the Shapley values are ahead of all other kinds, as in the paper, "
        "significantly so of all but those that look at the colourfulness of a contributor's own images, which cost "
        "next to nothing and may be as good. For diversity they are not ahead.",
        "",
    ]


def _diversity(found: Findings) -> list[str]:
    spread = found.spreads["cluster_entropy"]
    result = found.scores[1, "cluster_entropy"]
    additive = result.ceilings_at(result.middle).spearman.additive
    steps = {row.steps: row for row in found.fidelities[2, "cluster_entropy"].of("sparsified")}
    lines = [
        "## Why not diversity",
        "",
        "Diversity is the entropy over eight clusters of the base model's own images. It is not the game: an "
        f"additive model that learns from retrained models reaches {in_words(additive)}. It is the retraining, and "
        "the noise that this leaves in the credits:",
        "",
        *table(
            [
                "",
                "deviation between coalitions of half: retrained",
                "one seed's noise",
                "by sparsified, 60 steps",
                "ratio",
                "agreement of credits from either half of the 120 evaluations",
                "LDS of credits from each third",
            ],
            [
                [
                    title,
                    f"{each.retrained:.2g}",
                    f"{each.seed:.2g}",
                    f"{each.recipe:.2g}",
                    f"{each.recipe / each.retrained:.2f}",
                    f"{each.halves:.2f}",
                    ", ".join(f"{value:.2f}" for value in each.thirds),
                ]
                for title, each in ((title, found.spreads[name]) for name, title in TITLES.items())
            ],
        ),
        f"- Sixty steps change little: models of the recipe still fill {exp(spread.levels[1]):.1f} clusters of 8 (the "
        "exponential of the mean entropy, coalitions of 5 to 7), retrained ones of half of the contributors "
        f"{exp(spread.levels[0]):.1f}; and they differ between coalitions by "
        f"{100 * spread.recipe / spread.retrained:.0f} % of what retrained ones do. Held-out loss differs by even "
        "less, but there credits from either half of the evaluations agree.",
        "- So the credits are mostly noise: those from one half of the evaluations agree with those from the other "
        f"half by no more than {spread.halves:.2f}, and thirds of the evaluations give an LDS of anything from "
        f"{min(spread.thirds):.2f} to {max(spread.thirds):.2f}. With all 120 the LDS is lower than with the first 40: "
        "a warning against reading any single one of these numbers.",
        "- More steps come closer to retraining (second run, its own clusters): size-adjusted correlation "
        + ", ".join(f"{in_words(row.size_adjusted)} at {count} steps" for count, row in steps.items())
        + f". The LDS of the first run is too noisy to confirm it: {_plain(result, 'shapley, sparsified-20')}, "
        f"{spread.thirds[0]:.2f} and {_plain(result, 'shapley, sparsified-180')}, from the first 40 evaluations of "
        "each.",
        "- What does well here looks at images alone: similarity of patches, and the diversity of a contributor's "
        "own images.",
        "",
    ]
    return lines


def _repetition(found: Findings) -> list[str]:
    shown = ("shapley, sparsified", "shapley, sparsified-180", "shapley, fine_tune", "application_scores (mean)")
    shown += ("cluster_distance (mean)", "d_trak (sum)", "trak (sum)", "in_run_shapley (sum)")
    scored = [name for name in PROPERTIES if (2, name) in found.scores]
    rows = [
        [
            method,
            *(
                " ".join(in_words(score.spearman) for score in scores_of(found.scores[run, name], method)) or "–"
                for name in scored
                for run in (1, 2)
            ),
        ]
        for method in shown
    ]
    repeated = {name: found.repeated[2, name] for name in PROPERTIES}
    return [
        "## The second run",
        "",
        "The second run repeats the first: the same file and seeds, but training on this GPU does not repeat bit for "
        "bit, so that its base model and everything after it came out anew. Models retrained from scratch do not "
        "know the base model, and colourfulness and held-out loss are the same property in both runs, so the truth "
        "of the first run serves both.",
        "",
        *table(["method", *(f"{TITLES[name]}, run {run}" for name in scored for run in (1, 2))], rows),
        "This shows that the numbers do not hang on the GPU's rounding. It is **no** replication with other seeds: "
        "initial weights, data order, coalitions and truth are the same, and the values of the study's recipe "
        f"correlate between runs by {repeated['colourfulness'].values:.3f} (colourfulness) and "
        f"{repeated['heldout_loss'].values:.3f} (held-out loss). For diversity even this much was enough: other "
        f"images of the base model give other clusters, values correlate by {repeated['cluster_entropy'].values:.2f}, "
        f"and the credits of the two runs by {repeated['cluster_entropy'].credits:.2f} only (Spearman; "
        f"{repeated['colourfulness'].credits:.2f} and {repeated['heldout_loss'].credits:.2f} for the other two).",
        "",
    ]


def _fidelity(found: Findings) -> list[str]:
    rows = []
    for name, title in TITLES.items():
        for row, several in zip(found.fidelities[2, name].recipes, found.of_several[name].recipes, strict=True):
            about = [title, row.recipe, str(row.steps or "–")]
            credits = "–" if row.credits is None else f"{row.credits.spearman:.2f}"
            rows.append([*about, *map(in_words, (row.spearman, row.size_adjusted, several.size_adjusted)), credits])
    return [
        "## Fidelity: how near each recipe comes to retraining",
        "",
        "![More steps come closer to retraining](fidelity.svg)",
        "",
        "Second run, 40 coalitions of all sizes, one model each: correlation of F with F of the model retrained from "
        "scratch; the same with the size of the coalition taken out of both (Pearson), over all coalitions and "
        "without the four of one contributor; and Spearman's correlation of the Shapley values from these 40 "
        "evaluations of either.",
        "",
        *table(
            [
                *(
                    "property",
                    "recipe",
                    "steps",
                    "Spearman",
                    "size-adjusted",
                    "size-adjusted, two contributors or more",
                ),
                "credits",
            ],
            rows,
        ),
        "- Sparsified fine-tuning comes closer to retraining with more steps, and 60 steps of it are about as close "
        "as 60 dense ones.",
        "- Gradient ascent and influence unlearning, with default settings, say little about coalitions: of held-out "
        "loss they know the size, hardly who is in it.",
        "- For held-out loss the four coalitions of one contributor decide the size-adjusted correlation; without "
        "them it is as for colourfulness.",
        "",
    ]


def _unlearning(found: Findings) -> list[str]:
    (distances,) = found.unlearned.section.tables
    cells = {row[2] or row[0]: dict(zip(distances.columns, row, strict=True)) for row in distances.rows}
    recipes = [name for name, row in cells.items() if row["recipe"]]
    closest = next(name for name in recipes if cells[name]["above the closest"] is None)
    farther = [name for name in recipes if name != closest and cells[name]["above the closest"].low > 0]
    close = [name for name in recipes if name != closest and name not in farther]
    beyond = [name for name, row in cells.items() if (gap := row["above another seed"]) is not None and gap.low > 0]
    floor, base = cells[SEED]["distance"], cells[BASE]["distance"]
    count = len(found.unlearned.sizes)
    deviation = (floor.high - floor.low) / 2 / float(student.ppf(0.975, count - 1)) * count**0.5
    agreement = [found.repeated[3, name].values for name in PROPERTIES]
    shown = ("distance", "above another seed", "above the closest")
    return [
        "## How close unlearning comes to retraining",
        "",
        "![Fréchet distance to the images of the retrained model](unlearning/unlearning.svg)",
        "",
        "Third run: the same file once more, for this part alone. Its base model is another one again; values of the "
        "study's recipe correlate with those of the first run by "
        f"{agreement[0]:.3f} (colourfulness), {agreement[1]:.3f} (held-out loss) and {agreement[2]:.2f} (diversity, "
        "its own clusters).",
        "",
        f"{count} coalitions, drawn as the Shapley kernel draws them, most of nearly nobody or nearly everybody: of "
        f"{_counted(found.unlearned.sizes)} contributors. Each is made by every recipe, and retrained from scratch "
        "with two seeds; 256 images a model, from the same noises. The distance is Fréchet's, between the images of a "
        "recipe and those of the first retrained model, in the feature space that the study measures diversity in: "
        "`layout`, 112 numbers, the mean colours and edges in the cells of a 4 × 4 grid. It is no FID: nothing of it "
        "can be compared with distances in Inception's space. Means over coalitions with Student's 95 % intervals; "
        "those of differences are over the same coalitions' differences.",
        "",
        *table(
            ["recipe", "model", *shown],
            [[name, row["model"] or "–", *(cell(row[key], ".3f") for key in shown)] for name, row in cells.items()],
        ),
        f"- **What differs significantly.** *{closest}* is closest, significantly closer than {_named(farther)}, not "
        f"than {_named(close)}. Each is judged by itself, and against the closest of {len(recipes)} by this very "
        "table, which flatters it.",
        "- **What does not.** "
        + (
            f"Further from retraining than another seed is: {_named(beyond)}."
            if beyond
            else "No recipe, nor the base model itself, differs significantly from another seed: all differences have "
            "an interval that includes 0."
        )
        + f" That floor, {in_words(floor, '.3f')}, has an interval down to below 0, where no distance is: the standard "
        f"deviation over coalitions, {deviation:.2f}, is {deviation / floor.value:.1f} times the mean, so that a few "
        "coalitions decide it. Differences from the base model over the same coalitions were not written down.",
        f"- By their means, gradient ascent ({cells['gradient_ascent']['distance'].value:.2f}) and influence "
        f"({cells['influence']['distance'].value:.2f}) leave the dense model where it was ({base.value:.2f}); these "
        "are their default settings. All recipes on the sparse model are closer than their dense twins; whether "
        "pruning and recovery alone would be, with nothing unlearned, was not measured.",
        "",
        "![Images of each recipe for one coalition, from the same noises](unlearned.png)",
        "",
        "A coalition of one contributor, one column a noise: whatever the recipe, the images are still those of the "
        "base model; those of the model retrained from scratch are not.",
        "",
        "The distances are of images, which are not in the repository: this section is not computed from the ledger "
        "but from what `diffcredit validate --part unlearning` wrote, [`unlearning/`](unlearning) with all digits in "
        "[`unlearning.csv`](unlearning/unlearning.csv). The third ledger has the same models' properties and seconds.",
        "",
    ]


def _counterfactual(found: Findings) -> list[str]:
    result, noise = found.counterfactual, found.counterfactual.noise
    before = float(result.before.mean())
    rows = []
    for action in ACTIONS:
        first = result.of(result.first, action)
        for effect in (each for each in result.effects if each.action == action):
            after = float(effect.after.mean())
            shared = "–"
            if effect.method not in (RANDOM, result.first) and first is not None:
                same = (effect.coalitions == first.coalitions).all()
                gap = _by(noise, after - float(first.after.mean()), effect.after, first.after)
                shared = "same coalition" if same else _signed(gap, 1) + _beyond(gap, action.leave)
            change = f"{after - before:+.1f}"
            if effect.method != RANDOM:
                change = _signed(_by(noise, after - before, effect.after, result.before), 1)
            rows.append([action.name, effect.method, f"{after:.1f}", change, shared])
    leaving = [action for action in ACTIONS if action.leave]
    left, chance = (
        [float(each.after.mean()) for action in leaving if (each := result.of(method, action))]
        for method in (result.first, RANDOM)
    )
    return [
        "## Without the top contributors",
        "",
        "Colourfulness of models retrained from scratch, two seeds each, without the contributors that a method "
        "calls the best, or with them alone (second run; of the methods whose credits were there at the time the "
        f"first of each kind). Everybody's {len(result.before)} models, three of them trained as endpoints, have "
        f"{before:.1f} on average ({_listed(result.before)}).",
        "",
        *table(["action", "by", "F after", "change", f"less {FIRST}"], rows),
        "The two seeds of one coalition show next to nothing of their noise. It is taken from all "
        f"{noise.coalitions} coalitions of this table together (a standard deviation of {noise.variance**0.5:.1f}), "
        "which supposes that it is the same for all. ▽: significantly weaker than the study's credits; △: stronger.",
        "",
        f"By these intervals, leaving out more of the top takes colourfulness down: {_listed(left)} without the top "
        f"10, 20 and 40 %, where random rankings leave {_listed(chance)}. Without those that similarity of pixels "
        "calls the best it does not fall. The study's credits do not differ significantly from application scores, nor "
        "from the colourfulness of a contributor's own images. With the top 60 % alone, models are as colourful as "
        "everybody's or more.",
        "",
    ]


def _by(noise: TrainingNoise, difference: float, *seeds: Sized) -> Estimate:
    """95 %, of a difference of two means, each over its ``seeds``."""
    variance = noise.variance * sum(1 / len(some) for some in seeds)
    return satterthwaite_estimate(difference, [(variance, noise.freedom)])


def _budget(found: Findings) -> list[str]:
    rows = []
    for name, title in TITLES.items():
        result = found.budgets[name]
        for curve in result.curves:
            price = result.prices[curve.recipe]
            at = [in_words(curve.at[float(each)]) if float(each) in curve.at else "" for each in BUDGETS]
            final = f"{in_words(curve.lds[-1])} for {curve.costs[-1]:.2g}"
            rows.append([title, curve.recipe, f"{price.evaluation:.3f}", _or_unknown(price.preparation), *at, final])
    price = found.budgets["colourfulness"].prices
    return [
        "## The same compute",
        "",
        "![LDS against compute](budget.svg)",
        "",
        "LDS of Shapley values by what the evaluations cost, in units of one retraining from scratch with its "
        f"sampling ({found.budgets['colourfulness'].unit:.0f} s); first run, *from_scratch* of the second. "
        "Preparation (recovery) is counted where it is known, the base model is not: it is there anyway.",
        "",
        *table(
            ["property", "recipe", "one evaluation", "preparation", *map(str, BUDGETS), "all evaluations"],
            rows,
        ),
        "- 40 models retrained from scratch order coalitions no better than 120 of the study's recipe, or 40 of 180 "
        "steps, do for a fifth of the price. One reason may be that retrained models carry the noise of their own "
        "initial weights, where fine-tuned ones all start from the same. For diversity, where this would matter "
        "most, there is no from-scratch score.",
        "- On this GPU a step of so small a network costs the same dense or sparse: dense fine-tuning "
        f"({price['fine_tune'].evaluation:.3f} an evaluation, nothing to prepare) is no dearer than sparsified "
        f"({price['sparsified'].evaluation:.3f}, and {price['sparsified'].preparation:.2f} once), and neither is "
        "ahead at equal cost. What pruning saves on larger models is not measured here.",
        "",
    ]


def _runtime(found: Findings) -> list[str]:
    rows = [
        [
            each.recipe,
            str(each.steps or "–"),
            str(len(each.seconds)),
            f"{each.training.mean:.2f} ± {each.training.deviation:.2f}",
            f"{each.sampling.mean:.2f}",
            f"{each.speed_up:.1f}",
        ]
        for each in found.runtime.recipes
    ]
    growth = found.runtime.growths[0]
    return [
        "## Runtime of one coalition",
        "",
        "Seconds of one process while 15 or 16 share the GPU: means, of training with the standard deviation. First "
        "run, with the retrained models of both.",
        "",
        *table(["recipe", "steps", "evaluations", "training s", "sampling s", "times as fast as from scratch"], rows),
        f"Training grows by {growth.slope:.3f} s a step ({growth.method}, R² {growth.r_squared:.2f}), so that the "
        "ratio is that of the steps, 1,200 to 60, less sampling. Seconds vary with what else was running: retraining "
        f"took {found.runtime.recipes[0].training.deviation / found.runtime.recipes[0].training.mean:.0%} more or "
        "less.",
        "",
    ]


LIMITS = (
    "## What this does not show",
    "",
    "- **One study, one set of seeds.** One data set, one base model (trained three times with the same seeds), 40 "
    "truth coalitions of one size, two seeds. Intervals are over coalitions and, in the truth, seeds of retraining; "
    "none is over base models, designs, initial noises or data sets.",
    "- **The recipe was not chosen blindly.** It is the demo's (pruning, rate and steps of fine-tuning), which was "
    "tuned on the demo's base model, with the same seed and the same designers (1,600 training steps, 160 images of "
    "10 DDIM steps); the estimator's model of sizes was found on such ledgers too "
    "([`benchmarks/demo`](../demo/README.md)). The other recipes and all baselines have their default settings: a "
    "tuned gradient ascent or influence unlearning may do better.",
    "- **Small models.** A quarter of a million parameters at 16 px. Gradient-based baselines may be better where "
    "models are larger, and there the cost of a step depends on the size of the network.",
    "- **Little about unlearning.** Ten coalitions, in a feature space of coarse layout. They distinguish no recipe "
    "from another seed of retraining, and none was compared with the base model over the same coalitions.",
    "- **An LDS is about order.** It says nothing on whether the sizes of credits, or their intervals, are right.",
)


def _methods(results: Sequence[LDSResult]) -> list[str]:
    """Shapley values by every recipe, the other estimators on the study's, leave-one-out and baselines, by category."""
    every = {score.contender.name: score.contender for result in results for score in result.scores}
    own = next(contender.recipe for name, contender in every.items() if name == FIRST)
    kinds = ["shapley", "banzhaf", "datamodel", *KINDS]
    shown = [
        each
        for each in every.values()
        if not each.recipe or each.recipe == own or each.category == "leave-one-out" or each.name.startswith("shapley,")
    ]
    shown.sort(key=lambda each: (kinds.index(each.category), not each.name.startswith("shapley,")))
    return [each.name for each in shown]


def _score(result: LDSResult, name: str) -> MethodScore:
    return scores_of(result, name)[0]


def _beyond(gap: Estimate, leave: bool) -> str:
    """The mark of an interval that excludes 0: without its top, a stronger method leaves less."""
    if gap.low <= 0 <= gap.high:
        return ""
    return MARKS["worse"] if (gap.value > 0) == leave else MARKS["better"]


def _plain(result: LDSResult, name: str) -> str:
    return in_words(_score(result, name).spearman)


def _named(recipes: Sequence[str]) -> str:
    return ", ".join(f"*{name}*" for name in recipes) or "none"


def _signed(estimate: Estimate, decimals: int = 2) -> str:
    value, low, high = (f"{each:+.{decimals}f}" for each in _numbers(estimate))
    return f"{value} ({low} to {high})"


def _numbers(estimate: Estimate) -> tuple[float, float, float]:
    return float(estimate.value), float(estimate.low), float(estimate.high)


def _listed(numbers: Iterable[float]) -> str:
    *first, last = (f"{number:.1f}" for number in numbers)
    return f"{', '.join(first)} and {last}"


def _counted(sizes: Sequence[int]) -> str:
    *first, last = map(str, sizes)
    return f"{', '.join(first)} and {last}"


def _or_unknown(number: float) -> str:
    return f"{number:.2f}" if isfinite(number) else "not known"
