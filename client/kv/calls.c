/*
 * calls.c - put, get, watch and walk: each is a step of kv_run.
 */
#include "client/kv/copies.h"
#include "client/kv/filler.h"
#include "client/kv/stripe.h"

#include "ds/heap/heap_check.h"

#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A call about one key, with what the steps need of it. */
struct key_call {
	struct chain_key key;
	const struct heap_put *put;
	struct heap_room room;
	struct heap_range range;
	struct heap_value got;
	uint64_t version, than;
};

static int step_put(void *ctx, struct heap_access *acc)
{
	struct key_call *call = ctx;

	return heap_put(acc, &call->key, call->put, &call->version);
}

static int step_get(void *ctx, struct heap_access *acc)
{
	struct key_call *call = ctx;

	return heap_get(acc, &call->key, &call->room, &call->got);
}

static int step_get_range(void *ctx, struct heap_access *acc)
{
	struct key_call *call = ctx;

	return heap_get_range(acc, &call->key, &call->range, &call->room, &call->got);
}

/* Runs the step with the key's hash. In place the first attempt needs neither a deadline nor a clock. */
static inline int key_run(struct rlv_kv *kv, struct rlv_bytes key, struct key_call *of,
			  int (*step)(void *ctx, struct heap_access *acc), int64_t timeout_ns)
{
	struct heap_access *acc;
	struct kv_call call;
	uint32_t part;
	int ret;

	of->key = chain_key(key.ptr, (uint32_t)key.len, kv->desc.seed);
	part = chain_part(of->key.hash, kv->desc.n_parts);
	acc = kv->owned ? NULL : kv_access(kv, part);
	if (acc && acc->in_place) {
		heap_prefetch(acc, &of->key, step == step_get ? HEAP_PREFETCH_LINES : 0);
		ret = part_set_is_quiet(&kv->set) ? step(of, acc) : -EAGAIN;
		if (ret == 0 || (ret != -EAGAIN && !part_set_has_broken(&kv->set)))
			return ret;
	}
	call = (struct kv_call){ .part = part, .step = step, .ctx = of, .puts = step == step_put };
	return kv_run(kv, &call, timeout_ns);
}

int kv_key_check(const struct rlv_kv *kv, struct rlv_bytes key)
{
	if (!kv || !key.ptr)
		return error_set(-EINVAL, "kv or key.ptr is NULL");
	if (key.len == 0 || key.len > HEAP_KEY_MAX)
		return error_set(-EINVAL, "a key of %zu bytes: 1 to %u", key.len, HEAP_KEY_MAX);
	if (kv->desc.stripe && stripe_key_is_hidden(key.ptr, key.len))
		return error_set(
			-EINVAL,
			"key: begins with the 8 bytes of RLV_KV_STRIPE_KEYS, which are for "
			"stripes: choose another key");
	return 0;
}

/* -------- put -------- */

static int stripes_put(struct rlv_kv *kv, struct rlv_bytes key, struct key_call *of)
{
	of->key = chain_key(key.ptr, (uint32_t)key.len, kv->desc.seed);
	return kv_stripes_put(kv, &of->key, of->put, &of->version);
}

int kv_put(struct rlv_kv *kv, struct rlv_bytes key, const struct heap_put *put,
	   uint64_t *version_out)
{
	struct key_call call; /* as in value_get */
	int ret = kv_key_check(kv, key);

	call.put = put;
	call.version = 0;
	if (ret == 0 && put->len && !put->value && !put->runs)
		ret = error_set(-EINVAL, "value.ptr is NULL");
	if (ret == 0 && kv->stripes)
		ret = stripes_put(kv, key, &call);
	else if (ret == 0)
		ret = key_run(kv, key, &call, step_put, kv->store->timeout_ns);
	if (ret == 0 && version_out)
		*version_out = call.version;
	return ret;
}

int rlv_kv_put(struct rlv_kv *kv, struct rlv_bytes key, struct rlv_bytes value,
	       uint64_t *version_out)
{
	const struct heap_put put = { .value = value.ptr,
				      .len = value.len,
				      .expected = HEAP_ANY_VERSION };

	return kv_put(kv, key, &put, version_out);
}

