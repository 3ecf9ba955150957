#include "catalog/heap_stripes.h"

#include "catalog/catalog.h"

#include "ds/heap/stripe/settle.h"
#include "ds/part/slot.h"

#include "base/log.h"
#include "base/mem/alloc.h"

#include <errno.h>

#define MOST_STRIPES 1024u  /* of an intent */
#define ACCESSES_AT_ONCE 8u /* an access has 0.5 to 3 MiB */

struct mending {
	struct catalog_object *object;
	const struct heap_desc *desc;
	uint32_t owner;
	struct heap_access *accesses[HEAP_MAX_PARTS]; /* NULL = not opened yet */
	uint32_t opened;
};

/* The part of the catalog that has part p of the heap. NULL: it cannot be used now. */
static struct heap *mend_part(const struct catalog_object *object, uint32_t n_parts, uint32_t p)
{
	uint32_t s = p;

	while (s < object->n_parts && catalog_part_is_lost(object, s))
		s += n_parts;
	if (s >= object->n_parts || !catalog_state_is_usable(catalog_part_view(object, s)))
		return NULL;
	return heap_of(object->attached[s]);
}

/* -------- keys -------- */

static int mend_access(struct mending *m, uint32_t p, struct heap_access **acc_out)
{
	struct heap *heap = mend_part(m->object, m->desc->n_parts, p);
	struct heap_access *acc = m->accesses[p];
	int ret;

	if (!heap)
		return error_set(-EAGAIN, "heap %s: part %u is away", m->desc->name, p);
	*acc_out = acc;
	if (acc)
		return 0;
	acc = mem_alloc(sizeof(*acc));
	ret = acc ? heap_access_open(acc, heap, m->owner)
		  : error_set(-ENOMEM, "heap: cannot allocate memory");
	if (ret) {
		mem_free(acc);
		return ret;
	}
	m->opened++;
	*acc_out = m->accesses[p] = acc;
	return 0;
}

static void mend_close(struct mending *m)
{
	for (uint32_t p = 0; p < HEAP_MAX_PARTS; p++) {
		if (m->accesses[p])
			heap_access_close(m->accesses[p]);
		mem_free(m->accesses[p]);
		m->accesses[p] = NULL;
	}
	m->opened = 0;
}

static int io_get(void *ctx, uint32_t part, const struct chain_key *key, struct heap_value *out)
{
	struct heap_access *acc;
	int ret = mend_access(ctx, part, &acc);

	return ret ? ret : heap_get(acc, key, &(struct heap_room){ 0 }, out);
}

static int io_look(void *ctx, uint32_t part, const struct chain_key *key, struct heap_value *out)
{
	struct heap_access *acc;
	int ret = mend_access(ctx, part, &acc);

	return ret ? ret : heap_look(acc, key, out);
}

static int io_put(void *ctx, uint32_t part, const struct chain_key *key, const struct heap_put *put,
		  uint64_t *version_out)
{
	struct heap_access *acc;
	int ret = mend_access(ctx, part, &acc);

	return ret ? ret : heap_put(acc, key, put, version_out);
}

/* -------- owners -------- */

static bool owner_is_gone(const struct catalog_object *object, uint32_t n_parts, uint32_t owner)
{
	uint64_t gone = 0;

	for (uint32_t p = 0; p < n_parts; p++)
		gone |= mend_part(object, n_parts, p)->gone[(owner - 1) / 64];
	return gone & UINT64_C(1) << (owner - 1) % 64;
}

static void owner_is_done(const struct catalog_object *object, uint32_t n_parts, uint32_t owner)
{
	for (uint32_t p = 0; p < n_parts; p++)
		mend_part(object, n_parts, p)->gone[(owner - 1) / 64] &=
			~(UINT64_C(1) << (owner - 1) % 64);
}

/* True if the slot is free everywhere. Only we give slots, so it stays so. */
static bool owner_is_free(const struct catalog_object *object, uint32_t owner)
{
	for (uint32_t s = 0; s < object->n_parts; s++) {
		struct slot_info info;

		if (catalog_part_is_lost(object, s))
			continue;
		if (!object->attached[s] || slot_read(object->attached[s], owner - 1, &info) != 0 ||
		    info.state != SLOT_FREE)
			return false;
	}
	return !object->slots.entries[owner - 1].taken;
}

/* Completes the owner's intent. */
static int owner_settle(struct mending *m, uint32_t owner)
{
	const struct stripe_io io = { .desc = m->desc,
				      .get = io_get,
				      .look = io_look,
				      .put = io_put,
				      .ctx = m,
				      .most = MOST_STRIPES };
	int ret = stripe_settle(&io, owner, NULL);

	if (ret == 0)
		log_info("%s: completed what client slot %u left of a value in stripes",
			 m->object->text, owner);
	if (ret >= 0)
		owner_is_done(m->object, m->desc->n_parts, owner);
	if (m->opened > ACCESSES_AT_ONCE)
		mend_close(m);
	return ret < 0 ? ret : 0;
}

int heap_stripes_mend(struct catalog_object *object, uint32_t owner, enum mend *found_out)
{
	struct mending m = { .object = object, .desc = object->state, .owner = owner };
	int ret = 0;

	if (!m.desc->stripe || m.desc->copies > 1)
		return 0;
	for (uint32_t p = 0; p < m.desc->n_parts; p++)
		if (!mend_part(object, m.desc->n_parts, p))
			return 0; /* a client may not be cut off there */
	for (uint32_t i = 1; ret == 0 && i <= m.desc->max_clients; i++) {
		if (i == owner || !owner_is_gone(object, m.desc->n_parts, i) ||
		    !owner_is_free(object, i))
			continue;
		if (!owner) {
			*found_out = MEND_LATER;
			return 0;
		}
		ret = owner_settle(&m, i);
	}
	mend_close(&m);
	if (ret == -EAGAIN || ret == -EBUSY || ret == -ENOSPC) {
		error_clear();
		ret = 0;
	}
	return ret;
}
