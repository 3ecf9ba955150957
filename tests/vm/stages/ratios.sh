#!/usr/bin/env bash
# What Relive makes of the wire, as ratios to perftest over the same wire in the same run: one guest is
# its own peer, and its regions are not mapped. Soft-RoCE's own speed says nothing about RDMA hardware;
# the ratios say what our side costs, where each instruction costs several. Asserted is that it runs.
#
# Each is measured with one CPU of the guest and with both. With one, the kernel's worker behind a READ has
# run when the READ is done, whoever waits. With two it runs beside who waits for it, and a loop that posts
# the next READ within 3 us meets it before it sleeps: perftest's round trip is then half of that which
# anybody has who computes in between.
# needs: guests=1 cpus=2 memory=2048 limit=1800
#   RLV_VM_ROUNDS  alternations of ours and perftest's (1)
#   RLV_VM_RESULT  file for the result, a line of JSON for each ratio
# shellcheck source=tests/vm/lib.sh disable=SC2317
. "$(dirname "$0")/../lib.sh"

rounds=${RLV_VM_ROUNDS:-1}
[ "$rounds" -le 2 ] || need[limit]=$((need[limit] * rounds / 2))
cases=(atari small one ahead)

cases_ratios() {
	start_metad 1 --node-lease 60 # as long as nothing is killed
	run_one node__is_up_and_not_mapped come_up
	run_one ratios__are_measured measure
	[ -z "${RLV_VM_RESULT:-}" ] || cp "$RLV_VM_DIR/share/ratios.json" "$RLV_VM_RESULT"
}

come_up() {
	local case
	start_memnode 1 --size 512M
	on 1 "rm -f $RELIVE_RUNTIME_DIR/s/memnode-n1.sock"
	for case in "${cases[@]}"; do
		ours "$case" >/dev/null
	done
}

# --- One measurement ----------------------------------------------------------------------------

# MB/s of Atari windows, READs a second of small items, us of a sample of one item, alone and with others
# drawn ahead. The line of JSON stays in /vm/CASE.
ours() { # case
	local -A only=([atari]=atari_read_mbps [small]=small_reads_per_s [one]=sample_one_us
		[ahead]=sample_one_ahead_us)
	on -t 120 1 "RELIVE_RUNTIME_DIR=/run/relive $bin/micro_wire --store $store_uri --json --windows 5 \
		--only ${only[$1]} >/vm/$1"
	detail "$1" median
}

detail() { # case field
	grep -oP "\"$2\":\K[0-9.e+]+" "$RLV_VM_DIR/share/$1" | head -n 1
}

# The figure in a column of perftest's last line. It is tried again where the two did not come together.
perftest() { # column program option...
	local column=$1 figure
	shift
	for _ in 1 2 3; do
		on -t 150 1 "$* -d rxe0 >/vm/perf.server 2>&1 & server=\$!
			i=0
			while [ \$i -lt 600 ] && ! ss -Hltn 'sport = :18515' | grep -q .; do
				i=\$((i + 1))
				sleep 0.05
			done
			timeout 100 $* -d rxe0 10.77.0.1 >/vm/perf 2>&1 || kill \$server; wait" || :
		figure=$(grep -E '^ *[0-9]+ +[0-9]+' "$RLV_VM_DIR/share/perf" | tail -n 1 | awk -v c="$column" '{ print $c }')
		[ -z "$figure" ] || break
	done
	[ -n "$figure" ] || fail "$*: $(cat "$RLV_VM_DIR"/share/perf{.server,})" >&2
	echo "$figure"
}

scaled() { # factor
	awk -v f="$1" '{ print $1 * f }'
}

# Mean bytes of a READ in a case.
mean_bytes() { # case
	echo $(($(detail "$1" read_bytes) / $(detail "$1" reads)))
}

# The same of the wire: windows of five frames, items of 64 bytes, the typical round trip and the mean,
# of READs of that size.
theirs() { # case
	case $1 in
	atari) perftest 4 ib_read_bw -s 35280 -n 600 --report_gbits | scaled 125 ;;
	small) perftest 5 ib_read_bw -s 64 -n 20000 | scaled 1e6 ;;
	one) perftest 5 ib_read_lat -s "$(mean_bytes one)" -n 5000 | scaled "$(detail one round_trips)" ;;
	ahead) perftest 6 ib_read_lat -s "$(mean_bytes ahead)" -n 5000 | scaled "$(detail ahead round_trips)" ;;
	esac
}

# --- Rounds ---------------------------------------------------------------------------------------

use_cpus() { # how many
	on 1 "echo $(($1 - 1)) >/sys/devices/system/cpu/cpu1/online"
}

# perftest runs before and after Relive, since the load of the host changes within seconds.
one_round() {
	local case cpus before mine after
	for cpus in 1 2; do
		use_cpus "$cpus"
		for case in "${cases[@]}"; do
			before=$(theirs "$case")
			mine=$(ours "$case")
			after=$(theirs "$case")
			awk -v a="$mine" -v b="$before" -v c="$after" \
				'BEGIN { b = (b + c) / 2; printf "%.4f %.6g %.6g\n", a / b, a, b }' |
				tee -a "$RLV_VM_DIR/$case.$cpus" | sed "s/^/$case, $cpus CPUs: /"
		done
	done
}

median() { # case.cpus column
	sort -n -k "$2,$2" "$RLV_VM_DIR/$1" | awk -v c="$2" '{ v[NR] = $c } END {
		printf "%.4g", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

summary() { # case cpus
	local sorted file=$1.$2
	mapfile -t sorted < <(cut -d ' ' -f 1 "$RLV_VM_DIR/$file" | sort -n)
	printf '{"ratio":"%s","cpus":%d,"median":%s,"least":%s,"most":%s,' "$1" "$2" \
		"$(median "$file" 1)" "${sorted[0]}" "${sorted[-1]}"
	printf '"ours":%s,"perftest":%s,"rounds":%d,' "$(median "$file" 2)" "$(median "$file" 3)" "$rounds"
	printf '"round_trips":%s,"reads":%s,"read_bytes":%s,"commit":"%s"}\n' \
		"$(detail "$1" round_trips)" "$(detail "$1" reads)" "$(detail "$1" read_bytes)" \
		"$(git -C "$source_dir" describe --always --dirty 2>/dev/null)"
}

measure() {
	local i case cpus
	for ((i = 1; i <= rounds; i++)); do
		one_round
	done
	for case in "${cases[@]}"; do
		for cpus in 1 2; do
			summary "$case" "$cpus"
		done
	done | tee "$RLV_VM_DIR/share/ratios.json"
	assert_eq "ratios" "$(wc -l <"$RLV_VM_DIR/share/ratios.json")" $((2 * ${#cases[@]}))
	assert_status 1 grep -E '"(median|ours|perftest)":(0|nan|inf|-nan)?,' "$RLV_VM_DIR/share/ratios.json"
}

run_tests
