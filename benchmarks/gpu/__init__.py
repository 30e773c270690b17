"""Measurements and tests on one GPU, in sections by value: `python -m benchmarks.gpu` (`make gpu`)."""
