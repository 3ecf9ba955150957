/* table_save.h - relive table save, relive table load. */
#ifndef RLV_CLI_TABLE_SAVE_H
#define RLV_CLI_TABLE_SAVE_H

#include "cli/cli.h"

struct cli_save {
	const char *file; /* --file, or NULL: missing */
	const char *base;
	const char *name; /* load: of the new table, or NULL */
	uint32_t compress;
	uint32_t shards;
	bool replace;
	bool progress; /* also without a terminal */
	bool json;
};

/* Print what they did; the exit code of the command. */
int cli_table_save(struct rlv_store *store, const char *name, const struct cli_save *save);
int cli_table_load(struct rlv_store *store, const struct cli_save *save);

#endif
