/* items.h - a queue whose items are the numbers 0, 1, 2, ..., so that each can be checked. */
#ifndef RLV_TESTS_SUPPORT_ITEMS_H
#define RLV_TESTS_SUPPORT_ITEMS_H

#include <stdint.h>

/*
 * Makes the table in the store at uri and appends n items. Like all of these it fails the test on
 * any error.
 */
void items_put(const char *uri, const char *table, uint32_t n);

/* Samples all items and checks that they are the appended ones. */
void items_expect(const char *uri, const char *table, uint32_t n);

#endif
