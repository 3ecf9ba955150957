#!/usr/bin/env bash
# The commands and probes of examples/kubernetes/many-hosts.yaml, each pod on a host of its own; an actor
# and a learner on two of them, every byte checked. Nobody listens at a port that the policies do not open.
set -uo pipefail

hosts=${RLV_SOURCE_DIR:?}/tests/support/hosts
PATH=${RLV_BIN_DIR:?}:$PATH
python3 -c 'import yaml' 2>/dev/null || { echo "skipped: no python3-yaml" && exit 77; }
[ -n "${RLV_HOSTS:-}" ] || exec "$hosts/hosts" 3 "$0"
[ "${1:-}" = clients ] ||
	exec "$hosts/pods" "$RLV_SOURCE_DIR/examples/kubernetes/many-hosts.yaml" "$0" clients

uri=relive://relive-metad:7117
fail() {
	echo "$*"
	exit 1
}

relive status "$uri"
vm_traffic create --store "$uri" --shards 2 || fail "create"
hosts on 2 vm_traffic actor --store "$uri" --seconds 4 &
hosts on 3 vm_traffic learner --store "$uri" --seconds 3 || fail "the learner"
for host in 2 3; do # an actor's own endpoint listens, too, and nobody comes to it
	hosts on $host ss -Hltnp | awk '/relive-memnode/ { sub(/.*:/, "", $4); n++; if ($4 < 7200 || $4 > 7299) exit 1 }
		END { exit n < 1 }' || fail "ports of host $host: $(hosts on $host ss -Hltnp)"
done
wait $! || fail "the actor"
vm_traffic verify --store "$uri" --seconds 30 || fail "verify"
