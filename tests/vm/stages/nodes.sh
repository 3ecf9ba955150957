#!/usr/bin/env bash
# A store whose memory is in two guests, reached by RDMA, and its server in a third: a guest dies, its
# node comes back empty, and one is drained, while the table stays open.
# needs: guests=3 cpus=1 memory=640 limit=1200
# shellcheck source=tests/vm/lib.sh disable=SC2317
. "$(dirname "$0")/../lib.sh"

# The shards of a table in that state, by their nodes.
shards_are() { # state nodes [table]
	local table=${3:-t} nodes
	nodes=$(relive table shards "$store_uri" "$table" --timeout 30s |
		awk -v s="$1" '$2 == s { print $4 }' | sort | paste -sd ' ')
	[ "$nodes" = "$2" ] || fail "shards of $table that are $1: '$nodes', want '$2'"
}

# A node may have been down for a moment while the shards were made, so that some move once more.
is_at_rest() { # nodes [table]
	shards_are active "$@"
	shards_are draining '' "${2:-t}"
}

cases_nodes() {
	start_metad 1 --node-lease 2 --node-lost 25 --slow-start 0.5
	run_one both_nodes_join_by_rdma join
	run_one shards_are_on_both spread
	run_one a_learner_in_python_has_what_its_actor_put_in learn_in_python
	run_one values_have_copies_on_both values put 1
	run_one data_operations_cost_the_agents_nothing passive
	run_one a_guest_that_dies_is_down_soon dies
	run_one the_table_stays_open stays_open
	run_one its_node_is_lost_and_the_others_have_all_shards lost
	run_one values_outlive_a_copy values check 1
	run_one values_are_put_beside_a_lost_copy values put 2
	run_one it_comes_back_empty_and_gets_its_share back
	run_one values_have_two_copies_again values repair 0
	run_one values_are_those_that_were_put_last values check 2
	run_one values_go_with_their_heap values drop 0
	run_one a_drained_node_may_be_stopped drained
}

join() {
	start_memnode 2 --size 96M
	start_memnode 3 --size 96M
	relive status "$store_uri" --timeout 30s
}

spread() {
	relive table create "$store_uri" t --shards auto --capacity 16384 --timeout 30s
	traffic 1 create --shards 0
	wait_until 60 is_at_rest 'n2 n3'
	wait_until 60 is_at_rest 'n2 n3' traffic
}

python_in() { # guest program argument...
	local package=$bin/../python guest=$1 program=$2
	shift 2
	[ -d "$package" ] || skip "this build has no Python package: it needs python3-dev"
	on -t 300 "$guest" "PYTHONPATH='$package' /usr/bin/python3 '$vm_home/$program' '$store_uri' $*"
}

learn_in_python() {
	python_in 1 learner.py 200
}

# Two copies of a part cannot be on one node: before a drain that leaves one they are dropped.
values() { # put|check|repair|drop round
	python_in 1 kv.py "$@"
}

# How often the agents of both nodes were woken so far.
agents_woken() {
	local guest
	for guest in 2 3; do
		on -t 60 "$guest" "cat /proc/$(pid_in "$guest" memnode)/task/*/status"
	done | awk '/^voluntary_ctxt_switches/ { sum += $2 } END { print sum }'
}

# In one of three tries: what else wakes them on a busy host comes at any time.
passive() {
	(passive_once) || (passive_once) || passive_once
}

# What goes by time is pings, and what goes by clients is their way in and out. Of calls, here of 64 steps
# each, not one in four may wake an agent.
passive_once() {
	local -a at woken steps ms
	local i
	for i in 0 1 2 3; do
		at[i]=$(date +%s%3N)
		woken[i]=$(agents_woken)
		case $i in
		0) sleep 6 ;;
		1) steps[1]=$(traffic 1 actor --seconds 2 | grep -oP '"steps":\K[0-9]+') || fail "no traffic" ;;
		2) steps[2]=$(traffic 1 actor --seconds 12 | grep -oP '"steps":\K[0-9]+') || fail "no traffic" ;;
		esac
	done
	for i in 0 1 2; do
		ms[i]=$((at[i + 1] - at[i])) woken[i]=$((woken[i + 1] - woken[i]))
	done
	echo "agents woken ${woken[0]} times in ${ms[0]} ms of nothing, ${woken[1]} in ${ms[1]} ms" \
		"with ${steps[1]} steps, ${woken[2]} in ${ms[2]} ms with ${steps[2]}"
	assert_le "wakes of the agents" "${woken[2]}" $((woken[1] + \
		woken[0] * (ms[2] - ms[1]) / ms[0] + (steps[2] - steps[1]) / 64 / 4 + 60))
}

# The learner's line says how long no call worked: gap_ms.
dies() {
	daemon 1 learner "$bin/vm_traffic" learner --store "$store_uri" --seconds 12
	wait_log 90 1 learner '^begun'
	sleep 2
	vm kill 3
	wait_until 60 nodes_are down n3
	wait_until 10 shards_are active n2 # before --node-lost
	shards_are down n3
	wait_log 90 1 learner '"role"'
	log_of 1 learner
	assert_match learner "$(log_of 1 learner)" '"good":true'
}

stays_open() {
	relive inspect "$store_uri" t --timeout 30s
}

lost() {
	wait_until 90 nodes_are lost n3
	wait_until 60 shards_are lost n3
	wait_until 60 is_at_rest 'n2 n2'
}

back() {
	vm start 3
	start_memnode 3 --size 96M
	wait_until 60 is_at_rest 'n2 n3'
	relive table shards "$store_uri" t --timeout 30s
}

drained() {
	daemon 1 actor "$bin/vm_traffic" actor --store "$store_uri" --seconds 180
	relive node drain "$store_uri" n2 --wait 100s --timeout 30s
	stop 1 actor TERM
	assert_match actor "$(log_of 1 actor)" '"good":true'
	relive table shards "$store_uri" t --timeout 30s
	stop 2 memnode TERM
	traffic 1 verify --seconds 30
}

run_tests
