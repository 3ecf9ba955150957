/*
 * bare.h - a transport without a table: a target in a process of its own with one region, and windows of calls to it
 * as if the two were on two hosts. What is built on the transport cannot be faster.
 */
#ifndef RLV_BENCH_HARNESS_BARE_H
#define RLV_BENCH_HARNESS_BARE_H

#include <sys/types.h>

#include "transport/transport.h"

#include "base/mem/mem.h"

#define BARE_LONG_BYTES (1u << 20)
#define BARE_LONG_READS 16u

struct bare {
	pid_t pid; /* of the target's process; 0: none */
	struct transport *tr;
	struct region *region;
	struct mem memory;
};

enum bare_call {
	BARE_READS, /* n READs side by side */
	BARE_CAS,
	BARE_FAA,
};

/* What a window repeats. */
struct bare_calls {
	enum bare_call what;
	uint32_t n, bytes; /* of READs */
	uint64_t for_ns;   /* 0: 0.2 s; at most 2000 calls */
};

/* What a window has measured. */
struct bare_window {
	double median_us; /* of its calls */
	double mbps;      /* of READs */
};

/* Forks the target's process, before anybody uses a device, and attaches its region. kind: "ofi", "verbs". -1: it
   has said why on stderr. bare_close may be called after an error. */
RLV_MUST_CHECK int bare_open(struct bare *bare, const char *kind);
void bare_close(struct bare *bare);

/* -1 as above. */
RLV_MUST_CHECK int bare_measure(const struct bare *bare, const struct bare_calls *calls,
				struct bare_window *window_out);

#endif