int rlv_kv_put_if(struct rlv_kv *kv, struct rlv_bytes key, struct rlv_bytes value,
		  uint64_t expected, uint64_t *version_out)
{
	const struct heap_put put = { .value = value.ptr, .len = value.len, .expected = expected };

	if (expected == HEAP_ANY_VERSION)
		return error_set(-ESTALE, "no version has that number");
	return kv_put(kv, key, &put, version_out);
}

int rlv_kv_delete(struct rlv_kv *kv, struct rlv_bytes key, uint64_t *version_out)
{
	const struct heap_put put = { .deletes = true, .expected = HEAP_ANY_VERSION };

	return kv_put(kv, key, &put, version_out);
}

/* -------- get -------- */

static int step_version(void *ctx, struct heap_access *acc)
{
	struct key_call *call = ctx;
	int ret = heap_version(acc, &call->key, &call->version);

	if (ret == 0 && call->version <= call->than)
		ret = error_set(-ENODATA, "no version above %" PRIu64, call->than);
	return ret;
}

/* Gives the value to the caller. */
static int value_fill(const struct heap_value *got, struct rlv_kv_value *value)
{
	value->len = got->len;
	value->version = got->version;
	if (!value->room)
		value->ptr = (void *)(uintptr_t)got->ptr;
	else if (got->len > value->room)
		return error_set(-ERANGE, "value->room %" PRIu64 ": there are %" PRIu64 " bytes",
				 value->room, got->len);
	else if (got->len && got->ptr != value->ptr)
		memcpy(value->ptr, got->ptr, got->len);
	return 0;
}

/* Memory that the caller gives. */
static inline int value_room(const struct rlv_kv_value *value, struct heap_room *room)
{
	if (value->room && !value->ptr)
		return error_set(-EINVAL, "value->ptr is NULL, and value->room is not 0");
	room->ptr = value->room ? value->ptr : NULL;
	room->bytes = value->room;
	return 0;
}

/* Reads the value whose manifest a get has found. */
static int stripes_get(struct rlv_kv *kv, struct key_call *of, const struct heap_range *range)
{
	if (!kv->stripes)
		return error_set(-EBADMSG,
				 "heap %s: the value is in stripes, but the heap has none",
				 kv->desc.name);
	return kv_stripes_get(kv, &of->key, range, &of->room, &of->got);
}

/* Gets into a struct of our size. */
static int value_get(struct rlv_kv *kv, struct rlv_bytes key, struct rlv_kv_value *value)
{
	struct key_call call; /* not cleared: it takes as long as a quarter of a get */
	int ret = value_room(value, &call.room);

	if (ret)
		return ret;
	ret = key_run(kv, key, &call, step_get, kv->store->timeout_ns);
	if (ret == 0 && call.got.striped)
		ret = stripes_get(kv, &call, NULL);
	return ret ? ret : value_fill(&call.got, value);
}

int rlv_kv_get(struct rlv_kv *kv, struct rlv_bytes key, struct rlv_kv_value *value)
{
	struct rlv_kv_value ours;
	int ret = kv_key_check(kv, key);

	if (ret == 0 && !value)
		ret = error_set(-EINVAL, "value is NULL");
	if (ret)
		return ret;
	if (abi_size(value) ==
	    sizeof(ours)) /* no copies, which would wait for the program's stores */
		return value_get(kv, key, value);
	ret = abi_read(&ours, sizeof(ours), value, "value->");
	if (ret)
		return ret;
	ret = value_get(kv, key, &ours);
	if (ret == 0 || ret == -ERANGE)
		abi_write(value, &ours, sizeof(ours));
	return ret;
}

int rlv_kv_get_range(struct rlv_kv *kv, struct rlv_bytes key, uint64_t offset, uint64_t len,
		     struct rlv_kv_value *value)
{
	struct key_call call = { .range = { offset, len } };
	struct rlv_kv_value ours;
	int ret = kv_key_check(kv, key);

