/*
 * toy_kind.h - the least that is a kind of objects, after the recipe of docs/architecture.md: each
 * part has a counter. Its clients open a count, add it to the counter, and close it.
 *
 *   tree region, from TOY_OFF on: struct part_words, the counter, then the open count of each owner
 */
#ifndef RLV_TESTS_SUPPORT_TOY_KIND_TOY_KIND_H
#define RLV_TESTS_SUPPORT_TOY_KIND_TOY_KIND_H

#include "catalog/catalog.h"

enum { OBJECT_TOY = 200, TOY_CLIENTS = 8 };

extern const struct object_kind kind_toy;

/* Creates the toy of that name with n parts, or returns it. Errors: catalog_create. */
RLV_MUST_CHECK int toy_create(struct catalog *cat, const char *name, uint32_t n_parts,
			      struct catalog_object **toy_out);

/* Part s of the object with that descriptor: object_kind.open, and struct part_kind.open. */
RLV_MUST_CHECK int toy_part_open(const void *desc, uint32_t s, const struct part_regions *regions,
				 struct part **part_out);
void toy_part_close(struct part *part);

/* A client's call in two halves: a kill between them leaves the count open. */
RLV_MUST_CHECK int toy_begin(struct part *part, uint32_t owner, uint64_t n);
RLV_MUST_CHECK int toy_end(struct part *part, uint32_t owner);

RLV_MUST_CHECK int toy_count(struct part *part, uint64_t *n_out);

#endif
