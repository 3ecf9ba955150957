/*
 * stripe_get.c - reads of values in stripes. The manifest names each stripe with its version, and a stripe that is
 * replaced was named by a manifest that is: so a reader that has found all versions has read the value that the key
 * had when it read the manifest.
 */
#include "client/kv/stripe.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define REPLACED 1 /* a stripe has another version */

struct get_call {
	const struct chain_key *key;
	const struct heap_range *range; /* NULL = all */
	const struct heap_room *room;
	struct heap_value *got;
};

static int step_get(void *ctx, struct heap_access *acc)
{
	struct get_call *call = ctx;

	*call->got = (struct heap_value){ 0 };
	return call->range ? heap_get_range(acc, call->key, call->range, call->room, call->got)
			   : heap_get(acc, call->key, call->room, call->got);
}

static int part_get(struct rlv_kv *kv, uint32_t part, struct get_call *of)
{
	const struct kv_call call = { .part = part, .step = step_get, .ctx = of };

	return kv_run(kv, &call, kv->store->timeout_ns);
}

/* Bytes of a stripe that are wanted, and where they go. */
struct stripe_cut {
	struct heap_range range;
	uint8_t *to;
	bool whole;
};

static int stripe_read(struct rlv_kv *kv, uint32_t home, const struct stripes *stripes, uint32_t i,
		       const struct stripe_cut *cut)
{
	const struct heap_room room = { cut->to, cut->range.len };
	struct stripe_name name;
	struct heap_value got;
	struct get_call of = { .key = &name.key,
			       .range = cut->whole ? NULL : &cut->range,
			       .room = &room,
			       .got = &got };
	int ret;

	stripe_name_data(&kv->desc, stripes->owner, stripes->refs[i].number, &name);
	ret = part_get(kv, stripe_part(&kv->desc, home, i), &of);
	if (ret == -ENOENT || (ret == 0 && got.version != stripes->refs[i].version))
		return REPLACED;
	if (ret)
		return ret;
	if (got.striped || got.len != cut->range.len)
		return error_set(-EBADMSG, "heap %s: stripe %u of a value has another length",
				 kv->desc.name, i);
	if (got.ptr != cut->to)
		memcpy(cut->to, got.ptr, got.len);
	return 0;
}

/* Reads the stripes that the range is in. */
static int stripes_get(struct rlv_kv *kv, uint32_t home, const struct stripes *stripes,
		       const struct heap_range *range, uint8_t *to)
{
	uint32_t i = (uint32_t)(range->offset / stripes->share);
	uint64_t at = range->offset, end = range->offset + range->len;
	int ret = 0;

	for (; ret == 0 && at < end; i++) {
		uint64_t begin = i * stripes->share;
		uint64_t bytes = heap_share(stripes->bytes, stripes->share, i);
		uint64_t n = min_u64(begin + bytes, end) - at;
		const struct stripe_cut cut = { .range = { at - begin, n },
						.to = to + (at - range->offset),
						.whole = n == bytes };

		ret = stripe_read(kv, home, stripes, i, &cut);
		at += n;
	}
	return ret;
}

/* Memory for the range, or NULL: the caller's is too small, which the caller says. */
static int stripes_room(struct rlv_kv *kv, const struct heap_room *room, uint64_t bytes,
			uint8_t **to_out)
{
	uint8_t **own = &kv->stripes->value;

	*to_out = room->ptr && room->bytes >= bytes ? room->ptr : NULL;
	if (room->ptr)
		return 0;
	mem_free(*own);
	*own = *to_out = mem_alloc(max_u64(bytes, 1));
	return *own ? 0 : error_set(-ENOMEM, "get: cannot allocate %" PRIu64 " bytes", bytes);
}

/* Reads what the manifest names. REPLACED: *got is as it was. */
static int value_get(struct rlv_kv *kv, uint32_t home, const struct get_call *of)
{
	struct heap_value *got = of->got;
	struct heap_range range = { 0 };
	struct stripes stripes;
	uint8_t *to;
	int ret = stripes_read(&kv->desc, got->ptr, got->len, &stripes);

	if (ret)
		return ret;
	range.offset = of->range ? of->range->offset : 0;
	range.len = of->range ? heap_range_in(of->range, stripes.bytes) : stripes.bytes;
	ret = stripes_room(kv, of->room, range.len, &to);
	if (ret == 0 && to && range.len)
		ret = stripes_get(kv, home, &stripes, &range, to);
	if (ret == 0)
		*got = (struct heap_value){ .ptr = to, .len = range.len, .version = got->version };
	stripes_free(&stripes);
	return ret;
}

