"""The fast path of training and sampling on a GPU: compiled once, recorded as CUDA graphs, many models side by side.

A *fleet* is a set of models of one architecture that are trained together, each on its own images, as one batch. Its
results are those of the step-by-step path but for rounding. ``eligibility`` decides who takes the fast path,
``training`` and ``sampling`` run it, and :mod:`diffcredit.diffusion.session` keeps what can be reused.
"""
