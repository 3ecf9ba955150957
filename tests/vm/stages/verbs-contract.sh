#!/usr/bin/env bash
# RDMA over a real kernel: the contract suite in one guest, which is its own peer; with its target in
# another; then a store whose memory and whose clients are in two; then batches that land on the device of a
# learner in one guest, the fake driver's, by RDMA from a node in the other.
# needs: guests=2 cpus=2 memory=1024 limit=1800
# shellcheck source=tests/vm/lib.sh disable=SC2317
. "$(dirname "$0")/../lib.sh"

shopt -s extglob

# The one over a fake of rdma-core needs no guest.
cases_contract() {
	programs 1 400 "$bin"/contract_test_verbs!(_fake)
}

cases_contract_of_another_host() {
	daemon 2 target "$bin/contract_test_verbs_apart" remote-target 10.77.0.2:7200
	wait_port 60 2 7200
	RLV_TEST_SLOW=1 RLV_VERBS_ACK_TIMEOUT=16 RLV_TEST_TARGET=10.77.0.2:7200 \
		programs 1 200 "$bin/contract_test_verbs_apart"
}

test_contract__leaves_nothing_in_the_kernel() {
	wait_until 60 rdma_gauges_are 1 "$(rdma_gauges_at_rest 2)"
}

# Variables that later tests need are set outside of them, which are subshells.
cases_two_guests() {
	start_metad 1 --node-lease 10 # a guest may stand still for a while
	run_one two_guests__a_node_is_reached_by_rdma start_memnode 2 --size 192M --group daemon
	run_one two_guests__its_memory_is_mapped_by_its_user_alone socket_is_private
	run_one two_guests__every_byte_and_sum_is_right traffic_of_all
	run_one two_guests__values_take_their_round_trips values_of_all_modes
}

# The group may enter the directory, but not ask for descriptors of regions.
socket_is_private() {
	assert_eq "the store's directory" "$(on -t 20 2 stat -c %a "$RELIVE_RUNTIME_DIR/s")" 750
	assert_eq "the socket" "$(on -t 20 2 stat -c %a "$RELIVE_RUNTIME_DIR/s/memnode-n2.sock")" 600
}

traffic_of_all() {
	local actor
	traffic 1 create --shards 1
	traffic 1 actor --seconds 10 &
	actor=$!
	traffic 1 learner --seconds 10
	wait "$actor"
	traffic 1 verify --seconds 30
	relive inspect "$store_uri" --timeout 30s
}

# Prints what `relive bench kv` counts over the wire: of gets, or of puts.
round_trips() { # mode workload op
	on -t 100 1 "$bin/relive bench kv --store $store_uri --mode $1 --workload $2 --distribution uniform \
		--keys 2 --seconds 2 --windows 1 --json" |
		grep '"metric":"round_trips_per_op"' | grep "\"op\":\"$3\"" | grep -oP '"median":\K[0-9.]+'
}

# The server's part of central, and what handles fetch from it now and then, are no round trips to memory. Where calls are
# slow, the latter are more for each: less than half a round trip.
values_of_all_modes() {
	local mode workload op least most got
	while read -r mode workload op least most; do
		got=$(round_trips "$mode" "$workload" "$op")
		echo "$mode $op: $got"
		awk -v g="$got" -v a="$least" -v b="$most" 'BEGIN { exit !(g >= a && g <= b) }' ||
			fail "$mode, $op: $got round trips, want $least to $most"
	done <<-END
		clover c get 1 1.5
		clover w put 2 2.5
		direct c get 1 1.5
		direct w put 4 4.5
		central c get 0 1.5
	END
}

# --- Batches on a device: each byte is checked while an actor and the node are killed ----------------

cases_device() {
	stop 2 memnode TERM
	stop 1 metad TERM
	idle=$(rdma_gauges_at_rest 1)
	start_metad 2
	run_one device__is_filled_by_rdma land
	run_one device__has_right_bytes_though_an_actor_dies kill_actor
	run_one device__is_filled_again_after_its_node_died kill_node
	run_one device__had_right_bytes_alone end_learner
	run_one device__leaves_nothing_in_the_kernels leaves_nothing
}

# A pool in files outlives its node.
start_node() {
	start_memnode 2 --size 64M --file "$RELIVE_RUNTIME_DIR/pool"
}

start_actor() { # life
	daemon 1 actor "$bin/vm_landing" actor --store "$store_uri" --life "$1"
}

land() {
	start_node
	wait_until 90 on 1 "$bin/vm_landing" create --store "$store_uri"
	start_actor 1
	daemon 1 learner env RLV_CUDA_LIBRARY="$bin/../lib/fakecuda/libcuda.so.1" \
		"$bin/vm_landing" learner --store "$store_uri"
	wait_log 90 1 learner '^begun'
}

kill_actor() {
	stop 1 actor
	start_actor 2
	running 1 learner
}

kill_node() {
	stop 2 memnode
	wait_log 90 1 learner '^lost'
	start_node
	wait_log 90 1 learner '^again'
}

end_learner() {
	local said
	stop 1 actor TERM
	stop 1 learner TERM
	said=$(log_of 1 learner | tail -n 1)
	echo "$said"
	assert_match learner "$said" '"good":true'
}

leaves_nothing() {
	stop 2 memnode TERM
	stop 2 metad TERM
	wait_until 60 rdma_gauges_are 1 "$idle"
	wait_until 60 rdma_gauges_are 2 "$idle"
}

run_tests
