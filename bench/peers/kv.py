#!/usr/bin/env python3
"""Measures heaps beside other stores of values under keys, in rounds that alternate between all of them.

`relive bench kv` measures the modes of a heap, calls of 64 keys ("many") and Redis with 64 commands in its pipeline; Mooncake Store (a master, a host
of the memory and a client, each a process, over TCP) and Ray's object store run through their Python, as
their users call them, in virtual environments of their own. Values of 1 KiB, one client. Ray has no keys: a
put makes a new object, and a get reads one of them.

    kv.py [--peers a,b] [--rounds N] [--seconds S] [--build BUILD] [--out FOLDER]

What does not install or run is listed with the reason.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

from workers import ROOT, Environments, Failed, Worker, say

PEERS = ["mooncake", "ray_objects"]
OPS = {"get": "c", "put": "w"}
TROUBLE = (Failed, OSError, subprocess.SubprocessError)


def own(program, op, seconds):
    """One round of `relive bench kv`: operations a second, by mode."""
    answer = subprocess.run([program, "bench", "kv", "--workload", OPS[op], "--windows", "1",
                             "--seconds", str(seconds), "--json"],
                            capture_output=True, text=True, timeout=300)
    if answer.returncode:
        raise Failed("relive bench kv: " + answer.stderr.strip())
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    return answer.stderr.strip(), {r["params"]["mode"] + " many" * (r["params"]["keys_per_call"] > 1):
                                   r["median"] for r in rows if r["metric"] == "ops_per_s"}


def measure(args):
    environments = Environments(args.environments, True)
    rates, missing, versions, workers = {}, {}, {}, {}
    for peer in args.peers or PEERS:
        try:
            workers[peer] = Worker(environments, peer)
            versions[peer] = workers[peer].ask(op="store", value=1024)["version"]
        except TROUBLE as error:
            missing[peer] = str(error)
    for number in range(args.rounds):
        for op in OPS:
            say("round %d %s" % (number, op))
            said, got = own(pathlib.Path(args.build) / "bin" / "relive", op, args.seconds)
            if said:
                missing["redis"] = said
            for peer in list(workers):
                try:
                    got[peer] = workers[peer].ask(op="stored", what=op, seconds=args.seconds)["value"]
                except TROUBLE as error:
                    missing[peer] = str(error)
                    workers.pop(peer).end()
            for peer, rate in got.items():
                rates.setdefault(op, {}).setdefault(peer, []).append(rate)
    for worker in workers.values():
        worker.end()
    return {"rates": rates, "missing": missing, "versions": versions,
            "load": os.getloadavg(), "rounds": args.rounds, "seconds": args.seconds}


def table(data):
    lines = ["| peer | get/s | of clover's | put/s | of clover's |", "| --- | ---: | ---: | ---: | ---: |"]
    for peer in data["rates"]["get"]:
        cells = [peer]
        for op in OPS:
            pairs = list(zip(data["rates"][op]["clover"], data["rates"][op].get(peer, [])))
            cells.append("%.0f" % statistics.median([b for _, b in pairs]) if pairs else "")
            cells.append("1/%.3g" % statistics.median([a / b for a, b in pairs]) if pairs else "")
        lines.append("| %s |" % " | ".join(cells))
    return lines + ["%s is left out: %s" % (peer, why) for peer, why in data["missing"].items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=lambda text: [w for w in text.split(",") if w], default=[])
    parser.add_argument("--rounds", type=int, default=5, help="of each peer (5)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a window (0.5)")
    parser.add_argument("--environments", help="where the virtual environments are made "
                        "($PEERS, or build/peers)",
                        default=os.environ.get("PEERS") or str(ROOT / "build" / "peers"))
    parser.add_argument("--build", default=str(ROOT / "build"), help="with bin/relive")
    parser.add_argument("--out", default=str(ROOT / "build" / "peers" / "results"))
    args = parser.parse_args()
    data = measure(args)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "kv.json").write_text(json.dumps(data, indent=1) + "\n")
    print("\n".join(table(data)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
