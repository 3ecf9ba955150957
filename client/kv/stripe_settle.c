/*
 * stripe_settle.c - keys of any part, and intents: who completes them, and when it is known that their client makes no
 * change any more.
 */
#include "client/kv/stripe.h"

#include "ds/part/slot.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <string.h>

#define HIDDEN_TRIES 3u /* of a put under a hidden key, which may be made again */

/* -------- keys of a part -------- */

struct part_call {
	const struct chain_key *key;
	const struct heap_put *put;
	struct heap_value *got;
	uint64_t version;
};

static int step_get(void *ctx, struct heap_access *acc)
{
	struct part_call *call = ctx;

	return heap_get(acc, call->key, &(struct heap_room){ 0 }, call->got);
}

static int step_look(void *ctx, struct heap_access *acc)
{
	struct part_call *call = ctx;

	return heap_look(acc, call->key, call->got);
}

static int step_put(void *ctx, struct heap_access *acc)
{
	struct part_call *call = ctx;

	return heap_put(acc, call->key, call->put, &call->version);
}

static int step_version(void *ctx, struct heap_access *acc)
{
	struct part_call *call = ctx;

	return heap_version(acc, call->key, &call->version);
}

/* True if the part, with all its keys, will never be there again. */
static bool part_is_lost(const struct rlv_kv *kv, uint32_t part)
{
	uint32_t s = part;

	while (s < kv->set.n_parts && kv_part_is_gone(kv, s))
		s += kv->desc.n_parts;
	return s >= kv->set.n_parts;
}

/* Of a lost part no key is there. */
static int io_run(struct rlv_kv *kv, uint32_t part, struct part_call *of,
		  int (*step)(void *ctx, struct heap_access *acc))
{
	const struct kv_call call = { .part = part, .step = step, .ctx = of };

	if (part_is_lost(kv, part))
		return error_set(-ENOENT, "heap %s: part %u was lost with its node", kv->desc.name,
				 part);
	return kv_run(kv, &call, kv->store->timeout_ns);
}

static int io_get(void *ctx, uint32_t part, const struct chain_key *key, struct heap_value *out)
{
	struct part_call of = { .key = key, .got = out };

	return io_run(ctx, part, &of, step_get);
}

static int io_look(void *ctx, uint32_t part, const struct chain_key *key, struct heap_value *out)
{
	struct part_call of = { .key = key, .got = out };

	return io_run(ctx, part, &of, step_look);
}

int kv_part_put(struct rlv_kv *kv, uint32_t part, const struct chain_key *key,
		const struct heap_put *put, uint64_t *version_out)
{
	struct part_call of = { .key = key, .put = put };
	const struct kv_call call = { .part = part, .step = step_put, .ctx = &of, .puts = true };
	int ret = kv_run(kv, &call, kv->store->timeout_ns);

	if (ret == 0)
		*version_out = of.version;
	return ret;
}

/* Of hidden keys: one that may have been made is made again, as nobody else puts there. */
static int io_put(void *ctx, uint32_t part, const struct chain_key *key, const struct heap_put *put,
		  uint64_t *version_out)
{
	int ret = -ECONNRESET;

	if (put->deletes && part_is_lost(ctx, part))
		return error_set(-ENOENT, "part %u was lost with its node", part);
	for (uint32_t i = 0; (ret == -ECONNRESET || ret == -ETIMEDOUT) && i < HIDDEN_TRIES; i++)
		ret = kv_part_put(ctx, part, key, put, version_out);
	return ret;
}

int kv_part_version(struct rlv_kv *kv, uint32_t part, const struct chain_key *key,
		    uint64_t *version_out)
{
	struct part_call of = { .key = key };
	const struct kv_call call = { .part = part, .step = step_version, .ctx = &of };
	int ret = kv_run(kv, &call, kv->store->timeout_ns);

	*version_out = of.version;
	return ret;
}

/* -------- open, close -------- */

int kv_stripes_init(struct rlv_kv *kv)
{
	struct kv_stripes *stripes;

	if (!kv->desc.stripe)
		return 0;
	stripes = mem_zalloc(sizeof(*stripes));
	kv->stripes = stripes;
	if (stripes)
		stripes->numbers = mem_array(kv->desc.n_parts, sizeof(stripes->numbers[0]));
	if (!stripes || !stripes->numbers)
		return error_set(-ENOMEM, "heap: cannot allocate memory");
	stripes->io = (struct stripe_io){
		.desc = &kv->desc, .get = io_get, .look = io_look, .put = io_put, .ctx = kv
	};
	stripes->pending = stripes->takeover = kv->slot.owner != 0;
	return 0;
}

void kv_stripes_fini(struct rlv_kv *kv)
{
	struct kv_stripes *stripes = kv->stripes;

	if (!stripes)
		return;
	for (uint32_t p = 0; stripes->numbers && p < kv->desc.n_parts; p++)
		mem_free(stripes->numbers[p].taken);
	mem_free(stripes->numbers);
	mem_free(stripes->value);
	mem_free(stripes);
	kv->stripes = NULL;
}

/* -------- intents -------- */

