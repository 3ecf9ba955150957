/*
 * region_name.h - names of the files of a pool in a directory (wire/pool_layout.h).
 */
#ifndef RLV_TRANSPORT_POOL_REGION_NAME_H
#define RLV_TRANSPORT_POOL_REGION_NAME_H

#include <stdbool.h>

#include "transport/transport.h"

#define REGION_NAME_BYTES 80
#define REGION_NAME_TMP ".tmp" /* suffix while a region is being made */

/* In place of a page: the file of the region itself. */
#define REGION_WHOLE UINT32_MAX

/* Formats the name of the file of a region, or of one page of it, from id, kind, object, part and role. */
void region_name_format(const struct target_region *info, uint32_t page,
			char name[REGION_NAME_BYTES]);

/*
 * Parses a name that region_name_format makes. False: it is not one, and the outputs are untouched.
 */
bool region_name_parse(const char *name, struct target_region *info_out, uint32_t *page_out);

/*
 * True if the name is one of region_name_format with REGION_NAME_TMP behind it: that of a file that
 * was being made.
 */
bool region_name_is_tmp(const char *name);

#endif
