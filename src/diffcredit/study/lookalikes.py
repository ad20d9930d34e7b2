"""Look-alikes among a study's images, by an extractor that one of its properties uses."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diffcredit.contributions import Lookalike, lookalikes_of
from diffcredit.errors import located
from diffcredit.features.base import option_name
from diffcredit.features.extractors import label_of
from diffcredit.properties.base import needs_features
from diffcredit.study.prepared import build_properties
from diffcredit.util.events import stage

if TYPE_CHECKING:
    from diffcredit.study.study import Study

PIXELS = ("pixels", "layout", "colours")  # extractors that see no more than the search for near-copies does


@dataclass(frozen=True)
class Lookalikes:
    """The look-alikes that the ``extractor``, by its name for readers, finds; the clearest first."""

    extractor: str
    pairs: tuple[Lookalike, ...]


def study_lookalikes(study: "Study") -> Lookalikes | None:
    """Return the look-alikes among a study's training images; None where no property uses a network's features."""
    properties = build_properties(study.config, study.file)
    options = [prop.features for prop in properties if needs_features(prop)]
    option = next((each for each in options if option_name(each) not in PIXELS), None)
    if option is None:
        return None
    with stage("look-alikes"), located(study.file):
        features = study.prepared.extractors.kept(option, study.contributions.images, "the training images")
        return Lookalikes(label_of(option), lookalikes_of(study.contributions, features.vectors))
