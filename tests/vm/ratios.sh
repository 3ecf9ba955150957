#!/usr/bin/env bash
# What Relive makes of the wire, as ratios against perftest over the same wire in the same run: one guest
# is its own peer, and its regions are not mapped. Soft-RoCE's own speed says nothing about RDMA hardware;
# the ratios say what our side costs. Medians of alternations, written to /vm/ratios.json.
#   RLV_VM_ROUNDS  alternations (7)
# Not a stage yet: it has not been run to its end.
# needs: guests=1 cpus=2 memory=2048 limit=600
# shellcheck source=tests/vm/lib.sh disable=SC2317
. "$(dirname "$0")/lib.sh"

rounds=${RLV_VM_ROUNDS:-7}

cases_ratios() {
	start_metad 1
	run_one node__is_up_and_not_mapped come_up
	run_one ratios__are_measured measure
}

come_up() {
	start_memnode 1 --size 512M
	on 1 "rm -f $RELIVE_RUNTIME_DIR/s/memnode-n1.sock"
	wire atari
	wire small
	wire one
}

# One measurement of ours: MB/s of Atari windows, READs a second of small items, us of one item; a line
# of JSON to /vm/NAME.
wire() { # case
	local only
	case $1 in
	atari) only=atari_read_mbps ;;
	small) only=small_reads_per_s ;;
	one) only=sample_one_us ;;
	esac
	on -t 120 1 "RELIVE_RUNTIME_DIR=/run/relive $bin/micro_wire --store $store_uri --json --windows 5 \
		--only $only >/vm/$1"
}

ours() { # case field
	sed -n 's/.*"'"$2"'":\([0-9.e+]*\).*/\1/p' "$RLV_VM_DIR/share/$1" | head -n 1
}

# One measurement of perftest's: the figure in a column of its last line.
perftest() { # column program option...
	local column=$1
	shift
	on -t 60 1 "$* -d rxe0 >/vm/perf.server 2>&1 & sleep 0.5; $* -d rxe0 10.77.0.1 >/vm/perf 2>&1; wait"
	grep -E '^ *[0-9]+ +[0-9]+' "$RLV_VM_DIR/share/perf" | tail -n 1 | awk -v c="$column" '{ print $c }'
}

# Appends the quotient of two figures to a list.
note() { # list over under
	awk -v a="$2" -v b="$3" 'BEGIN { printf "%.4f\n", a / b }' >>"$RLV_VM_DIR/share/$1.ratios"
}

median() { # list
	sort -n "$RLV_VM_DIR/share/$1.ratios" | awk '{ v[NR] = $1 } END {
		printf "%.3f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

spread() { # list
	sort -n "$RLV_VM_DIR/share/$1.ratios" | sed -n '1p;$p' | xargs | tr ' ' '-'
}

# Windows of five frames; 16 outstanding, as perftest's default for READs; 64 bytes for small items.
one_round() {
	local trips
	wire atari
	note atari "$(ours atari median)" "$(perftest 4 ib_read_bw -s 35280 -n 600 --report_gbits |
		awk '{ print $1 * 125 }')"
	wire small
	note small "$(ours small median)" "$(perftest 5 ib_read_bw -s 64 -n 5000 |
		awk '{ print $1 * 1e6 }')"
	wire one
	trips=$(ours one round_trips)
	note one "$(ours one median)" "$(perftest 5 ib_read_lat -s 64 -n 1000 |
		awk -v t="$trips" '{ print $1 * t }')"
}

measure() {
	local i
	for ((i = 1; i <= rounds; i++)); do
		one_round
		echo "round $i of $rounds: $(for k in atari small one; do
			echo -n "$k $(tail -n 1 "$RLV_VM_DIR/share/$k.ratios") "
		done)"
	done
	for i in atari small one; do
		echo "{\"ratio\":\"$i\",\"median\":$(median "$i"),\"spread\":\"$(spread "$i")\",\"rounds\":$rounds}"
	done | tee "$RLV_VM_DIR/share/ratios.json"
}

run_tests
