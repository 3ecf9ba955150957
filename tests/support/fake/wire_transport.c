#include "tests/support/fake/wire_transport.h"

#include "tests/support/test.h"

#include "base/mem/alloc.h"
#include "base/rng.h"

#include "transport/start.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define ITEMS_MAX 64
#define RESULTS 1024 /* of chains that nobody has polled */
#define GARBAGE 0xa5

struct wire_region {
	struct region region; /* what the user sees */
	struct region *inner;
	struct wire_region *next;
};

/* A chain, or a vector made one (`any`): then the operations may be done in any order. */
struct item {
	struct transport_wr *wrs;
	size_t n;
	uint64_t ticket;          /* 0 = the vector that finish waits for */
	struct transport_wr *own; /* wrs, of posted reads */
	size_t done;              /* of order[] */
	int code;
	uint16_t order[TRANSPORT_VECTOR];
};

struct wire {
	struct transport tr;
	struct transport *inner;
	struct wire_region *regions;
	struct rng rng;
	bool mapped;
	bool lockstep;
	struct item items[ITEMS_MAX]; /* under way, oldest first */
	uint32_t n_items;
	struct {
		uint64_t ticket;
		int code;
	} results[RESULTS];
	/* The vector under way: as a chain, and where its atomics' answers go. */
	struct transport_wr vector[TRANSPORT_VECTOR];
	struct transport_atomic *answers;
	bool under_way;
	int vector_code;
	uint8_t *view;
};

static struct wire *of(struct transport *tr)
{
	return (struct wire *)tr;
}

static struct region *inner_of(struct region *region)
{
	return ((struct wire_region *)region)->inner;
}

static bool coin(struct wire *w)
{
	return rng_next_u64(&w->rng) & 1;
}

/* -------- one operation -------- */

static int run_io(struct wire *w, const struct transport_io *io, bool write)
{
	struct transport_io inner = *io;

	inner.region = inner_of(io->region);
	return transport_settle(w->inner, write ? w->inner->ops->write(w->inner, &inner, 1)
						: w->inner->ops->read(w->inner, &inner, 1));
}

static int run_atomic(struct wire *w, struct transport_atomic *op, bool cas)
{
	struct transport_stats before = w->inner->stats;
	struct transport_atomic inner = *op;
	int rc;

	inner.region = inner_of(op->region);
	rc = transport_settle(w->inner, cas ? w->inner->ops->cas(w->inner, &inner, 1)
					    : w->inner->ops->faa(w->inner, &inner, 1));
	transport_account_cas(&w->tr, w->inner->stats.cas_failed - before.cas_failed,
			      w->inner->stats.unknown - before.unknown);
	if (rc)
		return rc;
	op->old = inner.old;
	op->status = inner.status;
	return 0;
}

static int run_wr(struct wire *w, struct transport_wr *wr)
{
	int rc;

	switch (wr->verb) {
	case VERB_READ:
		/* On a wire it never passes a write before it, as a CPU's load might. */
		rc = w->inner->ops->order(w->inner);
		return rc ? rc : run_io(w, &wr->io, false);
	case VERB_WRITE:
		return run_io(w, &wr->io, true);
	case VERB_CAS:
	case VERB_FAA:
		return run_atomic(w, &wr->atomic, wr->verb == VERB_CAS);
	}
	return -EINVAL;
}

/* Makes what the operation will answer useless until it does. */
static void spoil(struct transport_wr *wr)
{
	if (wr->verb == VERB_READ)
		memset(wr->io.dst, GARBAGE, wr->io.len);
	if (wr->verb == VERB_READ || wr->verb == VERB_WRITE)
		return;
	memset(&wr->atomic.old, GARBAGE, sizeof(wr->atomic.old));
	wr->atomic.status = ATOMIC_UNKNOWN;
}

/* -------- items -------- */

static bool may_pass(const struct transport_wr *late, const struct transport_wr *early)
{
	if (late->fence || early->verb == VERB_WRITE)
		return false;
	return late->verb == VERB_WRITE || (late->verb == VERB_READ && early->verb == VERB_READ);
}

