"""Type checkers find wrong names of options, and know what calls return."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys

import pytest

import relive

PROGRAM = '''\
import relive
store = relive.open("embed:", pages="small")
table = store.create_table("t", {"obs": ((4,), "float32")}, capacity=1e6, views=relive.View())
sampler = table.sampler(64, beta=0.4)
reveal_type(table.sample(4).key)
reveal_type([name for name in sampler.sample(3)])
relive.open("embed:", pagess="small")
table.sampler(64, betta=0.4)
store.create_table("t", {}, capcity=5)
table.sample(4).torch(devise="cpu")
relive.Pool("0", persistant=1)
with relive.Pool().iteration() as pool:
    reveal_type(pool.alloc((2, 3)))
reveal_type(table.sample(4).obs)
reveal_type(relive.from_d4rl({}, store, views=relive.View()).extend({}))
table.writer(8, auto_reset="same_step")
relive.View(nstep=3)
table.scan(colums=["obs"])
reveal_type([batch.key for batch in table.scan(["obs"])])
reveal_type(table[table.sample(1).key[0]])
'''

WANTED = {5: "ndarray", 6: "list[builtins.str]", 7: '"pagess"', 8: '"betta"', 9: '"capcity"', 10: '"devise"',
          11: '"persistant"', 13: "ndarray", 14: "ndarray",
          15: "int", 16: '"auto_reset"', 17: '"nstep"', 18: '"colums"', 19: "ndarray", 20: "dict"}


def test_mypy__finds_wrong_options(tmp_path):
    if not importlib.util.find_spec("mypy"):
        pytest.skip("mypy is not installed (Debian's package mypy)")
    (tmp_path / "program.py").write_text(PROGRAM)
    # torch is large, and no part of this
    (tmp_path / "mypy.ini").write_text("[mypy]\nfollow_imports = silent\n[mypy-torch.*]\nfollow_imports = skip\n")
    package = os.path.dirname(os.path.dirname(relive.__file__))
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "program.py"],
                          cwd=tmp_path, env={**os.environ, "MYPYPATH": package}, capture_output=True, text=True,
                          timeout=120)
    told = {int(line): text for line, text in re.findall(r"^program.py:(\d+): (.*)$", done.stdout, re.M)}
    assert {line for line in told if line in WANTED} == set(WANTED), done.stdout + done.stderr
    for line, text in told.items():
        assert WANTED[line] in text.replace("List", "list")


def test_help__has_the_options():
    assert "pages" in inspect.signature(relive.open).parameters
    assert [*inspect.signature(relive.Table.sampler).parameters][:2] == ["self", "batch_size"]
    assert "beta" in inspect.signature(relive.Table.sampler).parameters
