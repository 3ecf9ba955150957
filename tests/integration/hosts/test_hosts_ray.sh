#!/usr/bin/env bash
# examples/ray_apex.py on a cluster of Ray over two hosts: actors on both, steps and batches by Relive.
#   PYTHON   an interpreter with ray, torch and gymnasium (default: that of `make check-learn`, if it is there)
set -uo pipefail

hosts=${RLV_SOURCE_DIR:?}/tests/support/hosts
build=$(readlink -f "${RLV_BIN_DIR:?}/..")
python=${PYTHON:-$build/learn/bin/python}
export PYTHONPATH=$build/python PATH=$RLV_BIN_DIR:$PATH RELIVE_RUNTIME_DIR=/run/relive
"$python" -c 'import gymnasium, ray, torch' 2>/dev/null ||
	{ echo "skipped: no Python with ray, torch and gymnasium: make check-learn makes one" && exit 77; }
[ -n "${RLV_HOSTS:-}" ] || exec "$hosts/hosts" 2 "$0"

uri=relive://@$RLV_HOSTS/store.uri
export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(printf '%064d' 7)
export RAY_AUTH_TOKEN

# shellcheck disable=SC2046 # one word for each
trap 'kill $(jobs -p) 2>/dev/null' EXIT

fail() {
	echo "$*"
	tail -n 40 "$RLV_HOSTS"/*.log
	exit 1
}

node_of_ray() { # host words...
	local host=$1
	shift
	hosts on "$host" "$python" -m ray.scripts.scripts start --node-ip-address="10.78.0.$host" --block \
		--object-store-memory=80000000 --disable-usage-stats "$@" >"$RLV_HOSTS/ray$host.log" 2>&1 &
}

hosts on 1 relive-metad --store s --announce "$RLV_HOSTS/store.uri" >"$RLV_HOSTS/metad.log" 2>&1 &
for host in 1 2; do
	hosts on $host relive-memnode --store s --name n$host --metad "$uri" --size 64M \
		>"$RLV_HOSTS/n$host.log" 2>&1 &
done
# Room for one actor on the first host: the others are on the second one.
node_of_ray 1 --head --port=6379 --num-cpus=1 --temp-dir=/run/ray --include-dashboard=false
for ((i = 0; i < 300; i++)); do
	hosts on 1 "$python" -c 'import socket; socket.create_connection(("10.78.0.1", 6379), 1)' 2>/dev/null && break
	sleep 0.2
done
node_of_ray 2 --address=10.78.0.1:6379 --num-cpus=1
for ((i = 0; i < 600; i++)); do
	[ "$(relive status "$uri" --json | grep -o '"state":"up"' | wc -l)" -ne 2 ] || break
	sleep 0.1
done
# Whose clients have been seen.
for ((i = 0; i < 1500; i++)); do
	for host in 1 2; do
		! relive clients "$uri" --json 2>/dev/null | grep -q "\"10.78.0.$host:" || : >"$RLV_HOSTS/seen$host"
	done
	sleep 0.2
done &
hosts on 1 timeout 300 "$python" "$RLV_SOURCE_DIR/examples/ray_apex.py" --ray 10.78.0.1:6379 --store "$uri" \
	--actors 2 --rounds 20 --round 5 >"$RLV_HOSTS/apex.log" 2>&1 || fail "the example has failed"
grep -q "100 updates" "$RLV_HOSTS/apex.log" || fail "too few updates"
{ [ -e "$RLV_HOSTS/seen1" ] && [ -e "$RLV_HOSTS/seen2" ]; } || fail "clients of one host only"
relive inspect "$uri" || fail "the store is not well"
