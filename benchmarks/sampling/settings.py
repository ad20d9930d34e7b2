"""What is compared."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Setting:
    scheduler: Literal["ddim", "dpm"]
    steps: int

    @property
    def name(self) -> str:
        return f"{self.scheduler} {self.steps}"


SETTINGS = (
    Setting("ddim", 100),
    Setting("ddim", 50),
    Setting("ddim", 20),
    Setting("ddim", 10),
    Setting("dpm", 20),
    Setting("dpm", 10),
    Setting("dpm", 5),
)
REFERENCES = (Setting("ddim", 100), Setting("dpm", 20))
"""What the others are compared with, with all images: the default of a study, and the most exact of ``dpm``."""
SHARES = (1, 2, 4, 8)
"""Of a study's images: all, a half, a quarter, an eighth."""
