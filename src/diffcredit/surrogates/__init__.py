"""Surrogates: cheap stand-ins for F, known for every coalition, which expensive evaluations then correct.

``SURROGATES`` maps the name in a study file to the class; a plug-in ``package.module:Class`` is as good.
"""

from diffcredit.surrogates.base import ImageSurrogate, Material, Surrogate, Work, as_surrogate
from diffcredit.surrogates.values import SurrogateValues, own_credits

SURROGATES = {
    "pools": "diffcredit.surrogates.pools:Pools",
    "soup": "diffcredit.surrogates.pools:Soup",
    "reweighting": "diffcredit.surrogates.existing_images:Reweighting",
    "real_data": "diffcredit.surrogates.existing_images:RealImages",
    "conditional": "diffcredit.surrogates.pools:Conditional",
}

__all__ = [
    "SURROGATES",
    "ImageSurrogate",
    "Material",
    "Surrogate",
    "SurrogateValues",
    "Work",
    "as_surrogate",
    "own_credits",
]
