"""The relive command with --json: stdout is JSON whatever happens."""

import json
import os
import subprocess

import pytest

import relive

PROGRAMS = relive.build_info()["programs"]
pytestmark = pytest.mark.skipif(not relive.build_info()["remote"] or len(PROGRAMS) < 3,
                                reason="no relive command and daemons here: build them, and put "
                                       "them on PATH")
CASES = "--columns cartpole --capacity 4096"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs `relive LINE --json`; stores a (a table, two nodes) and b (empty) are up."""
    folder = tmp_path_factory.mktemp("json")
    folder.chmod(0o700)
    env = dict(os.environ, RELIVE_RUNTIME_DIR=str(folder), TMPDIR=str(folder))

    def run(line, code=0):
        words = [PROGRAMS["relive"], *line.replace("FOLDER", str(folder)).split(), "--json"]
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        return [json.loads(value) for value in done.stdout.splitlines()], done.stderr

    run("up --store a --size 64M --nodes 2 --node-lease 500ms")
    run("up --store b --size 32M")
    run("table create shm:a t " + CASES)
    yield run
    for store in "ab":
        subprocess.run([PROGRAMS["relive"], "down", "--store", store, "--force"], env=env,
                       stdout=subprocess.DEVNULL, check=False, timeout=60)


@pytest.mark.parametrize("line, kind", [
    ("version", dict),
    ("up --store a", dict),
    ("status shm:a", dict),
    ("table list shm:a", list),
    ("table list shm:b", list),
    ("table info shm:a t", dict),
    ("table shards shm:a t", list),
    ("table create shm:a u " + CASES, dict),
    ("table rebalance shm:a u", dict),
    ("table drop shm:a u", dict),
    ("inspect shm:a", list),
    ("inspect shm:b", list),
    ("inspect shm:a t", dict),
    ("backup shm:a FOLDER/copy", dict),
    ("node add shm:b extra --size 32M", dict),
    ("node drain shm:b extra", dict),
    ("bench replay --seconds 0.1 --capacity 2^12 --loop", None),
])
def test_success_is_one_value(run, line, kind):
    values, _ = run(line)
    if kind is None:
        assert len(values) > 1 and all(type(value) is dict for value in values)
        return
    assert len(values) == 1 and type(values[0]) is kind and "error" not in values[0]


@pytest.mark.parametrize("line", ["table list shm:b", "inspect shm:b"])
def test_an_empty_list_is_one(run, line):
    assert run(line)[0] == [[]]


def test_lists_hold_what_there_is(run):
    assert [table["table"] for table in run("table list shm:a")[0][0]] == ["t"]
    assert [table["table"] for table in run("inspect shm:a")[0][0]] == ["t"]
    assert run("table shards shm:a t")[0][0][0]["shard"] == 0


@pytest.mark.parametrize("line, exit_code, name, words", [
    ("nonsense", 2, "EINVAL", "unknown command"),
    ("version extra", 2, "EINVAL", "one argument too many"),
    ("up --nonsense", 2, "EINVAL", "unknown option --nonsense"),
    ("up --store a --size 32M", 1, "EEXIST", "contradicts"),
    ("down --store nobody", 1, "ENOENT", "nobody"),
    ("status shm:nobody", 1, "ENOENT", "nobody"),
    ("status nonsense", 1, "EINVAL", "unknown scheme"),
    ("status relive://127.0.0.1:1", 1, "EACCES", "token"),
    ("table list shm:nobody", 1, "ENOENT", "nobody"),
    ("table nonsense", 2, "EINVAL", "nonsense"),
    ("table info shm:a nobody", 1, "ENOENT", "nobody"),
    ("table create shm:a t --columns a:f32", 1, "EEXIST", "signature"),
    ("table create shm:a bad --columns a:f31", 1, "EINVAL", "f31"),
    ("table drop shm:a nobody", 1, "ENOENT", "nobody"),
    ("table shards shm:a nobody", 1, "ENOENT", "nobody"),
    ("table rebalance shm:a nobody", 1, "ENOENT", "nobody"),
    ("inspect shm:a nobody", 1, "ENOENT", "nobody"),
    ("inspect shm:nobody", 1, "ENOENT", "nobody"),
    ("backup shm:a /nonsense/copy", 1, "ENOENT", "/nonsense"),
    ("restore a FOLDER/nobody", 1, None, "restore"),
    ("node drain shm:a nobody", 1, "ENOENT", "nobody"),
    ("node drop shm:a 0", 1, "EBUSY", "is up"),
    ("node add shm:a 0 --size 32M", 1, "EBUSY", "runs already"),
    ("bench replay --windows 0", 2, "EINVAL", "--windows"),
    ("bench replay --store shm:nobody", 1, "ENOENT", "nobody"),
    ("bench nonsense", 2, "EINVAL", "bench"),
])
def test_a_failure_is_an_object(run, line, exit_code, name, words):
    values, said = run(line, exit_code)
    error = values[-1]["error"]
    assert len(values) == 1 and words in error["message"] and words in said
    assert name in (None, error["name"])
    assert error["code"] < 0


def test_a_refused_down_is_an_object(run):
    """A stopped server cannot tell how many items its nodes hold."""
    run("up --store c --size 32M")
    pid = run("up --store c")[0][0]["metad_pid"]
    os.kill(pid, 19)
    values, _ = run("down --store c", 3)
    assert values[0]["error"]["name"] == "ECANCELED"
    os.kill(pid, 18)
    values, _ = run("down --store c --force")
    assert values[0]["stopped"] == 2


@pytest.mark.parametrize("line", [
    "table list", "table info t", "status", "inspect", "inspect t", "backup FOLDER/other",
    "node drain extra", "bench replay --seconds 0.1 --capacity 2^12 --loop",
])
def test_store_is_a_name_as_in_up(run, line):
    store = "b" if line.startswith("node") else "a"
    run("%s --store %s" % (line, store))
    if not line.startswith("bench"):
        run("%s --store shm:%s" % (line, store))


@pytest.mark.parametrize("line", ["table list shm:a --store a", "status shm:a --store b"])
def test_a_store_is_given_once(run, line):
    values, _ = run(line, 2)
    assert "give one of them" in values[0]["error"]["message"]
