#!/usr/bin/env python3
"""What part of a model changes from one checkpoint to the next, as deltas of weights see it: elements whose
bits differ, of the tensors as they are and rounded to bfloat16; and what a delta takes of the tensors' bytes.

    PYTHONPATH=build/python bench/weights_density.py [--json] A.safetensors B.safetensors ...

`relive bench weights --density` measures with such a density.
"""

import argparse
import json
import os

import numpy as np

from relive import _bfloat16, safetensors

BLOCK = 65536  # elements; a delta has a count of 4 bytes for each


def as_bits(array, rounded):
    """The elements as unsigned integers, as deltas compare them."""
    if rounded and array.dtype.kind == "f" and not _bfloat16.is_bfloat16(array.dtype):
        array = _bfloat16.bits(array, "tensor", checked=False)
    return np.ascontiguousarray(array).reshape(-1).view("u%d" % array.dtype.itemsize)


def compare(old, new, rounded):
    """Returns (part of the elements that changed, bytes of the tensors by those of a delta)."""
    if {name: array.shape for name, array in old.items()} != {
            name: array.shape for name, array in new.items()}:
        raise SystemExit("weights_density: the files have different tensors")
    elements = changed = size = delta = 0
    for name in new:
        before, after = as_bits(old[name], rounded), as_bits(new[name], rounded)
        count = int(np.count_nonzero(before != after))
        elements += after.size
        changed += count
        size += after.nbytes
        delta += count * (2 + after.itemsize) + 4 * -(-after.size // BLOCK)
    return changed / max(elements, 1), size / max(delta, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print one JSON object per metric and line")
    options = parser.parse_args()
    old = safetensors.load(options.files[0])
    for path in options.files[1:]:
        new = safetensors.load(path)
        for rounded in (False, True):
            dtype = _bfloat16.NAME if rounded else "stored"
            density, ratio = compare(old, new, rounded)
            if not options.json:
                print("%s, %s: %.4f %% changed, a delta is 1/%.1f" % (
                    os.path.basename(path), dtype, 100 * density, ratio))
                continue
            for metric, value in (("density", density), ("wire_ratio", ratio)):
                print(json.dumps({"bench": "weights", "metric": metric, "value": value, "unit": "1",
                                  "params": {"role": "checkpoint", "file": path, "dtype": dtype}}))
        old = new


if __name__ == "__main__":
    main()
