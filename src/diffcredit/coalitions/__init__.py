"""Which coalitions to evaluate: designs, reproducible sequences of coalitions.

A design gives the same coalitions for the same seed on every machine, and however the sequence is cut into draws:

>>> from diffcredit.coalitions import make_design
>>> design = make_design("uniform", seed=1)
>>> coalitions = design.draw(6, 0, 10)  # 10 coalitions of 6 contributors, (10, 6) booleans
>>> bool((design.draw(6, 4, 6) == coalitions[4:]).all())
True
>>> sorted(coalitions[:5].sum(axis=1).tolist())  # each size once in every n − 1 rows
[1, 2, 3, 4, 5]
>>> design.size_probabilities(6).tolist()
[0.2, 0.2, 0.2, 0.2, 0.2]

Which design: ``uniform`` by default, ``half`` for Banzhaf values, ``subset(0.5)`` for datamodels and LDS tests,
``leave-one-out`` and ``add-one-in`` for their methods, ``exhaustive`` for up to 16 contributors if evaluations are
cheap. The others are the paper's and its rivals', for comparison.

A coalition of size s is drawn with probability p(s)/C(n, s), where p is the design's ``size_probabilities``. An
estimator must know p to turn values into Shapley values.

Pitfalls: the empty and the full coalition are never drawn; evaluate them apart. Pass the design's name to ``estimate``
as ``size_distribution``. Keep coalitions that are reserved for a test out of a design with ``exclude``. How to write a
design of your own: `diffcredit.coalitions.design`.
"""

from diffcredit.coalitions.design import BoolArray, Design
from diffcredit.coalitions.designs import DESIGNS, make_design, size_probabilities
from diffcredit.coalitions.members import decode, encode

__all__ = ["DESIGNS", "BoolArray", "Design", "decode", "encode", "make_design", "size_probabilities"]
