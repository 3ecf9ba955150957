/*
 * Signature: the user's columns and views to and from a table descriptor.
 */
#ifndef RLV_CLIENT_TABLE_SIGNATURE_H
#define RLV_CLIENT_TABLE_SIGNATURE_H

#include "relive/relive.h"

#include "wire/table_layout.h"

#include "base/error.h"

/*
 * Checks every field of opts and fills the part of desc that table_plan() takes as input. file: the
 * store keeps its rows in a file. -EINVAL; the message names the argument.
 */
RLV_MUST_CHECK int signature_encode(const char *name, const struct rlv_table_opts *opts, bool file,
				    struct table_desc *desc);

/* Fills columns and views of *info from a descriptor. Column names point into desc. */
void signature_decode(const struct table_desc *desc, struct rlv_table_info *info);

#endif
