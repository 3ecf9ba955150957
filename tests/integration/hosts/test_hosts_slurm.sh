#!/usr/bin/env bash
# The Slurm script, with a stand-in for srun, over two hosts that share files and a network, and no
# memory: an actor on one, a learner on the other, every byte checked.
set -uo pipefail

hosts=${RLV_SOURCE_DIR:?}/tests/support/hosts
[ -n "${RLV_HOSTS:-}" ] || exec "$hosts/hosts" 2 "$0"
PATH=$hosts/slurm:${RLV_BIN_DIR:?}:$PATH
export SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST=host1,host2
export SLURM_SUBMIT_DIR=$RLV_HOSTS TMPDIR=/run RELIVE_SIZE=64M RELIVE_READY=90
failed=0

fail() {
	echo "$*"
	[ $failed -ne 0 ] || cat "$RLV_HOSTS/out"
	failed=1
}

submit() {
	timeout 200 "$RLV_SOURCE_DIR/examples/slurm/store.sbatch" "$@" >"$RLV_HOSTS/out" 2>&1
}

cat >"$RLV_HOSTS/train" <<'END'
set -e
relive status "$1"
vm_traffic create --store "$1" --shards 2
vm_traffic learner --store "$1" --seconds 3
vm_traffic verify --store "$1" --seconds 30
END
daemons_are_gone() {
	[ -z "$(hosts on 1 find /run -name '*.sock')$(hosts on 2 find /run -name '*.sock')" ]
}

# --- a store over the nodes of a job; the actor comes first, and waits for the file and the table ---
# shellcheck disable=SC2016 # what the host expands
hosts on 2 sh -c 'until relive table list "$0" | grep -q traffic; do sleep 0.1; done
	exec vm_traffic actor --store "$0" --seconds 3' "relive://@$RLV_HOSTS/relive-7.uri" \
	>"$RLV_HOSTS/actor" 2>&1 &
submit bash "$RLV_HOSTS/train" {} || fail "the job has failed"
wait $! || fail "the actor: $(cat "$RLV_HOSTS/actor")"
for node in node-0 node-1; do
	grep -qE "^$node +up .* (ofi|verbs): .*$" "$RLV_HOSTS/out" || fail "$node serves no other host"
done
for role in learner verify; do
	grep -q "\"role\":\"$role\".*\"good\":true" "$RLV_HOSTS/out" || fail "the $role"
done
[ ! -e "$RLV_HOSTS/relive-7.uri" ] || fail "the announcement is left"
for ((i = 0; i < 1000; i++)); do
	! daemons_are_gone || break
	sleep 0.05
done
daemons_are_gone || fail "daemons run on"

# --- the status is the command's ---
submit sh -c 'exit 7'
[ $? -eq 7 ] || fail "another status than 7"
submit
[ $? -eq 2 ] || fail "no usage"
exit $failed
