#!/usr/bin/env bash
# A process that opens librelive by dlopen, as Python does, loads neither jemalloc, which cannot be loaded
# then, nor libraries that only daemons or RDMA need. Its batches lie in registered memory all the same.
set -euo pipefail

lib=$RLV_BIN_DIR/../lib/librelive.so
command -v python3 >/dev/null || { echo "skipped: python3 is missing"; exit 77; }
if nm -D "$lib" | grep -E ' __(asan|tsan|msan)_' >/dev/null; then
	echo "skipped: a sanitizer's runtime cannot be opened later"
	exit 77
fi

python3 - "$lib" <<'END'
import ctypes
import sys

lib = ctypes.CDLL(sys.argv[1])
buffer = ctypes.c_void_p()
bytes_ = 100000
lib.rlv_buffer_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
lib.rlv_buffer_find.argtypes = lib.rlv_buffer_free.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
lib.rlv_buffer_free.restype = None
assert lib.rlv_buffer_alloc(64, bytes_, ctypes.byref(buffer)) == 0
ctypes.memset(buffer, 1, bytes_)
assert lib.rlv_buffer_find(buffer, bytes_) == 0
lib.rlv_buffer_free(buffer, bytes_)
store = ctypes.c_void_p()
lib.rlv_store_open.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
lib.rlv_store_close.argtypes = [ctypes.c_void_p]
assert lib.rlv_store_open(b"embed:", None, ctypes.byref(store)) == 0
assert lib.rlv_store_close(ctypes.byref(store)) == 0

with open("/proc/self/maps", encoding="utf-8") as maps:
    mapped = {line.split()[-1].rsplit("/", 1)[-1] for line in maps if "/" in line}
assert any(name.startswith("librelive.so") for name in mapped), mapped
unwanted = [name for name in mapped for no in (
    "libjemalloc", "librelive-", "libibverbs", "librdmacm", "libfabric", "libpmem", "libevent", "libsqlite3")
    if name.startswith(no)]
assert not unwanted, "mapped: %s" % unwanted
END
