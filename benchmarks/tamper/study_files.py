"""Changes to what lies beside the ledger and decides what is shown: the study file, also that in an archive."""

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import yaml

from benchmarks.tamper.archives import Archives, description_with
from benchmarks.tamper.copies import Copy
from benchmarks.tamper.untouched import NAME, OTHER, WORTHS
from benchmarks.tamper.values import Impossible, other_json, parsed

Settings = dict[str, Any]


def change_study(copy: Copy, random: Random) -> str:
    """Change a setting of the study file."""
    settings = yaml.safe_load(copy.file.read_text(encoding="utf-8"))
    words, changed = changed_settings(settings, random)
    copy.file.write_text(yaml.safe_dump(changed, allow_unicode=True, sort_keys=False), encoding="utf-8")
    return words


def change_study_text(copy: Copy, random: Random) -> str:
    """Change the study file's text: a byte, a line, or its end."""
    text = copy.file.read_text(encoding="utf-8")
    act = random.choice(["byte", "cut", "line", "twice"])
    lines = text.splitlines(keepends=True)
    place = random.randrange(len(lines))
    if act == "byte":
        at = random.randrange(len(text))
        changed = text[:at] + chr(ord(text[at]) ^ (1 << random.randrange(7))) + text[at + 1 :]
    elif act == "cut":
        changed = text[: random.randrange(len(text))]
    else:
        changed = "".join([*lines[:place], *([] if act == "line" else [lines[place]] * 2), *lines[place + 1 :]])
    copy.file.write_text(changed, encoding="utf-8")
    return f"{act} in line {place + 1}: {lines[place].strip()!r}"


def change_archived_study(copy: Archives, random: Random) -> str:
    """Change a setting of the study file in an archive."""
    words = []

    def change(content: Settings, random: Random) -> None:
        said, content["study"] = changed_settings(content["study"], random)
        words.append(said)

    copy.rewrite(description_with(change), random)
    return words[0]


def changed_settings(settings: Settings, random: Random) -> tuple[str, Settings]:
    """Return what was changed in words, and the changed settings."""
    changed = deepcopy(settings)
    if random.random() < 0.3:
        act = "any value"
        changed = parsed(other_json(json.dumps(changed), random)) if random.random() < 0.9 else [changed]
    else:
        act = random.choice(list(ACTS))
        ACTS[act](changed, random)
    if changed == settings:
        raise Impossible
    said = (
        ", ".join(
            f"{key}: {changed.get(key)!r:.100}"
            for key in {**settings, **changed}
            if changed.get(key) != settings.get(key)
        )
        if isinstance(changed, dict)
        else ""
    )
    return f"{act} ({said})", changed


def _set(*keys: str, to: Callable[[Random], Any]) -> Callable[[Settings, Random], None]:
    def change(settings: Settings, random: Random) -> None:
        *above, last = keys
        for key in above:
            settings = settings.setdefault(key, {})
        settings[last] = to(random)

    return change


def _one_of(*values: Any) -> Callable[[Random], Any]:
    return lambda random: random.choice(values)


ACTS: dict[str, Callable[[Settings, Random], None]] = {
    "distribution": _set(
        "design", "distribution", to=_one_of("shapley", "loo", "banzhaf", "sizes", "permutation", "x")
    ),
    "seed of the design": _set("design", "seed", to=_one_of(1, 7, 2**40)),
    "full replicates": _set("design", "full_replicates", to=_one_of(1, 3, 10)),
    "reference": _set(
        "reference", to=_one_of("untrained", "house", "pretrained", {"colourfulness": 5.0, "heldout_loss": -5.0})
    ),
    "matters": _set("matters", to=_one_of({"colourfulness": 0.01}, {"colourfulness": 50.0, "heldout_loss": 0.1}, 3.0)),
    "retired": _set("retired", to=_one_of(["colourfulness"], ["heldout_loss"], ["x"])),
    "properties": _set(
        "properties",
        to=_one_of(["colourfulness"], ["heldout_loss"], [{"name": "heldout_loss", "time_steps": 3}, "colourfulness"]),
    ),
    "a property's label": _set(
        "properties",
        to=_one_of(
            [{"name": "colourfulness", "as": "beauty"}],
            [{"name": "heldout_loss", "time_steps": 2, "as": "colourfulness"}],
        ),
    ),
    "a plug-in": _set("properties", to=_one_of(["colourfulness", "evil:warmth"], ["os:getcwd"])),
    "surrogates": _set("surrogates", to=_one_of(["pools"], ["existing_images"], ["x:y"])),
    "stop": _set(
        "stop",
        to=_one_of(
            {"evaluations": 10},
            {"evaluations": 10_000},
            {"correlation": 0.5},
            {"any": [{"evaluations": 50}, {"width": 0.1}]},
        ),
    ),
    "validation": _set("validation", to=_one_of({"shares": [0.5]}, {"seeds": 1, "shares": [0.4]}, {"coalitions": 5})),
    "payout": _set(
        "payout",
        to=_one_of({"property": "heldout_loss", "fixed": "equal", "merit": "help", "r": 0.9, "currency": "USD"}, None),
    ),
    "name": _set("name", to=_one_of(OTHER, "x", NAME.upper(), f"{NAME} ")),
    "seed": _set("seed", to=_one_of(1, 2**31, -1)),
    "seed of the contributions": _set("contributions", "seed", to=_one_of(0, 1)),
    "resolution": _set("contributions", "resolution", to=_one_of(8, 32)),
    "path": _set(
        "contributions", "path", to=_one_of(f"images/{next(iter(WORTHS))}", "results", "nowhere", "../other/images")
    ),
    "held-out images": _set("contributions", "holdout", to=_one_of(0.1, 0.5)),
    "least images": _set("contributions", "at_least", to=_one_of(2, 3)),
    "house": _set("contributions", "house", to=_one_of({"path": "images/ann"}, {"contributors": ["ann"]})),
    "identities": _set("contributions", "identities", to=_one_of({"ann": ["bob"]}, {"x": ["ann", "bob"]})),
    "lots": _set("contributions", "lots", to=_one_of(2)),
    "near-copies": _set("contributions", "near_copies", to=_one_of({"credit": "first"}, {"credit": "shared"})),
    "retraining": _set(
        "retraining", to=_one_of({"method": "fine_tune", "steps": 1}, {"method": "sparsified", "steps": 2})
    ),
    "a retraining's name": _set("retraining", "name", to=_one_of("sparsified", "x")),
    "sampling": _set("sampling", "images", to=_one_of(5, 400)),
    "model": _set("model", "train", "steps", to=_one_of(3, 1000)),
    "device": _set("device", to=_one_of("cuda", "auto", "x")),
    "threads": _set("threads", to=_one_of(2, 8)),
    "ledger": _set("ledger", to=_one_of("results/ledger.db", "elsewhere.db", "sqlite:///x.db?mode=ro", "study.yaml")),
    "results": _set("results", to=_one_of("elsewhere", "results/statements", "..", None)),
    "artifacts": _set("artifacts", to=_one_of("elsewhere", "memory://x", "http://x")),
}
