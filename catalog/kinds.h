/*
 * kinds.h - the kinds of objects that this program knows.
 */
#ifndef RLV_CATALOG_KINDS_H
#define RLV_CATALOG_KINDS_H

#include "catalog/kind.h"

/* Adds a kind to those of kinds.c, before the first catalog is loaded. Thread: setup. */
void object_kind_register(const struct object_kind *kind);

/* NULL: unknown kind. */
const struct object_kind *object_kind_find(uint32_t id);

#endif
