/*
 * region_name.h - names of the files of a pool in a directory (wire/pool_layout.h).
 */
#ifndef RLV_TRANSPORT_POOL_REGION_NAME_H
#define RLV_TRANSPORT_POOL_REGION_NAME_H

#include <stdbool.h>

#include "transport/transport.h"

#define REGION_NAME_BYTES 80
#define REGION_NAME_TMP ".tmp" /* suffix while a region is being made */

/* Formats the name of a region's file from its id, kind, object, part and role. */
void region_name_format(const struct target_region *info, char name[REGION_NAME_BYTES]);

/* Parses such a name. False: not one, and *info_out is untouched. */
bool region_name_parse(const char *name, struct target_region *info_out);

/* Formats the name of the file of one page of a region. */
void region_name_format_page(const struct target_region *info, uint32_t page,
			     char name[REGION_NAME_BYTES]);

/* Parses such a name. False: not one, and the outputs are untouched. */
bool region_name_parse_page(const char *name, struct target_region *info_out, uint32_t *page_out);

/* True for the temporary name of a region, or of a page, that was being made. */
bool region_name_is_tmp(const char *name);

#endif
