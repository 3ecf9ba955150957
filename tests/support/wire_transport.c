#include "tests/support/wire_transport.h"

#include "tests/support/test.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

#define PENDING_MAX 64

struct wire_region {
	struct region region; /* what the user sees: no base */
	struct region *inner;
};

struct chain {
	struct transport_wr *wrs;
	size_t n;
};

struct wire {
	struct transport tr;
	struct transport *inner;
	struct chain pending[PENDING_MAX];
	uint32_t n_pending;
	int rc; /* first error of a chain that nobody has polled */
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

static int run_io(struct wire *w, const struct transport_io *io, bool write)
{
	struct transport_io inner = *io;

	inner.region = inner_of(io->region);
	return write ? w->inner->ops->write(w->inner, &inner, 1)
		     : w->inner->ops->read(w->inner, &inner, 1);
}

static int run_atomic(struct wire *w, struct transport_atomic *op, bool cas)
{
	struct transport_atomic inner = *op;
	int rc;

	inner.region = inner_of(op->region);
	rc = cas ? w->inner->ops->cas(w->inner, &inner, 1)
		 : w->inner->ops->faa(w->inner, &inner, 1);
	op->old = inner.old;
	op->status = inner.status;
	return rc;
}

static int run_wr(struct wire *w, struct transport_wr *wr)
{
	switch (wr->verb) {
	case VERB_READ:
	case VERB_WRITE:
		return run_io(w, &wr->io, wr->verb == VERB_WRITE);
	case VERB_CAS:
	case VERB_FAA:
		return run_atomic(w, &wr->atomic, wr->verb == VERB_CAS);
	}
	return -EINVAL;
}

static void run_pending(struct wire *w)
{
	for (uint32_t c = 0; c < w->n_pending; c++)
		for (size_t i = 0; i < w->pending[c].n; i++) {
			int rc = run_wr(w, &w->pending[c].wrs[i]);

			w->rc = w->rc ? w->rc : rc;
		}
	w->n_pending = 0;
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
	*region_out = &wr->region;
	return 0;
}

static void wire_detach(struct transport *tr, struct region *region)
{
	run_pending(of(tr));
	transport_detach(&((struct wire_region *)region)->inner);
	mem_free(region);
}

static void wire_view_end(struct transport *tr)
{
	mem_free(of(tr)->view);
	of(tr)->view = NULL;
}

static int wire_view(struct transport *tr, struct transport_view *views, size_t n)
{
	struct wire *w = of(tr);
	size_t bytes = 0, at = 0;

	run_pending(w);
	for (size_t i = 0; i < n; i++)
		bytes += views[i].len;
	w->view = mem_aligned(64, bytes + 64);
	if (!w->view)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct transport_io io = { .region = views[i].region,
					   .off = views[i].off,
					   .dst = w->view + at,
					   .len = views[i].len };
		int rc = run_io(w, &io, false);

		if (rc) {
			wire_view_end(tr);
			return rc;
		}
		views[i].ptr = w->view + at;
		at += views[i].len;
	}
	return 0;
}

static int wire_read(struct transport *tr, struct transport_io *io, size_t n)
{
	int rc = 0;

	run_pending(of(tr));
	for (size_t i = 0; !rc && i < n; i++)
		rc = run_io(of(tr), &io[i], false);
	return rc;
}

static int wire_write(struct transport *tr, const struct transport_io *io, size_t n)
{
	int rc = 0;

	run_pending(of(tr));
	for (size_t i = 0; !rc && i < n; i++)
		rc = run_io(of(tr), &io[i], true);
	return rc;
}

static int wire_cas(struct transport *tr, struct transport_atomic *ops, size_t n)
{
	int rc = 0;

	run_pending(of(tr));
	for (size_t i = 0; !rc && i < n; i++)
		rc = run_atomic(of(tr), &ops[i], true);
	return rc;
}

static int wire_faa(struct transport *tr, struct transport_atomic *ops, size_t n)
{
	int rc = 0;

	run_pending(of(tr));
	for (size_t i = 0; !rc && i < n; i++)
		rc = run_atomic(of(tr), &ops[i], false);
	return rc;
}

static int wire_post(struct transport *tr, struct transport_wr *wrs, size_t n, uint64_t *ticket_out)
{
	struct wire *w = of(tr);

	if (w->n_pending == PENDING_MAX)
		return -EAGAIN;
	w->pending[w->n_pending++] = (struct chain){ wrs, n };
	*ticket_out = tr->posted + 1;
	return 0;
}

static int wire_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns)
{
	struct wire *w = of(tr);
	int rc;

	(void)ticket;
	(void)deadline_ns;
	run_pending(w);
	rc = w->rc;
	w->rc = 0;
	return rc;
}

static int wire_persist(struct transport *tr, struct region *region, uint64_t off, uint64_t len)
{
	run_pending(of(tr));
	return of(tr)->inner->ops->persist(of(tr)->inner, inner_of(region), off, len);
}

static int wire_order(struct transport *tr)
{
	run_pending(of(tr));
	return of(tr)->inner->ops->order(of(tr)->inner);
}

static void wire_close(struct transport *tr)
{
	run_pending(of(tr));
	transport_close(&of(tr)->inner);
	mem_free(tr);
}

static const struct transport_ops ops = {
	.name = "wire",
	.attach = wire_attach,
	.detach = wire_detach,
	.view = wire_view,
	.view_end = wire_view_end,
	.read = wire_read,
	.write = wire_write,
	.cas = wire_cas,
	.faa = wire_faa,
	.post = wire_post,
	.poll = wire_poll,
	.persist = wire_persist,
	.order = wire_order,
	.close = wire_close,
};

struct transport *wire_wrap(struct transport *inner)
{
	struct wire *w = mem_zalloc(sizeof(*w));

	assert_non_null(w);
	w->tr = *inner;
	w->tr.ops = &ops;
	w->tr.caps = (inner->caps & ~(uint32_t)TRANSPORT_ADDRESSABLE) | TRANSPORT_ASYNC;
	memset(&w->tr.stats, 0, sizeof(w->tr.stats));
	w->inner = inner;
	return &w->tr;
}
