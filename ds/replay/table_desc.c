#include "ds/replay/table_desc.h"

#include "ds/limiter/limiter.h"
#include "ds/replay/shard.h"

#include "base/bits.h"
#include "base/column_name.h"
#include "base/crc32c.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define ROW_MAX_BYTES ((uint64_t)1 << 30)
#define NEXT_PREFIX "next_"
#define NEXT_PREFIX_LEN (sizeof(NEXT_PREFIX) - 1)

/* -------- wishes -------- */

static bool name_is_padded(const char *name)
{
	size_t len = strnlen(name, TABLE_NAME_BYTES);

	for (size_t i = len; i < TABLE_NAME_BYTES; i++)
		if (name[i])
			return false;
	return len > 0 && len < TABLE_NAME_BYTES;
}

int table_name_check(const char *name)
{
	size_t len = name ? strnlen(name, TABLE_NAME_BYTES) : 0;
	bool good =
		len > 0 && len < TABLE_NAME_BYTES && name[0] != '-' && name[0] != '.' &&
		strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") ==
			len;

	return good ? 0
		    : error_set(
			      -EINVAL,
			      "table name \"%.63s\": want letters, digits, _ - . (the last two not "
			      "first), and at most %d",
			      name ? name : "(null)", TABLE_NAME_BYTES - 1);
}

static int column_size_check(const struct column_desc *col)
{
	uint64_t bytes = dtype_bytes(col->dtype);

	if (!bytes)
		return error_set(-EINVAL, "column \"%s\" dtype %u: unknown", col->name, col->dtype);
	if (col->role > ROLE_NEXT)
		return error_set(-EINVAL, "column \"%s\" role %u: unknown", col->name, col->role);
	if (col->ndim > TABLE_MAX_DIMS)
		return error_set(-EINVAL, "column \"%s\" ndim %u: at most %d", col->name, col->ndim,
				 TABLE_MAX_DIMS);
	for (uint32_t d = 0; d < TABLE_MAX_DIMS; d++) {
		if (d >= col->ndim && col->shape[d])
			return error_set(-EINVAL, "column \"%s\" shape[%u]: beyond ndim %u",
					 col->name, d, col->ndim);
		if (d < col->ndim && !col->shape[d])
			return error_set(-EINVAL, "column \"%s\" shape[%u]: 0", col->name, d);
		bytes *= d < col->ndim ? col->shape[d] : 1;
		if (bytes > ROW_MAX_BYTES)
			return error_set(-EINVAL,
					 "column \"%s\" shape: a step has more than %" PRIu64
					 " bytes",
					 col->name, ROW_MAX_BYTES);
	}
	if (bytes != col->bytes)
		return error_set(-EINVAL, "column \"%s\" bytes %u: shape and dtype make %" PRIu64,
				 col->name, col->bytes, bytes);
	return 0;
}

static int column_check(const struct column_desc *col, uint32_t i)
{
	size_t room = TABLE_NAME_BYTES - 1 - (col->role == ROLE_OBS ? NEXT_PREFIX_LEN : 0);
	int rc;

	if (!name_is_padded(col->name) || !column_name_is_valid(col->name, TABLE_NAME_BYTES))
		return error_set(-EINVAL,
				 "column %u name: must be " COLUMN_NAME_RULE ", 1 to %d bytes", i,
				 TABLE_NAME_BYTES - 1);
	if (strlen(col->name) > room)
		return error_set(-EINVAL, "column \"%s\": next_%s is longer than %d bytes",
				 col->name, col->name, TABLE_NAME_BYTES - 1);
	if (strcmp(col->name, "discount") == 0 || strcmp(col->name, "steps") == 0)
		return error_set(-EINVAL, "column \"%s\": every batch has an array of that name",
				 col->name);
	rc = column_size_check(col);
	if (rc)
		return rc;
	if (col->role == ROLE_REWARD &&
	    (col->ndim || (col->dtype != DTYPE_F32 && col->dtype != DTYPE_F64)))
		return error_set(-EINVAL, "column \"%s\": a reward is a scalar f32 or f64",
				 col->name);
	return 0;
}

/*
 * -EINVAL if columns a and b have one name, or b has the name next_NAME that sampling gives to
 * observation a.
 */
