"""Declared, dated measurements: `benchmarks.run` writes benchmarks/results/, `benchmarks.table` README.md's tables."""
