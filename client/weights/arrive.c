/*
 * arrive.c - a generation whose tensors are given as they arrive: its anchor is read by ranges, in the order in which
 * it lies, each of whole chunks. Checksums of chunks tell that their bytes are those of the entry, and its version, of each range, that
 * they are of one generation. Nothing is held between two ranges but memory of this process.
 */
#include "client/weights/weights.h"

#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>

/* Bytes of a range: what may be under way, in whole chunks. */
static uint64_t part_bytes(const struct rlv_kv *kv)
{
	uint64_t share = heap_share_most(&kv->desc, heap_lead(&kv->desc, true));
	uint64_t window = kv->window_bytes ? kv->window_bytes : HEAP_WINDOW_BYTES;

	return max_u64(window / share, 1) * share;
}

/* Reads the next bytes of the buffer's anchor. -EAGAIN: it was dropped. */
static int part_read(struct rlv_generations *weights, struct weights_buffer *buffer)
{
	const struct weights_gen *gen = &buffer->gen;
	struct weights_key key = weights_entry_key(gen->owner, gen->anchor_index);
	struct rlv_kv_value value = {
		.size = sizeof(value),
		.ptr = (uint8_t *)buffer->entry + buffer->arrived,
		.room = min_u64(part_bytes(weights->kv), gen->anchor.bytes - buffer->arrived),
	};
	int ret = rlv_kv_get_range(weights->kv, weights_key_bytes(&key), buffer->arrived,
				   value.room, &value);

	if (ret && ret != -ENOENT)
		return ret;
	if (ret || value.version != gen->anchor.entry)
		return error_set(-EAGAIN,
				 "version %" PRIu64
				 " was dropped before all of it was read: begin again",
				 gen->version);
	if (value.len != value.room)
		return error_set(-EBADMSG, "version %" PRIu64 " has fewer bytes than announced",
				 gen->version);
	buffer->arrived += value.len;
	return 0;
}

/* Reads parts until the head is there, and fills the buffer's tensors. */
static int head_read(struct rlv_generations *weights, struct weights_buffer *buffer)
{
	const struct weights_gen *gen = &buffer->gen;
	int ret;

	do {
		ret = part_read(weights, buffer);
	} while (ret == 0 && buffer->arrived < gen->anchor.bytes &&
		 buffer->arrived - sizeof(*buffer->entry) < buffer->entry->head_bytes);
	return ret ? ret : weights_anchor_parse(buffer, gen);
}

/* How many of the first tensors are there; all only when all bytes are. */
static uint32_t tensors_ready(const struct weights_buffer *buffer, uint32_t ready)
{
	const struct weights_tensor *tensors = weights_tensors(buffer->entry);
	uint64_t payload = weights_payload_off(buffer->entry);
	bool whole = buffer->arrived == buffer->gen.anchor.bytes;
	uint32_t most = whole ? buffer->entry->n : buffer->entry->n - 1;

	while (ready < most &&
	       payload + tensors[ready].off + tensors[ready].bytes <= buffer->arrived)
		ready++;
	return ready;
}

/* All of it is there: the next fetch may begin with it. */
static void arrived_whole(struct rlv_generations *weights, struct weights_buffer *buffer)
{
	weights_anchor_base(weights, buffer);
	buffer->seq = buffer->gen.seq;
	if (!weights->current || weights->current->seq < buffer->seq) {
		atomic_fetch_add_explicit(&buffer->holds, 1, memory_order_relaxed);
		weights_buffer_put(weights->spare);
		weights->spare = weights->current;
		weights->current = buffer;
	}
	weights_given(weights, buffer->seq);
}

/* True if generation `target` of the table is read from its anchor alone, and in several parts. */
static bool is_in_parts(struct rlv_generations *weights, uint32_t target)
{
	const struct weights_gen *gen = &weights->table.gens[target];
	const struct weights_buffer *has[] = { weights->current, weights->spare };

	for (uint32_t i = 0; i < 2; i++)
		if (has[i] && (has[i]->seq == gen->seq ||
			       !weights_table_way(&weights->table, target, has[i]->seq).anchor))
			return false;
	return gen->anchor.entry && gen->anchor.bytes > part_bytes(weights->kv);
}

int weights_begin_version(struct rlv_generations *weights, uint64_t version,
			  struct rlv_generation *generation_out, uint32_t *ready_out)
{
	uint32_t target = weights_find(&weights->table, version);
	const struct weights_gen *gen = &weights->table.gens[target];
	struct weights_buffer *buffer;
	int ret = abi_check(generation_out, "generation_out->");

	if (ret)
		return ret;
	weights_buffer_part(&weights->spare);
	if (target == weights->table.n || !is_in_parts(weights, target)) {
		ret = weights_fetch_version(weights, version, generation_out);
		if (ret == 0)
			*ready_out = weights->current->entry->n;
		return ret;
	}
	ret = weights_buffer_take(&weights->spare, gen->anchor.bytes);
	if (ret)
		return ret;
	buffer = weights->spare;
	buffer->gen = *gen;
	buffer->arrived = 0;
	ret = head_read(weights, buffer);
	if (ret)
		return ret;
	weights->spare = NULL; /* the program's */
	weights_generation_give(gen->version, buffer, &(struct weights_fetched){ 0, false },
				generation_out);
	*ready_out = tensors_ready(buffer, 0);
	return 0;
}

/* What rlv_weights_begin gives. */
struct begin {
	struct rlv_generation *generation;
	uint32_t *ready;
};

static int newest_begin(struct rlv_generations *weights, void *ctx)
{
	const struct begin *out = ctx;

	return weights_begin_version(weights, weights->table.gens[0].version, out->generation,
				     out->ready);
}

int rlv_weights_begin(struct rlv_generations *weights, uint64_t newer_than, int64_t timeout_ns,
		      struct rlv_generation *generation_out, uint32_t *ready_out)
{
	struct begin begin = { generation_out, ready_out };
	int ret;

	if (!weights || !generation_out || !ready_out)
		return error_set(-EINVAL, "weights, generation_out or ready_out is NULL");
	ret = abi_check(generation_out, "generation_out->");
	if (ret)
		return ret;
	return weights_newest(weights, newer_than, timeout_ns, newest_begin, &begin);
}

int rlv_weights_more(struct rlv_generations *weights, const struct rlv_generation *generation,
		     uint32_t *ready_inout)
{
	struct weights_buffer *buffer;
	uint32_t ready;
	int ret;

	if (!weights || !generation || !ready_inout)
		return error_set(-EINVAL, "weights, generation or ready_inout is NULL");
	ret = abi_check(generation, "generation->");
	if (ret)
		return ret;
	if (!generation->hold)
		return error_set(-EINVAL, "the generation was released");
	buffer = generation->hold;
	ready = *ready_inout;
	if (buffer->seq || ready >= buffer->entry->n) { /* all of it was there before */
		*ready_inout = buffer->entry->n;
		return 0;
	}
	while (ret == 0 && ready == *ready_inout) {
		ret = part_read(weights, buffer);
		if (ret == 0)
			ready = tensors_ready(buffer, ready);
	}
	*ready_inout = ready;
	if (ret == 0 && buffer->arrived == buffer->gen.anchor.bytes)
		arrived_whole(weights, buffer);
	return ret;
}
