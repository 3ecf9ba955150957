#!/usr/bin/env bash
# Names of hosts, as Kubernetes gives them: a name is looked up at each connection, so that a server which
# comes up again on another host is found by the clients and nodes that know its name.
set -uo pipefail

hosts=${RLV_SOURCE_DIR:?}/tests/support/hosts
[ -n "${RLV_HOSTS:-}" ] || exec "$hosts/hosts" 2 "$0"
PATH=${RLV_BIN_DIR:?}:$PATH
RELIVE_TOKEN=$(printf '%064d' 7)
export RELIVE_RUNTIME_DIR=/run/relive RELIVE_TOKEN
uri=relive://relive-metad:7117

fail() {
	echo "$*"
	cat "$RLV_HOSTS"/*.log
	exit 1
}

start_metad() { # host
	hosts name relive-metad "$1"
	hosts on "$1" relive-metad --store s --dir "$RLV_HOSTS/state" --listen 0.0.0.0:7117 --lease 2 \
		>>"$RLV_HOSTS/metad.log" 2>&1 &
}

wait_until() { # seconds command...
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || fail "not in time: $*"
		sleep 0.1
	done
}

node_is_up() { relive status "$uri" --health; }

hosts on 2 relive-memnode --store s --name n --metad "$uri" --size 64M --interface eth0 --ports 7300-7349 \
	>"$RLV_HOSTS/n.log" 2>&1 &
sleep 0.3 # it is there before the name
start_metad 1
wait_until 90 node_is_up
relive status "$uri" --json | grep -qE '"address":"[a-z]+:10.78.0.2:73[0-4][0-9];' || fail "another address"
vm_traffic create --store "$uri" --shards 1 || fail "create"
vm_traffic actor --store "$uri" --seconds 12 >"$RLV_HOSTS/actor" 2>&1 &
actor=$!
wait_until 90 grep -qx begun "$RLV_HOSTS/actor"
hosts on 2 ss -Hltnp | awk '/relive-memnode/ { sub(/.*:/, "", $4); if ($4 < 7300 || $4 > 7349) exit 1 }' || fail "other ports"
hosts on 1 pkill -KILL -x relive-metad
start_metad 2
wait_until 60 node_is_up
# Renews its lease there: without that it would be fenced.
wait $actor || fail "the actor: $(cat "$RLV_HOSTS/actor")"
grep -q '"reopens":0,.*"errors":{}' "$RLV_HOSTS/actor" || fail "the actor: $(cat "$RLV_HOSTS/actor")"
vm_traffic verify --store "$uri" --seconds 30 || fail "verify"
