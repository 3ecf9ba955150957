#!/usr/bin/env bash
# Faults under traffic between two hosts that reach each other over the ofi transport: frames that are lost, late
# or cut off, daemons and clients that are killed, or stopped for longer than their lease. After each: no
# wrong byte, no call beyond its deadline, no error without a type, exact sums, and no more links and keys
# at the nodes than before.
#   RLV_HOSTS_ONLY  the names of some events
# shellcheck disable=SC2317 # events are called by their names
set -uo pipefail

hosts=${RLV_SOURCE_DIR:?}/tests/support/hosts
[ -n "${RLV_HOSTS:-}" ] || exec "$hosts/hosts" --wire 2 "$0"
PATH=${RLV_BIN_DIR:?}:$PATH
export RELIVE_RUNTIME_DIR=/run/relive
uri=relive://@$RLV_HOSTS/store.uri
failed=0

fail() {
	echo "$*"
	failed=1
}

wait_until() { # seconds command...
	local end=$((SECONDS + $1))
	shift
	until "$@" >"$RLV_HOSTS/said" 2>&1; do
		[ $SECONDS -lt $end ] || { fail "not in time: $*" && cat "$RLV_HOSTS/said" && return 1; }
		sleep 0.1
	done
}

# --- the store: a server and a node in memory on host 1, a node on a file on host 2 ---

start_metad() {
	hosts on 1 relive-metad --store s --announce "$RLV_HOSTS/store.uri" --lease 2 --node-lost 3 \
		--log-level warn \
		>>"$RLV_HOSTS/metad.log" 2>&1 &
}

start_node() { # host
	local pool=(--size 64M)
	[ "$1" -eq 1 ] || pool+=(--file /run/pool)
	hosts on "$1" relive-memnode --store s --name "n$1" --metad "$uri" --transport ofi "${pool[@]}" \
		--log-level warn >>"$RLV_HOSTS/n$1.log" 2>&1 &
}

nodes_up() { [ "$(relive status "$uri" --json | grep -o '"state":"up"' | wc -l)" -eq 2 ]; }

# Of both nodes, in one line.
gauges() { relive status "$uri" --json | grep -oE '"(links|keys)":[0-9]+' | tr '\n' ' '; }

# The same when they have stood still for two seconds: links end a moment after who had them.
gauges_at_rest() {
	local now before=''
	for _ in {1..30}; do
		now=$(gauges)
		[ "$now" != "$before" ] || break
		before=$now
		sleep 2
	done
	echo "$now"
}

gauges_are_back() { # before
	local now
	now=$(gauges)
	echo "$now, before $1"
	[ "$now" = "$1" ]
}

# --- traffic ---

start_client() { # host role
	hosts on "$1" vm_traffic "$2" --store "$uri" --seconds "$window" --seed "$RANDOM" \
		>"$RLV_HOSTS/$2" 2>&1 &
	pids[$2]=$!
}

check_client() { # role
	local end=$((SECONDS + window + 60))
	while kill -0 "${pids[$1]}" 2>/dev/null; do
		[ $SECONDS -lt $end ] || { fail "the $1 hangs" && kill "${pids[$1]}" && return; }
		sleep 0.1
	done
	tail -n 1 "$RLV_HOSTS/$1"
	wait "${pids[$1]}" || { fail "the $1:" && tail -n 20 "$RLV_HOSTS/$1"; }
}

# Traffic, the fault, and the fault's end; NAME_ends says what has to be done for that.
event() { # seconds name
	local -A pids=()
	local window=$1 before=$links
	[[ " ${RLV_HOSTS_ONLY:-$2} " == *" $2 "* ]] || return
	echo "[ RUN      ] $2"
	start_client 2 actor
	start_client 1 learner
	wait_until 90 grep -qx begun "$RLV_HOSTS/actor" && wait_until 90 grep -qx begun "$RLV_HOSTS/learner"
	sleep 1
	"$2"
	check_client learner
	[ "$2" = actor_killed ] || check_client actor
	hosts wire
	wait_until 60 nodes_up
	vm_traffic verify --store "$uri" --seconds 60 >"$RLV_HOSTS/verify" 2>&1 ||
		{ fail "sums are not exact" && cat "$RLV_HOSTS/verify"; }
	wait_until 60 gauges_are_back "$before"
	[ $failed -ne 0 ] && echo "[  FAILED  ] $2" && tail -n 20 "$RLV_HOSTS"/*.log && exit 1
	echo "[       OK ] $2"
}

loses_1_percent() { hosts wire loss 1; }
loses_5_percent_and_is_late() { hosts wire loss 5 delay 3; }
link_down_for_5_s() {
	hosts wire cut 2
	sleep 5
	hosts wire
}
# What it held is lost, and it gets a new shard.
node_in_memory_killed() {
	hosts on 1 pkill -KILL -x relive-memnode
	sleep 1
	start_node 1
}
node_on_a_file_killed() {
	hosts on 2 pkill -KILL -x relive-memnode
	sleep 2
	start_node 2
}
stop_for() { # seconds program: on host 2. nsenter stops with it, and continues it when it is continued
	hosts on 2 pkill -STOP -x "$2"
	sleep "$1"
	# shellcheck disable=SC2046 # one word for each
	kill -CONT $(jobs -p)
}
node_stopped_past_its_lease() { stop_for 3 relive-memnode; }
server_killed() {
	hosts on 1 pkill -KILL -x relive-metad
	sleep 1
	start_metad
}
actor_stopped_past_its_lease() { stop_for 4 vm_traffic; }
actor_killed() { hosts on 2 pkill -KILL -x vm_traffic; }

start_metad
start_node 1
start_node 2
wait_until 60 nodes_up || exit 1
vm_traffic create --store "$uri" --shards 0 || exit 1
links=$(gauges_at_rest)
[[ $links == *links*keys*links*keys* ]] || fail "no links and keys of two nodes: $links"
event 4 loses_1_percent
event 6 loses_5_percent_and_is_late
event 12 link_down_for_5_s
event 8 node_on_a_file_killed
event 8 node_in_memory_killed
event 8 node_stopped_past_its_lease
event 6 server_killed
event 8 actor_stopped_past_its_lease
event 4 actor_killed
# shellcheck disable=SC2046 # one word for each
kill $(jobs -p) 2>/dev/null
exit $failed
