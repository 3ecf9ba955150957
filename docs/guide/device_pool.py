"""What sharing a device would bring for given jobs, before anybody shares one."""

import json
import subprocess
import tempfile


def simulate(*options):
    """Returns the medians of a case by metric."""
    command = ["relive", "pool", "simulate", "--json", "--seeds", "5", "--jobs", "40", *options]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {line["metric"]: line["median"] for line in map(json.loads, lines)}


# The policies on the same jobs: lengths, memory and arrivals depend on the seeds only.
cases = {policy: simulate("--policy", policy) for policy in ("fifo", "srtf", "pack+srtf", "fair")}
print("srtf is better than fifo:", cases["srtf"]["avg_jct_s"] < cases["fifo"]["avg_jct_s"])
print("with sharing, better still:", cases["pack+srtf"]["avg_jct_s"] < cases["srtf"]["avg_jct_s"])
print("budget violations:", sum(int(case["violations"]) for case in cases.values()))

# Without a gain of two jobs together the gate shares nothing, and nothing is lost.
alone = simulate("--policy", "pack+srtf", "--gain", "1")
print("no gain is srtf:", alone["avg_jct_s"] == cases["srtf"]["avg_jct_s"])

# A table of jobs: name, seconds alone, peak MB, iterations, command.
with tempfile.NamedTemporaryFile("w", suffix=".csv") as table:
    table.write("small,120,900,240,train small\nlarge,1800,7000,900,train large\n")
    table.flush()
    serial = simulate("--policy", "fifo", "--table", table.name)
    shared = simulate("--policy", "pack+srtf", "--table", table.name)
print("makespan of the table: %.0f s, shared %.0f s" % (serial["makespan_s"], shared["makespan_s"]))