static int columns_differ(const struct column_desc *a, const struct column_desc *b)
{
	if (strcmp(a->name, b->name) == 0)
		return error_set(-EINVAL, "column \"%s\": two columns have that name", a->name);
	if (a->role == ROLE_OBS && strncmp(b->name, NEXT_PREFIX, NEXT_PREFIX_LEN) == 0 &&
	    strcmp(a->name, b->name + NEXT_PREFIX_LEN) == 0)
		return error_set(-EINVAL,
				 "column \"%s\": sampling makes an array of that name from the "
				 "observation \"%s\"",
				 b->name, a->name);
	return 0;
}

/* -EINVAL if an unused field is not 0: a later format can then use it. */
static int reserved_check(const struct table_desc *desc)
{
	bool zero =
		!desc->reserved0 && bits_all_zero(desc->reserved1, sizeof(desc->reserved1)) &&
		bits_all_zero(desc->tree.reserved, sizeof(desc->tree.reserved)) &&
		bits_all_zero(&desc->columns[desc->n_columns],
			      (TABLE_MAX_COLUMNS - desc->n_columns) * sizeof(desc->columns[0])) &&
		bits_all_zero(&desc->views[desc->n_views],
			      (RING_MAX_VIEWS - desc->n_views) * sizeof(desc->views[0]));

	for (uint32_t i = 0; zero && i < desc->n_columns; i++)
		zero = bits_all_zero(desc->columns[i].reserved, sizeof(desc->columns[i].reserved));
	for (uint32_t i = 0; zero && i < desc->n_views; i++)
		zero = !desc->views[i].flags && !desc->views[i].reserved0 &&
		       bits_all_zero(desc->views[i].reserved1, sizeof(desc->views[i].reserved1));
	return zero ? 0 : error_set(-EINVAL, "reserved bytes: must be 0");
}

static int columns_check(const struct table_desc *desc)
{
	int rc;

	if (desc->n_columns < 1 || desc->n_columns > TABLE_MAX_COLUMNS)
		return error_set(-EINVAL, "columns: %u, must be 1 to %d", desc->n_columns,
				 TABLE_MAX_COLUMNS);
	for (uint32_t i = 0; i < desc->n_columns; i++) {
		rc = column_check(&desc->columns[i], i);
		for (uint32_t j = 0; !rc && j < i; j++) {
			rc = columns_differ(&desc->columns[i], &desc->columns[j]);
			if (!rc)
				rc = columns_differ(&desc->columns[j], &desc->columns[i]);
		}
		if (rc)
			return rc;
	}
	return 0;
}

static int view_check(const struct table_desc *desc, uint32_t i)
{
	const struct view_desc *view = &desc->views[i];
	int rc;

	if (view->selector > SELECT_LIFO)
		return error_set(-EINVAL, "view %u selector %u: unknown", i, view->selector);
	if (!view->stack || !view->n_step || !view->period)
		return error_set(-EINVAL, "view %u: stack, n_step and period: want at least 1", i);
	if (!(view->alpha >= 0) || !isfinite(view->alpha))
		return error_set(-EINVAL, "view %u alpha %g: must be finite and >= 0", i,
				 view->alpha);
	if (!(view->eps >= 0) || !isfinite(view->eps))
		return error_set(-EINVAL, "view %u eps %g: must be finite and >= 0", i, view->eps);
	if (!view->scale || view->scale > LEAF_PRIORITY_MASK)
		return error_set(-EINVAL, "view %u scale %" PRIu64 ": must be 1 to 2^%d - 1", i,
				 view->scale, LEAF_PRIORITY_BITS);
	rc = limit_desc_check(&view->limit, desc->capacity);
	return rc ? error_prefix(rc, "view %u: ", i) : 0;
}

