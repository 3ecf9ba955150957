#include "client/weights/weights.h"

#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MOST_TRIES 8u /* of a fetch whose generation is dropped before it is read */

void weights_given(struct rlv_generations *weights, uint64_t seq)
{
	/* One that arrived slowly may be older than one that was fetched meanwhile. */
	weights->has = max_u64(weights->has, seq);
	weights->stats.fetched++;
	meta_progress_read(&weights->watch.progress, weights->has * 1000, weights->has);
}

/* -------- waits -------- */

int weights_wait(struct rlv_generations *weights, uint64_t than, uint64_t deadline_ns)
{
	const struct clock *clock = weights->kv->set.clock;
	uint64_t version;
	int64_t left_ns;
	int ret;

	for (;;) {
		ret = weights_refresh(weights);
		if (ret || (weights->table.n && weights->table.gens[0].version > than))
			return ret;
		left_ns = deadline_left_ns(clock, deadline_ns);
		if (left_ns == 0)
			return error_set(-ETIMEDOUT, "weights: no version above %" PRIu64, than);
		ret = rlv_kv_watch(weights->kv, weights_table_key, weights->table_version, left_ns,
				   &version);
		if (ret)
			return ret;
	}
}

int rlv_weights_poll(struct rlv_generations *weights, uint64_t *version_out)
{
	int ret;

	if (!weights || !version_out)
		return error_set(-EINVAL, "weights or version_out is NULL");
	ret = weights_refresh(weights);
	if (ret)
		return ret;
	if (!weights->table.n)
		return error_set(-ENODATA, "weights: nothing was published yet");
	*version_out = weights->table.gens[0].version;
	return 0;
}

int rlv_weights_watch(struct rlv_generations *weights, uint64_t than, int64_t timeout_ns,
		      uint64_t *version_out)
{
	int ret;

	if (!weights || !version_out)
		return error_set(-EINVAL, "weights or version_out is NULL");
	ret = weights_wait(weights, than, deadline_after(weights->kv->set.clock, timeout_ns));
	if (ret == 0)
		*version_out = weights->table.gens[0].version;
	return ret;
}

/* -------- entries -------- */

/* Reads the entry of a generation, which is at that place. -EAGAIN: it was dropped meanwhile; -EBADMSG. */
static int entry_read(struct rlv_generations *weights, const struct weights_gen *gen,
		      const struct weights_place *place, void *ptr)
{
	struct weights_key key = weights_entry_key(
		gen->owner, place == &gen->anchor ? gen->anchor_index : gen->delta_index);
	struct rlv_kv_value value = { .size = sizeof(value), .ptr = ptr, .room = place->bytes };
	int ret;

	ret = rlv_kv_get(weights->kv, weights_key_bytes(&key), &value);

	if (ret && ret != -ERANGE)
		return ret == -ENOENT ? error_set(-EBADMSG, "version %" PRIu64 " has no entry",
						  gen->version)
				      : ret;
	if (value.version != place->entry)
		return error_set(-EAGAIN, "version %" PRIu64 " was dropped before it was read",
				 gen->version);
	if (ret || value.len != place->bytes)
		return error_set(-EBADMSG,
				 "version %" PRIu64 " has %" PRIu64 " bytes, not %" PRIu64,
				 gen->version, value.len, place->bytes);
	return 0;
}

int weights_anchor_parse(struct weights_buffer *buffer, const struct weights_gen *gen)
{
	int ret = weights_anchor_check(buffer->entry, gen->anchor.bytes, gen->seq);

	if (ret == 0 && (buffer->entry->payload != gen->payload ||
			 weights_tree_hash(buffer->entry) != gen->tree))
		ret = error_set(-EBADMSG, "version %" PRIu64 " has other tensors than announced",
				gen->version);
	if (ret == 0)
		ret = weights_buffer_parse(buffer);
	if (ret)
		return ret;
	memset(buffer->sums, 0, buffer->entry->n * sizeof(buffer->sums[0]));
	memset(buffer->bases, 0, buffer->entry->n * sizeof(buffer->bases[0]));
	buffer->bytes = gen->anchor.bytes;
	return 0;
}

static int anchor_read(struct rlv_generations *weights, const struct weights_gen *gen,
		       struct weights_buffer **at)
{
	struct weights_buffer *buffer;
	int ret = weights_buffer_take(at, gen->anchor.bytes);

	if (ret)
		return ret;
	buffer = *at;
	ret = entry_read(weights, gen, &gen->anchor, buffer->entry);
	if (ret == 0)
		ret = weights_anchor_parse(buffer, gen);
	if (ret)
		return ret;
	weights_anchor_base(weights, buffer);
	buffer->seq = gen->seq;
	return 0;
}

