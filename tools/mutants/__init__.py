"""Mutants: one line of a kernel changed at random, built, tested; what no test notices is a gap in the tests.

`python -m tools.mutants --n 300 --seed 0`, or `make mutants N=300 SEED=0`.
"""
