#!/bin/bash
# The bench of landings over the fake driver: plain launches and captured ones, in alternating windows of one run.
set -uo pipefail

if [ ! -x "$RLV_BIN_DIR/micro_landing" ]; then
	echo "skipped: micro_landing is built where zlib is there"
	exit 77
fi

export RLV_CUDA_LIBRARY=$RLV_BIN_DIR/../lib/fakecuda/libcuda.so.1 PATH=$RLV_BIN_DIR:$PATH
bench=(timeout 100 micro_landing --graphs --json --windows 5 --window-ms 1)
out=$("${bench[@]}" --only "rows=cameras memory=cuda, gather")
status=$?
failed=0
for memory in "cuda, gather" "cuda, gather by graphs"; do
	line=$(grep -F "\"params\":{\"rows\":\"cameras\",\"memory\":\"$memory\"}" <<<"$out")
	grep -qE '"value":[1-9].*"best":[1-9].*"median":[0-9.]*[1-9]' <<<"$line" || failed=1
done
# A driver without graphs is named: nothing is measured in their place.
text=$(RLV_FAKECUDA="hide=cuGraphLaunch" "${bench[@]}" 2>&1) && failed=1
grep -q 'micro_landing: open a landing on cuda:0: .*cuGraphLaunch' <<<"$text" || failed=1
if [ $failed -ne 0 ] || [ $status -ne 0 ] || [ "$(wc -l <<<"$out")" -ne 2 ]; then
	echo "exit $status; all of it:"
	echo "$out"
	echo "$text"
	exit 1
fi
