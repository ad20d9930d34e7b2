"""A property of the images generated for some of a study's prompts: ``prompts`` of any property in a study file.

With it one can ask who is worth what for harbour scenes. Everything that a property compares generated images with is
restricted likewise, so that a harbour scene is compared with harbour scenes:

- images that the base model generated: to those for the same prompts;
- training images, and held-out images, that have captions: to those whose caption is one of the prompts. Where none
  has a caption, all count. A property may ask for all (:attr:`~diffcredit.properties.base.Property.whole_training`): a
  copy of a training image is a copy whatever its caption;
- images of a folder: not at all, since whoever names them has chosen them.
"""

import dataclasses
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.features import Extractor
from diffcredit.properties.base import Context, Property, State, needs_fitting, needs_model
from diffcredit.util.sanitize import shortened, single_line, truncated

CHOSEN = "prompts:chosen"  # the state's array (m,) of which images count; no property's own array has such a name
NAMED = 3  # prompts in a title or an error


class PromptedProperty(Property):
    """A property with ``prompts``. What this class defines is its own, and everything else is the whole property's.

    It is given the images, or their features, of :meth:`rows` alone. Which these are follows from :meth:`choose`, or
    from what it was fitted to.
    """

    ordered = True  # which images count follows from their seeds

    def __init__(self, whole: Property, prompts: Sequence[str]) -> None:
        if needs_model(whole):
            raise UserError(f"prompts: {whole.name} measures the model itself, not its images; leave prompts out")
        self._whole, self._prompts = whole, tuple(prompts)
        self._chosen = np.zeros(0, np.bool_)
        self.__wrapped__ = getattr(whole, "__wrapped__", whole)  # whose settings and code are recorded

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in vars(PromptedProperty):
            return super().__getattribute__(name)
        return getattr(self._whole, name)

    @property
    def whole(self) -> Property:
        """The property of any images."""
        return self._whole

    @property
    def prompts(self) -> tuple[str, ...]:
        return self._prompts

    @property
    def title(self) -> str:
        return f"{self._whole.title or self._whole.name} for {in_words(self._prompts)}"

    @property
    def explanation(self) -> str:
        return f"{self._whole.explanation} Only images generated for {in_words(self._prompts)} count.".lstrip()

    # Which images count.
    def choose(self, prompts: Sequence[str] | None) -> None:
        """Take those of the images, generated for ``prompts`` (m,), that are for the property's own; refuse a prompt
        that no image is generated for. None: the model follows no prompts."""
        if prompts is None:
            raise UserError("prompts: the model follows no prompts; leave them out")
        followed = list(dict.fromkeys(prompts))
        for prompt in self._prompts:
            if prompt not in followed:
                near = get_close_matches(prompt, followed, NAMED, cutoff=0)
                more = f" and {len(followed) - len(near)} more" if len(followed) > len(near) else ""
                accepted = ", ".join(shortened(each) for each in near)
                raise UserError(
                    f"prompts: none of the {len(prompts):,} images is generated for {shortened(prompt)}; accepted: "
                    f"{accepted}{more}"
                )
        self._chosen = np.array([prompt in self._prompts for prompt in prompts], np.bool_)

    @property
    def measured(self) -> int:
        """How many of the study's images count."""
        return int(self._chosen.sum())

    def rows(self, images: int) -> NDArray[np.int64]:
        """Return which of that many images count. There must be one for each seed of the study."""
        if images != len(self._chosen):
            raise UserError(
                f"{self._whole.name}: {images} images for {len(self._chosen)} seeds; with prompts, one image each in "
                "the order of the seeds is expected"
            )
        return np.flatnonzero(self._chosen)

    # What a study must have for it.
    def check(self, contributions: Contributions, images: int) -> None:
        given = self._given(contributions)
        try:
            self._whole.check(given, self.measured)
        except UserError as error:
            raise UserError(f"{error} ({self._part(given, contributions)})") from error

    def check_extractor(self, extractor: Extractor, contributions: Contributions) -> None:
        given = self._given(contributions)
        try:
            self._whole.check_extractor(extractor, given)
        except UserError as error:
            raise UserError(f"{error} ({self._part(given, contributions)})") from error

    def check_prompts(self, prompts: Sequence[str] | None) -> None:
        self.choose(prompts)
        self._whole.check_prompts([prompt for prompt in prompts or () if prompt in self._prompts])

    # Fitting.
    def fit(self, context: Context) -> State:
        self.choose(context.prompts)
        chosen = {CHOSEN: self._chosen.astype(np.uint8)}
        if not needs_fitting(self._whole):
            return chosen
        rows = np.flatnonzero(self._chosen)
        part = dataclasses.replace(
            context,
            generated=context.generated[rows % len(context.generated)],  # a plan times with fewer images, repeated
            contributions=self._given(context.contributions),
            prompts=tuple((context.prompts or ())[row] for row in rows),
        )
        return {**self._whole.fit(part), **chosen}

    def restore(self, state: State) -> None:
        self._chosen = np.asarray(state[CHOSEN]).astype(np.bool_)
        if needs_fitting(self._whole):
            self._whole.restore({name: array for name, array in state.items() if name != CHOSEN})

    def _given(self, contributions: Contributions) -> Contributions:
        """Return the training and held-out images that count."""
        return contributions if self._whole.whole_training else with_captions(contributions, self._prompts)

    def _part(self, given: Contributions, whole: Contributions) -> str:
        """Say how many images are for the prompts, for an error."""
        found = f"{self.measured:,} of {len(self._chosen):,} generated images"
        training = f"{len(given.images):,} of {len(whole.images):,} training images"
        return f"for its prompts there are {found} and {training}"


