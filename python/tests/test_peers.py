"""The bench against other replay buffers: each peer that is installed hands out what went in, and the
results are what the report reads. Only Relive itself is needed."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "peers"
LIMIT_S = 600
SINGLE = {"sample", "update", "mixed", "insert1", "insert64", "memory"}
METRICS = {"w1": SINGLE, "w2": SINGLE, "w3-cartpole": {"inserted", "learned"},
           "w3-atari": {"inserted", "learned"}, "w4": {"draw", "update"}}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    out = tmp_path_factory.mktemp("peers")
    environments = os.environ.get("PEERS") or out / "environments"
    done = subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), "--quick", "--out", str(out),
         "--environments", str(environments)], stderr=subprocess.PIPE, text=True,
        stdout=subprocess.DEVNULL, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return json.loads((out / "peers.json").read_text()), (out / "peers.md").read_text()


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import report
    return report


def test_quick__measures_relive_in_every_workload(quick):
    data, _ = quick
    for workload, metrics in METRICS.items():
        mine = [r for r in data["results"] if (r["workload"], r["peer"]) == (workload, "relive")]
        assert {r["metric"] for r in mine} == metrics
        assert all(r["median"] > 0 for r in mine)


def test_quick__says_why_a_peer_is_missing(quick):
    data, text = quick
    measured = {(r["workload"], r["peer"]) for r in data["results"]}
    for peer in ("cpprb", "flashbax", "tianshou", "torchrl", "reverb", "redis", "ray"):
        if ("w1", peer) not in measured:
            assert data["missing"]["w1 " + peer]
    for what, why in data["missing"].items():
        assert "| %s | %s |" % (what, why) in text


def result(peer, metric, value, **more):
    return {"workload": "w1", "peer": peer, "metric": metric, "unit": "batches/s", "median": value,
            "min": value, "max": value, "values": [value], **more}


def test_ratios__are_above_one_where_relive_is_better(report):
    rows = list(report.ratio_rows([
        result("relive", "sample", 30.0), result("cpprb", "sample", 10.0),
        result("tianshou", "sample", 15.0), result("relive_stored", "sample", 60.0),
        result("relive", "memory", 20.0, unit="bytes/step"),
        result("cpprb", "memory", 40.0, unit="bytes/step")]))
    assert [(row[1], row[2], row[4].split()[0], row[5]) for row in rows] == [
        ("sample", "relive", "tianshou", "2.00"), ("sample", "relive_stored", "tianshou", "4.00"),
        ("memory", "relive", "cpprb", "2.00")]


@pytest.mark.parametrize("change", [
    {"results": None}, {"results": [{"workload": "w1"}]}, {"commit": 1},
    {"results": [result("a", "sample", 1.0, min=2.0)]},
    {"results": [result("a", "draw", 1.0, workload="w4")]},
])
def test_validate__refuses_what_the_report_cannot_read(report, quick, change):
    data, _ = quick
    report.validate(data)
    with pytest.raises(ValueError):
        report.validate({**data, **change})


def test_check__finds_rows_that_are_mixed_up(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import answers
    import workloads
    rows = workloads.make_rows("cartpole", 64, 1)
    batch = {name: value[:8].copy() for name, value in rows.items()}
    assert answers.rows_of(batch, rows).tolist() == list(range(8))
    batch["next_obs"] = rows["obs"][1:9]
    assert answers.rows_of(batch, rows).tolist() == list(range(8))
    for name in ("obs", "action", "reward", "next_obs", "done"):
        wrong = {**batch, name: batch[name].copy()}
        wrong[name][3] += 1
        with pytest.raises(answers.Wrong):
            answers.rows_of(wrong, rows)
