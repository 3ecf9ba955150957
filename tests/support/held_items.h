/*
 * held_items.h - items of crash_rows.h in a store with daemons: appended once, then counted and
 * checked byte for byte after faults.
 */
#ifndef RLV_TESTS_SUPPORT_HELD_ITEMS_H
#define RLV_TESTS_SUPPORT_HELD_ITEMS_H

#include <stdint.h>

/* Makes table "t" in the store, appends steps, and returns the number of items. */
int64_t held_items_put(const char *uri);

/*
 * Fails the test, naming `when`, unless all items are present, intact, and drawn with their
 * priorities.
 */
void held_items_check(const char *uri, int64_t items, const char *when);

#endif
