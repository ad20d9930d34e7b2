"""Cheap stand-ins for F, known for every coalition: what dear evaluations then correct."""

from diffcredit.surrogates.protocol import Surrogate
from diffcredit.surrogates.real_data import RealData
from diffcredit.surrogates.tabulating import SurrogateTable, tabulate

__all__ = ["RealData", "Surrogate", "SurrogateTable", "tabulate"]
