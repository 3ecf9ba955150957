"""Progress of long steps without a terminal: tools/progress.sh and tools/run-tests."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def gate(tmp_path):
    """A FIFO at which the watched process waits."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def watch(*command):
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE,
                            env=dict(environment, RLV_SILENCE="1"))


def first_progress(process, mark, end):
    """The first line with the mark that ends so; on a busy host the process may be silent before it has begun."""
    for line in process.stdout:
        if mark in line and line.rstrip().endswith(end):
            return line
    pytest.fail("no line with %r, %r" % (mark, end))


def test_with_progress__shows_the_last_line_and_keeps_the_status(tmp_path, gate):
    script = ('. tools/progress.sh; with_progress build "$1" '
              'sh -c \'echo "[3/9] half"; read -r line <"$0"; exit 7\' "$2"')
    process = watch("bash", "-c", script, "progress", str(tmp_path / "log"), str(gate))
    first_progress(process, "build ... ", "[3/9] half")
    gate.write_text("go on\n")
    process.stdout.read()
    assert process.wait() == 7
    assert (tmp_path / "log").read_text() == "[3/9] half\n"


@pytest.mark.skipif(not shutil.which("ctest"), reason="no ctest: run tools/setup")
@pytest.mark.parametrize("serial", ["ON", "OFF"])
def test_run_tests__names_the_test_that_runs_and_its_cases(tmp_path, gate, serial):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n"
                       "echo '[ RUN      ] a'\necho '[       OK ] a'\n"
                       "echo '[ RUN      ] b'\nread -r line <%s\necho '[       OK ] b'\n" % gate)
    program.chmod(0o755)
    (tmp_path / "CMakeCache.txt").write_text("")
    (tmp_path / "CTestTestfile.cmake").write_text(
        'add_test(unit.long "%s")\nset_tests_properties(unit.long PROPERTIES LABELS "unit" '
        'RUN_SERIAL %s)\n' % (program, serial))
    process = watch("tools/run-tests", str(tmp_path))
    line = first_progress(process, "unit.long ... ", "1 cases: [ RUN      ] b")
    gate.write_text("go on\n")
    rest = process.stdout.read()
    assert process.wait() == 0
    assert line.startswith("[1/1] ")
    assert rest.endswith("2 passed, 0 failed, 0 skipped\n")
