"""Triton kernels: what a CUDA device computes a token with. Imported on such devices only.

Weights stay packed as small integers (:mod:`.packing`), activations become two levels of int8
(:mod:`.activations`), and products are exact integer sums on tensor cores with the scales put on
the accumulator (:mod:`.products`). Integer sums do not depend on how many columns are computed at
once, and what is left, a few float32 operations per block, is done in one fixed order: a column
of a wide frame gets the bits that it gets alone.
"""
