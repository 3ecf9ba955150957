/*
 * shards.c - weights of several publishers. Each rank has weights of its own, of which a version is visible
 * together as soon as all have it: the newest version that every table names. A rank does not run so far ahead that
 * it would drop that one (shards_may_publish). A rank that dies leaves the others' versions above it unseen until its
 * successor publishes; if that skips versions, none is visible until all have come to the same one.
 */
#include "client/weights/weights.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define MOST_TRIES 8u /* of a fetch whose generation is dropped before it is read */

struct rlv_shards {
	uint32_t ranks, rank;
	struct rlv_generations *of[RLV_SHARDS_MAX];
};

/* Frees all of a handle. Returns the first error of closing a shard. */
static int shards_end(struct rlv_shards *shards)
{
	int ret = 0;

	for (uint32_t i = 0; i < shards->ranks; i++) {
		int closed = rlv_weights_close(&shards->of[i]);

		ret = ret ? ret : closed;
	}
	mem_free(shards);
	return ret;
}

static int shards_opts_check(const struct rlv_shards_opts *opts)
{
	if (opts->reserved)
		return error_set(-EINVAL, "opts.reserved is not 0");
	if (opts->ranks == 0 || opts->ranks > RLV_SHARDS_MAX)
		return error_set(-EINVAL, "opts.ranks %u: 1 to %u", opts->ranks, RLV_SHARDS_MAX);
	if (opts->rank != RLV_NO_RANK && opts->rank >= opts->ranks)
		return error_set(-EINVAL, "opts.rank %u of %u ranks: RLV_NO_RANK only reads",
				 opts->rank, opts->ranks);
	if (opts->weights && opts->weights->keep == 1)
		return error_set(-EINVAL, "opts.weights->keep 1: ranks need at least 2");
	return 0;
}

int rlv_shards_open(struct rlv_store *store, const char *name, const struct rlv_shards_opts *opts,
		    struct rlv_shards **shards_out)
{
	struct rlv_shards_opts full = RLV_SHARDS_OPTS_INIT;
	struct rlv_shards *shards;
	char shard[RLV_NAME_BYTES];
	int ret;

	if (!store || !name || !opts || !shards_out)
		return error_set(-EINVAL, "store, name, opts or shards_out is NULL");
	ret = abi_read(&full, sizeof(full), opts, "opts.");
	if (ret == 0)
		ret = shards_opts_check(&full);
	if (ret)
		return ret;
	shards = mem_zalloc(sizeof(*shards));
	if (!shards)
		return error_set(-ENOMEM, "weights: cannot allocate memory");
	shards->ranks = full.ranks;
	shards->rank = full.rank;
	for (uint32_t i = 0; ret == 0 && i < full.ranks; i++) {
		int n = snprintf(shard, sizeof(shard), "%s.%u-of-%u", name, i, full.ranks);

		ret = n < 0 || (size_t)n >= sizeof(shard)
			      ? error_set(-EINVAL, "name %s: too long for shards", name)
			      : rlv_weights_create(store, shard, full.weights, &shards->of[i]);
	}
	if (ret) {
		struct error_kept kept;

		error_keep(&kept);
		(void)shards_end(shards);
		error_restore(&kept);
		return ret;
	}
	*shards_out = shards;
	return 0;
}

int rlv_shards_close(struct rlv_shards **shards)
{
	int ret;

	if (!shards || !*shards)
		return 0;
	ret = shards_end(*shards);
	*shards = NULL;
	return ret;
}

static uint64_t newest_of(const struct rlv_generations *weights)
{
	return weights->table.n ? weights->table.gens[0].version : 0;
}

static bool has_version(const struct rlv_generations *weights, uint64_t version)
{
	for (uint32_t i = 0; i < weights->table.n; i++)
		if (weights->table.gens[i].version == version)
			return true;
	return false;
}

/* The newest version that all ranks have, 0 if there is none. *last_out: the rank whose newest is the oldest. */
static uint64_t newest_common(const struct rlv_shards *shards, uint32_t *last_out)
{
	const struct weights_table *table;

	*last_out = 0;
	for (uint32_t i = 1; i < shards->ranks; i++)
		if (newest_of(shards->of[i]) < newest_of(shards->of[*last_out]))
			*last_out = i;
	table = &shards->of[*last_out]->table;
	for (uint32_t k = 0; k < table->n; k++) {
		bool all = true;

		for (uint32_t i = 0; all && i < shards->ranks; i++)
			all = has_version(shards->of[i], table->gens[k].version);
		if (all)
			return table->gens[k].version;
	}
	return 0;
}

static int shards_refresh(struct rlv_shards *shards)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < shards->ranks; i++)
		ret = weights_refresh(shards->of[i]);
	return ret;
}

/* -EAGAIN: the slowest rank has none of the generations that stay, so that the newest of all would be dropped. The
   slowest rank itself may always publish. */
static int shards_may_publish(const struct rlv_shards *shards)
{
	const struct weights_table *mine = &shards->of[shards->rank]->table;
	uint32_t last, least = mine->keep > 1 ? mine->keep - 2 : 0; /* the oldest that stays */

	(void)newest_common(shards, &last);
	if (mine->n < mine->keep || newest_of(shards->of[last]) >= mine->gens[least].version)
		return 0;
	return error_set(-EAGAIN,
			 "rank %u is at version %" PRIu64 ", %u generations behind: wait for it, "
			 "or keep more",
			 last, newest_of(shards->of[last]), mine->keep);
}

