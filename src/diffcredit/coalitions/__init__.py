"""Which coalitions to evaluate: reproducible, prefix-balanced sequences of coalitions."""

from diffcredit.coalitions.design import BoolArray, Design
from diffcredit.coalitions.registry import DESIGNS, make_design, size_probabilities
from diffcredit.coalitions.text import decode, encode

__all__ = ["DESIGNS", "BoolArray", "Design", "decode", "encode", "make_design", "size_probabilities"]
