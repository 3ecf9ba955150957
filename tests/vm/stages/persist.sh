#!/usr/bin/env bash
# A pool on persistent memory in one guest, written by RDMA from another: what a persist covered is
# there after a power failure, each item with its bytes and its priority. A guest cannot lose a line
# that was not flushed, so a node also runs under a libpmem that remembers what was persisted
# (tests/shadow/libpmem.c), and is started again on that alone.
# needs: guests=2 memory=768 nvdimm=128M limit=900
# shellcheck source=tests/vm/lib.sh disable=SC2317
. "$(dirname "$0")/../lib.sh"

cases_persist() {
	start_metad 1 --node-lease 4 # a guest stands still for less, and boots for longer
	run_one dax__what_was_persisted_survives_a_power_failure on_dax
	run_one dax__is_handed_to_local_clients_that_are_trusted on_dax_beside
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
	traffic -t 120 1 kept
	leave n2
}

# A store in guest 2 alone, whose clients map the device.
local_store() { # relive's arguments...
	on -t 120 2 env -u RELIVE_TOKEN "$bin/relive" "$@"
}

on_dax_beside() {
	local said
	local_store up --store beside --dax /dev/dax0.0 --discard --adopt
	said=$(local_store table create shm:beside t --columns cartpole --capacity 1024 2>&1) &&
		fail "a client was handed the device"
	assert_match "what the node says" "$said" '--trust-clients \(EACCES\)'
	local_store down --store beside --force
	local_store up --store beside --dax /dev/dax0.0 --trust-clients
	local_store table create shm:beside t --columns cartpole --capacity 1024
	local_store down --store beside --force
}

# Takes the table and its node away again.
leave() { # node
	relive table drop "$store_uri" kept --timeout 30s
	stop 2 memnode TERM
	relive node drop "$store_uri" "$1" --timeout 30s
}

# A node of guest 2 on a directory in memory, as ENV says.
start_on() { # node directory [NAME=VALUE...]
	local node=$1 dir=$2
	shift 2
	on -t 60 2 mkdir -p -m 700 "$RELIVE_RUNTIME_DIR"
	daemon 2 memnode env "$@" "$bin/relive-memnode" --store s --name "$node" --size 64M \
		--file "$dir" --metad "$store_uri" --transport verbs
	wait_until 90 nodes_are up "$node"
}

# Persists, fails, and starts again on what was persisted. suffix: of files of which nothing ever is.
# The pool's head is no mapping: it is written and synchronised.
fail_and_restart() { # node [suffix]
	start_on "$1" "/run/$1" "LD_LIBRARY_PATH=$bin/../lib/shadow" "RLV_SHADOW_DIR=/run/$1.shadow" \
		${2:+"RLV_SHADOW_OMIT_OF=$2"}
	traffic -t 120 1 keep
	stop 2 memnode
	on -t 60 2 cp "/run/$1/pool" "/run/$1.shadow/pool"
	start_on "$1" "/run/$1.shadow"
}

on_shadow() {
	fail_and_restart p1
	traffic -t 120 1 kept
	leave p1
}

# The region with the leaves is nothing then: the server says so, and nobody is given an item.
left_out() {
	fail_and_restart p2 .tree
	assert_status 1 traffic -t 120 1 kept
	assert_match "what the server says" "$(log_of 1 metad)" \
		'attach table kept shard 0: region [0-9]+: superblock .*: not a relive region'
	leave p2
}

run_tests
