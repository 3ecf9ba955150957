/*
 * Priorities back into the tree, and items out of it.
 *
 * Keys are put in the order of the leaves, so that neighbours share their ancestors' deltas; a
 * batch as sampled is in that order already, or nearly.
 */
#include "client/sampler/sampler.h"

#include "ds/replay/priority.h"

#include "base/bits.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* -------- order -------- */

#define INDEX_BITS 16 /* of a place with its index: batches have at most 65536 items */
#define DIGIT_BITS 8
#define DIGIT_VALUES (1u << DIGIT_BITS)

static uint32_t place_digit(uint64_t word, uint32_t digit)
{
	return (uint32_t)(word >> (INDEX_BITS + digit * DIGIT_BITS)) & (DIGIT_VALUES - 1);
}

/* One pass of a radix sort, by one digit of the place: sorts from[] into to[]. False: all have
   the same digit, and to[] is not written. */
static bool order_sort_digit(const uint64_t *from, uint64_t *to, uint32_t n, uint32_t digit)
{
	uint32_t at[DIGIT_VALUES] = { 0 };
	uint32_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		at[place_digit(from[i], digit)]++;
	if (at[place_digit(from[0], digit)] == n)
		return false;
	for (uint32_t v = 0; v < DIGIT_VALUES; v++) {
		uint32_t count = at[v];

		at[v] = sum;
		sum += count;
	}
	for (uint32_t i = 0; i < n; i++)
		to[at[place_digit(from[i], digit)]++] = from[i];
	return true;
}

void sampler_order(struct rlv_sampler *sp, const uint64_t *keys, uint32_t n)
{
	uint64_t *order = sp->scratch.order;
	uint64_t *spare = sp->scratch.spare;
	bool sorted = true;

	for (uint32_t i = 0; i < n; i++) {
		/* The place: (shard, slot) of a key, in 34 bits, without the generation. */
		uint64_t place = (uint64_t)key_shard(keys[i]) << 24 | key_slot(keys[i]);

		order[i] = place << INDEX_BITS | i;
		sorted &= i == 0 || order[i - 1] < order[i];
	}
	for (uint32_t d = 0; !sorted && d < 5; d++) /* digits of a place */
		if (order_sort_digit(order, spare, n, d)) {
			uint64_t *swap = order;

			order = spare;
			spare = swap;
		}
	for (uint32_t i = 0; i < n; i++)
		sp->scratch.order[i] = order[i] & ((1u << INDEX_BITS) - 1);
}

/* -------- update -------- */

/* True if all keys name slots of the table. Without a branch, so compilers make vectors of it. */
static bool keys_are_of_table(const struct rlv_sampler *sp, const uint64_t *keys, uint32_t n)
{
	uint32_t table = sp->h.desc->table_id, slots = sp->h.desc->slots, parts = sp->h.set.n_parts;
	uint32_t differ = 0, beyond = 0; /* sign bit set: of a shard, slot or generation */

	for (uint32_t i = 0; i < n; i++) {
		uint64_t key = keys[i];

		differ |= key_table(key) ^ table;
		beyond |= (parts - 1 - key_shard(key)) | (slots - 1 - key_slot(key)) |
			  (key_gen(key) - 1);
	}
	return differ == 0 && (int32_t)beyond >= 0;
}

int sampler_check_keys(const struct rlv_sampler *sp, const uint64_t *keys, uint32_t n)
{
	const struct table_desc *desc = sp->h.desc;

	if (keys_are_of_table(sp, keys, n))
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t key = keys[i];

		if (key_table(key) != desc->table_id)
			return error_set(-EINVAL,
					 "keys[%u] 0x%016" PRIx64
					 ": a key of another table than %s",
					 i, key, desc->name);
		if (key_shard(key) >= sp->h.set.n_parts || key_slot(key) >= desc->slots ||
		    key_gen(key) == 0)
			return error_set(-EINVAL, "keys[%u] 0x%016" PRIx64 ": no key of table %s",
					 i, key, desc->name);
	}
	return 0;
}

