/* mapped.c - routes each operation through the mapping or over the wire. */
#include "transport/mapped.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/log.h"
#include "base/os/process.h"

/* A region of the wire, and the same region in the mapping. */
struct mapped_region {
	struct mapped_region *next;
	struct region *region;
	struct region *near;
};

struct mapped {
	struct transport tr;
	struct transport *wire;
	struct transport *near; /* over the node's socket */
	struct mapped_region *regions;
	uint64_t last;  /* ticket of the newest chain on the wire; 0 = all are done */
	uint64_t write; /* the same, of those that write */
};

static struct mapped *mapped_of(struct transport *tr)
{
	return (struct mapped *)tr;
}

/* Returns the wire, with the deadline of tr's public call. */
static struct transport *wire_of(struct transport *tr)
{
	struct transport *wire = mapped_of(tr)->wire;

	wire->deadline_ns = tr->deadline_ns;
	return wire;
}

/*
 * Moves the wire's counts of failed and unknown atomics to tr, copies its `broken`, and returns
 * ret.
 */
static int mapped_learn(struct transport *tr, int ret)
{
	struct transport *wire = mapped_of(tr)->wire;

	transport_account_cas(tr, wire->stats.cas_failed, wire->stats.unknown);
	wire->stats = (struct transport_stats){ 0 };
	if (wire->broken)
		tr->broken = wire->broken;
	return ret;
}

/* -------- work requests -------- */

/*
 * True if a request may be done in the mapping now: a read or a write, and in a chain only if it
 * passes nothing outstanding on the wire that it must not pass. A write without a fence may pass
 * reads and atomics, not writes; any other request passes nothing.
 */
static bool may_be_near(struct mapped *mapped, const struct transport_wr *wr,
			enum submit_order order)
{
	bool passes = wr->verb == VERB_WRITE && !wr->fence;
	uint64_t *ticket = passes ? &mapped->write : &mapped->last;

	if (wr->verb != VERB_READ && wr->verb != VERB_WRITE)
		return false;
	if (order == SUBMIT_ORDERED && *ticket &&
	    mapped->wire->ops->poll(mapped->wire, *ticket, 0) == 0)
		*ticket = 0; /* the wire has done all chains up to it */
	return order != SUBMIT_ORDERED || *ticket == 0;
}

/*
 * Does requests in the mapping as long as may_be_near() allows (that needs a region's base only).
 * From the first other request on all go over the wire.
 */
static int mapped_submit(struct transport *tr, struct transport_wr *wrs, size_t n,
			 enum submit_order order, uint64_t *ticket_out)
{
	struct transport *wire = wire_of(tr);
	struct mapped *mapped = mapped_of(tr);
	size_t done = 0;
	int ret = 0;

	*ticket_out = 0;
	while (ret == 0 && done < n && may_be_near(mapped, &wrs[done], order))
		ret = mapped->near->ops->submit(mapped->near, &wrs[done++], 1, SUBMIT_ORDERED,
						ticket_out);
	if (ret || done == n)
		return ret;
	wire->unwaited = tr->unwaited;
	ret = mapped_learn(tr, wire->ops->submit(wire, wrs + done, n - done, order, ticket_out));
	if (ret || *ticket_out == 0)
		return ret;
	wire->posted = *ticket_out;
	if (order != SUBMIT_ORDERED)
		return 0;
	mapped->last = *ticket_out;
	for (size_t i = done; i < n; i++) {
		if (wrs[i].verb == VERB_WRITE)
			mapped->write = *ticket_out;
	}
	return 0;
}

static int mapped_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns)
{
	struct transport *wire = wire_of(tr);

	return mapped_learn(tr, wire->ops->poll(wire, ticket, deadline_ns));
}

static int mapped_order(struct transport *tr)
{
	struct transport *wire = wire_of(tr);
	int ret = mapped_learn(tr, wire->ops->order(wire));

	return ret ? ret : mapped_of(tr)->near->ops->order(mapped_of(tr)->near);
}

/* -------- regions -------- */