/* The client that had our slot is cut off wherever we were let in. -EHOSTDOWN: in a part that is away it may not be. */
static int stripes_all_open(const struct rlv_kv *kv)
{
	for (uint32_t s = 0; s < kv->set.n_parts; s++)
		if (!kv_part_is_gone(kv, s) && !kv->set.parts[s])
			return error_set(
				-EHOSTDOWN,
				"heap %s: part %u is away, and stripes of a client that was killed may "
				"be there",
				kv->desc.name, s % kv->desc.n_parts);
	return 0;
}

/* Completes the intent of our slot. */
int kv_stripes_complete(struct rlv_kv *kv)
{
	struct kv_stripes *stripes = kv->stripes;
	int ret = 0;

	if (!stripes->pending)
		return 0;
	if (stripes->takeover)
		ret = stripes_all_open(kv);
	stripes->io.helps = kv->desc.copies > 1 && (stripes->takeover || stripes->unsure);
	if (ret == 0)
		ret = stripe_settle(&stripes->io, kv->slot.owner, NULL);
	if (ret < 0)
		return ret;
	stripes->pending = stripes->takeover = stripes->unsure = false;
	return 0;
}

void kv_stripes_try(struct rlv_kv *kv)
{
	struct error_kept kept;

	if (!kv->stripes || !kv->stripes->pending)
		return;
	error_keep(&kept);
	if (stripes_all_open(kv) == 0)
		(void)!kv_stripes_complete(kv);
	error_restore(&kept);
}

/* Client slots from `first` on. */
struct slots_look {
	uint32_t first, n;
	bool is_free[SLOT_READ_MAX]; /* in all parts, so that the last client is cut off */
	bool has[SLOT_READ_MAX];     /* an intent */
	struct rlv_kv *kv;
	uint32_t part;
};

static int slots_find_free(struct rlv_kv *kv, struct slots_look *look)
{
	struct slot_info infos[SLOT_READ_MAX];
	int ret = stripes_all_open(kv); /* nobody knows of one that is away */

	memset(look->is_free, true, sizeof(look->is_free));
	for (uint32_t s = 0; ret == 0 && s < kv->set.n_parts; s++) {
		if (kv_part_is_gone(kv, s))
			continue;
		ret = slot_read_many(kv->set.parts[s], look->first, look->n, infos);
		for (uint32_t i = 0; ret == 0 && i < look->n; i++)
			look->is_free[i] &= infos[i].state == SLOT_FREE;
	}
	return ret;
}

/* Which of the free slots have an intent in the part. */
static int step_intents(void *ctx, struct heap_access *acc)
{
	struct slots_look *look = ctx;
	const struct heap_desc *desc = &look->kv->desc;
	struct stripe_name names[SLOT_READ_MAX];
	struct heap_ask asks[SLOT_READ_MAX];
	uint32_t at[SLOT_READ_MAX], n = 0;
	int ret;

	for (uint32_t i = 0; i < look->n; i++) {
		uint32_t owner = look->first + i + 1;

		if (!look->is_free[i] || stripe_intent_part(desc, owner) != look->part)
			continue;
		stripe_name_intent(desc, owner, &names[n]);
		asks[n] = (struct heap_ask){ .key = names[n].key };
		at[n++] = i;
	}
	ret = n ? heap_get_many(acc, asks, n) : 0;
	for (uint32_t i = 0; ret == 0 && i < n; i++)
		look->has[at[i]] = asks[i].status != -ENOENT || desc->copies > 1;
	return ret;
}

static_assert(SLOT_READ_MAX <= HEAP_MANY, "one call looks at them");

static int io_see_free(void *ctx, uint32_t owner)
{
	struct slots_look look = { .first = owner - 1, .n = 1 };
	int ret = slots_find_free(ctx, &look);

	if (ret == 0 && !look.is_free[0])
		ret = error_set(-EBUSY, "client slot %u is not free", owner);
	return ret;
}

/* Completes the intents of some free slots. True: there was one. */
static bool slots_settle(struct rlv_kv *kv, struct slots_look *look)
{
	struct kv_call call = { .step = step_intents, .ctx = look, .once = true };
	int ret = slots_find_free(kv, look);
	bool any = false;

	kv->stripes->io.helps = kv->desc.copies > 1;
	memset(look->has, 0, sizeof(look->has));
	for (; ret == 0 && call.part < kv->desc.n_parts; call.part++) {
		look->part = call.part;
		ret = kv_run(kv, &call, kv->store->timeout_ns);
	}
	for (uint32_t i = 0; ret == 0 && i < look->n; i++)
		if (look->has[i])
			any |= stripe_settle(&kv->stripes->io, look->first + i + 1, io_see_free) ==
			       0;
	return any;
}

bool kv_stripes_settle(struct rlv_kv *kv)
{
	struct slots_look look = { .kv = kv };
	struct error_kept kept;
	bool any = false;

	if (!kv->stripes || !kv->slot.owner)
		return false;
	error_keep(&kept);
	(void)!kv_stripes_complete(kv);
	for (; look.first < kv->desc.max_clients; look.first += SLOT_READ_MAX) {
		look.n = (uint32_t)min_u64(kv->desc.max_clients - look.first, SLOT_READ_MAX);
		any |= slots_settle(kv, &look);
	}
	error_restore(&kept);
	return any;
}
