#!/usr/bin/env bash
# Faults under traffic, one after another, on a server's guest and three of memory nodes. After each:
# what ran on met right bytes, errors with a type, no call beyond its deadline and no long gap; every
# sum is exact; neither the nodes nor the kernels hold more queue pairs, keys and windows than before.
# needs: guests=4 cpus=1 memory=640 nvdimm=96M limit=2400
#   RLV_VM_EVENTS  how many (9): the kinds are dealt like cards, so that each comes as often
#   RLV_VM_FIRST   with which one to begin (1): those before it were seen in an earlier run
#   RLV_VM_SEED    of the choice (1)
#   RLV_VM_ONLY    one event, "KIND NODE AMOUNT" as a failure names it, RLV_VM_TIMES (1)
#   RLV_VM_RESULT  file for the result, one line of JSON
# shellcheck source=tests/vm/lib.sh disable=SC2317
. "$(dirname "$0")/../lib.sh"

events=${RLV_VM_EVENTS:-9}
first=${RLV_VM_FIRST:-1}
seed=${RLV_VM_SEED:-1}
most=$((events > ${RLV_VM_TIMES:-1} ? events : ${RLV_VM_TIMES:-1}))
[ "$most" -le 20 ] || need[limit]=$((need[limit] * most / 20))
nodes=(2 3 4)
window=8    # seconds of traffic around an event
before=2    # of them before it
late=45     # how much later than that a program of the traffic may end
most_gap=20 # seconds without a call that works: its deadline, and what a guest stalls
client_lease=4
server_dir=/run/relive

# --- Events: each ends with the fault healed ----------------------------------------------------

kinds=(power_failure pause packet_loss unplugged node_killed server_killed actor_killed
	learner_killed client_stopped)

# With clients in that guest, which die with it.
power_failure() { # node
	vm kill "$1"
	sleep 2
	vm start "$1"
	node_up "$1"
}

# Beyond the lease of a node, which is one second.
pause() { # node amount
	vm pause "$1"
	sleep $((2 + $2 % 4))
	vm resume "$1"
}

packet_loss() { # node amount
	vm netem "$1" loss $((1 + $2 % 5))% delay $((1 + $2 % 5))ms
	sleep 5
	vm netem "$1"
}

unplugged() { # node
	vm link "$1" down
	sleep 5
	vm link "$1" up
}

node_killed() { # node
	stop "$1" memnode
	sleep 1
	node_up "$1"
}

server_killed() {
	stop 1 metad
	sleep 1
	server_up
}

# Those killed are further ones, so that one of each kind goes on.
actor_killed() { # node
	stop "$(beside "$1")" actor2
}

learner_killed() { # node
	stop "$(beside "$1")" learner2
}

# Stops a client: its host still answers, but its lease ends, so the nodes cut it off.
client_stopped() { # node
	local guest fences
	guest=$(beside "$1")
	fences=$(count_fences)
	on -t 60 "$guest" "kill -STOP $(pid_in "$guest" actor2)"
	wait_until 60 has_more_fences "$fences"
	on -t 60 "$guest" "kill -CONT $(pid_in "$guest" actor2)"
}

count_fences() {
	log_of 1 metad | grep -c 'is fenced: its lease is over' || :
}

has_more_fences() { # than
	[ "$(count_fences)" -gt "$1" ]
}

# --- The store and its traffic --------------------------------------------------------------------

# The server's state is on a disk that outlives its guest.
mount_disk() {
	on -t 60 1 "! mountpoint -q '$server_dir' || exit 0
		modprobe ext4
		blkid /dev/pmem0 >/dev/null || mkfs.ext4 -q /dev/pmem0
		mkdir -p '$server_dir' && mount /dev/pmem0 '$server_dir' && chmod 700 '$server_dir'"
}

server_up() {
	mount_disk
	start_metad 1 --node-lost 8 --slow-start 0.5 --lease "$client_lease"
}

# Node 2 has its pool in memory, the others on a DAX device that outlives the guest.
node_up() { # guest
	if [ "$1" = 2 ]; then
		start_memnode "$1" --size 92M # as much as the devices have
	else
		start_memnode "$1" --dax /dev/dax0.0 --trust-clients # or its own clients map nothing
	fi
}

# The guest of another node.
beside() { # node
	echo $(($1 == 4 ? 2 : $1 + 1))
}

# Programs of the traffic: each word is a role and a number, as actor2.
start() { # guest seconds name...
	local guest=$1 seconds=$2 name lines=()
	shift 2
	for name in "$@"; do
		lines+=("$name $bin/vm_traffic ${name%[0-9]} --store $store_uri --writer ${name: -1} \
			--seed ${name: -1} --seconds $seconds")
	done
	daemons "$guest" "${lines[@]}"
}

