"""The targets: each a file with `case(rng)`."""
