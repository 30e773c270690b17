"""Dated measurements: `benchmarks.run` writes benchmarks/results/, `benchmarks.table` the tables of README and docs."""
