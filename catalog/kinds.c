/*
 * kinds.c - the object kinds of this server, a line each.
 */
#include "catalog/kind_table.h"

void object_kinds_register(void)
{
	object_kind_register(&kind_table);
}