/*
 * Makes scratch.ops, one for each distinct key, in the order of their leaves; of equal keys the last
 * counts. Returns how many. scratch.shard has the shards in their order, n_shards_out of them, and
 * scratch.at where the ops of each begin, and behind the last where they end.
 */
static uint32_t sampler_make_ops(struct rlv_sampler *sp, const uint64_t *keys, uint32_t n,
				 uint32_t *n_shards_out)
{
	const uint64_t *order = sp->scratch.order;
	const uint64_t *words = NULL;
	uint32_t sparse = sp->trees.sparse ? UINT32_MAX
					   : 0; /* then no tree has its shard's number */
	uint32_t m = 0, shards = 0, last = UINT32_MAX;

	/* The leaves as last seen, if these are the keys of a batch that is held or was the last. */
	for (uint32_t b = 0; !words && b < sp->n_batches; b++) {
		const struct batch *batch = sp->batches[b];

		if (batch->pub.n == n && (batch->held || batch == sp->last) &&
		    (keys == batch->key || memcmp(keys, batch->key, n * sizeof(*keys)) == 0))
			words = batch->word;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint64_t k = order[i];
		uint64_t key = keys[k];

		sp->scratch.ops[m] = (struct leaf_op){
			.slot = key_slot(key),
			.gen = key_gen(key),
			.priority = sp->scratch.quanta[k],
			.word = words ? words[k] : 0,
			.tree = key_shard(key) | sparse,
		};
		/* Without a branch: where the shard changes cannot be predicted. */
		shards += key_shard(key) != last;
		sp->scratch.at[shards] = m + 1;
		last = key_shard(key);
		sp->scratch.shard[shards - 1] = last;
		m += i + 1 == n || keys[order[i + 1]] != key;
	}
	sp->scratch.at[0] = 0;
	*n_shards_out = shards;
	return m;
}

/* Counts n updates of items in shards that are away: as lost, and as stale, as if they had been
   overwritten. */
static void update_count_lost(struct rlv_sampler *sp, uint32_t n, struct rlv_update_result *result)
{
	result->stale += n;
	sp->stats.updates_lost += n;
}

/* Adds the results of a shard's updates to *result. If its connection has ended, they count as
   lost, without an error. -EIO: an answer was lost. */
static int update_count_change(struct rlv_sampler *sp, const struct shard_change *ch,
			       struct rlv_update_result *result)
{
	const struct leaf_op *ops = ch->ops[sp->view_index];
	uint32_t n = ch->n[sp->view_index];
	bool unknown = false;
	int ret = ch->ret;

	if (ret && access_is_broken(ch->acc)) {
		update_count_lost(sp, n, result);
		return 0;
	}
	for (uint32_t i = 0; ret == 0 && i < n; i++) {
		result->updated += ops[i].result == LEAF_DONE;
		result->stale += ops[i].result == LEAF_STALE || ops[i].result == LEAF_ABSENT;
		unknown |= ops[i].result == LEAF_UNKNOWN;
	}
	if (unknown)
		ret = error_set(-EIO, "update: an answer was lost: some priorities may not be set");
	return handle_failed(ch->acc, ret);
}

/* Counts the results of n ops that are done; false, and counts nothing, if an answer was lost. */
static bool update_count_all(const struct leaf_op *ops, uint32_t n,
			     struct rlv_update_result *result)
{
	uint32_t done = 0, unknown = 0;

	for (uint32_t i = 0; i < n; i++) {
		done += ops[i].result == LEAF_DONE;
		unknown += ops[i].result == LEAF_UNKNOWN;
	}
	if (unknown)
		return false;
	result->updated += done;
	result->stale += n - done;
	return true;
}

static int sampler_update_all(struct rlv_sampler *sp, const uint64_t *keys, uint32_t n,
			      struct rlv_update_result *result)
{
	uint32_t n_changes = 0, n_ops, n_shards, v = sp->view_index;
	uint64_t most = 0;
	int first_error = 0, failed;