	if (ret == 0 && !value)
		ret = error_set(-EINVAL, "value is NULL");
	if (ret == 0)
		ret = abi_read(&ours, sizeof(ours), value, "value->");
	if (ret == 0)
		ret = value_room(&ours, &call.room);
	if (ret == 0)
		ret = key_run(kv, key, &call, step_get_range, kv->store->timeout_ns);
	if (ret == 0 && call.got.striped)
		ret = stripes_get(kv, &call, &call.range);
	if (ret)
		return ret;
	ret = value_fill(&call.got, &ours);
	abi_write(value, &ours, sizeof(ours));
	return ret;
}

int rlv_kv_get_newer(struct rlv_kv *kv, struct rlv_bytes key, uint64_t than,
		     struct rlv_kv_value *value)
{
	struct key_call call = { .than = than };
	int ret = kv_key_check(kv, key);

	if (ret == 0)
		ret = key_run(kv, key, &call, step_version, kv->store->timeout_ns);
	return ret ? ret : rlv_kv_get(kv, key, value);
}

int rlv_kv_watch(struct rlv_kv *kv, struct rlv_bytes key, uint64_t than, int64_t timeout_ns,
		 uint64_t *version_out)
{
	struct backoff backoff = { .first_ns = 20000, .doublings = 3 }; /* to 160 us */
	struct key_call call = { .than = than };
	uint64_t deadline_ns;
	int ret = kv_key_check(kv, key);

	if (ret == 0 && !version_out)
		ret = error_set(-EINVAL, "version_out is NULL");
	if (ret)
		return ret;
	deadline_ns = deadline_after(kv->set.clock, timeout_ns);
	for (;;) {
		int64_t left_ns = deadline_left_ns(kv->set.clock, deadline_ns);

		ret = key_run(kv, key, &call, step_version,
			      left_ns < kv->store->timeout_ns ? left_ns : kv->store->timeout_ns);
		if (ret != -ENODATA)
			break;
		if (left_ns == 0)
			return error_set(-ETIMEDOUT, "watch: no version above %" PRIu64, than);
		backoff_sleep(&backoff, kv->set.clock, deadline_ns);
	}
	if (ret == 0)
		*version_out = call.version;
	return ret;
}

/* -------- all keys -------- */

struct walk_call {
	struct rlv_kv_walk walk;
	struct heap_key key;
};

static int step_next(void *ctx, struct heap_access *acc)
{
	struct walk_call *call = ctx;

	return heap_next(acc, &call->walk.bucket, &call->key);
}

int rlv_kv_next(struct rlv_kv *kv, struct rlv_kv_walk *walk)
{
	struct walk_call of = { .key = { 0 } };
	struct kv_call call = { .step = step_next, .ctx = &of };
	int ret;

	if (!kv || !walk)
		return error_set(-EINVAL, "kv or walk is NULL");
	ret = abi_read(&of.walk, sizeof(of.walk), walk, "walk->");
	for (; ret == 0 && of.walk.part < kv->desc.n_parts; of.walk.part++, of.walk.bucket = 0) {
		call.part = of.walk.part;
		do
			ret = kv_run(kv, &call, kv->store->timeout_ns);
		while (ret == 0 && kv->stripes && stripe_key_is_hidden(of.key.ptr, of.key.len));
		if (ret == 0)
			break;
		if (ret == -ENODATA)
			ret = 0;
	}
	if (ret == 0 && of.walk.part >= kv->desc.n_parts)
		ret = error_set(-ENODATA, "no more keys");
	if (ret)
		return ret;
	of.walk.key = of.key.ptr;
	of.walk.key_len = of.key.len;
	of.walk.value_len = of.key.value_len;
	of.walk.version = of.key.version;
	abi_write(walk, &of.walk, sizeof(of.walk));
	return 0;
}

/* -------- state -------- */