static void order_chain(struct wire *w, struct item *item)
{
	uint16_t *order = item->order;

	for (size_t i = 0; i < item->n; i++) {
		size_t at = i;
		size_t reach = coin(w) ? rng_uniform_u64(&w->rng, i + 1) : 0;
		bool fenced = false;

		while (reach-- > 0 && !fenced &&
		       may_pass(&item->wrs[i], &item->wrs[order[at - 1]])) {
			fenced = item->wrs[order[at - 1]].fence; /* it started no earlier */
			order[at] = order[at - 1];
			at--;
		}
		order[at] = (uint16_t)i;
	}
}

/* What has a fence, and what is behind it, stays behind what is before it. */
static void shuffle(struct wire *w, struct item *item)
{
	size_t first = 0;

	for (size_t i = 0; i < item->n; i++) {
		size_t at;

		if (item->wrs[i].fence)
			first = i;
		at = first + rng_uniform_u64(&w->rng, i - first + 1);
		item->order[i] = item->order[at];
		item->order[at] = (uint16_t)i;
	}
}

/* What comes after an error is not done. */
static void run_next(struct wire *w, struct item *item)
{
	if (item->code == 0)
		item->code = run_wr(w, &item->wrs[item->order[item->done]]);
	item->done++;
}

static void end_item(struct wire *w, const struct item *item)
{
	mem_free(item->own);
	if (item->ticket) {
		w->results[item->ticket % RESULTS].ticket = item->ticket;
		w->results[item->ticket % RESULTS].code = item->code;
	} else {
		w->vector_code = item->code;
	}
}

static void drop_items(struct wire *w, uint32_t n)
{
	w->n_items -= n;
	memmove(w->items, w->items + n, w->n_items * sizeof(w->items[0]));
}

static void run_items(struct wire *w, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		while (w->items[i].done < w->items[i].n)
			run_next(w, &w->items[i]);
		end_item(w, &w->items[i]);
	}
	drop_items(w, n);
}

/* Time passes: some of what is under way is done. */
static void pass(struct wire *w)
{
	uint64_t ops = 0;
	uint32_t ended = 0;

	if (w->lockstep)
		return;
	for (uint32_t i = 0; i < w->n_items; i++)
		ops += w->items[i].n - w->items[i].done;
	for (ops = rng_uniform_u64(&w->rng, ops + 1); ops > 0; ops--) {
		struct item *item = &w->items[ended];

		run_next(w, item);
		if (item->done < item->n)
			continue;
		end_item(w, item);
		ended++;
	}
	drop_items(w, ended);
}

static void add_item(struct wire *w, struct transport_wr *wrs, size_t n, uint64_t ticket)
{
	for (size_t i = 0; i < n; i++)
		spoil(&wrs[i]);
	w->items[w->n_items] = (struct item){ .wrs = wrs, .n = n, .ticket = ticket };
	if (ticket)
		order_chain(w, &w->items[w->n_items]);
	else
		shuffle(w, &w->items[w->n_items]);
	w->n_items++;
}

/* -------- vectors -------- */

static void begin_vector(struct wire *w)
{
	assert_false(w->under_way); /* one call at a time, and each is finished */
	pass(w);
	if (w->n_items == ITEMS_MAX)
		run_items(w, 1);
	w->answers = NULL;
	w->under_way = true;
}

static int wire_finish(struct transport *tr)
{
	struct wire *w = of(tr);
	size_t n = w->n_items ? w->items[w->n_items - 1].n : 0;

	assert_true(w->under_way);
	w->under_way = false;
	run_items(w, w->n_items);
	for (size_t i = 0; w->answers && i < n; i++)
		w->answers[i] = w->vector[i].atomic;
	return w->vector_code;
}

static int start_io(struct transport *tr, const struct transport_io *io, size_t n,
		    enum transport_verb verb)
{
	struct wire *w = of(tr);

	begin_vector(w);
	for (size_t i = 0; i < n; i++)
		w->vector[i] = (struct transport_wr){ .verb = verb, .io = io[i] };
	add_item(w, w->vector, n, 0);
	return 0;
}

static int start_atomics(struct transport *tr, struct transport_atomic *ops, size_t n,
			 enum transport_verb verb)
{
	struct wire *w = of(tr);

