/*
 * Remote pointer: one u64 that names a byte of a region, valid in every process and after restart.
 *
 *   bits  0..3   flags       meaning belongs to the structure that stores the pointer
 *   bits  4..19  gen         generation of the object pointed at; 0 = any
 *   bits 20..51  offset/64   64 B units: 256 GiB per region
 *   bits 52..63  region      1..4095; 0 = the null pointer
 *
 * No virtual address and no rkey is ever stored: a client translates the region number with the
 * table it got from the metadata server, so that re-registration is an update of that table.
 */
#ifndef RLV_WIRE_RPTR_H
#define RLV_WIRE_RPTR_H

#include <stdbool.h>

#include "wire/le.h"

#define RPTR_MAX_REGION 4095u
#define RPTR_UNIT 64u
#define RPTR_MAX_OFFSET (((uint64_t)1 << 32) * RPTR_UNIT)

struct rptr {
	uint64_t raw;
};

WIRE_SIZE(rptr, 8);

/* The caller has checked region <= RPTR_MAX_REGION, offset < RPTR_MAX_OFFSET and 64 B alignment. */
static inline struct rptr rptr_make(uint32_t region, uint64_t offset, uint16_t gen, uint8_t flags)
{
	return (struct rptr){ (uint64_t)region << 52 | (offset / RPTR_UNIT) << 20 |
			      (uint64_t)gen << 4 | (flags & 15u) };
}

static inline uint32_t rptr_region(struct rptr p)
{
	return (uint32_t)(p.raw >> 52);
}

static inline uint64_t rptr_offset(struct rptr p)
{
	return ((p.raw >> 20) & 0xffffffffu) * RPTR_UNIT;
}

static inline uint16_t rptr_gen(struct rptr p)
{
	return (uint16_t)(p.raw >> 4);
}

static inline uint8_t rptr_flags(struct rptr p)
{
	return (uint8_t)(p.raw & 15u);
}

static inline bool rptr_is_null(struct rptr p)
{
	return rptr_region(p) == 0;
}

#endif