static int step_info(void *ctx, struct heap_access *acc)
{
	struct rlv_kv_info *info = ctx;
	struct heap_use use;
	uint64_t keys;
	int ret = heap_use(acc->heap, &use);

	if (ret == 0)
		ret = heap_keys(acc->heap, &keys);
	if (ret)
		return ret;
	info->parts_up++;
	info->keys += keys;
	info->extents_free += use.free;
	info->extents_owned += use.owned;
	info->extents_left += use.orphans;
	info->conflicts += acc->stats.conflicts;
	info->rereads += acc->stats.rereads;
	info->server_calls += acc->stats.calls;
	info->coordinator_cpu_ns = max_u64(info->coordinator_cpu_ns, acc->stats.cpu_ns);
	return 0;
}

static bool kv_has_broken(struct rlv_kv *kv)
{
	bool broken;

	if (kv_turn_begin(kv))
		return false;
	broken = part_set_has_broken(&kv->set);
	kv_turn_end(kv);
	return broken;
}

/* Runs the step once for each part; those that are away are passed over. */
static int kv_each_part(struct rlv_kv *kv, int (*step)(void *ctx, struct heap_access *acc),
			void *ctx)
{
	struct kv_call call = { .step = step, .ctx = ctx, .once = true };
	int ret = 0;

	for (; ret == 0 && call.part < kv->desc.n_parts; call.part++) {
		ret = kv_run(kv, &call, kv->store->timeout_ns);
		if (ret == -EHOSTDOWN || (ret && kv_has_broken(kv)))
			ret = 0;
	}
	return ret;
}

int rlv_kv_info(struct rlv_kv *kv, struct rlv_kv_info *info_out)
{
	struct rlv_kv_info info = RLV_KV_INFO_INIT;
	struct transport_stats stats;
	int ret;

	if (!kv || !info_out)
		return error_set(-EINVAL, "kv or info_out is NULL");
	ret = abi_check(info_out, "info_out->");
	if (ret == 0)
		ret = kv_each_part(kv, step_info, &info);
	if (ret == 0)
		ret = kv_turn_begin(kv);
	if (ret)
		return ret;
	info.parts = kv->desc.n_parts;
	kv_copies_count(kv, &info);
	info.max_clients = kv->desc.max_clients;
	memcpy(info.name, kv->desc.name, sizeof(info.name));
	info.keys_room = (uint64_t)kv->desc.buckets * kv->desc.n_parts;
	info.extent_bytes = kv->desc.extent_bytes;
	part_set_stats(&kv->set, &stats);
	info.round_trips = stats.phases;
	info.read_bytes = stats.read_bytes;
	info.write_bytes = stats.write_bytes;
	info.server_calls += kv->set.questions;
	kv_turn_end(kv);
	info.mode = kv->desc.mode;
	info.stripe_bytes = kv->desc.stripe ? UINT64_C(1) << kv->desc.stripe : 0;
	abi_write(info_out, &info, sizeof(info));
	return 0;
}

static int step_verify(void *ctx, struct heap_access *acc)
{
	struct rlv_kv_report *report = ctx;
	struct heap_check_report part;
	int ret = heap_check(acc->heap, &part);

	if (ret)
		return ret;
	if (!report->problems && part.n_texts)
		snprintf(report->first_problem, sizeof(report->first_problem), "%s", part.text[0]);
	report->parts++;
	report->problems += part.problems;
	report->keys += part.keys;
	report->deleted += part.deleted;
	report->live_bytes += part.live_bytes;
	report->stale_cells += part.stale_cells;
	return 0;
}

int rlv_kv_verify(struct rlv_kv *kv, struct rlv_kv_report *report_out)
{
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;
	int ret;

	if (!kv || !report_out)
		return error_set(-EINVAL, "kv or report_out is NULL");
	ret = abi_check(report_out, "report_out->");
	if (ret == 0)
		ret = kv_each_part(kv, step_verify, &report);
	if (ret == 0)
		ret = kv_turn_begin(kv);
	if (ret)
		return ret;
	for (uint32_t p = 0; ret == 0 && kv->owned && p < kv->desc.n_parts; p++)
		ret = kv_copies_compare(kv, p, &report);
	kv_turn_end(kv);
	if (ret == 0)
		ret = kv_stripes_verify(kv, &report);
	if (ret == 0)
		abi_write(report_out, &report, sizeof(report));
	return ret;
}
