#!/usr/bin/env bash
# A pool on persistent memory in one guest, written by RDMA from another: what a persist covered is
# there after a power failure, each item with its bytes and its priority. A guest cannot lose a line
# that was not flushed, so a node also runs under a libpmem that remembers what was persisted
# (tests/shadow/libpmem.c), and is started again on that alone.
#
# Not a stage yet: its parts have each passed, the last two not on a busy machine, where the server may
# not reach a node that was started again in time.
# needs: guests=2 memory=768 nvdimm=128M limit=420
# shellcheck source=tests/vm/lib.sh disable=SC2317
. "$(dirname "$0")/lib.sh"

cases_persist() {
	start_metad 1
	run_one dax__what_was_persisted_survives_a_power_failure on_dax
	run_one shadow__what_was_persisted_is_all_there on_shadow
	run_one control__a_persist_left_out_is_found_out left_out
}

on_dax() {
	make_dax 2
	start_memnode 2 --dax /dev/dax0.0
	traffic -t 120 1 keep
	vm kill 2
	vm start 2
	start_memnode 2 --dax /dev/dax0.0
	wait_until 20 table_is_back
	traffic -t 120 1 kept
	leave n2
}

# Its node is up before its shard has been looked at.
table_is_back() {
	relive table shards "$store_uri" kept | grep -w active >/dev/null
}

# Takes the table and its node away again.
leave() { # node
	relive table drop "$store_uri" kept
	stop 2 memnode TERM
	relive node drop "$store_uri" "$1"
}

# A node of guest 2 on a file in memory, as ENV says.
start_on() { # node file [NAME=VALUE...]
	local node=$1 file=$2
	shift 2
	on 2 mkdir -p -m 700 "$RELIVE_RUNTIME_DIR"
	daemon 2 memnode env "$@" "$bin/relive-memnode" --store s --name "$node" --size 64M \
		--file "$file" --metad "$store_uri" --transport verbs
	wait_until 30 nodes_are up "$node"
}

# Persists, fails, and starts again on what was persisted. omit: the persist that never happens.
fail_and_restart() { # node omit
	start_on "$1" "/run/$1" "LD_LIBRARY_PATH=$bin/../lib/shadow" "RLV_SHADOW_FILE=/run/$1.shadow" \
		"RLV_SHADOW_LOG=/vm/$1.persists" "RLV_SHADOW_OMIT=$2"
	traffic -t 120 1 keep
	stop 2 memnode
	start_on "$1" "/run/$1.shadow"
	wait_until 20 table_is_back
}

on_shadow() {
	fail_and_restart p1 0
	traffic -t 120 1 kept
	leave p1
}

# The last persist is of leaves.
left_out() {
	fail_and_restart p2 "$(wc -l <"$RLV_VM_DIR/share/p1.persists")"
	assert_status 1 traffic -t 120 1 kept
	leave p2
}

run_tests
