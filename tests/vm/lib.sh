# shellcheck shell=bash
# What stages are made of. A stage is an executable script in tests/vm/stages/ whose head says what it
# shows and what it needs:
#
#     #!/usr/bin/env bash
#     # One sentence.
#     # needs: guests=2 memory=768 nvdimm=64M cpus=1 kernel=quiet limit=180
#     # shellcheck source=tests/vm/lib.sh disable=SC2317
#     . "$(dirname "$0")/../lib.sh"
#     test_ping__reaches_the_other() { on 1 busybox ping -c 1 g2; }
#     run_tests
#
# run_tests boots the guests, runs every function named test_* in the order of the file, each in a
# subshell under `set -e`, and prints the marks that tools/run-tests counts. A function named cases_*
# prints marks of its own, those of test programs (see programs). What a test leaves in the guests
# (daemons, files) is there for the next one. `limit` is the whole stage's, in seconds: then it ends as
# failed and shows what the guests said, for which the build gives it another minute. A stage that was
# asked for more than usual sets need[limit] itself. Guests end with the stage, whatever ended it.
#
# Here, `vm` is the command beside this file for the stage's guests: vm kill 2, vm netem 2 loss 2%.
set -uo pipefail

vm_home=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source_dir=$(cd "$vm_home/../.." && pwd)
# shellcheck disable=SC2034 # for stages: the binaries, the same path inside and outside
bin=${RLV_BIN_DIR:-$source_dir/build/bin}
stage=$(readlink -f "$0")

declare -A need=([guests]=1 [memory]=1024 [nvdimm]='' [kernel]='' [cpus]=1 [limit]=120)
while IFS='=' read -r name value; do
	need[$name]=$value
done < <(sed -n 's/^# needs: //p' "$stage" | tr ' ' '\n')
unset name value

export RLV_VM_DIR=${RLV_VM_DIR:-}

vm() { "$vm_home/vm" "$@"; }

# --- Verdicts -----------------------------------------------------------------------------------

fail() { # what...
	echo "$*"
	exit 1
}

skip() { # why...
	echo "$*"
	exit 77
}

assert_eq() { # what got want
	[ "$2" = "$3" ] || fail "$1: $2, want $3"
}

assert_le() { # what got most
	[ "$2" -le "$3" ] || fail "$1: $2, want at most $3"
}

assert_match() { # what got regex
	[[ $2 =~ $3 ]] || fail "$1: '$2' does not match '$3'"
}

assert_status() { # want command...: its exit status
	local want=$1 rc=0
	shift
	"$@" || rc=$?
	[ "$rc" = "$want" ] || fail "$*: exit $rc, want $want"
}

# --- In guests ------------------------------------------------------------------------------------

# Limits are generous: a guest on a busy host, or in another guest, may be ten times as slow.
on() { # [-t seconds] guest command...
	local limit=120
	if [ "$1" = -t ]; then
		limit=$2
		shift 2
	fi
	local guest=$1
	shift
	vm exec -t "$limit" "$guest" -- "$@"
}

