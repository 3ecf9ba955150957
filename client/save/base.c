/* The chunks of rows of an earlier file, by block. */
#include "client/save/save.h"

#include "base/log.h"
#include "base/mem/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct known {
	struct save_chunk head;
	uint64_t off;
};

struct save_base {
	struct save_input *in;
	struct known *chunks; /* sorted */
	size_t n, room;
};

static int known_order(const void *a, const void *b)
{
	const struct save_chunk *x = &((const struct known *)a)->head;
	const struct save_chunk *y = &((const struct known *)b)->head;

	if (x->seq != y->seq)
		return x->seq < y->seq ? -1 : 1;
	if (x->shard != y->shard)
		return x->shard < y->shard ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

static int base_read(struct save_base *base)
{
	struct known next;
	int ret;

	while ((ret = save_input_next(base->in, &next.head, &next.off)) == 0) {
		if (next.head.kind != SAVE_ROWS)
			continue;
		if (base->n == base->room) {
			size_t room = base->room ? 2 * base->room : 1024;

			if (!mem_grow(&base->chunks, base->room, room, sizeof(next)))
				return error_set(-ENOMEM, "save: cannot allocate memory for base");
			base->room = room;
		}
		base->chunks[base->n++] = next;
	}
	if (ret != -ENODATA)
		return ret;
	if (base->n)
		qsort(base->chunks, base->n, sizeof(*base->chunks), known_order);
	return 0;
}

int save_base_open(const char *path, const uint8_t uuid[16], struct save_base **base_out)
{
	struct save_base *base = mem_zalloc(sizeof(*base));
	int ret = base ? save_input_open(path, &base->in)
		       : error_set(-ENOMEM, "save: cannot allocate memory for base");

	*base_out = NULL;
	if (ret == 0 && memcmp(save_input_table(base->in)->head.uuid, uuid, 16) == 0) {
		ret = base_read(base);
		if (ret == 0)
			*base_out = base;
	}
	if (base && !*base_out)
		save_base_close(&base);
	return ret ? error_prefix(ret, "opts.base: ") : 0;
}

void save_base_find(struct save_base *base, struct save_chunk *head_inout, const void **stored_out)
{
	const struct known want = { .head = *head_inout };
	const struct known *found =
		base->n ? bsearch(&want, base->chunks, base->n, sizeof(want), known_order) : NULL;

	*stored_out = NULL;
	if (!found || found->head.rows != want.head.rows)
		return;
	if (save_input_stored(base->in, &found->head, found->off, stored_out)) {
		log_warn("save: rows of base are read from the table instead: %s", error_last());
		return;
	}
	*head_inout = found->head;
}

void save_base_close(struct save_base **base)
{
	if (!*base)
		return;
	save_input_close(&(*base)->in);
	mem_free((*base)->chunks);
	mem_free(*base);
	*base = NULL;
}
