#include "client/kv/stripe.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>

#define FRESH_LEAST 16u /* numbers of a part between two looks from 0 on */
#define HOME_TRIES 64u  /* against other clients */

/* -------- numbers -------- */

static bool numbers_have(const struct kv_numbers *numbers, uint64_t number)
{
	for (size_t i = 0; i < numbers->n_taken; i++)
		if (numbers->taken[i] == number)
			return true;
	return false;
}

/*
 * The look has come to a number that was never used. False: it is to be taken. Looks go from 0 on again while they find a
 * quarter of the numbers free; else half as many new ones come before the next one. So there are at most twice as
 * many as are in use at once, and a stripe costs few looks.
 */
static bool numbers_turn(struct kv_numbers *numbers, uint64_t number)
{
	if (numbers->fresh > 0) {
		numbers->fresh--;
		return false;
	}
	if (numbers->turned && 4 * numbers->reused <= number) {
		numbers->turned = false;
		numbers->fresh = max_u64(number / 2, FRESH_LEAST) - 1;
		return false;
	}
	numbers->turned = true;
	numbers->reused = numbers->next = 0;
	return number > 0;
}

/* A free number of the part: a deleted one, or one that was never used. */
static int number_find(struct rlv_kv *kv, uint32_t part, uint64_t *number_out)
{
	struct kv_numbers *numbers = &kv->stripes->numbers[part];
	struct stripe_name name;
	struct stripe_look look;

	for (;;) {
		uint64_t number = numbers->next++;
		int ret;

		if (numbers_have(numbers, number))
			continue;
		stripe_name_data(&kv->desc, kv->slot.owner, number, &name);
		ret = stripe_look(&kv->stripes->io, part, &name.key, &look);
		if (ret && ret != -EBADMSG)
			return ret;
		if (ret || look.exists) /* a damaged one, too */
			continue;
		if (look.version == 0 && numbers_turn(numbers, number))
			continue;
		numbers->reused += look.version != 0;
		numbers->next = max_u64(numbers->next, number + 1);
		*number_out = number;
		return 0;
	}
}

/* Takes a number for each stripe. */
static int numbers_take(struct rlv_kv *kv, uint32_t home, struct stripes *fresh)
{
	int ret = 0;

	for (uint32_t p = 0; p < kv->desc.n_parts; p++) {
		struct kv_numbers *numbers = &kv->stripes->numbers[p];

		numbers->n_taken = 0;
		if (!mem_make_room(&numbers->taken, &numbers->room, fresh->n / kv->desc.n_parts + 1,
				   sizeof(numbers->taken[0])))
			return error_set(-ENOMEM, "put: cannot allocate memory for stripes");
	}
	for (uint32_t i = 0; ret == 0 && i < fresh->n; i++) {
		uint32_t part = stripe_part(&kv->desc, home, i);
		struct kv_numbers *numbers = &kv->stripes->numbers[part];
		uint64_t number;

		ret = number_find(kv, part, &number);
		if (ret)
			return ret;
		numbers->taken[numbers->n_taken++] = fresh->refs[i].number = number;
	}
	return ret;
}

/* -------- put -------- */

struct stripes_put {
	const struct chain_key *key;
	const struct heap_put *put;
	uint32_t home;
	bool cuts;    /* the value goes in stripes */
	bool written; /* they are there */
	bool intends; /* the intent of our slot is this put's */
	struct stripes_intent intent;
	void *manifest;
};

/* Looks at the key: what the put replaces. A damaged value has a version, and stripes that nobody knows. */
static int put_look(struct rlv_kv *kv, struct stripes_put *of, struct stripe_look *look)
{
	struct stripes *old = &of->intent.old;
	int ret = stripe_look(&kv->stripes->io, of->home, of->key, look);

	stripes_free(old);
	if (ret == 0 && look->striped)
		ret = stripes_read(&kv->desc, look->manifest, look->len, old);
	if (ret == -EBADMSG) {
		*look = (struct stripe_look){ .exists = true };
		ret = kv_part_version(kv, of->home, of->key, &look->version);
	}
	if (ret)
		return ret;
	of->intent.replaces = look->exists ? look->version : 0;
	if (of->put->deletes && !look->exists)
		return error_set(-ENOENT, "no such key");
	if (of->put->expected != HEAP_ANY_VERSION && of->put->expected != of->intent.replaces)
		return error_set(-ESTALE, "the key has version %" PRIu64 ", not %" PRIu64,
				 of->intent.replaces, of->put->expected);
	return 0;
}

