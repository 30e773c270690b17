"""Tests that attack: damaged files, odd command lines, and the CPU's ops at random, native against reference.

A target is a file of `targets/` with `case(rng)`: one attack, sampled from `rng` alone, so that a seed repeats it. What
the library may do is in `judge.py`; whatever else a case does is a finding. `python -m tests.fuzz --help` runs them.
"""
