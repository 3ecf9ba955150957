/*
 * table_print.h - prints a table as text, as a line of a list, and as JSON.
 */
#ifndef RLV_CLI_TABLE_PRINT_H
#define RLV_CLI_TABLE_PRINT_H

#include <stdio.h>

#include "relive/relive.h"

#include "base/error.h"
#include "base/json.h"
#include "program/text_table.h"

void table_print_heading(struct text_table *list);
void table_print_row(const struct rlv_table_info *info, struct text_table *list);

/* -EIO, -ENOMEM. */
int table_print_text(const struct rlv_table_info *info, FILE *file) RLV_MUST_CHECK;
/* One JSON object. */
void table_put_json(const struct rlv_table_info *info, struct json *json);

/* Name of a sampler: "prioritized", .. Static. */
const char *table_selector_name(uint32_t selector);

#endif