/* Reads n deltas, side by side; from[k] is that of gens[-k]. */
static int deltas_read(struct rlv_generations *weights, const struct weights_gen *gens, uint32_t n,
		       struct weights_delta *from)
{
	uint64_t bytes = 0, off = 0;
	int ret = 0;

	for (uint32_t k = 0; k < n; k++)
		bytes += align_up((gens - k)->delta.bytes, WEIGHTS_ALIGN);
	if (!weights_make_room(&weights->deltas, &weights->deltas_room, bytes))
		return error_set(-ENOMEM, "weights: cannot allocate %" PRIu64 " bytes", bytes);
	for (uint32_t k = 0; ret == 0 && k < n; k++) {
		const struct weights_gen *gen = gens - k;

		from[k] = (struct weights_delta){ gen, weights->deltas + off, gen->delta.bytes };
		ret = entry_read(weights, gen, &gen->delta, weights->deltas + off);
		off += align_up(gen->delta.bytes, WEIGHTS_ALIGN);
	}
	return ret;
}

/* Applies n deltas, of which the first is that of gens[0], to a buffer that has the generation before. */
static int deltas_apply(struct rlv_generations *weights, const struct weights_gen *gens, uint32_t n,
			struct weights_buffer *buffer)
{
	struct weights_copy copy = weights_buffer_full(buffer);
	struct weights_delta from[DELTA_CHAIN];
	int ret = deltas_read(weights, gens, n, from);

	if (ret)
		return ret;
	buffer->seq = 0;
	ret = weights_changes_apply(&copy, from, n);
	if (ret)
		return ret;
	buffer->seq = gens->seq + n - 1;
	weights->stats.deltas += n;
	return 0;
}

/* How many of the deltas from index i to the target are applied at once: sums begin again behind an anchor. */
static uint32_t deltas_together(const struct weights_gen *gens, uint32_t i, uint32_t target)
{
	uint32_t n = 1;

	while (n < DELTA_CHAIN && i - n + 1 > target && !gens[i - n + 1].anchor.entry)
		n++;
	return n;
}

/* -------- generations -------- */

void weights_generation_give(uint64_t version, struct weights_buffer *buffer,
			     const struct weights_fetched *how, struct rlv_generation *out)
{
	struct rlv_generation generation = {
		.size = sizeof(generation),
		.n_tensors = buffer->entry->n,
		.version = version,
		.tensors = buffer->tensors,
		.data = (const uint8_t *)buffer->entry + weights_payload_off(buffer->entry),
		.bytes = buffer->entry->payload,
		.n_deltas = (uint32_t)how->deltas,
		.flags = how->repaired ? RLV_GENERATION_REPAIRED : 0,
		.hold = buffer,
	};

	abi_write(out, &generation, sizeof(generation));
}

/* Adds up what deltas have made, if the handle makes full checks. */
static int full_check(const struct rlv_generations *weights, const struct weights_gen *gen,
		      struct weights_buffer *buffer)
{
	struct weights_copy copy = weights_buffer_full(buffer);
	int ret = weights->check_full ? weights_copy_check(&copy, gen) : 0;

	if (ret)
		buffer->seq = 0;
	return ret;
}

/* Makes generation `target` of the table in the buffer at *at, from what that has, or an anchor. */
static int generation_make(struct rlv_generations *weights, struct weights_buffer **at,
			   uint32_t target)
{
	const struct weights_gen *gens = weights->table.gens;
	struct weights_way way = weights_table_way(&weights->table, target, *at ? (*at)->seq : 0);
	uint32_t left = way.begin + 1 - target; /* entries */
	bool by_deltas;
	int ret = 0;

	if (!*at || way.anchor) {
		ret = anchor_read(weights, &gens[way.begin], at);
		left--;
	}
	by_deltas = left > 0;
	while (ret == 0 && left > 0) {
		uint32_t i = target + left - 1, n = deltas_together(gens, i, target);

		ret = deltas_apply(weights, &gens[i], n, *at);
		left -= n;
	}
	return ret || !by_deltas ? ret : full_check(weights, &gens[target], *at);
}

/* True if deltas lead from the buffer to generation `target`. */
static bool is_behind(const struct rlv_generations *weights, const struct weights_buffer *buffer,
		      uint32_t target)
{
	return buffer && !weights_table_way(&weights->table, target, buffer->seq).anchor;
}

