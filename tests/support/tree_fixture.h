/*
 * tree_fixture.h - a sum tree in the test's memory, and handles on it: one for each thread.
 *
 *   shard words | client slots | inner array 0 | inner array 1 | leaves
 */
#ifndef RLV_TESTS_SUPPORT_TREE_FIXTURE_H
#define RLV_TESTS_SUPPORT_TREE_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/sumtree.h"

#include "tests/support/memory_transport.h"

#define TREE_FIXTURE_SLOTS 8u

struct tree_fixture {
	struct tree_geometry geo;
	struct tree_place place;
	uint8_t *bytes;
	uint64_t size;
};

struct tree_handle {
	struct memory_transport mt;
	struct sumtree tree;
	struct epoch ep;
	struct tree_deltas *deltas;
};

/* fanout as of sumtree_geometry_init. All priorities 0, all leaves never used. */
void tree_fixture_open(struct tree_fixture *fx, uint32_t leaves, const uint16_t *fanout);
void tree_fixture_close(struct tree_fixture *fx);

/* slot: 0 .. TREE_FIXTURE_SLOTS - 1, another for each handle. opts NULL = no deferral. */
void tree_handle_open(struct tree_handle *h, const struct tree_fixture *fx, uint32_t slot,
		      bool in_place, const struct tree_deltas_opts *opts);
void tree_handle_close(struct tree_handle *h);

/* A raw word of the tree. level 0 = leaves. */
uint64_t tree_fixture_word(const struct tree_fixture *fx, uint32_t level, uint32_t i);
void tree_fixture_set_word(struct tree_fixture *fx, uint32_t level, uint32_t i, uint64_t word);

/* Claims and publishes [first, first + n) under gen, each with priorities[i]; flushes. */
void tree_handle_fill(struct tree_handle *h, const struct leaf_run *run,
		      const uint64_t *priorities);

/* Fails the test unless the tree is exact. Nobody is writing. */
void tree_handle_assert_exact(struct tree_handle *h);

#endif
