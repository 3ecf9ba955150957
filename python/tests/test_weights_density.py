"""bench/weights_density.py: how much changes between checkpoints."""

import json
import pathlib
import subprocess
import sys

import numpy as np

from relive import safetensors

TOOL = pathlib.Path(__file__).resolve().parents[2] / "bench" / "weights_density.py"


def run(*arguments):
    return subprocess.run([sys.executable, TOOL, *map(str, arguments)], text=True, check=False,
                          capture_output=True)


def test_density__of_floats_and_of_their_bfloat16(tmp_path):
    old = np.linspace(1, 2, 1000, dtype=np.float32)
    new = old * np.float32(1 + 2**-20)  # too little for most bfloat16
    new[:50] *= 2
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, weight in zip(paths, (old, new)):
        safetensors.save(path, {"weight": weight, "step": np.int64(3)})
    done = run("--json", *paths)
    assert done.returncode == 0, done.stderr
    found = {(line["metric"], line["params"]["dtype"]): line["value"]
             for line in map(json.loads, done.stdout.splitlines())}
    assert found["density", "stored"] > 0.9
    assert 50 / 1001 <= found["density", "bfloat16"] < 0.1
    changed = round(found["density", "bfloat16"] * 1001)
    assert found["wire_ratio", "bfloat16"] == (2 * 1000 + 8) / (4 * changed + 8)
    assert "bfloat16: " in run(*paths).stdout


def test_density__of_other_tensors_is_refused(tmp_path):
    for name, size in (("a", 3), ("b", 4)):
        safetensors.save(tmp_path / name, {"x": np.zeros(size)})
    done = run(tmp_path / "a", tmp_path / "b")
    assert done.returncode == 1 and "different tensors" in done.stderr
