/*
 * Byte order and assertion helpers of the wire layer.
 *
 * Every layout of this folder is little-endian and made of fixed-width integers, so that on a
 * little-endian host a struct is its own encoding. Big-endian hosts are refused at compile time: no
 * known RDMA host is big-endian, and byte swaps on words under remote atomics cannot work.
 */
#ifndef RLV_WIRE_LE_H
#define RLV_WIRE_LE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "relive's layouts are little-endian; this host is not"
#endif

#define WIRE_LINE 64 /* bytes of a cache line: contended words are kept one line apart */

/*
 * A word of a region that others may change by CAS or FAA at any time. It is a struct so that plain
 * reads, assignments and arithmetic do not compile; only transport_* and transport/barrier.h touch
 * `raw`.
 */
struct rword64 {
	uint64_t raw;
};

/* A remote word alone on its line. */
struct rword64_line {
	struct rword64 word;
	uint64_t reserved[7];
};

static_assert(sizeof(struct rword64) == 8, "a remote word is 8 bytes");
static_assert(sizeof(struct rword64_line) == WIRE_LINE, "a contended word fills a line");

/* Asserts that member m of struct s sits at byte o. */
#define WIRE_AT(s, m, o) static_assert(offsetof(struct s, m) == (o), #s "." #m " moved")
#define WIRE_SIZE(s, n) static_assert(sizeof(struct s) == (n), #s " changed its size")

#endif
