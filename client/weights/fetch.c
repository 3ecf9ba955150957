#include "client/weights/weights.h"

#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MOST_TRIES 8u /* of a fetch whose generation is dropped before it is read */

/* -------- waits -------- */

/* Until the table has a generation above `than`. */
static int weights_wait(struct rlv_generations *weights, uint64_t than, uint64_t deadline_ns)
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

/* Reads the entry of a generation. -EAGAIN: it was dropped meanwhile; -EBADMSG. */
static int entry_read(struct rlv_generations *weights, const struct weights_gen *gen, void *ptr)
{
	struct weights_key key = weights_entry_key(gen->owner, gen->index);
	struct rlv_kv_value value = { .size = sizeof(value), .ptr = ptr, .room = gen->bytes };
	int ret = rlv_kv_get(weights->kv, weights_key_bytes(&key), &value);

	if (ret && ret != -ERANGE)
		return ret;
	if (value.version != gen->entry)
		return error_set(-EAGAIN, "version %" PRIu64 " was dropped before it was read",
				 gen->version);
	if (ret || value.len != gen->bytes)
		return error_set(-EBADMSG,
				 "version %" PRIu64 " has %" PRIu64 " bytes, not %" PRIu64,
				 gen->version, value.len, gen->bytes);
	return 0;
}

/* True if the heap can have an entry of that many bytes. */
static bool bytes_check(const struct rlv_generations *weights, uint64_t bytes)
{
	const struct heap_desc *desc = &weights->kv->desc;

	return bytes <= desc->extents * desc->extent_bytes;
}

static int anchor_read(struct rlv_generations *weights, const struct weights_gen *gen,
		       struct weights_buffer **at)
{
	struct weights_buffer *buffer;
	int ret = bytes_check(weights, gen->bytes)
			  ? weights_buffer_take(at, gen->bytes)
			  : error_set(-EBADMSG, "version %" PRIu64 " cannot have %" PRIu64 " bytes",
				      gen->version, gen->bytes);

	if (ret)
		return ret;
	buffer = *at;
	buffer->seq = 0;
	ret = entry_read(weights, gen, buffer->entry);
	if (ret == 0)
		ret = weights_anchor_check(buffer->entry, gen->bytes, gen->seq);
	if (ret == 0 && (buffer->entry->payload != gen->payload ||
			 weights_tree_hash(buffer->entry) != gen->tree))
		ret = error_set(-EBADMSG, "version %" PRIu64 " has other tensors than announced",
				gen->version);
	if (ret == 0)
		ret = weights_buffer_parse(buffer);
	if (ret)
		return ret;
	buffer->seq = gen->seq;
	buffer->sum = gen->sum;
	buffer->bytes = gen->bytes;
	return 0;
}

/* -------- generations -------- */

/* Hands the buffer out as generation `gen`. */
static void generation_give(const struct rlv_generations *weights, uint32_t index,
			    struct weights_buffer *buffer, struct rlv_generation *out)
{
	struct rlv_generation generation = {
		.size = sizeof(generation),
		.n_tensors = buffer->entry->n,
		.version = weights->table.gens[index].version,
		.tensors = buffer->tensors,
		.data = (const uint8_t *)buffer->entry + weights_payload_off(buffer->entry),
		.bytes = buffer->entry->payload,
		.hold = buffer,
	};

	abi_write(out, &generation, sizeof(generation));
}

static int fetch_newest(struct rlv_generations *weights)
{
	struct weights_buffer *swap;
	int ret;

	if (weights->current && weights->current->seq == weights->table.gens[0].seq)
		return 0;
	ret = anchor_read(weights, &weights->table.gens[0], &weights->spare);
	if (ret)
		return ret;
	swap = weights->spare;
	weights->spare = weights->current;
	weights->current = swap;
	return 0;
}

int rlv_weights_fetch(struct rlv_generations *weights, uint64_t newer_than, int64_t timeout_ns,
		      struct rlv_generation *generation_out)
{
	uint64_t deadline_ns;
	int ret;

	if (!weights || !generation_out)
		return error_set(-EINVAL, "weights or generation_out is NULL");
	ret = abi_check(generation_out, "generation_out->");
	if (ret)
		return ret;
	deadline_ns = deadline_after(weights->kv->set.clock, timeout_ns);
	for (uint32_t i = 0; i < MOST_TRIES; i++) {
		ret = weights_wait(weights, newer_than, deadline_ns);
		if (ret == 0)
			ret = fetch_newest(weights);
		if (ret != -EAGAIN)
			break;
	}
	if (ret)
		return ret;
	atomic_fetch_add_explicit(&weights->current->holds, 1, memory_order_relaxed);
	generation_give(weights, 0, weights->current, generation_out);
	weights->stats.fetched++;
	return 0;
}

int rlv_weights_get(struct rlv_generations *weights, uint64_t version,
		    struct rlv_generation *generation_out)
{
	struct weights_buffer *own = NULL;
	uint32_t i = 0;
	int ret;

	if (!weights || !generation_out)
		return error_set(-EINVAL, "weights or generation_out is NULL");
	ret = abi_check(generation_out, "generation_out->");
	if (ret == 0)
		ret = weights_refresh(weights);
	if (ret)
		return ret;
	while (i < weights->table.n && weights->table.gens[i].version != version)
		i++;
	ret = i < weights->table.n ? anchor_read(weights, &weights->table.gens[i], &own)
				   : error_set(-EAGAIN, "version");
	if (ret == -EAGAIN)
		ret = error_set(-ENOENT,
				"version %" PRIu64 " was not published, or is not kept any more",
				version);
	if (ret) {
		weights_buffer_put(own);
		return ret;
	}
	generation_give(weights, i, own, generation_out);
	weights->stats.fetched++;
	return 0;
}
