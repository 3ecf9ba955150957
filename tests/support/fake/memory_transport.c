#include "tests/support/fake/memory_transport.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "transport/barrier.h"
#include "transport/fork.h"

#include "base/mem/chunk.h"

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

/* True if this call is to fail. Counts down. */
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

static void write_words(struct memory_transport *mt, const struct transport_io *io)
{
	for (uint32_t i = 0; i < io->len; i += 8)
		atomic_store_explicit(word_at(mt, io->region, io->off + i),
				      ((const uint64_t *)io->src)[i / 8], memory_order_release);
}

static void do_cas(struct memory_transport *mt, struct transport_atomic *op)
{
	op->old = op->expected;
	if (!atomic_compare_exchange_strong_explicit(word_at(mt, op->region, op->off), &op->old,
						     op->value, memory_order_acq_rel,
						     memory_order_acquire))
		transport_account_cas(&mt->tr, 1, 0);
}

static void do_atomic(struct memory_transport *mt, struct transport_wr *wr)
{
	struct transport_atomic *op = &wr->atomic;
	bool lost = strikes(&mt->lose_atomic);

	op->status = lost ? ATOMIC_UNKNOWN : ATOMIC_DONE;
	if (lost && mt->lose_undone)
		return;
	if (wr->verb == VERB_CAS)
		do_cas(mt, op);
	else
		op->old = atomic_fetch_add_explicit(word_at(mt, op->region, op->off), op->value,
						    memory_order_acq_rel);
}

static void do_wr(struct memory_transport *mt, struct transport_wr *wr)
{
	switch (wr->verb) {
	case VERB_READ:
		read_words(mt, &wr->io);
		break;
	case VERB_WRITE:
		write_words(mt, &wr->io);
		break;
	case VERB_CAS:
	case VERB_FAA:
		do_atomic(mt, wr);
		break;
	}
}

/*
 * In order and at once; over a wire somebody waits for it all the same. An error leaves the rest of a
 * chain undone, and all of a call that has no order.
 */
static int memory_submit(struct transport *tr, struct transport_wr *wrs, size_t n,
			 enum submit_order order, uint64_t *ticket_out)
{
	struct memory_transport *mt = of(tr);

	if (order == SUBMIT_UNORDERED && strikes(&mt->fail_call))
		return -ECONNRESET;
	for (size_t i = 0; i < n; i++) {
		if (order == SUBMIT_ORDERED && strikes(&mt->fail_call))
			return -ECONNRESET;
		do_wr(mt, &wrs[i]);
	}
	*ticket_out = mt->region.base ? 0 : tr->posted + 1;
	return 0;
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

/* The regions are part of the transport. */
static void memory_detach(struct transport *tr, struct region *region)
{
	(void)tr;
	(void)region;
}

static const struct transport_ops memory_ops = {
	.name = "memory",
	.detach = memory_detach,
	.submit = memory_submit,
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

void memory_transport_shard(struct memory_transport *mt, const struct part_regions *of,
			    bool in_place, struct part_regions *regions_out)
{
	const struct region *tree = of->at[REGION_TREE];

	*regions_out = (struct part_regions){ .owner = 0 };
	memory_transport_init(mt, tree->base, tree->size, in_place);
	regions_out->at[REGION_TREE] = &mt->region;
	for (uint32_t role = REGION_ROWS; role < REGION_ROLES; role++)
		regions_out->at[role] =
			memory_transport_add(mt, of->at[role]->base, of->at[role]->size);
}

void memory_transport_fini(struct memory_transport *mt)
{
	chunk_drop(&mt->tr.view);
}
