#!/usr/bin/env python3
"""A model of a store over a network: items a second by nodes and clients, and what limits them.

Usage: scaling.py [--json | --write | --check]      without: the tables of docs/scaling.md
--json: a line for each call, network and power of two of nodes and of clients. --write puts the tables into
the page; --check only says that one differs: exit 1.

Only counts are measured: those of a call are in tests/unit/client/costs.def, which a test asserts, and are
carried over to more shards and items by the formulas of docs/wire-format.md. The rest is published figures.
"""

import itertools
import json
import math
import pathlib
import runpy
import sys
from typing import NamedTuple

TOOLS = runpy.run_path(str(pathlib.Path(__file__).resolve().parent.parent / "tools" / "costs"))
BATCH, BLOCK, ROW, WINDOW, ITEMS = 256, 1024, 72, 2, 8192  # of costs.def; WINDOW: rows of an item
STEPS = 1 << 20  # of a shard; one shard on each node, and full
SLOTS = (math.ceil(STEPS / (BLOCK - WINDOW + 1)) + 2 * 4) * BLOCK  # with two blocks more for each of 4 writers
HELD_CALLS = 16  # samples that one addition counts
LINK, CHAIN = 32, 16  # READs and atomics in flight to a node: unordered, in a chain
ATARI = 5 * (84 * 84 + 32)  # bytes of an item: a frame, action, reward and tail a row
NODES, CLIENTS = [1 << k for k in range(7)], [1 << k for k in range(11)]  # up to the most of a table


class Card(NamedTuple):
    trip_us: float  # of a READ of 64 B
    reads: float    # a second of a node, taken for all requests
    atomics: float  # CAS and FAA a second of a node, on words apart
    word: float     # FAA a second on one word
    bytes: float    # a second, in one direction
    cpu_us: tuple = (0, 0)  # of a request and of a list of them, for the node's agent and for the client
    above: tuple = ()  # fields that were not found, and are of the card above


CARDS = {
    "ConnectX-5": Card(2.7, 84.5e6, 51.8e6, 2.54e6, 12.5e9),
    "ConnectX-6": Card(2.7, 84.5e6, 51.8e6, 2.17e6, 25e9, above=(0, 1, 2)),
    "ConnectX-7": Card(2.7, 84.5e6, 51.8e6, 2.17e6, 50e9, above=(0, 1, 2, 3)),
    "TCP": Card(9, math.inf, math.inf, math.inf, 1.25e9, (0.05, 5)),
}


class Load(NamedTuple):
    items: float     # of a call, as all that follows
    trips: float     # round trips that the client waits
    requests: float
    atomics: float   # of the requests
    bytes: float
    word: float      # of the atomics: on the one word that the whole table has
    phases: float = 0  # the round trips, with any number of requests in flight
    lists: float = 0   # over TCP


def make_load(cost, items, word, in_flight, nodes=1):
    """cost: as a row of costs.def. READs and atomics beyond those in flight wait a trip more, posted ones too.
    A phase is a list to each node, and what is posted is one."""
    trips, reads, writes, cas, faa, *moved = cost[1:]
    return Load(items, trips - 1 + max(1, (reads + cas + faa) / in_flight),
                reads + writes + cas + faa, cas + faa, sum(moved), word, trips, (trips + 1) * nodes)


def append_load(costs, rows):
    """1 or 256 rows, with their share of the claim of a block."""
    what, *base = costs["append" if rows == 1 else "append_256"]
    claim = (claims - plain for claims, plain in zip(costs["append_claim"][1:], costs["append"][1:]))
    return make_load([what, *(a + b * rows / BLOCK for a, b in zip(base, claim))], rows, 1, CHAIN)