	sampler_order(sp, keys, n);
	n_ops = sampler_make_ops(sp, keys, n, &n_shards);
	for (uint32_t i = 0; i < n; i++)
		most = max_u64(most, sp->scratch.quanta[i]);
	/* A change for each shard that can be reached; the ops of the others are lost. */
	for (uint32_t i = 0; i < n_shards; i++) {
		uint32_t first = sp->scratch.at[i], end = sp->scratch.at[i + 1];
		struct access *acc = handle_access(&sp->h, sp->scratch.shard[i]);
		struct shard_change *ch = &sp->changes[n_changes];

		if (!acc) {
			update_count_lost(sp, end - first, result);
			continue;
		}
		change_begin(ch, acc);
		ch->most = most;
		ch->ops[v] = sp->scratch.ops + first;
		ch->n[v] = end - first;
		n_changes++;
	}
	failed = change_update(sp->changes, n_changes);
	if (failed) /* judged below, shard by shard */
		log_debug("update: %s", error_last());
	if (!failed && n_changes == n_shards && update_count_all(sp->scratch.ops, n_ops, result))
		return 0;
	for (uint32_t i = 0; i < n_changes; i++) {
		int ret = update_count_change(sp, &sp->changes[i], result);

		first_error = first_error ? first_error : ret;
	}
	return first_error;
}

/* Values of items, and how they become stored priorities. */
struct feedback {
	const uint64_t *keys;
	const float *values;
	uint32_t n;
	void (*quanta)(const struct view_desc *view, const float *values, size_t n,
		       uint64_t *quanta_out, uint64_t *clamped);
};

static int sampler_update(struct rlv_sampler *sp, const struct feedback *in,
			  struct rlv_update_result *result_out)
{
	struct rlv_update_result sum = { 0 };
	uint64_t clamped = 0;
	uint32_t now;
	int ret;

	if (!sp || (in->n && (!in->keys || !in->values)))
		return error_set(-EINVAL, "sampler, keys or values is NULL");
	if (sp->h.table->store->read_only)
		return error_set(-EACCES, "store was opened read-only");
	if (sp->h.opts.reader)
		return error_set(-EACCES, "update: needs a token of role learn, the token in use "
					  "has role read");
	if (sp->view->selector != RLV_PRIORITIZED)
		return error_set(-EINVAL, "sampler: view %u is not prioritized", sp->view_index);
	ret = handle_begin(&sp->h, 0);
	prefetch_advance(sp);                         /* its phases are under way with ours */
	if (ret == 0 || handle_may_heal(&sp->h, ret)) /* then all updates are lost, which is no
	                                                 error */
		ret = sampler_check_keys(sp, in->keys, in->n);
	if (ret == 0)
		ret = priority_check(in->values, in->n);
	for (uint32_t done = 0; ret == 0 && done < in->n; done += now) {
		now = in->n - done < sp->opts.batch_size ? in->n - done : sp->opts.batch_size;
		in->quanta(sp->view, in->values + done, now, sp->scratch.quanta, &clamped);
		ret = sampler_update_all(sp, in->keys + done, now, &sum);
	}
	prefetch_advance(sp);
	sum.clamped = (uint32_t)clamped;
	sp->stats.updates += sum.updated;
	sp->stats.stale_updates += sum.stale;
	sp->stats.clamped += clamped;
	if (ret == 0 && result_out)
		*result_out = sum;
	return ret;
}

int rlv_sampler_update(struct rlv_sampler *sampler, const uint64_t *keys, const float *td_error,
		       uint32_t n, struct rlv_update_result *result_out)
{
	const struct feedback in = { keys, td_error, n, priority_from_td };

	return sampler_update(sampler, &in, result_out);
}

int rlv_sampler_set_priorities(struct rlv_sampler *sampler, const uint64_t *keys,
			       const float *priorities, uint32_t n,
			       struct rlv_update_result *result_out)
{
	const struct feedback in = { keys, priorities, n, priority_from_value };

	return sampler_update(sampler, &in, result_out);
}
