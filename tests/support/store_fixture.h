/*
 * store_fixture.h - what tests of a store with real daemons share.
 */
#ifndef RLV_TESTS_SUPPORT_STORE_FIXTURE_H
#define RLV_TESTS_SUPPORT_STORE_FIXTURE_H

#include <stdbool.h>

#include "relive/relive.h"

/* The only node of the struct rlv_store is there and up; for processes_until. */
bool store_fixture_node_is_up(void *store);

/* Waits for that; fails the test if it does not come. */
void store_fixture_await_node(struct rlv_store *store);

/* A table "t" of crash_columns and crash_views for 2 writers and 8 clients. block 0 = the default. */
struct rlv_table *store_fixture_crash_table(struct rlv_store *store, uint64_t capacity,
					    uint32_t block);

#endif
