"""Kernels for CPUs in Python, compiled for this very CPU by numba when they are first called.

numba brings its compiler along: a machine that runs ``pip install`` needs no other. Modules in here
are imported late, where packed weights are really used: the import takes half a second.
"""