int table_wishes_check(const struct table_desc *desc)
{
	int rc = name_is_padded(desc->name)
			 ? table_name_check(desc->name)
			 : error_set(-EINVAL, "table name: must have 1 to %d bytes, zeros behind",
				     TABLE_NAME_BYTES - 1);

	if (rc)
		return rc;
	if (desc->table_id > TABLE_MAX_ID)
		return error_set(-EINVAL, "table id %u: at most %u", desc->table_id, TABLE_MAX_ID);
	if (!desc->capacity)
		return error_set(-EINVAL, "capacity 0: must be at least 1");
	if (desc->n_shards < 1 || desc->n_shards > TABLE_MAX_SHARDS)
		return error_set(-EINVAL, "shards %u: must be 1 to %u", desc->n_shards,
				 TABLE_MAX_SHARDS);
	if (desc->max_writers < 1 || desc->max_writers > TREE_MAX_LEAVES)
		return error_set(-EINVAL, "max_writers %u: must be 1 to %u", desc->max_writers,
				 TREE_MAX_LEAVES);
	if (desc->max_clients < 1 || desc->max_clients > RING_MAX_CLIENTS)
		return error_set(-EINVAL, "max_clients %u: must be 1 to %d", desc->max_clients,
				 RING_MAX_CLIENTS);
	if (desc->flags & ~(uint32_t)TABLE_ROW_CRC)
		return error_set(-EINVAL, "flags %#x: unknown", desc->flags);
	if (desc->n_views < 1 || desc->n_views > RING_MAX_VIEWS)
		return error_set(-EINVAL, "views: %u, must be 1 to %d", desc->n_views,
				 RING_MAX_VIEWS);
	rc = columns_check(desc);
	for (uint32_t i = 0; !rc && i < desc->n_views; i++)
		rc = view_check(desc, i);
	return rc ? rc : reserved_check(desc);
}

/* -------- layout -------- */

uint32_t table_view_window(const struct table_desc *desc, const struct view_desc *view)
{
	uint32_t next = 0;
	uint64_t future;

	/* A stored next observation needs no later row; one read from later rows does. */
	for (uint32_t i = 0; i < desc->n_columns; i++)
		if (desc->columns[i].role == ROLE_OBS)
			next = 1;
	future = view->n_step - 1u + next;
	if (view->period > 1) /* window_is_last reads one more step */
		future = max_u64(future, next + 1);
	return view->stack + (uint32_t)future;
}

uint64_t table_block_min(const struct table_desc *desc, uint32_t group)
{
	return round_up(2 * (uint64_t)desc->window_max, group);
}

/*
 * Returns *end, the offset of a new array of `bytes`, and moves *end behind it, to the next line.
 */
static uint64_t desc_place(uint64_t *end, uint64_t bytes)
{
	uint64_t off = *end;

	*end = align_up(off + bytes, WIRE_LINE);
	return off;
}

int table_layout_row(struct table_desc *desc)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < desc->n_columns; i++) {
		struct column_desc *col = &desc->columns[i];

		end = align_up(end, dtype_bytes(col->dtype));
		col->offset = (uint32_t)end;
		end += col->bytes;
		if (end > ROW_MAX_BYTES)
			return error_set(-EINVAL, "columns: a row has more than %" PRIu64 " bytes",
					 ROW_MAX_BYTES);
	}
	end = align_up(end, 8);
	desc->tail_off = (uint32_t)end;
	desc->row_bytes = (uint32_t)end + (uint32_t)sizeof(struct row_tail);
	desc->window_max = 0;
	for (uint32_t i = 0; i < desc->n_views; i++) {
		struct view_desc *view = &desc->views[i];

		view->window = table_view_window(desc, view);
		view->future = view->window - view->stack;
		desc->window_max = (uint32_t)max_u64(desc->window_max, view->window);
	}
	if ((uint64_t)desc->window_max * desc->row_bytes > ROW_MAX_BYTES)
		return error_set(-EINVAL,
				 "window of %u rows of %u bytes: an item has more than %" PRIu64
				 " bytes",
				 desc->window_max, desc->row_bytes, ROW_MAX_BYTES);
	return 0;
}

