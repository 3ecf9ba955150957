"""bench/scaling.py, the model of docs/scaling.md: its counts are those that were measured, its arithmetic is right."""

import itertools
import json
import math
import pathlib
import runpy
import subprocess
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "bench" / "scaling.py"
model = types.SimpleNamespace(**runpy.run_path(str(PROGRAM)))
COSTS = model.TOOLS["read_costs"]()
TRIPS, READS, WRITES, CAS, FAA, READ, WRITTEN = range(1, 8)  # columns of a row of costs.def

# A card that limits nothing, and a call of 8 requests, 5 of which are atomics and one of those shared.
PLENTY = model.Card(1e-9, *[1e15] * 4)
CALL = model.Load(items=3, trips=1, requests=8, atomics=5, bytes=100, word=1)


def run(*arguments):
    return subprocess.run([sys.executable, PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=60, check=False)


def test_counts__of_one_shard_are_those_of_costs_def():
    # 8192 items have as many nodes of level 1 as a batch has draws: some have two draws, some none.
    nodes, reads, read = model.descent(1, model.ITEMS)
    twice = nodes - COSTS["update"][FAA]
    assert 0 <= twice < model.BATCH / 4
    rows_and_looks = model.BATCH * (model.WINDOW * model.ROW + 8)
    assert reads - twice + 2 * model.BATCH == COSTS["sample"][READS]
    assert read - twice * model.shape(1)[0] * 8 + rows_and_looks == COSTS["sample"][READ]
    # A claim sets the leaves of a block, opens its header, and closes the last one.
    assert COSTS["append_claim"][CAS] - COSTS["append"][CAS] == model.BLOCK + 2
    unchanged = model.sample_cost(COSTS, 1, model.ITEMS)
    assert unchanged[READS] - twice == COSTS["sample"][READS]
    assert unchanged[FAA] == COSTS["sample"][FAA] + 1 / model.HELD_CALLS
    assert model.update_cost(COSTS, 1, model.ITEMS)[FAA] - twice == COSTS["update"][FAA]


def test_counts__of_one_item_are_those_over_soft_roce():
    lines = map(json.loads, (ROOT / "docs" / "ratios.json").read_text(encoding="utf-8").splitlines())
    measured = [line for line in lines if line["ratio"] == "one"]
    assert measured
    for line in measured:
        assert model.descent(1, model.ITEMS, batch=1)[1] + 2 == line["reads"]
        assert COSTS["sample"][TRIPS] == line["round_trips"]


@pytest.mark.parametrize("nodes, clients, limit, calls", [
    (1, 1, "requests", 1e6 / 8),
    (2, 1, "requests", 1e6 / (7 / 2 + 1)),  # the node of the shared word has half of 7, and that
    (4, 1, "word", 3e5),
    (4, 2, "word", 3e5),
])
def test_limits__are_those_calculated_by_hand(nodes, clients, limit, calls):
    card = model.Card(trip_us=2, reads=1e6, atomics=7e5, word=3e5, bytes=1e9)
    allowed = model.limits(card, CALL, 1, nodes, 64 * clients)
    assert min(allowed, key=allowed.get) == limit
    assert allowed[limit] == pytest.approx(calls)
    assert allowed["clients"] == pytest.approx(64 * clients / 2e-6)
    assert allowed["atomics"] == pytest.approx(7e5 / (4 / nodes + 1))
    assert allowed["bytes"] == pytest.approx(1e7 * nodes)
    assert allowed["agents"] == math.inf


@pytest.mark.parametrize("scarce, clients, limit", [
    ({"trip_us": 1e6}, 64, "clients"),
    ({"reads": 1}, 64, "requests"),
    ({"atomics": 1}, 64, "atomics"),
    ({"word": 1}, 64, "word"),
    ({"bytes": 1}, 64, "bytes"),
    ({"bytes": 1}, 1, "client cards"),
    ({"cpu_us": (1, 1)}, 64, "agents"),
    ({"cpu_us": (1, 1)}, 1, "clients"),
])
def test_limits__name_the_scarce_resource(scarce, clients, limit):
    allowed = model.limits(PLENTY._replace(**scarce), CALL, 1, 4, clients)
    assert min(allowed, key=allowed.get) == limit
    assert len({round(value) for name, value in allowed.items() if value <= allowed[limit]}) == 1


def test_load__waits_for_what_is_not_in_flight():
    plain = ("", 5, 16, 2, 0, 0, 0, 0)
    assert model.make_load(plain, 1, 0, 32).trips == 5
    assert model.make_load(plain, 1, 0, 4).trips == 4 + 16 / 4


@pytest.mark.parametrize("call, network", itertools.product(model.CALLS, model.CARDS))
def test_rates__grow_with_nodes_until_saturation(call, network):
    card = model.CARDS[network]
    for clients in model.CLIENTS:
        rates = [model.predict(COSTS, card, call, nodes, clients) for nodes in model.NODES]
        for (before, _), (after, limit) in itertools.pairwise(rates):
            # More shards are more requests of each client: its own limit may fall.
            assert after >= before or limit in ("clients", "client cards"), (clients, rates)
    for nodes in model.NODES:
        rates = [model.predict(COSTS, card, call, nodes, clients)[0] for clients in model.CLIENTS]
        assert rates == sorted(rates)
        most, _, enough = model.saturation(COSTS, card, call, nodes)
        assert model.predict(COSTS, card, call, nodes, enough)[0] >= 0.99 * most
        assert enough == 1 or model.predict(COSTS, card, call, nodes, enough // 2)[0] < 0.99 * most


def test_rates__of_appends_of_one_row_end_at_the_word():
    for nodes in model.NODES:
        assert model.predict(COSTS, model.CARDS["ConnectX-5"], "append 1 row", nodes, 1024) == (2.54e6, "word")


def test_page__has_the_tables_that_the_program_makes():
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    apply = model.TOOLS["parts"](model.tables(COSTS))
    assert apply(page) == (page, [])
    assert apply(page.replace("2.54 M, word", "2.55 M, word")) == (page, [])
    assert len(apply(page.replace("rates: end", ""))[1]) == 1
    assert run("--check").returncode == 0


def test_page__has_the_case_by_hand():
    page = " ".join((ROOT / "docs" / "scaling.md").read_text(encoding="utf-8").split())
    load = model.append_load(COSTS, 1)
    allowed = model.limits(model.CARDS["ConnectX-5"], load, 64, 1, 1)
    calls = {name: model.number(rate) for name, rate in allowed.items()}
    for text in ("%(clients)s calls/s." % calls, "= %(requests)s and" % calls, "= %(atomics)s calls/s;" % calls,
                 "= %(bytes)s; and the word allows %(word)s." % calls,
                 "%.2f requests, of which %.2f are atomics" % (load.requests, load.atomics)):
        assert text in page, text


def test_json__is_marked_as_a_model():
    done = run("--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert len(lines) == len(model.CALLS) * len(model.CARDS) * len(model.NODES) * len(model.CLIENTS)
    assert all(line["model"] is True and line["value"] > 0 and line["limit"] for line in lines)
    assert run("--jsn").returncode == 1