static struct mapped_region **find_region(struct mapped *mapped, const struct region *region)
{
	struct mapped_region **at = &mapped->regions;

	while ((*at)->region != region)
		at = &(*at)->next;
	return at;
}

static int mapped_persist(struct transport *tr, struct region *region, uint64_t off, uint64_t len)
{
	return transport_persist((*find_region(mapped_of(tr), region))->near, off, len);
}

static int mapped_attach(struct transport *tr, const struct region_grant *grant,
			 struct region **region_out)
{
	struct mapped *mapped = mapped_of(tr);
	struct transport *wire = wire_of(tr);
	struct mapped_region *mine = mem_zalloc(sizeof(*mine));
	int ret;

	if (!mine)
		return error_set(-ENOMEM, "cannot allocate memory for a region");
	ret = mapped_learn(tr, transport_attach(wire, grant, &mine->region));
	if (ret)
		goto err_free;
	ret = transport_attach(mapped->near, grant, &mine->near);
	if (ret)
		goto err_detach;
	if (mine->near->id != mine->region->id || mine->near->size != mine->region->size) {
		ret = error_set(
			-EPROTO,
			"region %u: the node's socket maps a region of another number or size",
			mine->region->id);
		goto err_detach;
	}
	mine->region->base = mine->near->base;
	mine->next = mapped->regions;
	mapped->regions = mine;
	*region_out = mine->region;
	return 0;

err_detach:
	transport_detach(&mine->near);
	transport_detach(&mine->region);
err_free:
	mem_free(mine);
	return ret;
}

static void mapped_detach(struct transport *tr, struct region *region)
{
	struct transport *wire = wire_of(tr);
	struct mapped_region **at = find_region(mapped_of(tr), region);
	struct mapped_region *mine = *at;

	*at = mine->next;
	region->base = NULL; /* the wire does not own the mapping */
	wire->ops->detach(wire, region);
	(void)mapped_learn(tr, 0); /* it may have found that its connection has ended */
	transport_detach(&mine->near);
	mem_free(mine);
}

/* -------- opening and closing -------- */

static void mapped_close(struct transport *tr)
{
	struct mapped *mapped = mapped_of(tr);

	mapped->wire->broken = tr->broken;
	for (const struct mapped_region *mine = mapped->regions; mine; mine = mine->next)
		mine->region->base = NULL;
	transport_close(&mapped->wire);
	while (mapped->regions) {
		struct mapped_region *mine = mapped->regions;

		mapped->regions = mine->next;
		transport_detach(&mine->near);
		mem_free(mine);
	}
	transport_close(&mapped->near);
	mem_free(mapped);
}

static const struct transport_ops mapped_ops = {
	.name = "mapped",
	.attach = mapped_attach,
	.detach = mapped_detach,
	.submit = mapped_submit,
	.poll = mapped_poll,
	.persist = mapped_persist,
	.order = mapped_order,
	.close = mapped_close,
};

struct transport *mapped_over(struct transport *wire, const char *socket, const uint8_t boot_id[16],
			      const struct transport_opts *opts)
{
	char uri[TRANSPORT_URI_BYTES];
	int n = snprintf(uri, sizeof(uri), "shm:%s", socket);
	struct process_id self;
	struct mapped *mapped;

	if (!*socket || n < 0 || (size_t)n >= sizeof(uri))
		return wire;
	if (process_self(&self) || memcmp(self.boot_id, boot_id, sizeof(self.boot_id)) != 0)
		return wire; /* of another host */
	mapped = mem_zalloc(sizeof(*mapped));
	if (!mapped || transport_open(uri, opts, &mapped->near)) {
		log_info("node of this host is not mapped: %s",
			 mapped ? error_last() : "cannot allocate memory");
		mem_free(mapped);
		return wire;
	}
	mapped->wire = wire;
	mapped->tr = *wire; /* capabilities, clock, timeout, generation, link */
	mapped->tr.ops = &mapped_ops;
	mapped->tr.caps |= TRANSPORT_ADDRESSABLE | (mapped->near->caps & TRANSPORT_PERSISTENT);
	return &mapped->tr;
}