void table_layout_regions(struct table_desc *desc)
{
	uint64_t end = align_up(DESC_OFF + sizeof(*desc), WIRE_LINE);
	uint64_t leaf_bytes = sumtree_leaf_bytes(&desc->tree);

	desc->words_off = desc_place(&end, sizeof(struct shard_words));
	for (uint32_t i = 0; i < desc->n_views; i++) {
		struct view_desc *view = &desc->views[i];

		view->max_prio = sumtree_max_prio(desc->slots);
		view->words_off = desc_place(&end, sizeof(struct view_words));
		view->inner_off[0] = desc_place(&end, desc->tree.inner_bytes);
		view->inner_off[1] = desc_place(&end, desc->tree.inner_bytes);
		view->leaves_off = desc_place(&end, leaf_bytes);
		view->counts_off = view->max_times_sampled > 1 ? desc_place(&end, leaf_bytes) : 0;
	}
	desc->headers_off = desc_place(&end, desc->blocks * sizeof(struct rword64));
	desc->tree_bytes = end;
	desc->rows_bytes = ROWS_OFF + (uint64_t)desc->slots * desc->row_bytes;
	desc->rows_bytes = align_up(desc->rows_bytes, WIRE_LINE);
	desc->slots_off = REGION_SUPERBLOCK_BYTES;
	desc->slots_bytes =
		REGION_SUPERBLOCK_BYTES + desc->max_clients * sizeof(struct client_slot);
	desc->pages_bytes = PAGES_OFF + (uint64_t)desc->max_clients * CLIENT_PAGE_BYTES;
}

/* -------- a received descriptor -------- */

static uint32_t desc_crc(const struct table_desc *desc)
{
	uint32_t crc = crc32c(0, desc, offsetof(struct table_desc, crc));

	return crc32c(crc, desc->views, sizeof(*desc) - offsetof(struct table_desc, views));
}

void table_desc_seal(struct table_desc *desc, uint32_t shard)
{
	desc->shard = shard;
	desc->crc = desc_crc(desc);
}

size_t table_desc_used_bytes(const struct table_desc *desc)
{
	return offsetof(struct table_desc, columns) + desc->n_columns * sizeof(desc->columns[0]);
}

bool table_desc_unpack(const void *bytes, size_t len, struct table_desc *out)
{
	if (len < offsetof(struct table_desc, columns) || len > sizeof(*out))
		return false;
	memcpy(out, bytes, len);
	memset((uint8_t *)out + len, 0, sizeof(*out) - len);
	return true;
}

bool table_desc_is(const struct table_desc *a, const struct table_desc *b)
{
	const void *x = a, *y = b;

	return memcmp(x, y, sizeof(*a)) == 0;
}

bool table_desc_same(const struct table_desc *a, const struct table_desc *b)
{
	struct table_desc x = *a, y = *b;

	x.table_id = y.table_id = 0;
	memset(x.uuid, 0, sizeof(x.uuid));
	memset(y.uuid, 0, sizeof(y.uuid));
	table_desc_seal(&x, 0);
	table_desc_seal(&y, 0);
	return table_desc_is(&x, &y);
}

int table_desc_check(const struct table_desc *desc)
{
	uint32_t group = desc->tree.fanout[0];
	struct table_desc again = *desc;
	int rc;

	if (desc->magic != TABLE_DESC_MAGIC || desc->bytes != sizeof(*desc))
		return error_set(-EPROTO, "table descriptor: unknown format");
	if (desc->crc != desc_crc(desc))
		return error_set(-EBADMSG, "table descriptor: wrong crc, its bytes were changed");
	rc = table_wishes_check(desc);
	if (!rc)
		rc = sumtree_geometry_check(&desc->tree);
	if (!rc && desc->tree.leaves != desc->slots)
		rc = error_set(-EPROTO, "tree of %u leaves: the shard has %u slots",
			       desc->tree.leaves, desc->slots);
	if (!rc && (!desc->block || desc->block % group || desc->blocks < 2 ||
		    (uint64_t)desc->block * desc->blocks != desc->slots))
		rc = error_set(-EPROTO, "%u blocks of %u rows: do not make %u slots", desc->blocks,
			       desc->block, desc->slots);
	if (!rc)
		rc = table_layout_row(&again);
	if (rc)
		return error_prefix(-EPROTO, "table descriptor: ");
	table_layout_regions(&again);
	/* Every offset must follow from the other fields. */
	if (desc->shard >= TABLE_MAX_SHARDS || !table_desc_is(&again, desc))
		return error_set(-EPROTO, "table descriptor: its offsets contradict its sizes");
	if (desc->block < table_block_min(desc, desc->tree.fanout[0]))
		return error_set(
			-EPROTO,
			"table descriptor: a block of %u rows is shorter than two windows of %u",
			desc->block, desc->window_max);
	return 0;
}
