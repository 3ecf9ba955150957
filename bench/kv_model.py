#!/usr/bin/env python3
"""A model of the modes of a heap over a network: operations a second, and where one mode overtakes another.

Usage: kv_model.py [--json | --write | --check]      without: the table of docs/kv.md
--json: a line for each mode, share of puts and power of two of clients. --write puts the table into the
page; --check only says that it differs: exit 1.

Only counts are measured: round trips, requests and bytes of a call, which tests/unit/kv/test_cost_kv.c
asserts for values of 1000 bytes, and the CPU time of the coordinator. Rates of the network are those of
scaling.py, one memory node, every client on another key.
"""

import json
import pathlib
import sys
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import scaling  # noqa: E402  (from the folder of this file)

CARD = "ConnectX-6"
ENTRY, HEAD, KEY_HEAD = 1072, 128, 64 + 256  # bytes of an entry, a head record, a header with a key
COORDINATOR_US = 10.0  # CPU of a call of mode central, measured by `relive bench kv` over a unix socket
PUTS, CLIENTS = (0.05, 0.5, 1.0), [1 << k for k in range(11)]


class Call(NamedTuple):
    trips: float     # that the client waits
    requests: float  # to the memory node
    atomics: float   # of the requests
    bytes: float     # to or from it
    cpu_us: float = 0  # of the coordinator


GET = {
    "clover": Call(1, 2, 0, ENTRY + HEAD),
    "direct": Call(1, 1, 0, ENTRY),
    "central": Call(2, 1, 0, ENTRY, COORDINATOR_US),  # to the coordinator, and on to the node
}
PUT = {
    # pin, epoch, head | entry, CAS | cell, count of replaced entries, end of the pin
    "clover": Call(2, 8, 2, 8 + 8 + HEAD + ENTRY + 8 + 24 + 8 + 8),
    # intent, CAS, head of the copy | second copy | committed copy | CAS
    "direct": Call(4, 6, 2, 8 + 8 + KEY_HEAD + 2 * ENTRY + 8),
    "central": Call(2, 1, 0, ENTRY, COORDINATOR_US),
}


def mix(mode, puts):
    return Call(*((1 - puts) * get + puts * put for get, put in zip(GET[mode], PUT[mode])))


def predict(mode, puts, clients):
    """Operations a second, and what allows no more."""
    card, call = scaling.CARDS[CARD], mix(mode, puts)
    allowed = {
        "clients": clients / (1e-6 * (call.trips * card.trip_us + call.cpu_us)),
        "requests": card.reads / call.requests,
        "bytes": card.bytes / call.bytes,
    }
    if call.atomics:
        allowed["atomics"] = card.atomics / call.atomics
    if call.cpu_us:
        allowed["coordinator"] = 1e6 / call.cpu_us
    limit = min(allowed, key=allowed.get)
    return allowed[limit], limit


def overtakes(puts):
    """Fewest clients with which direct is faster than clover; None: never."""
    return next((n for n in range(1, CLIENTS[-1] + 1)
                 if predict("direct", puts, n)[0] > predict("clover", puts, n)[0]), None)


def tables():
    rows = []
    for puts in PUTS:
        for mode in GET:
            cells = ["%d %%" % (100 * puts), mode]
            for clients in (1, 8, 32, 128, 1024):
                rate, limit = predict(mode, puts, clients)
                cells.append("%s, %s" % (scaling.number(rate), limit))
            crossing = overtakes(puts) if mode == "direct" else None
            cells.append("%d clients" % crossing if crossing else "")
            rows.append(cells)
    head = ["puts", "mode", *("%d clients" % n for n in (1, 8, 32, 128, 1024)), "overtakes clover from"]
    head[2] = "1 client"
    return {"modes": scaling.table(head, rows, 2)}


def main():
    if sys.argv[1:] not in ([], ["--json"], ["--write"], ["--check"]):
        sys.exit(__doc__)
    if "--json" in sys.argv:
        for puts in PUTS:
            for mode in GET:
                for clients in CLIENTS:
                    rate, limit = predict(mode, puts, clients)
                    print(json.dumps({
                        "bench": "kv_model", "model": True, "metric": "ops_per_s", "unit": "1/s",
                        "value": round(rate), "limit": limit,
                        "params": {"mode": mode, "puts": puts, "clients": clients, "network": CARD}}))
    elif sys.argv[1:]:
        page, check = scaling.TOOLS["parts"](tables()), "--check" in sys.argv
        sys.exit(not scaling.TOOLS["renew"]("docs/kv.md", page, check, "bench/kv_model.py --write"))
    else:
        print("\n".join(tables()["modes"]))


if __name__ == "__main__":
    main()