have_begun() { # "guest name"...
	local client
	for client in "$@"; do
		log_of "${client% *}" "${client#* }" | grep '^begun' || fail "$client has not begun"
	done
}

has_ended() { # guest name
	log_of "$1" "$2" | grep -q '"role"'
}

field() { # name text
	grep -oP "\"$1\":\K[0-9]+" <<<"$2"
}

# Where a program is that does not end.
say_where() { # guest name
	local pid
	pid=$(pid_in "$1" "$2")
	on -t 60 "$1" "grep -E 'State|ctxt' /proc/$pid/status; cat /proc/$pid/stack
		! command -v gdb >/dev/null || gdb -p $pid -batch -ex 'thread apply all backtrace' 2>/dev/null" || :
}

# The client's last line of JSON has no errors, and shows progress.
check_client() { # guest name
	local said
	(wait_until $((window + late)) has_ended "$1" "$2") || {
		say_where "$1" "$2"
		fail "$2 does not end"
	}
	said=$(log_of "$1" "$2" | tail -n 1)
	echo "$said"
	assert_match "$2" "$said" '"good":true'
	assert_match "$2" "$said" '"(steps|batches)":[1-9]'
	echo "$said" >>"$RLV_VM_DIR/clients"
}

# One that no fault has hit.
check_survivor() { # name
	check_client 1 "$1"
	assert_le "gap of $1" "$(field gap_ms "$(log_of 1 "$1" | tail -n 1)")" $((1000 * most_gap))
}

# --- What must hold when it is quiet --------------------------------------------------------------

