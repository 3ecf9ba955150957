#!/bin/bash
# The probe of a GPU over the fake driver, with its child processes: memory that two processes share, their
# deaths, marks and events that another process sees, dma-bufs, and hand-over without a call.
set -uo pipefail

if [ ! -x "$RLV_BIN_DIR/gpu_probe" ]; then
	echo "skipped: gpu_probe is built where zlib is there"
	exit 77
fi

out=$(RLV_CUDA_LIBRARY=$RLV_BIN_DIR/../lib/fakecuda/libcuda.so.1 \
	timeout 120 "$RLV_BIN_DIR/gpu_probe" attributes share progress events dmabuf handover)
status=$?
failed=0
must_hold() { # LINE
	grep -qxF "$1" <<<"$out" || { echo "missing: $1"; failed=1; }
}
must_hold "fact device fake device 0"
must_hold "fact share_importer_sees_bytes yes"
must_hold "fact share_owner_sees_bytes yes"
must_hold "fact share_owner_intact_after_kill yes"
must_hold "fact share_importer_intact_after_idle_owner yes"
must_hold "fact share_importer_intact_after_busy_owner yes"
must_hold "fact events_query_before_end not ready"
must_hold "fact handover_wrong_bytes 0"
must_hold "fact handover_wrong_bytes_in_child 0"
grep -qE '^figure progress_seen_by_other_process [0-9.]+ us p99' <<<"$out" || failed=1
if grep '^failed ' <<<"$out" || [ $failed -ne 0 ] || [ $status -ne 0 ]; then
	echo "exit $status; all of it:"
	echo "$out"
	exit 1
fi
