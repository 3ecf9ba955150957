/*
 * items.h - a table whose every item is known: queues that hold the numbers 0, 1, 2, ...
 */
#ifndef RLV_TESTS_SUPPORT_ITEMS_H
#define RLV_TESTS_SUPPORT_ITEMS_H

#include <stdint.h>

/* Makes the table in the store at uri and puts n items. Fails the test on any error, as all of these. */
void items_put(const char *uri, const char *table, uint32_t n);

/* Takes all: they are those that were put. */
void items_expect(const char *uri, const char *table, uint32_t n);

#endif