# When no client is there: a queue pair between the server and each node, with one window for each
# region; and a queue pair of the kernel's.
gauges_are_small() {
	local now=$1 guest qps mrs regions
	for guest in "${nodes[@]}"; do
		[[ $now =~ \"name\":\"n$guest\",[^}]*\"regions\":([0-9]+)[^}]*\"gauges\":\{\"qps\":([0-9]+),\"mrs\":([0-9]+),\"windows\":([0-9]+) ]]
		regions=${BASH_REMATCH[1]}
		assert_le "queue pairs of node $guest" "${BASH_REMATCH[2]}" 1
		assert_le "windows of node $guest" "${BASH_REMATCH[4]}" "$regions"
		read -r qps mrs <"$RLV_VM_DIR/share/gauges.$guest"
		assert_le "queue pairs of guest $guest" "$qps" 2
		assert_le "keys of guest $guest" "$mrs" $((regions + 1))
	done
	read -r qps mrs <"$RLV_VM_DIR/share/gauges.1"
	assert_le "queue pairs of guest 1" "$qps" $((1 + ${#nodes[@]}))
	assert_le "keys of guest 1" "$mrs" ${#nodes[@]}
}

look_at_gauges() {
	local guest
	for guest in 1 "${nodes[@]}"; do
		on -t 60 "$guest" "rdma resource show rxe0 |
			sed 's/.* qp \([0-9]*\) .* mr \([0-9]*\) .*/\1 \2/' >/vm/gauges.$guest" &
	done
	wait
	gauges_are_small "$(relive status "$store_uri" --timeout 30s --json)"
}

# All sums are exact again. A link may be lost once more while a slow host settles, so the question is
# asked again; it reads every tree.
check_store() {
	wait_until 90 nodes_are up "${nodes[@]/#/n}"
	wait_until 90 traffic -t 60 1 verify --seconds 20
	wait_until 60 look_at_gauges
}

# --- The campaign ---------------------------------------------------------------------------------

# The first links between guests may take longer than a call waits.
is_created() {
	traffic 1 create --shards 0 || relive table info "$store_uri" traffic
}

come_up() {
	local guest
	for guest in "${nodes[@]}"; do
		[ "$guest" = 2 ] || make_dax "$guest"
		node_up "$guest"
	done
	wait_until 120 is_created
	relive table shards "$store_uri" traffic --timeout 30s
}

# Four actors and two learners over three nodes, of which the one in memory dies.
crowd() {
	local client clients=("1 actor1" "1 actor2" "1 learner1" "3 actor3" "4 actor4" "4 learner2")
	start 1 $((window + 8)) actor1 actor2 learner1
	start 3 $((window + 6)) actor3
	start 4 $((window + 6)) actor4 learner2
	wait_until 90 have_begun "${clients[@]}"
	sleep "$before"
	vm kill 2
	for client in "${clients[@]}"; do
		# shellcheck disable=SC2086 # two words
		check_client $client
	done
	vm start 2
	node_up 2
	check_store
}

# The further client that the event hits, if it hits one: its guest and its name.
victim() { # kind node
	case $1 in
	actor_killed | client_stopped) echo "$(beside "$2") actor2" ;;
	learner_killed) echo "$(beside "$2") learner2" ;;
	power_failure) echo "$2 actor2" ;;
	esac
}

whole_event() { # kind node amount
	local victim
	victim=$(victim "$1" "$2")
	start 1 "$window" actor1 learner1
	# shellcheck disable=SC2086 # two words
	[ -z "$victim" ] || start ${victim/ / $((window + 2 * client_lease)) }
	wait_until 90 have_begun "1 actor1" "1 learner1" ${victim:+"$victim"}
	sleep "$before"
	"$@"
	check_survivor actor1
	check_survivor learner1
	# shellcheck disable=SC2086 # two words
	[ "$1" != client_stopped ] || check_client $victim
	check_store
}

say_how_to_repeat() { # number kind node amount
	echo "to repeat it alone: RLV_VM_ONLY='$2 $3 $4' $0"
	echo "with all before it: RLV_VM_SEED=$seed RLV_VM_EVENTS=$1 $0"
	echo "from it on: RLV_VM_SEED=$seed RLV_VM_FIRST=$1 RLV_VM_EVENTS=$events $0"
}

try_event() { # number kind node amount
	run_one "$(printf 'event_%03d__%s_of_n%d' "$1" "$2" "$3")" whole_event "$2" "$3" "$4"
	[ "$failed" -eq 0 ] || say_how_to_repeat "$@"
	passed[$2]=$((${passed[$2]:-0} + 1 - failed))
}

# A random order of the kinds, again and again.
deal() {
	local i k
	deck=("${kinds[@]}")
	for ((i = ${#deck[@]} - 1; i > 0; i--)); do
		k=$((RANDOM % (i + 1)))
		set -- "${deck[i]}" "${deck[k]}"
		deck[i]=$2 deck[k]=$1
	done
}

# Stops at the first failure: later events would only repeat it.
run_events() {
	local i deck=() kind node amount
	for ((i = 1; i <= events && failed == 0; i++)); do
		[ ${#deck[@]} -gt 0 ] || deal
		kind=${deck[0]} node=${nodes[RANDOM % ${#nodes[@]}]} amount=$RANDOM
		deck=("${deck[@]:1}")
		[ "$i" -ge "$first" ] || continue
		try_event "$i" "$kind" "$node" "$amount"
	done
}

cases_events() {
	local -A passed=()
	local began=$SECONDS commit i
	commit=$(git -C "$source_dir" describe --always --dirty 2>/dev/null) # before its result is a change
	RANDOM=$seed
	echo "seed of the campaign: RLV_VM_SEED=$seed RLV_VM_EVENTS=$events"
	server_up
	run_one the_store_comes_up come_up
	if [ -n "${RLV_VM_ONLY:-}" ]; then
		for ((i = 1; i <= ${RLV_VM_TIMES:-1} && failed == 0; i++)); do
			# shellcheck disable=SC2086 # three words
			try_event "$i" $RLV_VM_ONLY
		done
		return
	fi
	[ "$failed" -ne 0 ] || run_one a_node_dies_under_four_actors_and_two_learners crowd
	run_events
	[ "$failed" -ne 0 ] ||
		run_one every_invariant_holds_at_the_end relive inspect "$store_uri" --timeout 30s
	[ -z "${RLV_VM_RESULT:-}" ] || write_result $((SECONDS - began)) >"$RLV_VM_RESULT"
}

# --- The result -----------------------------------------------------------------------------------

# Over all programs of the traffic: a sum, or the largest.
total() { # sum|max name
	grep -oP "\"$2\":\K[0-9]+" "$RLV_VM_DIR/clients" | awk -v how="$1" '
		how == "sum" { v += $1 } how == "max" && $1 > v { v = $1 } END { printf "%d", v }'
}

errors_met() {
	grep -oP '"errors":{\K[^}]*' "$RLV_VM_DIR/clients" | tr , '\n' | awk -F: '
		NF == 2 { n[$1] += $2 } END { for (e in n) { printf "%s%s:%d", sep, e, n[e]; sep = "," } }'
}

write_result() { # seconds
	local kind sep=''
	printf '{"date":"%s","commit":"%s","seed":%d,"first":%d,"events":%d,"outcome":"%s","seconds":%d,"passed":{' \
		"$(date -u +%F)" "$commit" "$seed" "$first" "$events" \
		"$([ "$failed" -eq 0 ] && echo passed || echo failed)" "$1"
	for kind in "${kinds[@]}"; do
		printf '%s"%s":%d' "$sep" "$kind" "${passed[$kind]:-0}"
		sep=,
	done
	printf '},"steps":%d,"batches":%d,"wrong":%d,"longest_call_ms":%d,"errors":{%s}}\n' \
		"$(total sum steps)" "$(total sum batches)" \
		"$(total sum wrong)" "$(total max longest_ms)" "$(errors_met)"
}

run_tests