	begin_vector(w);
	for (size_t i = 0; i < n; i++)
		w->vector[i] = (struct transport_wr){ .verb = verb, .atomic = ops[i] };
	add_item(w, w->vector, n, 0);
	for (size_t i = 0; i < n; i++)
		ops[i] = w->vector[i].atomic; /* spoiled */
	w->answers = ops;
	return 0;
}

static int wire_read(struct transport *tr, const struct transport_io *io, size_t n)
{
	return start_io(tr, io, n, VERB_READ);
}

static int wire_write(struct transport *tr, const struct transport_io *io, size_t n)
{
	return start_io(tr, io, n, VERB_WRITE);
}

static int wire_cas(struct transport *tr, struct transport_atomic *ops, size_t n)
{
	return start_atomics(tr, ops, n, VERB_CAS);
}

static int wire_faa(struct transport *tr, struct transport_atomic *ops, size_t n)
{
	return start_atomics(tr, ops, n, VERB_FAA);
}

static void wire_view_end(struct transport *tr)
{
	mem_free(of(tr)->view);
	of(tr)->view = NULL;
}

static int wire_view(struct transport *tr, struct transport_view *views, size_t n)
{
	struct wire *w = of(tr);
	struct transport_io io[TRANSPORT_VECTOR];
	size_t bytes = 0, at = 0;

	for (size_t i = 0; i < n; i++)
		bytes += views[i].len;
	w->view = mem_aligned(64, bytes + 64);
	if (!w->view)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		views[i].ptr = w->view + at;
		io[i] = (struct transport_io){ .region = views[i].region,
					       .off = views[i].off,
					       .dst = w->view + at,
					       .len = views[i].len };
		at += views[i].len;
	}
	return start_io(tr, io, n, VERB_READ);
}

/* -------- chains -------- */

static int wire_post(struct transport *tr, struct transport_wr *wrs, size_t n, uint64_t *ticket_out)
{
	struct wire *w = of(tr);

	assert_false(w->under_way);
	if (w->n_items == ITEMS_MAX)
		return -EAGAIN;
	pass(w);
	*ticket_out = tr->posted + 1;
	add_item(w, wrs, n, *ticket_out);
	return 0;
}

/* Reads are unordered but for their fences: they need no place in the chain of chains. */
static int wire_post_read(struct transport *tr, const struct transport_io *io, size_t n,
			  uint64_t *ticket_out)
{
	struct wire *w = of(tr);
	struct transport_wr *wrs = mem_array(n, sizeof(*wrs));

	assert_false(w->under_way);
	assert_non_null(wrs);
	pass(w);
	if (w->n_items == ITEMS_MAX)
		run_items(w, 1);
	for (size_t i = 0; i < n; i++)
		wrs[i] = (struct transport_wr){ .verb = VERB_READ,
						.fence = io[i].fence,
						.io = io[i] };
	*ticket_out = tr->posted + 1;
	add_item(w, wrs, n, *ticket_out);
	w->items[w->n_items - 1].own = wrs;
	shuffle(w, &w->items[w->n_items - 1]);
	return 0;
}

/* How many items are to be done for this one to be. */
static uint32_t items_until(const struct wire *w, uint64_t ticket)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->n_items; i++)
		if (w->items[i].ticket <= ticket)
			n = i + 1;
	return n;
}

static int wire_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns)
{
	struct wire *w = of(tr);

	if (deadline_ns == 0)
		pass(w);
	if (deadline_ns == 0 && items_until(w, ticket))
		return -EAGAIN;
	if (items_until(w, ticket))
		run_items(w, w->lockstep ? w->n_items : items_until(w, ticket));
	pass(w);
	if (w->results[ticket % RESULTS].ticket != ticket)
		return 0;
	return w->results[ticket % RESULTS].code;
}

/* -------- the rest -------- */

/*
 * A second mapping, which nobody may change words in. valgrind knows no way to make one: there the
 * first one serves, unguarded.
 */
static int map_region(struct wire_region *wr)
{
	int prot = wr->region.rights & RIGHT_ATOMIC ? PROT_READ : PROT_READ | PROT_WRITE;
	void *base = mremap(wr->inner->base, 0, wr->region.size, MREMAP_MAYMOVE);

	wr->region.base = base == MAP_FAILED ? wr->inner->base : base;
	if (base == MAP_FAILED)
		return 0;
	return mprotect(base, wr->region.size, prot) ? -errno : 0;
}

