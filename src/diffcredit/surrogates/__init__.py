"""Surrogates: cheap stand-ins for F, known for every coalition, which expensive evaluations then correct.

``SURROGATES`` maps the name in a study file to the class; a plug-in ``package.module:Class`` is as good.
"""

from diffcredit.surrogates.base import ImageSurrogate, Material, Surrogate, Work, as_surrogate
from diffcredit.surrogates.real_data import RealData
from diffcredit.surrogates.tabulating import SurrogateTable, tabulate
from diffcredit.surrogates.values import SurrogateValues

SURROGATES = {
    "pools": "diffcredit.surrogates.pools:Pools",
    "soup": "diffcredit.surrogates.soup:Soup",
    "reweighting": "diffcredit.surrogates.reweighting:Reweighting",
    "real_data": "diffcredit.surrogates.real_data:RealImages",
    "conditional": "diffcredit.surrogates.conditional:Conditional",
}

__all__ = [
    "SURROGATES",
    "ImageSurrogate",
    "Material",
    "RealData",
    "Surrogate",
    "SurrogateTable",
    "SurrogateValues",
    "Work",
    "as_surrogate",
    "tabulate",
]
