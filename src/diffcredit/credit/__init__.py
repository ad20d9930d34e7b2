"""Evaluations to credits with intervals. Needs numpy and scipy alone, and works on any set function."""

from diffcredit.credit.anchors import KnownSurrogate
from diffcredit.credit.credits import Credits
from diffcredit.credit.critical_value import robust_critical_value
from diffcredit.credit.estimate import METHODS, estimate
from diffcredit.credit.mixing import mix

__all__ = ["METHODS", "Credits", "KnownSurrogate", "estimate", "mix", "robust_critical_value"]