static int wire_attach(struct transport *tr, const struct region_grant *grant,
		       struct region **region_out)
{
	struct wire_region *wr = mem_zalloc(sizeof(*wr));
	int rc = wr ? transport_attach(of(tr)->inner, grant, &wr->inner) : -ENOMEM;

	if (rc) {
		mem_free(wr);
		return rc;
	}
	wr->region = *wr->inner;
	wr->region.tr = tr;
	wr->region.base = NULL;
	if (of(tr)->mapped)
		assert_int_equal(map_region(wr), 0);
	wr->next = of(tr)->regions;
	of(tr)->regions = wr;
	*region_out = &wr->region;
	return 0;
}

static void wire_detach(struct transport *tr, struct region *region)
{
	struct wire_region **at = &of(tr)->regions;

	run_items(of(tr), of(tr)->n_items);
	while (&(*at)->region != region)
		at = &(*at)->next;
	*at = (*at)->next;
	if (region->base && region->base != inner_of(region)->base)
		munmap(region->base, region->size);
	transport_detach(&((struct wire_region *)region)->inner);
	mem_free(region);
}

static int wire_persist(struct transport *tr, struct region *region, uint64_t off, uint64_t len)
{
	run_items(of(tr), of(tr)->n_items);
	return of(tr)->inner->ops->persist(of(tr)->inner, inner_of(region), off, len);
}

static int wire_order(struct transport *tr)
{
	run_items(of(tr), of(tr)->n_items);
	return of(tr)->inner->ops->order(of(tr)->inner);
}

static void wire_close(struct transport *tr)
{
	run_items(of(tr), of(tr)->n_items);
	while (of(tr)->regions)
		wire_detach(tr, &of(tr)->regions->region);
	transport_close(&of(tr)->inner);
	mem_free(tr);
}

static const struct transport_ops wire_ops = {
	.name = "wire",
	.attach = wire_attach,
	.detach = wire_detach,
	.finish = wire_finish,
	.view = wire_view,
	.view_end = wire_view_end,
	.read = wire_read,
	.write = wire_write,
	.cas = wire_cas,
	.faa = wire_faa,
	.post = wire_post,
	.poll = wire_poll,
	.post_read = wire_post_read,
	.persist = wire_persist,
	.order = wire_order,
	.close = wire_close,
};

static struct wire *wrap(struct transport *inner)
{
	struct wire *w = mem_zalloc(sizeof(*w));

	assert_non_null(w);
	w->tr = *inner;
	w->tr.ops = &wire_ops;
	w->tr.caps |= TRANSPORT_ASYNC;
	memset(&w->tr.stats, 0, sizeof(w->tr.stats));
	w->inner = inner;
	wire_seed(&w->tr, 1);
	return w;
}

struct transport *wire_wrap(struct transport *inner)
{
	struct wire *w = wrap(inner);

	w->tr.caps &= ~(uint32_t)TRANSPORT_ADDRESSABLE;
	return &w->tr;
}

struct transport *wire_wrap_nic(struct transport *inner)
{
	struct wire *w = wrap(inner);

	w->tr.caps &= ~(uint32_t)(TRANSPORT_ADDRESSABLE | TRANSPORT_CPU_ATOMIC);
	return &w->tr;
}

struct transport *wire_wrap_mapped(struct transport *inner)
{
	struct wire *w = wrap(inner);

	assert_true(inner->caps & TRANSPORT_ADDRESSABLE);
	w->tr.caps &= ~(uint32_t)TRANSPORT_CPU_ATOMIC;
	w->mapped = true;
	return &w->tr;
}

void wire_lockstep(struct transport *tr)
{
	of(tr)->lockstep = true;
}

void wire_forget(struct transport *tr)
{
	for (uint32_t i = 0; i < of(tr)->n_items; i++)
		mem_free(of(tr)->items[i].own);
	of(tr)->n_items = 0;
}

void wire_seed(struct transport *tr, uint64_t seed)
{
	rng_seed(&of(tr)->rng, seed, 0);
}