/* Makes generation `target` in the spare buffer, and swaps. *repaired_out: not by the first way. */
static int fetch_target(struct rlv_generations *weights, uint32_t target, bool *repaired_out)
{
	struct weights_buffer *swap;
	bool by_deltas;
	int ret = 0;

	if (weights->current && weights->current->seq == weights->table.gens[target].seq)
		return 0;
	weights_buffer_part(&weights->spare);
	if (!is_behind(weights, weights->spare, target) &&
	    is_behind(weights, weights->current, target))
		ret = weights_buffer_copy(&weights->spare, weights->current);
	by_deltas = is_behind(weights, weights->spare, target);
	if (ret == 0)
		ret = generation_make(weights, &weights->spare, target);
	if (ret == -EBADMSG && by_deltas) {
		weights->spare->seq = 0;
		weights->stats.repairs++;
		*repaired_out = true;
		ret = generation_make(weights, &weights->spare, target);
	}
	if (ret)
		return ret;
	swap = weights->spare;
	weights->spare = weights->current;
	weights->current = swap;
	return 0;
}

/* Fetches generation `target` of the table, and hands it out. */
static int fetch_give(struct rlv_generations *weights, uint32_t target, bool *repaired,
		      struct rlv_generation *generation_out)
{
	uint64_t deltas = weights->stats.deltas;
	int ret = fetch_target(weights, target, repaired);

	if (ret)
		return ret;
	atomic_fetch_add_explicit(&weights->current->holds, 1, memory_order_relaxed);
	weights_generation_give(
		weights->table.gens[target].version, weights->current,
		&(struct weights_fetched){ weights->stats.deltas - deltas, *repaired },
		generation_out);
	weights_given(weights, weights->current->seq);
	return 0;
}

int weights_fetch_version(struct rlv_generations *weights, uint64_t version,
			  struct rlv_generation *generation_out)
{
	bool repaired = false;
	uint32_t i = weights_find(&weights->table, version);
	int ret = abi_check(generation_out, "generation_out->");

	if (ret)
		return ret;
	return i < weights->table.n
		       ? fetch_give(weights, i, &repaired, generation_out)
		       : error_set(-EAGAIN, "version %" PRIu64 " was dropped", version);
}

int weights_newest(struct rlv_generations *weights, uint64_t than, int64_t timeout_ns,
		   int (*give)(struct rlv_generations *weights, void *ctx), void *ctx)
{
	uint64_t deadline_ns = deadline_after(weights->kv->set.clock, timeout_ns);
	int ret = -EAGAIN;

	for (uint32_t i = 0; ret == -EAGAIN && i < MOST_TRIES; i++) {
		ret = weights_wait(weights, than, deadline_ns);
		if (ret == 0)
			ret = give(weights, ctx);
	}
	return ret;
}

struct fetch {
	struct rlv_generation *generation;
	bool repaired; /* by an earlier try, too */
};

static int fetch_newest(struct rlv_generations *weights, void *ctx)
{
	struct fetch *fetch = ctx;

	return fetch_give(weights, 0, &fetch->repaired, fetch->generation);
}

int rlv_weights_fetch(struct rlv_generations *weights, uint64_t newer_than, int64_t timeout_ns,
		      struct rlv_generation *generation_out)
{
	struct fetch fetch = { .generation = generation_out };
	int ret;

	if (!weights || !generation_out)
		return error_set(-EINVAL, "weights or generation_out is NULL");
	ret = abi_check(generation_out, "generation_out->");
	if (ret)
		return ret;
	return weights_newest(weights, newer_than, timeout_ns, fetch_newest, &fetch);
}

int rlv_weights_get(struct rlv_generations *weights, uint64_t version,
		    struct rlv_generation *generation_out)
{
	struct weights_buffer *own = NULL;
	uint64_t deltas;
	uint32_t i;
	int ret;

	if (!weights || !generation_out)
		return error_set(-EINVAL, "weights or generation_out is NULL");
	ret = abi_check(generation_out, "generation_out->");
	if (ret == 0)
		ret = weights_refresh(weights);
	if (ret)
		return ret;
	i = weights_find(&weights->table, version);
	deltas = weights->stats.deltas;
	ret = i < weights->table.n ? generation_make(weights, &own, i)
				   : error_set(-EAGAIN, "version");
	if (ret == -EAGAIN)
		ret = error_set(-ENOENT,
				"version %" PRIu64 " was not published, or is not kept any more",
				version);
	if (ret) {
		weights_buffer_put(own);
		return ret;
	}
	weights_generation_give(version, own,
				&(struct weights_fetched){ weights->stats.deltas - deltas, false },
				generation_out);
	weights->stats.fetched++;
	return 0;
}
