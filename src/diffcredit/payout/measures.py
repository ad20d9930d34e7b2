"""What contributors are paid for, in words for readers: the properties' titles and explanations."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from diffcredit.study.policy import PolicySection
from diffcredit.study.prepared import build_properties

if TYPE_CHECKING:
    from diffcredit.study.study import Study


def titles(study: "Study", names: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return the title and the explanation of each of the study's properties ``names``; those that the study file no
    longer has are called by their names."""
    found = dict.fromkeys(names, ("", ""))
    for section, prop in zip(study.config.properties, build_properties(study.config, study.file), strict=True):
        if prop.name in found:
            # a label distinguishes two settings of one property
            title = prop.name if section.label is not None else prop.title
            found[prop.name] = (title, prop.explanation)
    return {name: (title or name, explanation) for name, (title, explanation) in found.items()}


def title_of(policy: PolicySection, found: dict[str, tuple[str, str]]) -> str:
    """Return what a policy pays for: one property's title, or a sum of them with their weights."""
    if policy.mix is None:
        return found[str(policy.property)][0]
    terms = [f"{'−' if weight < 0 else '+'} {abs(weight):f} × {found[name][0]}" for name, weight in policy.mix.items()]
    return " ".join(terms).removeprefix("+ ")
