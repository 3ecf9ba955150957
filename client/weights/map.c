/*
 * map.c - rlv_weights_map: a generation whose tensors stay in the chunks of its anchor, which are mapped side by side. The head
 * is copied, and checked then: from there on nobody can change it.
 */
#include "client/weights/weights.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static int mapped_damaged(const struct weights_gen *gen)
{
	return error_set(-EBADMSG, "version %" PRIu64 " has other tensors than announced",
			 gen->version);
}

/* Copies the head out of the view, and checks it. */
static int mapped_head(struct weights_buffer *buffer, const struct weights_gen *gen)
{
	const void *from = buffer->view->value.at;
	struct weights_entry head;
	uint64_t bytes;
	int ret;

	if (gen->anchor.bytes < sizeof(head))
		return mapped_damaged(gen);
	memcpy(&head, from, sizeof(head));
	if (head.head_bytes > gen->anchor.bytes - sizeof(head))
		return mapped_damaged(gen);
	bytes = weights_payload_off(&head); /* all of which the anchor has */
	if (!weights_make_room(&buffer->entry, &buffer->room, bytes))
		return error_set(-ENOMEM, "weights: cannot allocate %" PRIu64 " bytes", bytes);
	memcpy(buffer->entry, from, bytes);
	ret = buffer->entry->head_bytes == head.head_bytes
		      ? weights_anchor_check(buffer->entry, gen->anchor.bytes, gen->seq)
		      : mapped_damaged(gen);
	if (ret == 0 && (buffer->entry->payload != gen->payload ||
			 weights_tree_hash(buffer->entry) != gen->tree))
		ret = mapped_damaged(gen);
	return ret ? ret : weights_buffer_parse(buffer);
}

/* Points the tensors to where they are; returns their bytes. */
static uint64_t mapped_tensors(struct weights_buffer *buffer, const uint8_t *payload)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < buffer->entry->n; i++) {
		struct rlv_tensor *to = &buffer->tensors[i];

		to->data = payload + weights_tensors(buffer->entry)[i].off;
		to->mapped = 1;
		bytes += to->bytes;
	}
	return bytes;
}

/* Holds the anchor of the newest generation. */
static int mapped_open(struct rlv_generations *weights, struct weights_buffer *buffer)
{
	const struct weights_gen *gen = &weights->table.gens[0];
	struct weights_key key = weights_entry_key(gen->owner, gen->anchor_index);
	struct kv_view *view = mem_alloc(sizeof(*view));
	int ret = view ? kv_view_open(weights->kv, weights_key_bytes(&key), view)
		       : error_set(-ENOMEM, "weights: cannot allocate memory");

	if (ret || !view->hold.manifest) {
		mem_free(view);
		if (ret == -ENOTSUP)
			(void)error_prefix(ret, "rlv_weights_map: call rlv_weights_fetch: ");
		return ret == -ENOENT ? mapped_damaged(gen) : ret;
	}
	buffer->view = view;
	if (view->hold.version != gen->anchor.entry)
		return error_set(-EAGAIN, "version %" PRIu64 " was dropped before it was held",
				 gen->version);
	return view->hold.len == gen->anchor.bytes ? 0 : mapped_damaged(gen);
}

static int map_newest(struct rlv_generations *weights, void *generation_out)
{
	const struct weights_gen *gen = &weights->table.gens[0];
	struct rlv_generation generation = { .size = sizeof(generation), .version = gen->version };
	struct weights_buffer *buffer = mem_zalloc(sizeof(*buffer));
	int ret = 0;

	if (!buffer)
		return error_set(-ENOMEM, "weights: cannot allocate memory");
	atomic_init(&buffer->holds, 1);
	if (!gen->anchor.entry)
		ret = error_set(-ENOTSUP,
				"version %" PRIu64 " is a delta: fetch it, or publish with "
				"RLV_PUBLISH_ANCHOR or opts.anchor_every 1",
				gen->version);
	if (ret == 0)
		ret = mapped_open(weights, buffer);
	if (ret == 0 && !buffer->view) { /* it is short, or older than this layout */
		weights_buffer_put(buffer);
		return weights_fetch_version(weights, gen->version, generation_out);
	}
	if (ret == 0)
		ret = mapped_head(buffer, gen);
	if (ret) {
		weights_buffer_put(buffer);
		return ret;
	}
	buffer->seq = gen->seq; /* all of it is there: rlv_weights_more */
	generation.n_tensors = buffer->entry->n;
	generation.tensors = buffer->tensors;
	generation.data =
		(const uint8_t *)buffer->view->value.at + weights_payload_off(buffer->entry);
	generation.bytes = buffer->entry->payload;
	generation.mapped = mapped_tensors(buffer, generation.data);
	generation.hold = buffer;
	weights_given(weights, gen->seq);
	abi_write(generation_out, &generation, sizeof(generation));
	return 0;
}

int rlv_weights_map(struct rlv_generations *weights, uint64_t newer_than, int64_t timeout_ns,
		    struct rlv_generation *generation_out)
{
	int ret;

	if (!weights || !generation_out)
		return error_set(-EINVAL, "weights or generation_out is NULL");
	ret = abi_check(generation_out, "generation_out->");
	if (ret)
		return ret;
	return weights_newest(weights, newer_than, timeout_ns, map_newest, generation_out);
}