int rlv_shards_publish(struct rlv_shards *shards, const struct rlv_tensor *tensors, size_t n,
		       uint64_t version, uint32_t flags)
{
	int ret;

	if (!shards)
		return error_set(-EINVAL, "shards is NULL");
	if (shards->rank == RLV_NO_RANK)
		return error_set(-EINVAL, "shards were opened with RLV_NO_RANK");
	ret = shards_refresh(shards);
	if (ret == 0)
		ret = shards_may_publish(shards);
	return ret ? ret
		   : rlv_weights_publish(shards->of[shards->rank], tensors, n, version, flags);
}

/* Waits until all ranks have a version above `than`. */
static int shards_wait(struct rlv_shards *shards, uint64_t than, uint64_t deadline_ns,
		       uint64_t *version_out)
{
	const struct clock *clock = shards->of[0]->kv->set.clock;
	uint64_t version;
	uint32_t last;
	int ret;

	for (;;) {
		struct rlv_generations *slow;
		int64_t left_ns = deadline_left_ns(clock, deadline_ns);

		ret = shards_refresh(shards);
		if (ret)
			return ret;
		*version_out = newest_common(shards, &last);
		if (*version_out > than)
			return 0;
		if (left_ns == 0)
			return error_set(-ETIMEDOUT,
					 "weights: no version above %" PRIu64
					 " of all ranks; rank %u is at %" PRIu64,
					 than, last, newest_of(shards->of[last]));
		slow = shards->of[last];
		ret = rlv_kv_watch(slow->kv, weights_table_key, slow->table_version, left_ns,
				   &version);
		if (ret)
			return ret;
	}
}

int rlv_shards_poll(struct rlv_shards *shards, uint64_t *version_out)
{
	uint32_t last;
	int ret;

	if (!shards || !version_out)
		return error_set(-EINVAL, "shards or version_out is NULL");
	ret = shards_refresh(shards);
	if (ret)
		return ret;
	*version_out = newest_common(shards, &last);
	return *version_out ? 0 : error_set(-ENODATA, "weights: no version of all ranks");
}

/* Gives the newest version of all ranks above `newer_than`: all of it, or what is ready first. */
static int shards_newest(struct rlv_shards *shards, uint64_t newer_than, int64_t timeout_ns,
			 struct rlv_generation *got, uint32_t *ready)
{
	uint64_t deadline_ns = deadline_after(shards->of[0]->kv->set.clock, timeout_ns), version;
	uint32_t n = 0;
	int ret = -EAGAIN;

	for (uint32_t try = 0; ret == -EAGAIN && try < MOST_TRIES; try++) {
		ret = shards_wait(shards, newer_than, deadline_ns, &version);
		for (n = 0; ret == 0 && n < shards->ranks; n++)
			ret = ready ? weights_begin_version(shards->of[n], version, &got[n],
							    &ready[n])
				    : weights_fetch_version(shards->of[n], version, &got[n]);
		for (; ret && n > 0; n--)
			rlv_generation_release(&got[n - 1]);
	}
	return ret;
}

int rlv_shards_fetch(struct rlv_shards *shards, uint64_t newer_than, int64_t timeout_ns,
		     struct rlv_generation *generations_out)
{
	if (!shards || !generations_out)
		return error_set(-EINVAL, "shards or generations_out is NULL");
	return shards_newest(shards, newer_than, timeout_ns, generations_out, NULL);
}

int rlv_shards_begin(struct rlv_shards *shards, uint64_t newer_than, int64_t timeout_ns,
		     struct rlv_generation *generations_out, uint32_t *ready_out)
{
	if (!shards || !generations_out || !ready_out)
		return error_set(-EINVAL, "shards, generations_out or ready_out is NULL");
	return shards_newest(shards, newer_than, timeout_ns, generations_out, ready_out);
}

int rlv_shards_more(struct rlv_shards *shards, const struct rlv_generation *generations,
		    uint32_t *ready_inout)
{
	uint32_t next;
	int ret;

	if (!shards || !generations || !ready_inout)
		return error_set(-EINVAL, "shards, generations or ready_inout is NULL");
	next = shards->ranks;
	for (uint32_t i = 0; i < shards->ranks; i++)
		if (ready_inout[i] < generations[i].n_tensors &&
		    (next == shards->ranks || ready_inout[i] < ready_inout[next]))
			next = i;
	if (next == shards->ranks)
		return 0;
	ret = rlv_weights_more(shards->of[next], &generations[next], &ready_inout[next]);
	return ret ? error_prefix(ret, "rank %u: ", next) : 0;
}

int rlv_shards_limit(struct rlv_shards *shards, uint64_t bytes)
{
	int ret = 0;

	if (!shards)
		return error_set(-EINVAL, "shards is NULL");
	for (uint32_t i = 0; ret == 0 && i < shards->ranks; i++)
		ret = rlv_weights_limit(shards->of[i], bytes);
	return ret;
}

int rlv_shards_check(struct rlv_shards *shards, uint32_t check)
{
	int ret = 0;

	if (!shards)
		return error_set(-EINVAL, "shards is NULL");
	for (uint32_t i = 0; ret == 0 && i < shards->ranks; i++)
		ret = rlv_weights_check(shards->of[i], check);
	return ret;
}
