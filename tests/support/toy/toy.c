/*
 * toy.c - each request is done when it is submitted, so that no ticket is ever waited for.
 */
#include "tests/support/toy/toy.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/mem/alloc.h"

#include "transport/attach/target.h"
#include "transport/fork.h"

struct toy_region {
	struct region region;
	struct toy_region *next;
	struct mempool_region *held;
};

struct toy {
	struct transport tr;
	struct target *target;
	uint64_t client_id;
	struct toy_region *regions;
};

static struct toy *of(struct transport *tr)
{
	return (struct toy *)tr;
}

static int toy_attach(struct transport *tr, const struct region_grant *grant,
		      struct region **region_out)
{
	struct toy *toy = of(tr);
	struct toy_region *mine = mem_zalloc(sizeof(*mine));
	struct target_map map = { 0 };
	int ret = mine ? target_attach(toy->target, toy->client_id, grant, &map) : -ENOMEM;

	if (ret) {
		mem_free(mine);
		return ret;
	}
	mine->region = (struct region){ .id = map.region->info.id,
					.rights = map.rights,
					.size = map.size,
					.incarnation = toy->target->tg.incarnation,
					.base = map.base };
	mine->held = map.region;
	mine->next = toy->regions;
	toy->regions = mine;
	*region_out = &mine->region;
	return 0;
}

static void toy_detach(struct transport *tr, struct region *region)
{
	struct toy_region **at = &of(tr)->regions, *mine = (struct toy_region *)region;

	while (*at != mine)
		at = &(*at)->next;
	*at = mine->next;
	target_detach(of(tr)->target, mine->held);
	mem_free(mine);
}

static void toy_atomic(struct transport *tr, enum transport_verb verb, struct transport_atomic *op)
{
	uint8_t *bytes = op->region->base + op->off;
	_Atomic uint64_t *word = (_Atomic uint64_t *)(void *)bytes;

	op->old = op->expected;
	if (verb == VERB_FAA)
		op->old = atomic_fetch_add(word, op->value);
	else if (!atomic_compare_exchange_strong(word, &op->old, op->value))
		transport_account_cas(tr, 1, 0);
	op->status = ATOMIC_DONE;
}

/* Words one by one, each atomically, as a wire moves them. */
static void toy_copy(enum transport_verb verb, const struct transport_io *io)
{
	uint8_t *bytes = io->region->base + io->off;

	for (uint32_t i = 0; i < io->len / 8; i++) {
		_Atomic uint64_t *word = (_Atomic uint64_t *)(void *)(bytes + 8 * (size_t)i);

		if (verb == VERB_READ)
			((uint64_t *)io->dst)[i] = atomic_load(word);
		else
			atomic_store(word, ((const uint64_t *)io->src)[i]);
	}
}

static int toy_submit(struct transport *tr, struct transport_wr *wrs, size_t n,
		      enum submit_order order, uint64_t *ticket_out)
{
	(void)order;
	for (size_t i = 0; i < n; i++) {
		if (wrs[i].verb == VERB_READ || wrs[i].verb == VERB_WRITE)
			toy_copy(wrs[i].verb, &wrs[i].io);
		else
			toy_atomic(tr, wrs[i].verb, &wrs[i].atomic);
	}
	*ticket_out = 0;
	return 0;
}

static int toy_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns)
{
	(void)tr;
	(void)ticket;
	(void)deadline_ns;
	return 0;
}

static int toy_order(struct transport *tr)
{
	(void)tr;
	return 0;
}

static void toy_close(struct transport *tr)
{
	struct toy *toy = of(tr);

	while (toy->regions)
		toy_detach(tr, &toy->regions->region);
	target_leave(toy->target, toy->client_id);
	mem_free(toy);
}

static const struct transport_ops toy_ops = {
	.name = "toy",
	.attach = toy_attach,
	.detach = toy_detach,
	.submit = toy_submit,
	.poll = toy_poll,
	.order = toy_order,
	.close = toy_close,
};

int toy_open(const struct transport_opts *opts, struct transport **tr_out)
{
	struct target *target = target_of(opts->target);
	struct toy *toy = target ? mem_zalloc(sizeof(*toy)) : NULL;
	int ret;

	if (!toy)
		return target ? -ENOMEM : -EINVAL;
	toy->tr = (struct transport){ .ops = &toy_ops,
				      .caps = TRANSPORT_ADDRESSABLE | TRANSPORT_CPU_ATOMIC,
				      .clock = opts->clock,
				      .timeout_ns = opts->timeout_ns };
	toy->target = target;
	toy->client_id = opts->client_id;
	ret = fork_watch(&toy->tr.forks);
	if (ret == 0)
		ret = target_join(target, opts->client_id);
	if (ret) {
		mem_free(toy);
		return ret;
	}
	*tr_out = &toy->tr;
	return 0;
}
