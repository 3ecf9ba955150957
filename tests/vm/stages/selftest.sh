#!/usr/bin/env bash
# The guests themselves: what `vm` promises, and Soft-RoCE between two of them.
# needs: guests=2 memory=768 nvdimm=64M limit=720
# shellcheck source=tests/vm/lib.sh disable=SC2317
. "$(dirname "$0")/../lib.sh"

test_exec__command_ends_gives_its_status() {
	assert_status 3 on 1 'exit 3'
	assert_status 0 on 1 true
}

test_exec__words_are_quoted_and_streams_apart() {
	# shellcheck disable=SC2016
	assert_eq stdout "$(on 1 printf '%s|' 'a b' '$HOME' "c'd")" "a b|\$HOME|c'd|"
	assert_eq stderr "$(on 1 'echo out; echo err >&2' 2>&1 >/dev/null)" err
}

test_exec__past_its_limit_gives_124() {
	assert_status 124 on -t 1 1 sleep 30
}

test_exec__ends_when_asked_to() {
	on -t 300 1 sleep 200 &
	local start=$SECONDS
	wait_until 60 pgrep -P $! -f 'vm exec' >/dev/null
	kill "$(pgrep -P $! -f 'vm exec')"
	assert_status 143 wait $!
	assert_le "seconds" $((SECONDS - start)) 100
}

test_share__is_written_by_guests_and_seen_outside() {
	on 1 'echo one >/vm/note'
	assert_eq "what guest 2 reads" "$(on 2 cat /vm/note)" one
	assert_eq "what is outside" "$(<"$RLV_VM_DIR/share/note")" one
}

test_root__is_this_machine_and_stays_clean() {
	on 1 "test -x '$source_dir/tests/vm/vm' && echo scratch >'$RLV_VM_DIR/scratch'"
	[ ! -e "$RLV_VM_DIR/scratch" ] || fail "a guest wrote to this machine's root"
}

test_network__guests_reach_each_other() {
	wait_until 60 on 1 busybox ping -c 2 -W 5 g2
	assert_eq mtu "$(on 2 cat /sys/class/net/eth0/mtu)" 9000
}

test_rxe__rping_and_read_latency_between_guests() {
	daemon 2 rping rping -s -a 10.77.0.2 -C 10
	wait_until 60 on 1 rping -c -a 10.77.0.2 -C 10
	daemon 2 read_lat ib_read_lat -d rxe0 -s 64 -n 200
	wait_port 60 2 18515
	assert_match "ib_read_lat" "$(on 1 ib_read_lat -d rxe0 -s 64 -n 200 g2)" '64 +200 '
}

test_link__down_cuts_and_up_heals() {
	vm link 2 down
	assert_status 1 on 1 busybox ping -c 1 -W 1 g2 >/dev/null
	vm link 2 up
	wait_until 60 on 1 busybox ping -c 1 -W 1 g2
}

test_netem__loses_and_heals() {
	vm netem 2 loss 100%
	assert_status 1 on 1 busybox ping -c 1 -W 1 g2 >/dev/null
	vm netem 2
	wait_until 60 on 1 busybox ping -c 1 -W 1 g2
}

test_pause__stops_a_guest_and_resume_goes_on() {
	vm pause 2
	assert_status 124 on -t 1 2 true
	vm resume 2
	on 2 true
}

test_kill__gives_137_and_start_keeps_nvdimm_bytes() {
	on 2 'echo kept | dd of=/dev/pmem0 conv=fsync status=none'
	(
		sleep 1
		vm kill 2
	) &
	assert_status 137 on 2 sleep 30
	wait
	assert_status 137 on 2 true
	vm start 2
	assert_eq "bytes after the power failure" "$(on 2 head -c 4 /dev/pmem0)" kept
	wait_until 60 on 1 busybox ping -c 1 -W 5 g2
}

booting() {
	compgen -G "$TMPDIR/*/1/pid"
}

test_run__leaves_nothing_also_when_killed() {
	export TMPDIR=$RLV_VM_DIR/tmp
	mkdir "$TMPDIR"
	assert_status 4 vm run -- 'exit 4'
	assert_eq "left by run" "$(ls -A "$TMPDIR")" ""
	vm run -- sleep 100 &
	wait_until 60 booting
	kill -KILL "$(pgrep -P $! -f 'vm run')"
	wait_until 60 rmdir "$TMPDIR"
	assert_status 1 pgrep -f "$TMPDIR"
}

# A stage whose only test never ends, with a guest that is nothing but a log.
hanging_stage() { # limit
	cat >"$RLV_VM_DIR/hanging.sh" <<-END
		# needs: limit=$1
		. "$vm_home/lib.sh"
		vm() {
			mkdir -p "\$RLV_VM_DIR/1"
			echo "last words of a guest" >"\$RLV_VM_DIR/1/serial.log"
		}
		test_hangs() {
			echo "\$BASHPID" >"$RLV_VM_DIR/hanging.pid"
			sleep 100
		}
		run_tests
	END
	RLV_VM_LOGS=$RLV_VM_DIR/logs TMPDIR=$RLV_VM_DIR exec bash "$RLV_VM_DIR/hanging.sh"
}

assert_shown() { # output
	assert_match "what it says" "$1" "RUN +\] test_hangs.*the stage is ended.*last words of a guest"
	assert_eq "kept" "$(<"$RLV_VM_DIR/logs/hanging/1-serial.log")" "last words of a guest"
	# empty if the process has ended, reaped or not
	assert_eq "still runs" "$(cat "/proc/$(<"$RLV_VM_DIR/hanging.pid")/cmdline" 2>/dev/null)" ""
	assert_eq "left behind" "$(compgen -G "$RLV_VM_DIR/relive-vm.*")" ""
	rm -rf "$RLV_VM_DIR"/hanging.* "$RLV_VM_DIR/logs"
}

test_stage__past_its_limit_shows_logs_and_fails() {
	local said rc=0
	said=$(hanging_stage 5) || rc=$?
	assert_eq status "$rc" 124
	assert_shown "$said"
}

test_stage__asked_to_end_shows_logs() {
	hanging_stage 100 >"$RLV_VM_DIR/said" &
	wait_until 60 test -s "$RLV_VM_DIR/hanging.pid"
	kill $!
	assert_status 143 wait $!
	assert_shown "$(<"$RLV_VM_DIR/said")"
}

run_tests
