/*
 * ranges.h - what a backend has at which addresses: its reservations, or its mappings.
 */
#ifndef RLV_DEVICE_RANGES_H
#define RLV_DEVICE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range {
	uint64_t va, bytes;
	uint64_t handle; /* mappings only */
};

/* Zeroed: none. No two of them overlap. */
struct ranges {
	struct range *items;
	size_t n, room;
};

/* The range that begins at va, or NULL; valid until the next ranges_add or ranges_remove. */
struct range *ranges_find(struct ranges *ranges, uint64_t va);
/* True if any range has a byte of [va, va + bytes). */
bool ranges_touch(const struct ranges *ranges, uint64_t va, uint64_t bytes);
/* True if one range has all bytes of [va, va + bytes). */
bool ranges_hold(const struct ranges *ranges, uint64_t va, uint64_t bytes);
/* True if [va, va + bytes) consists of whole ranges. */
bool ranges_tile(struct ranges *ranges, uint64_t va, uint64_t bytes);
/* Room for one more, so that ranges_add cannot fail. false: no memory. */
bool ranges_room(struct ranges *ranges);
void ranges_add(struct ranges *ranges, struct range range);
void ranges_remove(struct ranges *ranges, struct range *range);

#endif