# Runs test programs, one for each processor at a time and each within a limit, and prints their output
# with its marks. One that fails or is skipped without a mark gets one.
programs() { # guest seconds program...
	local guest=$1 limit=$2 program name rc
	shift 2
	on -t $((limit * $# + 10)) "$guest" "printf '%s\n' $(printf '%q ' "$@") | xargs -P ${need[cpus]} -I{} bash -c '
		cd /tmp && timeout $limit {} >/vm/\$(basename {}).out 2>&1
		echo \$? >/vm/\$(basename {}).status'"
	for program in "$@"; do
		name=$(basename "$program")
		cat "$RLV_VM_DIR/share/$name.out"
		rc=$(cat "$RLV_VM_DIR/share/$name.status")
		if [ "$rc" -ne 0 ] && ! grep -qE '^\[  (FAILED |SKIPPED|ERROR  ) ' "$RLV_VM_DIR/share/$name.out"; then
			printf '[ RUN      ] %s\nexit %s\n' "$name" "$rc"
			printf '[  %s ] %s\n' "$([ "$rc" -eq 77 ] && echo SKIPPED || echo 'FAILED ')" "$name"
		fi
	done
}

# Runs a command in the background of a guest: /vm/NAME.GUEST.log has its output, and what former
# lives said is in NAME.GUEST.past.log. NAME is for stop and running.
daemon() { # guest name command...
	local guest=$1
	shift
	daemons "$guest" "$(printf '%q ' "$@")"
}

# Several at once: each word is a line "NAME COMMAND...", quoted for a shell.
daemons() { # guest line...
	local guest=$1 line name file script=''
	shift
	for line in "$@"; do
		name=${line%% *}
		file=$RLV_VM_DIR/share/$name.$guest
		rm -f "$file.pid"
		cat "$file.log" >>"$file.past.log" 2>/dev/null || :
		script+="setsid -f bash -c 'echo \$\$ >/vm/$name.$guest.pid; exec \"\$@\"' $line"
		script+=" >/vm/$name.$guest.log 2>&1"$'\n'
	done
	on -t 60 "$guest" "$script"
	for line in "$@"; do
		wait_until 60 test -s "$RLV_VM_DIR/share/${line%% *}.$guest.pid"
	done
}

pid_in() { # guest name
	cat "$RLV_VM_DIR/share/$2.$1.pid"
}

running() { # guest name
	on -t 60 "$1" "kill -0 $(pid_in "$1" "$2")" 2>/dev/null
}

# Sends a signal and waits until the process is gone; KILL if not said otherwise.
stop() { # guest name [signal]
	local pid
	pid=$(pid_in "$1" "$2")
	on -t 90 "$1" "kill -${3:-KILL} $pid; while kill -0 $pid 2>/dev/null; do sleep 0.05; done"
}

log_of() { # guest name
	cat "$RLV_VM_DIR/share/$2.$1.log"
}

# --- Waiting: always with a deadline, in seconds --------------------------------------------------

# Prints the command's last output if it did not succeed in time.
wait_until() { # seconds command...
	local end=$((SECONDS + $1)) said
	shift
	until said=$("$@" 2>&1); do
		[ "$SECONDS" -lt "$end" ] || fail "$said" $'\n'"not in time: $*"
		sleep 0.1
	done
}

wait_log() { # seconds guest name regex
	wait_until "$1" grep -qE "$4" "$RLV_VM_DIR/share/$3.$2.log"
}

wait_file() { # seconds guest path
	on -t "$1" "$2" "until [ -e '$3' ]; do sleep 0.05; done"
}

# Until somebody listens on a TCP port of the guest.
wait_port() { # seconds guest port
	on -t "$1" "$2" "until ss -Hltn 'sport = :$3' | grep -q .; do sleep 0.05; done"
}

# --- RDMA and NVDIMMs -----------------------------------------------------------------------------

# How many of a kind the guest's kernel has: pd cq qp cm_id mr ctx srq.
rdma_gauge() { # guest kind
	on -t 60 "$1" "rdma resource show rxe0" | grep -oP "\b$2 \K[0-9]+"
}

# All of them in one line, to compare later.
rdma_gauges() { # guest
	on -t 60 "$1" "rdma resource show rxe0" | sed 's/^[0-9]*: rxe0: //'
}

# The same when it has stood still for two seconds: what a process had ends a moment after it.
rdma_gauges_at_rest() { # guest
	local now before=''
	for _ in {1..30}; do
		now=$(rdma_gauges "$1")
		[ "$now" != "$before" ] || break
		before=$now
		sleep 2
	done
	echo "$now"
}

rdma_gauges_are() { # guest gauges
	assert_eq "of rxe0 of guest $1" "$(rdma_gauges "$1")" "$2"
}

# Makes a guest's first NVDIMM a device for libpmem, /dev/dax0.0, once for all boots.
make_dax() { # guest
	on -t 60 "$1" "ls /dev/dax0.0 2>/dev/null ||
		ndctl create-namespace -f -e namespace0.0 -m devdax -M mem >/dev/null && ls /dev/dax0.0"
}

# --- A store over guests ------------------------------------------------------------------------

# Its metadata server in a guest, on port 7117, at $store_uri from then on. Again after its end: the
# same store goes on.
start_metad() { # guest [option...]
	local guest=$1
	shift
	store_uri=relive://10.77.0.$guest:7117
	export RELIVE_RUNTIME_DIR=/run/relive
	# Two seconds until a silent peer is given up: emulated guests stall for longer than hosts do.
	export RLV_VERBS_ACK_TIMEOUT=16
	unset RELIVE_TOKEN
	on -t 60 "$guest" mkdir -p -m 700 "$RELIVE_RUNTIME_DIR"
	daemon "$guest" metad "$bin/relive-metad" --store s --listen "10.77.0.$guest:7117" "$@"
	wait_port 60 "$guest" 7117
	RELIVE_TOKEN=$(on -t 60 "$guest" cat "$RELIVE_RUNTIME_DIR/s/token")
	export RELIVE_TOKEN
}

# Starts memory node nGUEST, reached by RDMA; returns when the store shows it as up.
start_memnode() { # guest [option...]
	local guest=$1
	shift
	on -t 60 "$guest" mkdir -p -m 700 "$RELIVE_RUNTIME_DIR"
	daemon "$guest" memnode "$bin/relive-memnode" --store s --name "n$guest" \
		--metad "$store_uri" --transport verbs "$@"
	wait_until 90 nodes_are up "n$guest"
}

# True if the nodes are in that state.
nodes_are() { # state name...
	local state=$1 now name
	shift
	now=$(relive status "$store_uri") || return 1
	for name in "$@"; do
		grep -qE "^$name +$state " <<<"$now" || return 1
	done
}

# The relive command, in the guest of the metadata server.
relive() { # word...
	local guest=${store_uri#*10.77.0.}
	on -t 120 "${guest%%:*}" "$bin/relive" "$@"
}

# A program that makes traffic and checks all of it; see tests/vm/traffic.c.
traffic() { # [-t seconds] guest role [option...]
	local limit=120
	if [ "$1" = -t ]; then
		limit=$2
		shift 2
	fi
	local guest=$1 role=$2
	shift 2
	on -t "$limit" "$guest" "$bin/vm_traffic" "$role" --store "$store_uri" "$@"
}

# --- The stage ------------------------------------------------------------------------------------

run_one() { # name command...
	local name=$1 rc
	shift
	printf '[ RUN      ] %s\n' "$name"
	# Not part of a condition, so that `set -e` holds inside.
	(
		set -e
		"$@"
	) 2>&1
	rc=$?
	case $rc in
	0) printf '[       OK ] %s\n' "$name" ;;
	77) printf '[  SKIPPED ] %s\n' "$name" ;;
	*)
		printf '[  FAILED  ] %s\n' "$name"
		failed=1
		;;
	esac
}

