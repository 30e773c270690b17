"""What the tests of bilm-tf's HDF5 share."""

import h5py
import torch

from elmo_fast.checkpoints import (
    read_bilm_hdf5,
    read_options,
)


def read(files):
    options_file, weight_file = files
    options = read_options(options_file)
    return read_bilm_hdf5(weight_file, options), options


def assert_equal_bits(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype == torch.float32
        assert torch.equal(a[name].view(torch.int32), b[name].view(torch.int32)), name


def damaged(weight_file, edit):
    with h5py.File(weight_file, "r+") as file:
        edit(file)


CELL = "RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell"


def replace(name, values):
    """Puts values in the place of a dataset, or adds them."""

    def edit(file):
        if name in file:
            del file[name]
        file[name] = values

    return edit


def remove(*names):
    def edit(file):
        for name in names:
            del file[name]

    return edit
