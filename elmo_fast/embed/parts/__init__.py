"""Vectors of a text in parts, written by any number of processes that share a folder and nothing else."""