# Their ends; all of them are kept beside the binaries, or in RLV_VM_LOGS.
show_logs() {
	local log name kept
	kept=${RLV_VM_LOGS:-$(dirname "$bin")/vm-logs}/$(basename "$stage" .sh)
	rm -rf "$kept"
	mkdir -p "$kept"
	for log in "$RLV_VM_DIR"/*/serial.log "$RLV_VM_DIR"/share/*.log; do
		[ -s "$log" ] || continue
		name=${log#"$RLV_VM_DIR/"}
		cp "$log" "$kept/${name//\//-}"
		echo "-- $name"
		tail -n 15 "$log"
	done
	echo "-- all logs: $kept"
}

# All descendants of a process.
descendants() { # pid
	local child
	for child in $(pgrep -P "$1"); do
		descendants "$child"
		echo "$child"
	done
}

# Signals the stage at its time limit; ends with the stage.
watch_limit() {
	local rc=0
	timeout "${need[limit]}" tail --pid=$$ -f /dev/null || rc=$?
	[ "$rc" -ne 124 ] || kill -ALRM $$
}

# Kills the shell of the tests.
end_early() { # status why...
	local status=$1 pids
	shift
	trap '' ALRM INT TERM
	mapfile -t pids < <(descendants "$tests")
	kill "$tests" "${pids[@]}" 2>/dev/null
	sleep 1
	kill -KILL "$tests" "${pids[@]}" 2>/dev/null
	echo "-- the stage is ended: $*"
	show_logs
	exit "$status"
}

end_stage() {
	vm down
	rm -rf "$RLV_VM_DIR"
}

run_stage() {
	local name names option=() failed=0
	[ -z "${need[nvdimm]}" ] || option=(--nvdimm "${need[nvdimm]}")
	[ -z "${need[kernel]}" ] || option+=(--kernel "${need[kernel]}")
	vm up -n "${need[guests]}" -m "${need[memory]}" -c "${need[cpus]}" --owner $$ \
		${option[@]+"${option[@]}"} || exit 1
	mapfile -t names < <(sed -nE 's/^((test|cases)_[a-z0-9_]*)\(\) .*/\1/p' "$stage")
	for name in "${names[@]}"; do
		case $name in
		cases_*) "$name" ;;
		*) run_one "$name" "$name" ;;
		esac
	done
	[ "$failed" -eq 0 ] || show_logs
	exit "$failed"
}

# A shell runs traps between commands and in `wait`, so the tests run in a shell of their own.
run_tests() {
	local tests
	RLV_VM_DIR=$(mktemp -d "${TMPDIR:-/tmp}/relive-vm.XXXXXX")
	trap end_stage EXIT
	run_stage &
	tests=$!
	trap 'end_early 130 it was interrupted' INT
	trap 'end_early 143 it was asked to' TERM
	trap 'end_early 124 it takes longer than "${need[limit]}" seconds' ALRM
	watch_limit </dev/null >/dev/null 2>&1 &
	disown
	wait "$tests"
	exit
}
