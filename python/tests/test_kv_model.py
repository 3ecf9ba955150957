"""bench/kv_model.py, the model in docs/kv.md: its arithmetic is right, and its counts are those that a test asserts."""

import json
import pathlib
import runpy
import subprocess
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "bench" / "kv_model.py"
model = types.SimpleNamespace(**runpy.run_path(str(PROGRAM)))
CARD = model.scaling.CARDS[model.CARD]


def run(*arguments):
    return subprocess.run([sys.executable, PROGRAM, *arguments], stdout=subprocess.PIPE, text=True, timeout=60,
                          check=False)


def test_counts__are_those_of_test_cost_kv():
    text = (ROOT / "tests" / "unit" / "kv" / "test_cost_kv.c").read_text(encoding="utf-8")
    clover, direct = (model.PUT[mode] for mode in ("clover", "direct"))
    assert "expect_price(kv, before, 2, 8 + 128, 8 + 1072 + 24 + 8);" in text
    assert clover.trips == 2 and clover.bytes == 8 + 128 + 8 + 1072 + 24 + 8 + 8 + 8  # and CAS, FAA
    assert "expect_price(kv, before, 4, head, 8 + 2 * 1072);" in text and "head = 64 + 256;" in text
    assert direct.trips == 4 and direct.bytes == 64 + 256 + 8 + 2 * 1072 + 8 + 8  # and two CAS
    assert "expect_price(kv, before, 1, 1072 + 128, 0);" in text and model.GET["clover"].bytes == 1072 + 128
    assert "expect_price(kv, before, 1, 1072, 0);" in text and model.GET["direct"].bytes == 1072


@pytest.mark.parametrize("mode, puts, clients, rate, limit", [
    ("clover", 0, 1, 1e6 / CARD.trip_us, "clients"),
    ("direct", 1, 10, 10e6 / (4 * CARD.trip_us), "clients"),
    ("clover", 1, 1000, CARD.reads / 8, "requests"),
    ("direct", 1, 1000, CARD.bytes / model.PUT["direct"].bytes, "bytes"),
    ("central", 0.5, 1000, 1e6 / model.COORDINATOR_US, "coordinator"),
])
def test_predict__as_calculated_by_hand(mode, puts, clients, rate, limit):
    predicted = model.predict(mode, puts, clients)
    assert predicted == (pytest.approx(rate), limit)


def test_overtakes__is_the_first_number_of_clients():
    first = model.overtakes(0.05)
    assert model.predict("direct", 0.05, first) > model.predict("clover", 0.05, first)
    assert model.predict("direct", 0.05, first - 1)[0] <= model.predict("clover", 0.05, first - 1)[0]
    assert model.overtakes(1) is None


def test_page__is_up_to_date():
    assert run("--check").returncode == 0
    lines = [json.loads(line) for line in run("--json").stdout.splitlines()]
    assert len(lines) == len(model.PUTS) * len(model.GET) * len(model.CLIENTS)
    assert all(line["model"] for line in lines)
