"""The Python programs of README.md run as they are written."""

import pathlib
import re
import subprocess
import sys

import pytest

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"),
                    re.DOTALL | re.MULTILINE)


def test_readme__shows_python():
    assert BLOCKS


@pytest.mark.parametrize("code", BLOCKS, ids=["block-%d" % i for i in range(len(BLOCKS))])
def test_readme__its_python_runs(code, tmp_path):
    assert code.count("\n") <= 25
    for module in ("gymnasium", "torch"):
        if module in code:
            pytest.importorskip(module)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout
