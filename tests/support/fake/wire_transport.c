#include "tests/support/fake/wire_transport.h"

#include "tests/support/test.h"

#include "base/mem/alloc.h"
#include "base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ITEMS_MAX 64
#define RESULTS 1024 /* outstanding chains */
#define CHAIN_MAX 1088
#define GARBAGE 0xa5

struct wire_region {
	struct region region; /* what the user sees */
	struct region *inner;
	struct wire_region *next;
};

/* Outstanding requests of one submit. */
struct item {
	struct transport_wr *wrs;  /* a copy: the caller may use those that read or write again */
	struct transport_wr *user; /* the caller's, for answers of atomics */
	size_t n;
	uint64_t ticket;
	size_t done; /* of order[] */
	int code;
	bool failed; /* a CAS has found another word */
	uint16_t order[CHAIN_MAX];
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

static int run_inner(struct wire *w, struct transport_wr *wr)
{
	struct transport *inner = w->inner;
	uint64_t ticket = 0;
	int rc = inner->ops->submit(inner, wr, 1, SUBMIT_ORDERED, &ticket);

	if (rc || ticket == 0)
		return rc;
	inner->posted = ticket;
	return inner->ops->poll(inner, ticket, DEADLINE_NEVER);
}

static int run_io(struct wire *w, const struct transport_wr *wr)
{
	struct transport_wr inner = *wr;

	inner.io.region = inner_of(wr->io.region);
	return run_inner(w, &inner);
}

static int run_atomic(struct wire *w, const struct transport_wr *wr, struct transport_wr *user)
{
	struct transport_stats before = w->inner->stats;
	struct transport_wr inner = *wr;
	int rc;

	inner.atomic.region = inner_of(wr->atomic.region);
	rc = run_inner(w, &inner);
	transport_account_cas(&w->tr, w->inner->stats.cas_failed - before.cas_failed,
			      w->inner->stats.unknown - before.unknown);
	if (rc)
		return rc;
	user->atomic.old = inner.atomic.old;
	user->atomic.status = inner.atomic.status;
	return 0;
}

static int run_wr(struct wire *w, const struct transport_wr *wr, struct transport_wr *user)
{
	int rc;

	switch (wr->verb) {
	case VERB_READ:
		/* On a wire, unlike on a CPU, a read never overtakes an earlier write. */
		rc = w->inner->ops->order(w->inner);
		return rc ? rc : run_io(w, wr);
	case VERB_WRITE:
		return run_io(w, wr);
	case VERB_CAS:
	case VERB_FAA:
		return run_atomic(w, wr, user);
	}
	return -EINVAL;
}

/* Fills the result of an outstanding operation with garbage until it is executed. */
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
	if (late->fence || late->guard || early->verb == VERB_WRITE)
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

/* Requests with a fence, and those after them, stay behind earlier ones. */
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

/* Requests after a failed one are not executed. */
static void run_next(struct wire *w, struct item *item)
{
	uint16_t at = item->order[item->done++];
	const struct transport_wr *wr = &item->wrs[at];
	struct transport_wr *user = &item->user[at];

	if (item->code == 0 && wr->guard && item->failed) {
		if (wr->verb == VERB_FAA)
			user->atomic.status = ATOMIC_SKIPPED;
		return;
	}
	if (item->code == 0)
		item->code = run_wr(w, wr, user);
	item->failed |= wr->verb == VERB_CAS && user->atomic.status == ATOMIC_DONE &&
			user->atomic.old != wr->atomic.expected;
}

static void end_item(struct wire *w, const struct item *item)
{
	free(item->wrs);
	w->results[item->ticket % RESULTS].ticket = item->ticket;
	w->results[item->ticket % RESULTS].code = item->code;
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

/* Executes some outstanding requests, as if time had passed. */
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

static void add_item(struct wire *w, struct transport_wr *wrs, size_t n, enum submit_order order)
{
	struct item *item = &w->items[w->n_items++];

	for (size_t i = 0; i < n; i++)
		spoil(&wrs[i]);
	*item = (struct item){
		.wrs = calloc(n, sizeof(*wrs)), .user = wrs, .n = n, .ticket = w->tr.posted + 1
	};
	assert_non_null(item->wrs);
	memcpy(item->wrs, wrs, n * sizeof(*wrs));
	if (order == SUBMIT_ORDERED)
		order_chain(w, item);
	else
		shuffle(w, item);
}

static int wire_submit(struct transport *tr, struct transport_wr *wrs, size_t n,
		       enum submit_order order, uint64_t *ticket_out)
{
	struct wire *w = of(tr);

	if (order == SUBMIT_ORDERED && w->n_items == ITEMS_MAX)
		return -EAGAIN;
	pass(w);
	if (w->n_items == ITEMS_MAX)
		run_items(w, 1);
	add_item(w, wrs, n, order);
	*ticket_out = tr->posted + 1;
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
	free(tr);
}

struct wire_reach wire_reach;

static int wire_reach_memory(struct transport *tr, const struct mem *mem)
{
	int code = mem->dmabuf_fd >= 0 ? wire_reach.dmabuf_code : wire_reach.address_code;

	wire_reach.calls++;
	assert_int_equal(mem->kind, MEM_DEVICE);
	if (mem->dmabuf_fd >= 0)
		assert_int_not_equal(fcntl(mem->dmabuf_fd, F_GETFD), -1);
	(void)tr;
	return code ? error_set(code, "a device without this") : 0;
}

static const struct transport_ops wire_ops = {
	.name = "wire",
	.attach = wire_attach,
	.detach = wire_detach,
	.submit = wire_submit,
	.poll = wire_poll,
	.persist = wire_persist,
	.order = wire_order,
	.reach = wire_reach_memory,
	.close = wire_close,
};

static struct wire *wrap(struct transport *inner)
{
	struct wire *w = calloc(1, sizeof(*w));

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

void wire_guards(struct transport *tr)
{
	tr->caps |= TRANSPORT_GUARDS;
	tr->chain = CHAIN_MAX;
}

void wire_lockstep(struct transport *tr)
{
	of(tr)->lockstep = true;
}

void wire_forget(struct transport *tr)
{
	for (uint32_t i = 0; i < of(tr)->n_items; i++)
		free(of(tr)->items[i].wrs);
	of(tr)->n_items = 0;
}

void wire_seed(struct transport *tr, uint64_t seed)
{
	rng_seed(&of(tr)->rng, seed, 0);
}
