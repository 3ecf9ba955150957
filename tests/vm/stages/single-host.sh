#!/usr/bin/env bash
# What is built here runs on another kernel and on a processor without the newest instructions: unit
# and contract tests, and kill -9 of real processes, in one guest.
# needs: guests=1 cpus=2 memory=9216 limit=1800
# shellcheck source=tests/vm/lib.sh disable=SC2317
. "$(dirname "$0")/../lib.sh"

test_build__is_for_any_x86_64() {
	local flags=$bin/../compile_commands.json
	[ ! -e "$flags" ] || ! grep -q -e '-march=' "$flags" || fail "-march= in $flags"
	on 1 "'$bin/relive' --version"
}

shopt -s extglob

# Lock ranks are compiled out of the release build; copies are lost at each of thousands of calls, for which
# an emulated processor is too slow.
cases_unit() {
	programs 1 300 "$bin"/unit_test_!(lock|copies)
}

# Tests that need a device are in another stage.
cases_contract() {
	programs 1 300 "$bin"/contract_test_!(verbs*)
}

cases_kills() {
	export RLV_TEST_KILLS=5
	programs 1 300 "$bin"/integration_test_kill_{replay,daemons}
}

run_tests
