"""Writes TensorFlow's checkpoints from the description of their format; shares no code with elmo_fast."""

import struct

import h5py
import numpy as np

MAGIC = bytes.fromhex("57fb808b247547db")  # of LevelDB's tables, at the end of the file


def crc32c(data):
    """Bit by bit, as RFC 3720 defines it."""
    crc = 0xFFFFFFFF
    for octet in data:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    """The checksum as LevelDB stores it."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    actual = b""
    while value > 0x7F:
        actual, value = actual + bytes([value & 0x7F | 0x80]), value >> 7
    return actual + bytes([value])


def field(number, value):
    """A field of a message: a number that is not 0, or bytes."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value) if value else b""


def block(entries, every=16):
    """A block: each key without the prefix that it shares with the one before, but for one key in `every`."""
    data, restarts, before = b"", [], b""
    for i, (key, value) in enumerate(entries):
        shared = 0
        if i % every == 0:
            restarts.append(len(data))
        else:
            shared = next(
                (n for n, (a, b) in enumerate(zip(key, before, strict=False)) if a != b), min(len(key), len(before))
            )
        data += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    restarts = restarts or [0]
    return data + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def table(entries, most=20):
    """A table of sorted entries, at most `most` in a block; none is compressed."""
    content, index = b"", []

    def put(data):
        nonlocal content
        handle = varint(len(content)) + varint(len(data))
        content += data + b"\0" + struct.pack("<I", masked(data + b"\0"))
        return handle

    for first in range(0, len(entries), most):
        part = entries[first : first + most]
        index.append((part[-1][0], put(block(part))))
    handles = put(block([])) + put(block(index, every=1))
    return content + handles.ljust(40, b"\0") + MAGIC


def entry(array, shard, offset):
    """A BundleEntryProto; the type is that of types.proto."""
    dtype = {"<f4": 1, "<f8": 2, "<i4": 3, "<f2": 19}[array.dtype.str]
    shape = b"".join(field(2, field(1, size)) for size in array.shape)
    data = array.tobytes()
    checksum = varint(6 << 3 | 5) + struct.pack("<I", masked(data))
    return field(1, dtype) + field(2, shape) + field(3, shard) + field(4, offset) + field(5, len(data)) + checksum


def write_bundle(prefix, arrays, shards=1, **how):
    """Writes `prefix`.index and its shards; the arrays are dealt out to the shards in turn."""
    contents, entries = [b""] * shards, [(b"", field(1, shards) + field(3, field(1, 1)))]
    for i, name in enumerate(sorted(arrays)):
        array = np.ascontiguousarray(arrays[name]).reshape(np.shape(arrays[name]))
        entries.append((name.encode(), entry(array, i % shards, len(contents[i % shards]))))
        contents[i % shards] += array.tobytes()
    for number, content in enumerate(contents):
        prefix.with_name(f"{prefix.name}.data-{number:05d}-of-{shards:05d}").write_bytes(content)
    index = prefix.with_name(f"{prefix.name}.index")
    index.write_bytes(table(entries, **how))
    return index


def training_graph(arrays):
    """bilm-tf's names in HDF5 -> those of its training graph, in TensorFlow 1.2 and newer."""
    parts = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}
    actual = {}
    for name, array in arrays.items():
        if name.startswith("RNN_"):
            direction, _, _, cell, _, part = name.split("/")
            name = f"{direction}/rnn/multi_rnn_cell/cell_{cell.removeprefix('Cell')}/lstm_cell/{parts[part]}"
        actual[f"lm/{name}"] = array
    return actual


def arrays_of(weight_file):
    """The datasets of an HDF5 file, by name."""
    actual = {}
    with h5py.File(weight_file) as file:
        file.visititems(lambda name, item: actual.update({name: item[()]} if hasattr(item, "shape") else {}))
    return actual


def write_checkpoint(folder, arrays, step=1250, slots=None, **how):
    """Write the files of bilm-tf after `step` steps; slots: of AdaGrad."""
    graph = training_graph(arrays)
    graph |= {f"{name}/Adagrad": array for name, array in training_graph(slots or {}).items()}
    graph |= {"global_step": np.float32(step), "train_perplexity": np.float32(0)}
    (folder / "checkpoint").write_text(
        f'model_checkpoint_path: "/home/me/out/model.ckpt-{step}"\nall_model_checkpoint_paths: "model.ckpt-{step}"\n'
    )
    return write_bundle(folder / f"model.ckpt-{step}", graph, **how)