int kv_stripes_get(struct rlv_kv *kv, const struct chain_key *key, const struct heap_range *range,
		   const struct heap_room *room, struct heap_value *got)
{
	uint64_t deadline_ns = deadline_after(kv->set.clock, kv->store->timeout_ns), version;
	uint32_t home = chain_part(key->hash, kv->desc.n_parts);
	struct backoff backoff = { .first_ns = 20000, .doublings = 6 };
	struct get_call of = { key, range, room, got };
	bool waits;
	int ret;

	for (;;) {
		version = got->version;
		ret = value_get(kv, home, &of);
		if (ret != REPLACED)
			return ret;
		ret = part_get(kv, home, &of);
		if (ret || !got->striped)
			return ret;
		/* The manifest was there before and after the look at the stripe. Only a copy that was lost, and
		   that we have not heard of, may say so of a value that was replaced. */
		waits = !deadline_expired(kv->set.clock, deadline_ns);
		if (got->version == version && (kv->desc.copies == 1 || !waits))
			return error_set(-EBADMSG,
					 "heap %s: a stripe of version %" PRIu64 " is missing",
					 kv->desc.name, version);
		if (!waits)
			return error_set(-EAGAIN, "get: the value was replaced during each read");
		if (got->version == version)
			backoff_sleep(&backoff, kv->set.clock, deadline_ns);
	}
}

/* -------- verify -------- */

struct verify {
	struct rlv_kv *kv;
	struct rlv_kv_report *report;
	uint64_t named, found; /* stripes */
	uint64_t intents;
};

struct next_call {
	struct heap_key key;
	uint32_t bucket;
	uint8_t bytes[HEAP_KEY_MAX];
};

static int step_next(void *ctx, struct heap_access *acc)
{
	struct next_call *call = ctx;
	int ret = heap_next(acc, &call->bucket, &call->key);

	if (ret == 0)
		memcpy(call->bytes, call->key.ptr, call->key.len);
	return ret;
}

static void verify_problem(struct verify *verify, uint64_t n, const char *what)
{
	struct rlv_kv_report *report = verify->report;

	if (n && report->problems == 0)
		(void)snprintf(report->first_problem, sizeof(report->first_problem),
			       "%" PRIu64 " %s", n, what);
	report->problems += n;
}

/* Looks at the stripes of a value. */
static int verify_value(struct verify *verify, uint32_t home, const struct chain_key *key)
{
	struct rlv_kv *kv = verify->kv;
	struct stripe_look look;
	struct stripes stripes;
	uint64_t missing = 0;
	int ret = stripe_look(&kv->stripes->io, home, key, &look);

	if (ret == 0 && look.striped)
		ret = stripes_read(&kv->desc, look.manifest, look.len, &stripes);
	if (ret || !look.striped) {
		verify_problem(verify, ret == -EBADMSG, "value in stripes has no whole manifest");
		return ret == -EBADMSG ? 0 : ret;
	}
	for (uint32_t i = 0; ret == 0 && i < stripes.n; i++) {
		struct stripe_name name;

		stripe_name_data(&kv->desc, stripes.owner, stripes.refs[i].number, &name);
		ret = stripe_look(&kv->stripes->io, stripe_part(&kv->desc, home, i), &name.key,
				  &look);
		missing += ret == -EBADMSG || !look.exists ||
			   look.version != stripes.refs[i].version;
		ret = ret == -EBADMSG ? 0 : ret;
	}
	verify->named += stripes.n;
	verify_problem(verify, missing, "stripes that a value names are missing");
	stripes_free(&stripes);
	return ret;
}

static int verify_part(struct verify *verify, uint32_t part)
{
	struct next_call of = { .bucket = 0 };
	const struct kv_call call = { .part = part, .step = step_next, .ctx = &of };
	struct chain_key key;
	struct stripe_key hidden;
	int ret;

	for (;;) {
		ret = kv_run(verify->kv, &call, verify->kv->store->timeout_ns);
		if (ret)
			return ret == -ENODATA ? 0 : ret;
		key = chain_key(of.bytes, of.key.len, verify->kv->desc.seed);
		if (of.key.len == sizeof(hidden) && stripe_key_is_hidden(of.bytes, of.key.len)) {
			memcpy(&hidden, of.bytes, sizeof(hidden));
			verify->found += hidden.kind == STRIPE_DATA;
			verify->intents += hidden.kind == STRIPE_INTENT;
		} else if (of.key.striped) {
			ret = verify_value(verify, part, &key);
		}
		if (ret)
			return ret;
	}
}

int kv_stripes_verify(struct rlv_kv *kv, struct rlv_kv_report *report)
{
	struct verify verify = { .kv = kv, .report = report };
	int ret = 0;

	if (!kv->stripes)
		return 0;
	for (uint32_t p = 0; p < kv->desc.n_parts; p++)
		if (!kv_access(kv, p)) /* as rlv_kv_verify, of the parts that can be reached */
			return 0;
	for (uint32_t p = 0; ret == 0 && p < kv->desc.n_parts; p++)
		ret = verify_part(&verify, p);
	if (ret)
		return ret;
	verify_problem(&verify, verify.intents, "intents of clients that were not completed");
	if (verify.found > verify.named)
		verify_problem(&verify, verify.found - verify.named, "stripes that no value names");
	return 0;
}
