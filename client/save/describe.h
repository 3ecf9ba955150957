/*
 * describe.h - a table's descriptor to the header of a saved table, and that to the options of a new one.
 */
#ifndef RLV_CLIENT_SAVE_DESCRIBE_H
#define RLV_CLIENT_SAVE_DESCRIBE_H

#include "client/save/format.h"

#include "relive/save.h"

/* Fills *table. -ENOMEM; errors of save_table_check. */
RLV_MUST_CHECK int save_describe(const struct table_desc *desc, struct save_table *table);

/* Sets name, views and items of *info. */
void save_tell(const struct save_table *table, const struct save_count *counts,
	       struct rlv_save_info *info);

/* Options of a table, with what they point to. Names point into the saved table. */
struct save_wishes {
	struct rlv_table_opts opts;
	struct rlv_column columns[RLV_MAX_COLUMNS];
	struct rlv_view views[RLV_MAX_VIEWS];
};

/* Fills *wishes, which must not move afterwards. */
void save_wish(const struct save_table *table, struct save_wishes *wishes);

#endif