def shape(shards):
    """Children of nodes of level 1, of level 2, and nodes of the top, as ds/replay/table_plan.c chooses them."""
    top, leaves = max(1024 // shards, 64), 8
    while leaves * leaves < STEPS / top and leaves < 128:
        leaves *= 2
    groups = math.ceil(SLOTS / leaves)
    upper = 8 * math.ceil(groups / top / 8)
    return leaves, upper, math.ceil(groups / upper)


def descent(shards, items, batch=BATCH):
    """Nodes of levels 2 and 1 that a batch falls in, at most; READs and bytes of a sample's draw."""
    leaves, upper, top = shape(shards)
    above, below = (min(batch, shards * math.ceil(items / under)) for under in (leaves * upper, leaves))
    return (above + below, 2 * shards + above + below,
            shards * (8 + 64 + 8 * top) + 8 * upper * above + 8 * leaves * below)


def sample_cost(costs, shards, items=STEPS, item_bytes=WINDOW * ROW):
    """The row of costs.def, which is of one shard with ITEMS items, of more shards and items: the draw, the rows,
    a second look at each leaf."""
    what, trips, _, writes, cas, faa, _, written = costs["sample"]
    _, reads, read = descent(shards, items)
    return [what, trips, reads + 2 * BATCH, writes, cas, faa + 1 / HELD_CALLS,
            read + BATCH * (item_bytes + 8), written]


def update_cost(costs, shards, items=STEPS):
    """The same. Each further shard: a READ of the maximum and the two WRITEs of a pin."""
    more, nodes = shards - 1, descent(shards, items)[0]
    what, trips, reads, writes, cas, _, read, written = costs["update"]
    return [what, trips, reads + more, writes + 2 * more, cas, nodes, read + 8 * more, written + 16 * more]


def learn_load(costs, shards, item_bytes=WINDOW * ROW):
    """A sample and the update of its items."""
    sample = sample_cost(costs, shards, item_bytes=item_bytes)
    parts = (make_load(sample, BATCH, 1 / HELD_CALLS, LINK * shards, shards),
             make_load(update_cost(costs, shards), 0, 0, CHAIN * shards, shards))
    return Load(*map(sum, zip(*parts)))


CALLS = {  # load(costs, nodes), clients to a card
    "append 1 row": (lambda costs, nodes: append_load(costs, 1), 64),
    "append 256 rows": (lambda costs, nodes: append_load(costs, 256), 64),
    "sample and update 256": (learn_load, 1),
    "the same, Atari": (lambda costs, nodes: learn_load(costs, nodes, ATARI), 1),
}


def limits(card, load, per_card, nodes, clients):
    """Calls a second that each resource allows."""
    cpu = 1e-6 * (card.cpu_us[0] * load.requests + card.cpu_us[1] * load.lists)
    trips = load.phases if cpu else load.trips

    def allowed(rate, total, shared=0):  # of the busiest node, which has its share and all that is shared
        use = (total - shared) / nodes + shared
        return rate / use if use else math.inf

    return {
        "clients": clients / max(trips * card.trip_us * 1e-6, cpu),
        "requests": allowed(card.reads, load.requests, load.word),
        "atomics": allowed(card.atomics, load.atomics, load.word),
        "word": card.word / load.word,
        "bytes": allowed(card.bytes, load.bytes),
        "agents": allowed(1, cpu, 1e-6 * card.cpu_us[0] * load.word),
        "client cards": math.ceil(clients / per_card) * min(card.reads / load.requests, card.bytes / load.bytes),
    }


def predict(costs, card, call, nodes, clients):
    """Items a second, and the resource that allows no more."""
    load_of, per_card = CALLS[call]
    load = load_of(costs, nodes)
    allowed = limits(card, load, per_card, nodes, clients)
    limit = min(allowed, key=allowed.get)
    return load.items * allowed[limit], limit


def saturation(costs, card, call, nodes):
    """Items a second of the most clients, their limit, and how few clients reach 99 % of it."""
    most, limit = predict(costs, card, call, nodes, CLIENTS[-1])
    return most, limit, next(n for n in CLIENTS if predict(costs, card, call, nodes, n)[0] >= 0.99 * most)


def number(value):
    unit, name = next((u for u in ((1e9, " G"), (1e6, " M"), (1e3, " k")) if value >= u[0]), (1, ""))
    return "%.3g%s" % (value / unit, name)


def figure(card, field):
    text = "" if card[field] == math.inf else number(card[field])
    return "*%s*" % text if field in card.above else text


def table(head, rows, left):
    lines = [head, ["---"] * left + ["---:"] * (len(head) - left), *rows]
    return ["| %s |" % " | ".join(line) for line in lines]


def tables(costs):
    """The tables of docs/scaling.md by name."""
    return {
        "cards": table(
            ["network", "round trip, us", "READs/s", "atomics/s", "FAA/s on one word", "bytes/s", "CPU of one, us"],
            [[name, *(figure(card, field) for field in range(5)), "%g, list %g" % card.cpu_us if card.cpu_us[0] else "0"]
             for name, card in CARDS.items()], 1),
        "loads": table(
            ["call", "nodes", "requests", "atomics", "on the table's word", "bytes", "round trips waited"],
            [[call, str(n), *map(number, (load.requests, load.atomics, load.word, load.bytes, load.trips))]
             for call in CALLS for n in (1, 64) for load in [CALLS[call][0](costs, n)]], 1),
        "rates": table(
            ["call", "network", "one client, one node", "1 node", "4 nodes", "16 nodes", "64 nodes"],
            [[call, name, number(predict(costs, card, call, 1, 1)[0]),
              *("%s, %s, %d" % (number(rate), limit, enough) for rate, limit, enough in
                (saturation(costs, card, call, n) for n in NODES[::2]))]
             for call in CALLS for name, card in CARDS.items()], 2),
    }


def print_json(costs):
    for call, name, nodes, clients in itertools.product(CALLS, CARDS, NODES, CLIENTS):
        rate, limit = predict(costs, CARDS[name], call, nodes, clients)
        print(json.dumps({
            "bench": "scaling", "model": True, "metric": call, "unit": "items/s", "value": round(rate),
            "limit": limit, "params": {"network": name, "nodes": nodes, "clients": clients}}))


def main():
    if sys.argv[1:] not in ([], ["--json"], ["--write"], ["--check"]):
        sys.exit(__doc__)
    costs = TOOLS["read_costs"]()
    if "--json" in sys.argv:
        print_json(costs)
    elif sys.argv[1:]:
        page, check = TOOLS["parts"](tables(costs)), "--check" in sys.argv
        sys.exit(not TOOLS["renew"]("docs/scaling.md", page, check, "bench/scaling.py --write"))
    else:
        print("\n\n".join("\n".join(lines) for lines in tables(costs).values()))


if __name__ == "__main__":
    main()