def for_prompts(prop: Property, prompts: Sequence[str] | None) -> Property:
    """Return the property for some prompts; with None, ``prop`` itself."""
    return prop if prompts is None else PromptedProperty(prop, prompts)


def images_of(prop: Property, images: int) -> int:
    """Return how many of that many images of a study the property measures."""
    return prop.measured if isinstance(prop, PromptedProperty) else images


def rows_of(prop: Property, images: int) -> NDArray[np.int64] | slice:
    """Return which of a study's images, so many, the property measures."""
    return prop.rows(images) if isinstance(prop, PromptedProperty) else slice(None)


def with_captions(contributions: Contributions, prompts: Sequence[str]) -> Contributions:
    """Return the contributions with only those training images, and held-out images, whose caption is one of
    ``prompts``; all of these where none has a caption. Contributors may be left without images."""
    captions, heldout_captions = contributions.captions, contributions.heldout_captions
    rows = _captioned(captions, prompts, len(contributions.images))
    seen = _captioned(heldout_captions, prompts, len(contributions.heldout))
    names = contributions.heldout_names
    return dataclasses.replace(
        contributions,
        images=contributions.images[rows],
        owner=contributions.owner[rows],
        names=tuple(contributions.names[row] for row in rows),
        captions=None if captions is None else tuple(captions[row] for row in rows),
        heldout=contributions.heldout[seen],
        heldout_captions=None if heldout_captions is None else tuple(heldout_captions[row] for row in seen),
        heldout_names=tuple(names[row] for row in seen) if names else (),
    )


def _captioned(captions: Sequence[str] | None, prompts: Sequence[str], images: int) -> NDArray[np.int64]:
    """Return the indices of the images whose caption is among ``prompts``; of all where none has a caption."""
    chosen = [not any(captions or ()) or (captions or ())[row] in prompts for row in range(images)]
    return np.flatnonzero(chosen)


def in_words(prompts: Sequence[str]) -> str:
    """Return prompts for readers: “a harbour”, “a mill” and 4 more prompts."""
    named = ", ".join(f"“{truncated(single_line(prompt))}”" for prompt in prompts[:NAMED])
    more = len(prompts) - NAMED
    return named if more <= 0 else f"{named} and {more:,} more prompt{'s' * (more > 1)}"
