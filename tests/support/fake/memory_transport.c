#include "tests/support/fake/memory_transport.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "transport/barrier.h"
#include "transport/fork.h"

static struct memory_transport *of(struct transport *tr)
{
	return (struct memory_transport *)tr;
}

static uint8_t *bytes_at(struct memory_transport *mt, const struct region *region, uint64_t off)
{
	return (region == &mt->region ? mt->bytes : mt->more_bytes[region - mt->more]) + off;
}

static _Atomic uint64_t *word_at(struct memory_transport *mt, const struct region *region,
				 uint64_t off)
{
	return (_Atomic uint64_t *)(void *)bytes_at(mt, region, off);
}

/* Is it this one's turn? Counts down. */
static bool strikes(uint64_t *countdown)
{
	return *countdown && --*countdown == 0;
}

static void read_words(struct memory_transport *mt, const struct transport_io *io)
{
	for (uint32_t i = 0; i < io->len; i += 8)
		*(uint64_t *)(void *)((uint8_t *)io->dst + i) = atomic_load_explicit(
			word_at(mt, io->region, io->off + i), memory_order_acquire);
}

static int memory_view(struct transport *tr, struct transport_view *views, size_t n)
{
	struct memory_transport *mt = of(tr);
	size_t bytes = 0;

	if (strikes(&mt->fail_call))
		return -ECONNRESET;
	for (size_t i = 0; i < n; i++) {
		views[i].ptr = bytes_at(mt, views[i].region, views[i].off);
		bytes += views[i].len;
	}
	if (mt->region.base)
		return 0;
	mt->view = aligned_alloc(64, (bytes + 63) / 64 * 64);
	if (!mt->view)
		return -ENOMEM;
	bytes = 0;
	for (size_t i = 0; i < n; i++) {
		struct transport_io io = { .region = views[i].region,
					   .off = views[i].off,
					   .dst = mt->view + bytes,
					   .len = views[i].len };

		read_words(mt, &io);
		views[i].ptr = mt->view + bytes;
		bytes += views[i].len;
	}
	return 0;
}

static void memory_view_end(struct transport *tr)
{
	free(of(tr)->view);
	of(tr)->view = NULL;
}

static int memory_read(struct transport *tr, const struct transport_io *io, size_t n)
{
	if (strikes(&of(tr)->fail_call))
		return -ECONNRESET;
	for (size_t i = 0; i < n; i++)
		read_words(of(tr), &io[i]);
	return 0;
}

static int memory_write(struct transport *tr, const struct transport_io *io, size_t n)
{
	if (strikes(&of(tr)->fail_call))
		return -ECONNRESET;
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < io[i].len; k += 8)
			atomic_store_explicit(word_at(of(tr), io[i].region, io[i].off + k),
					      ((const uint64_t *)io[i].src)[k / 8],
					      memory_order_release);
	return 0;
}

static int memory_cas(struct transport *tr, struct transport_atomic *ops, size_t n)
{
	struct memory_transport *mt = of(tr);

	if (strikes(&mt->fail_call))
		return -ECONNRESET;
	for (size_t i = 0; i < n; i++) {
		bool lost = strikes(&mt->lose_atomic);

		ops[i].status = lost ? ATOMIC_UNKNOWN : ATOMIC_DONE;
		if (lost && mt->lose_undone)
			continue;
		ops[i].old = ops[i].expected;
		if (!atomic_compare_exchange_strong_explicit(
			    word_at(mt, ops[i].region, ops[i].off), &ops[i].old, ops[i].value,
			    memory_order_acq_rel, memory_order_acquire))
			transport_account_cas(tr, 1, 0);
	}
	return 0;
}

static int memory_faa(struct transport *tr, struct transport_atomic *ops, size_t n)
{
	struct memory_transport *mt = of(tr);

	if (strikes(&mt->fail_call))
		return -ECONNRESET;
	for (size_t i = 0; i < n; i++) {
		bool lost = strikes(&mt->lose_atomic);

		ops[i].status = lost ? ATOMIC_UNKNOWN : ATOMIC_DONE;
		if (!lost || !mt->lose_undone)
			ops[i].old =
				atomic_fetch_add_explicit(word_at(mt, ops[i].region, ops[i].off),
							  ops[i].value, memory_order_acq_rel);
	}
	return 0;
}

/* In order and at once. An error leaves the rest of the chain undone. */
static int memory_post(struct transport *tr, struct transport_wr *wrs, size_t n,
		       uint64_t *ticket_out)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < n; i++) {
		switch (wrs[i].verb) {
		case VERB_READ:
			rc = memory_read(tr, &wrs[i].io, 1);
			break;
		case VERB_WRITE:
			rc = memory_write(tr, &wrs[i].io, 1);
			break;
		case VERB_CAS:
			rc = memory_cas(tr, &wrs[i].atomic, 1);
			break;
		case VERB_FAA:
			rc = memory_faa(tr, &wrs[i].atomic, 1);
			break;
		}
	}
	*ticket_out = ++tr->posted;
	return rc;
}

static int memory_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns)
{
	(void)tr;
	(void)ticket;
	(void)deadline_ns;
	return 0;
}

static int memory_fence(struct transport *tr)
{
	(void)tr;
	return 0;
}

/* They are part of the transport. */
static void memory_detach(struct transport *tr, struct region *region)
{
	(void)tr;
	(void)region;
}

static const struct transport_ops memory_ops = {
	.name = "memory",
	.detach = memory_detach,
	.view = memory_view,
	.view_end = memory_view_end,
	.read = memory_read,
	.write = memory_write,
	.cas = memory_cas,
	.faa = memory_faa,
	.post = memory_post,
	.poll = memory_poll,
	.order = memory_fence,
};

void memory_transport_init(struct memory_transport *mt, void *bytes, uint64_t size, bool in_place)
{
	memset(mt, 0, sizeof(*mt));
	mt->tr.ops = &memory_ops;
	mt->tr.caps = TRANSPORT_CPU_ATOMIC | (in_place ? TRANSPORT_ADDRESSABLE : TRANSPORT_ASYNC);
	mt->tr.clock = clock_monotonic();
	if (fork_watch(&mt->tr.forks))
		abort();
	mt->bytes = bytes;
	mt->region = (struct region){
		.tr = &mt->tr,
		.id = 1,
		.rights = RIGHT_ALL,
		.size = size,
		.base = in_place ? bytes : NULL,
	};
}

struct region *memory_transport_add(struct memory_transport *mt, void *bytes, uint64_t size)
{
	uint32_t i = mt->n_more++;

	if (i >= MEMORY_MORE)
		abort();
	mt->more_bytes[i] = bytes;
	mt->more[i] = mt->region;
	mt->more[i].id = 2 + i;
	mt->more[i].size = size;
	mt->more[i].base = mt->region.base ? bytes : NULL;
	return &mt->more[i];
}

void memory_transport_shard(struct memory_transport *mt, const struct shard_parts *of,
			    bool in_place, struct shard_parts *parts_out)
{
	const struct region *tree = of->at[REGION_TREE];

	*parts_out = (struct shard_parts){ .owner = 0 };
	memory_transport_init(mt, tree->base, tree->size, in_place);
	parts_out->at[REGION_TREE] = &mt->region;
	for (uint32_t role = REGION_ROWS; role < REGION_ROLES; role++)
		parts_out->at[role] =
			memory_transport_add(mt, of->at[role]->base, of->at[role]->size);
}

void memory_transport_fini(struct memory_transport *mt)
{
	free(mt->view);
	mt->view = NULL;
}
