/*
 * held_items.h - items of crash_rows.h in a store with daemons: put there once, then counted and
 * checked byte for byte after whatever was done to the daemons.
 */
#ifndef RLV_TESTS_SUPPORT_HELD_ITEMS_H
#define RLV_TESTS_SUPPORT_HELD_ITEMS_H

#include <stdint.h>

/* Makes table "t" in the store and appends steps; how many items there are then. */
int64_t held_items_put(const char *uri);

/* Fails the test, naming `when`, unless all of them are there, sound, and drawn as they were put. */
void held_items_check(const char *uri, int64_t items, const char *when);

#endif