/* Writes the intent, in the place of the last one, which is completed first. */
static int put_intent(struct rlv_kv *kv, struct stripes_put *of)
{
	struct heap_put put = { .expected = HEAP_ANY_VERSION, .urgent = of->put->deletes };
	struct stripe_name name;
	void *bytes = stripes_intent_write(&of->intent, &put.len);
	uint64_t version;
	int ret = bytes ? 0 : error_set(-ENOMEM, "put: cannot allocate memory for an intent");

	if (ret == 0 && !of->intends)
		ret = kv_stripes_complete(kv);
	if (ret) {
		mem_free(bytes);
		return ret;
	}
	of->intends = true;
	put.value = bytes;
	stripe_name_intent(&kv->desc, kv->slot.owner, &name);
	kv->stripes->pending = true;
	ret = kv->stripes->io.put(kv, stripe_intent_part(&kv->desc, kv->slot.owner), &name.key,
				  &put, &version);
	mem_free(bytes);
	return ret;
}

static int put_stripes(struct rlv_kv *kv, struct stripes_put *of)
{
	struct stripes *fresh = &of->intent.fresh;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < fresh->n; i++) {
		const struct heap_put put = {
			.value = (const uint8_t *)of->put->value + i * fresh->share,
			.len = heap_share(fresh->bytes, fresh->share, i),
			.expected = HEAP_ANY_VERSION,
		};
		struct stripe_name name;

		stripe_name_data(&kv->desc, fresh->owner, fresh->refs[i].number, &name);
		ret = kv->stripes->io.put(kv, stripe_part(&kv->desc, of->home, i), &name.key, &put,
					  &fresh->refs[i].version);
	}
	of->written = ret == 0;
	return ret;
}

/* Plans the stripes, when the put is known to be wanted. */
static int put_cut(struct rlv_kv *kv, struct stripes_put *of)
{
	struct stripes *fresh = &of->intent.fresh;
	int ret;

	if (!of->cuts || fresh->refs)
		return 0;
	ret = stripes_plan(&kv->desc, kv->slot.owner, of->put->len, fresh);
	if (ret)
		return ret;
	of->manifest = mem_alloc(stripe_manifest_bytes(fresh->n));
	if (!of->manifest)
		return error_set(-ENOMEM, "put: cannot allocate memory for a manifest");
	return numbers_take(kv, of->home, fresh);
}

/* The compare-and-put at home. */
static int put_swap(struct rlv_kv *kv, const struct stripes_put *of, uint64_t *version_out)
{
	struct heap_put put = *of->put;

	put.expected = of->intent.replaces;
	if (of->cuts) {
		stripes_write(&of->intent.fresh, of->manifest);
		put.value = of->manifest;
		put.len = stripe_manifest_bytes(of->intent.fresh.n);
		put.striped = of->put->len;
	}
	return kv_part_put(kv, of->home, of->key, &put, version_out);
}

/* One attempt. *lost_out: another client changed the key behind our look at it; then -ESTALE. */
static int put_once(struct rlv_kv *kv, struct stripes_put *of, bool *lost_out,
		    uint64_t *version_out)
{
	struct stripe_look look;
	int ret = put_look(kv, of, &look);

	*lost_out = false;
	if (ret == 0)
		ret = put_cut(kv, of);
	if (ret == 0 && (of->cuts || of->intent.old.n || of->intends))
		ret = put_intent(kv, of);
	if (ret == 0 && of->cuts && !of->written)
		ret = put_stripes(kv, of);
	if (ret)
		return ret;
	ret = put_swap(kv, of, version_out);
	*lost_out = ret == -ESTALE || (ret == -ENOENT && of->put->deletes);
	return ret;
}

/* Puts against others: the next look tells whether the caller's version, or the heap, is gone. */
static int put_run(struct rlv_kv *kv, struct stripes_put *of, uint64_t *version_out)
{
	bool lost = true;
	int ret = 0;

	for (uint32_t i = 0; lost && i < HOME_TRIES; i++)
		ret = put_once(kv, of, &lost, version_out);
	return lost ? error_set(-EAGAIN, "put: other clients changed the key %u times", HOME_TRIES)
		    : ret;
}

int kv_stripes_put(struct rlv_kv *kv, const struct chain_key *key, const struct heap_put *put,
		   uint64_t *version_out)
{
	struct stripes_put of = { .key = key,
				  .put = put,
				  .home = chain_part(key->hash, kv->desc.n_parts) };
	bool doubt;
	int ret;

	if (!kv->slot.owner)
		return error_set(-EACCES, "the handle was opened read-only");
	of.cuts = !put->deletes && !put->runs && !put->paged && put->len > stripe_share(&kv->desc);
	of.intent.key = *key;
	of.intent.part = of.home;
	ret = put_run(kv, &of, version_out);
	/* Clients that were killed may have left stripes. */
	if (ret == -ENOSPC && of.cuts && kv_stripes_settle(kv)) {
		of.intends = of.written = false;
		ret = put_run(kv, &of, version_out);
	}
	/* Of a swap that may have been made a look says more when there is a new connection: with the next call. */
	doubt = of.intends && (ret == -ECONNRESET || ret == -ETIMEDOUT);
	kv->stripes->unsure |= doubt;
	if (!doubt)
		kv_stripes_try(kv);
	stripes_intent_free(&of.intent);
	mem_free(of.manifest);
	return ret;
}
