"""What a property is: a function from a model's generated images, or from the model itself, to a number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray

from diffcredit.contributions import Contributions
from diffcredit.features import Extractor, Features, FeaturesOption, Images
from diffcredit.features.extractors import Extractors

State = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Context:
    """What a property may be fitted to: the base model's ``generated`` images (m, h, w, 3), the contributions with
    their held-out images, the study's extractors, and the ``prompts`` (m,) that the images were generated for (None:
    the model follows no text)."""

    generated: Images
    contributions: Contributions
    extractors: Extractors = field(default_factory=Extractors)
    prompts: tuple[str, ...] | None = None


class Property(Protocol):
    """A number that a model's images have. Only ``name`` and ``measure`` are needed, or one of its alternatives:
    ``measure_features``, of what an extractor sees in the images, or ``measure_model``, of the model itself.

    ``higher_is_better`` (default true) orders the ranks; ``title``, ``unit`` and ``explanation`` are for readers, as is
    ``bias``: how the value depends on the number of images alone. A value outside ``range`` is an error.

    A property that learns something from the study has ``fit``, which returns it as named arrays; they are kept with
    the study and handed to ``restore`` in every worker, so that all measure with the same state. One that not every
    study can have has ``check``, which raises a UserError before anything is trained, given the contributions and the
    number of generated images; ``check_prompts`` is given the prompts that images are generated for (None: the model
    follows no text). One that can tell how much its value would change with other generated images has
    ``standard_error``, in its own units, of the images or the features; from it ``plan`` learns how to split a budget.
    One that a single image has by itself has ``of_each``, of the images or the features: a number of each, (m,); where
    that is something else than the property, ``title_of_each`` says what.
    """

    name: str
    higher_is_better: ClassVar[bool]
    title: ClassVar[str]
    unit: ClassVar[str]
    explanation: ClassVar[str]
    bias: ClassVar[str]
    range: ClassVar[tuple[float, float]]

    def check(self, contributions: Contributions, images: int) -> None: ...

    def check_prompts(self, prompts: Sequence[str] | None) -> None: ...

    def fit(self, context: Context) -> State: ...

    def restore(self, state: State) -> None: ...

    def measure(self, images: Images) -> float: ...

    def standard_error(self, images: Images) -> float: ...


class FeatureProperty(Protocol):
    """A property of what the extractor ``features`` sees in the images. It has all else that a property may have.

    Features are extracted once for all properties that name the same extractor. ``classifier`` (default false): it
    needs class probabilities, so that an extractor without any is refused. ``least``: on how many images at least it
    can be measured, of vectors of so many dimensions (default 1). ``check_extractor`` raises a UserError before
    anything is trained where it cannot do with the loaded extractor. ``ordered`` (default false): image j must be that
    of seed j, so that images put together from several models are no stand-in.
    """

    name: str
    features: FeaturesOption
    classifier: ClassVar[bool]
    ordered: ClassVar[bool]

    def least(self, dimensions: int) -> int: ...

    def check_extractor(self, extractor: Extractor, contributions: Contributions) -> None: ...

    def measure_features(self, features: Features) -> float: ...

    def standard_error(self, features: Features) -> float: ...
