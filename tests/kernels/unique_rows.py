"""padded_unique_rows and gather_rows at production shapes: words of 50 characters, vectors of 512."""

import functools

import torch

from elmo_fast.ops._triton import python_function_of


def there_and_back(rows, width=512):
    """Distinct words of a batch, their vectors gathered, and the gradient on its way back."""
    _, inverse, _, *order = python_function_of("padded_unique_rows")(torch.empty(rows, 50, dtype=torch.int64))
    vectors = python_function_of("gather_rows")(torch.empty(rows, width), inverse, *order, rows)
    python_function_of("gather_rows_backward")(vectors, inverse, *order, rows)


def launches():
    """(label, call) per size of batch."""
    for rows in (2560, 20480):
        yield f"{rows} words", functools.partial(there_and_back, rows)
