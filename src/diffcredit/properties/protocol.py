"""What a property is: a function from a model's generated images, or from the model itself, to a number."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from diffcredit.contributions import Contributions

Images = NDArray[np.uint8]
State = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Context:
    """What a property may be fitted to: the base model's ``generated`` images (m, h, w, 3), and the
    contributions with their held-out images."""

    generated: Images
    contributions: Contributions


class Property(Protocol):
    """A number that a model's images have. Only ``name`` and ``measure`` (or ``measure_model``) are needed.

    ``higher_is_better`` (default true) orders the ranks; ``title``, ``unit`` and ``explanation`` are for
    readers. A property that learns something from the study has ``fit``, which returns it as named arrays; they
    are kept with the study and handed to ``restore`` in every worker, so that all measure with the same state.
    One that not every study can have has ``check``, which raises a UserError before anything is trained, given
    the contributions and the number of generated images. One that can tell how much its value would change with
    other generated images has ``standard_error``, in its own units; from it ``plan`` learns how to split a budget.
    """

    name: str
    higher_is_better: ClassVar[bool]
    title: ClassVar[str]
    unit: ClassVar[str]
    explanation: ClassVar[str]

    def check(self, contributions: Contributions, images: int) -> None: ...

    def fit(self, context: Context) -> State: ...

    def restore(self, state: State) -> None: ...

    def measure(self, images: Images) -> float: ...

    def standard_error(self, images: Images) -> float: ...
