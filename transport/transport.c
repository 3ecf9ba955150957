/*
 * transport.c - the thin calls: check the ranges, count, forward.
 *
 * All data moves by submit and poll; the calls that wait are small helpers above.
 */
#include "transport/transport.h"

#include <errno.h>

#include "transport/fork.h"

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "base/mem/chunk.h"

int transport_new(size_t bytes, const struct transport_ops *ops, uint32_t caps,
		  const struct transport_opts *opts, struct transport **tr_out)
{
	struct transport *tr = mem_zalloc(bytes);
	int ret;

	if (!tr)
		return error_set(-ENOMEM, "cannot allocate memory for a transport");
	tr->ops = ops;
	tr->caps = caps;
	tr->clock = opts->clock;
	tr->timeout_ns = opts->timeout_ns;
	ret = fork_watch(&tr->forks);
	if (ret) {
		mem_free(tr);
		return ret;
	}
	*tr_out = tr;
	return 0;
}

/*
 * Closes and frees *tr and sets it to NULL; NULL is a no-op. Keeps the last error's message, for a
 * failed call that closes the transport.
 */
void transport_close(struct transport **tr)
{
	struct error_kept kept;

	if (!tr || !*tr)
		return;
	error_keep(&kept);
	chunk_drop(&(*tr)->view);
	(*tr)->ops->close(*tr);
	error_restore(&kept);
	*tr = NULL;
}

uint64_t transport_give_up_ns(const struct transport *tr)
{
	uint64_t now_ns = clock_now_ns(tr->clock);
	uint64_t part_ns = tr->timeout_ns;

	if (tr->deadline_ns) {
		part_ns = tr->deadline_ns > now_ns ? (tr->deadline_ns - now_ns) / 2 : 0;
		part_ns = min_u64(max_u64(part_ns, CLOCK_NS_PER_S), tr->timeout_ns);
	}
	return now_ns + min_u64(part_ns, DEADLINE_NEVER - 1 - now_ns);
}

bool transport_is_forked(const struct transport *tr)
{
	return fork_happened(tr->forks);
}

/* -------- checks -------- */

static const char *rights_text(uint32_t rights)
{
	static const char *const text[] = { "none",          "read",
					    "write",         "read, write",
					    "atomic",        "read, atomic",
					    "write, atomic", "read, write, atomic" };

	return text[rights & RIGHT_ALL];
}

static int check_call(const struct transport *tr, size_t n)
{
	if (fork_happened(tr->forks))
		return fork_error("transport");
	if (n > TRANSPORT_VECTOR)
		return error_set(-EINVAL, "%zu operations in a call: at most %d", n,
				 TRANSPORT_VECTOR);
	return 0;
}

/*
 * Checks a range for an operation that needs a right. -EINVAL: the region is not one of tr, or the
 * range is outside it or misaligned; -EACCES: the right was not granted.
 */
static int check_range(const struct transport *tr, const struct region *region, uint64_t off,
		       uint64_t len, uint32_t right)
{
	if (!region || region->tr != tr)
		return error_set(-EINVAL, "region is not attached to this transport");
	if (right & ~region->rights)
		return error_set(-EACCES, "region %u: operation needs the right %s, granted %s",
				 region->id, rights_text(right), rights_text(region->rights));
	if (off > region->size || len > region->size - off || ((off | len) & 7))
		return error_set(-EINVAL,
				 "region %u: offset %llu length %llu: must be multiples of 8 "
				 "within its %llu bytes",
				 region->id, (unsigned long long)off, (unsigned long long)len,
				 (unsigned long long)region->size);
	return 0;
}

static int check_wr(const struct transport *tr, const struct transport_wr *wr)
{
	const struct transport_io *io = &wr->io;
	int ret;

	if (wr->guard && !(tr->caps & TRANSPORT_GUARDS))
		return error_set(-ENOTSUP, "a guarded operation: %s has none", tr->ops->name);
	if (wr->guard && wr->verb != VERB_FAA && (wr->verb != VERB_WRITE || io->len != 8))
		return error_set(-EINVAL, "a guarded operation: want an addition, or a write of a "
					  "word");
	if (wr->verb == VERB_CAS || wr->verb == VERB_FAA)
		return check_range(tr, wr->atomic.region, wr->atomic.off, 8, RIGHT_ATOMIC);
	if (wr->verb != VERB_READ && wr->verb != VERB_WRITE)
		return error_set(-EINVAL, "operation %u: unknown", (unsigned)wr->verb);
	ret = check_range(tr, io->region, io->off, io->len,
			  wr->verb == VERB_READ ? RIGHT_READ : RIGHT_WRITE);
	if (ret)
		return ret;
	if ((uintptr_t)io->src & 7)
		return error_set(-EINVAL, "region %u: buffer %p: must be 8-aligned", io->region->id,
				 io->src);
	if (io->mem && io->mem->kind == MEM_DEVICE &&
	    (wr->verb != VERB_READ || !transport_reaches(tr)))
		return error_set(-ENOTSUP, "region %u: buffer %p: lies in memory of a device",
				 io->region->id, io->src);
	return 0;
}

/* -------- regions -------- */

static int check_grant(struct transport *tr, const struct region_grant *grant)
{
	int ret = check_call(tr, 0);

	if (ret == 0 && (!grant || grant->bytes == 0 || grant->bytes > TRANSPORT_GRANT_BYTES))
		ret = error_set(-EINVAL, "grant: empty or longer than %d bytes",
				TRANSPORT_GRANT_BYTES);
	return ret;
}

static int attach_by(struct transport *tr, const struct region_grant *grant,
		     struct region **region_out,
		     int (*attach)(struct transport *tr, const struct region_grant *grant,
				   struct region **region_out))
{
	int ret = check_grant(tr, grant);

	if (ret == 0)
		ret = attach(tr, grant, region_out);
	if (ret == 0)
		(*region_out)->tr = tr;
	return ret;
}

int transport_attach(struct transport *tr, const struct region_grant *grant,
		     struct region **region_out)
{
	return attach_by(tr, grant, region_out, tr->ops->attach);
}

int transport_attach_begin(struct transport *tr, const struct region_grant *grant)
{
	int ret = check_grant(tr, grant);

	return ret || !tr->ops->attach_begin ? ret : tr->ops->attach_begin(tr, grant);
}

int transport_attach_end(struct transport *tr, const struct region_grant *grant,
			 struct region **region_out)
{
	const struct transport_ops *ops = tr->ops;

	return attach_by(tr, grant, region_out, ops->attach_end ? ops->attach_end : ops->attach);
}

void transport_detach(struct region **region)
{
	struct error_kept kept;

	if (!region || !*region)
		return;
	error_keep(&kept);
	(*region)->tr->ops->detach((*region)->tr, *region);
	error_restore(&kept);
	*region = NULL;
}

/* -------- data -------- */

/* Sets tr->broken if ret says that the connection has ended; returns ret. */
static int note_end(struct transport *tr, int ret)
{
	if (ret == -ECONNRESET || ret == -EHOSTDOWN)
		tr->broken = ret;
	return ret;
}

/* Checks and submits as many requests as the transport takes. */
static int submit_checked(struct transport *tr, struct transport_wr *wrs, size_t n,
			  enum submit_order order, uint64_t *ticket_out)
{
	uint64_t ticket = 0; /* done already */
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < n; i++)
		ret = check_wr(tr, &wrs[i]);
	if (ret == 0 && n)
		ret = note_end(tr, tr->ops->submit(tr, wrs, n, order, &ticket));
	if (ret)
		return ret;
	for (size_t i = 0; i < n; i++) {
		switch (wrs[i].verb) {
		case VERB_READ:
			tr->stats.reads++;
			tr->stats.read_bytes += wrs[i].io.len;
			break;
		case VERB_WRITE:
			tr->stats.writes++;
			tr->stats.write_bytes += wrs[i].io.len;
			break;
		case VERB_CAS:
			tr->stats.cas++;
			break;
		case VERB_FAA:
			tr->stats.faa++;
			break;
		}
	}
	if (ticket)
		tr->posted = ticket;
	*ticket_out = ticket;
	return 0;
}

int transport_submit(struct transport *tr, struct transport_wr *wrs, size_t n,
		     enum submit_order order, uint64_t *ticket_out)
{
	int ret = check_call(tr, n);

	return ret ? ret : submit_checked(tr, wrs, n, order, ticket_out);
}

int transport_look(struct transport *tr, uint64_t ticket, uint64_t deadline_ns)
{
	int ret = check_call(tr, 0);

	if (ret || ticket == 0)
		return ret;
	if (ticket > tr->posted)
		return error_set(-EINVAL, "ticket %llu: no submit returned it",
				 (unsigned long long)ticket);
	return note_end(tr, tr->ops->poll(tr, ticket, deadline_ns));
}

bool transport_count_wait(struct transport *tr, uint64_t ticket, uint64_t phases)
{
	if (ticket <= tr->waited)
		return false;
	tr->stats.phases += phases;
	tr->waited = tr->posted;
	return true;
}

int transport_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns)
{
	if (ticket <= tr->posted)
		(void)transport_count_wait(tr, ticket, 1);
	return transport_look(tr, ticket, deadline_ns);
}

static int submit_pieces(struct transport *tr, struct transport_wr *wrs, size_t n,
			 enum submit_order order, struct transport_span *span)
{
	const size_t most = transport_chain_most(tr);
	size_t now;
	int ret = check_call(tr, 0);

	*span = (struct transport_span){ 0 };
	for (size_t done = 0; ret == 0 && done < n; done += now) {
		uint64_t ticket = 0;

		now = min_u64(n - done, most);
		ret = submit_checked(tr, wrs + done, now, order, &ticket);
		if (ret == -EAGAIN) {
			ret = transport_order(tr);
			if (ret == 0)
				ret = submit_checked(tr, wrs + done, now, order, &ticket);
		}
		transport_span_add(span, ticket);
	}
	return ret;
}

int transport_submit_chain(struct transport *tr, struct transport_wr *wrs, size_t n,
			   struct transport_span *span)
{
	return submit_pieces(tr, wrs, n, SUBMIT_ORDERED, span);
}

int transport_submit_many(struct transport *tr, struct transport_wr *wrs, size_t n,
			  struct transport_span *span)
{
	return submit_pieces(tr, wrs, n, SUBMIT_UNORDERED, span);
}

int transport_post_chain(struct transport *tr, struct transport_wr *wrs, size_t n,
			 struct transport_span *span)
{
	int ret;

	tr->unwaited = true;
	ret = transport_submit_chain(tr, wrs, n, span);
	tr->unwaited = false;
	return ret;
}

int transport_run(struct transport *tr, struct transport_wr *wrs, size_t n)
{
	struct transport_span span;
	int ret = transport_submit_chain(tr, wrs, n, &span);

	for (uint64_t t = span.first; t && t <= span.last; t++) {
		int done = transport_poll(tr, t, DEADLINE_NEVER);

		ret = ret ? ret : done;
	}
	return ret;
}

/* -------- calls that wait -------- */

/* Submits requests in no order and waits: one phase, unless all are done at once. */
static int transport_call(struct transport *tr, struct transport_wr *wrs, size_t n)
{
	uint64_t ticket;
	int ret = transport_submit(tr, wrs, n, SUBMIT_UNORDERED, &ticket);

	return ret ? ret : transport_poll(tr, ticket, DEADLINE_NEVER);
}

static int call_io(struct transport *tr, enum transport_verb verb, const struct transport_io *io,
		   size_t n)
{
	struct transport_wr wrs[TRANSPORT_VECTOR];
	int ret = check_call(tr, n);

	for (size_t i = 0; ret == 0 && i < n; i++)
		wrs[i] = (struct transport_wr){ .verb = verb, .io = io[i] };
	return ret ? ret : transport_call(tr, wrs, n);
}

static int call_atomics(struct transport *tr, enum transport_verb verb,
			struct transport_atomic *ops, size_t n)
{
	struct transport_wr wrs[TRANSPORT_VECTOR];
	int ret = check_call(tr, n);

	if (ret)
		return ret;
	for (size_t i = 0; i < n; i++)
		wrs[i] = (struct transport_wr){ .verb = verb, .atomic = ops[i] };
	ret = transport_call(tr, wrs, n);
	for (size_t i = 0; i < n; i++)
		ops[i] = wrs[i].atomic;
	return ret;
}

int transport_read(struct transport *tr, const struct transport_io *io, size_t n)
{
	return call_io(tr, VERB_READ, io, n);
}

int transport_write(struct transport *tr, const struct transport_io *io, size_t n)
{
	return call_io(tr, VERB_WRITE, io, n);
}

int transport_cas(struct transport *tr, struct transport_atomic *ops, size_t n)
{
	return call_atomics(tr, VERB_CAS, ops, n);
}

int transport_faa(struct transport *tr, struct transport_atomic *ops, size_t n)
{
	return call_atomics(tr, VERB_FAA, ops, n);
}

/* -------- views -------- */

int transport_view(struct transport *tr, struct transport_view *views, size_t n)
{
	struct transport_io io[TRANSPORT_VECTOR];
	bool addressable = true;
	size_t bytes = 0;
	int ret = check_call(tr, n);

	if (ret || n == 0)
		return ret;
	if (tr->viewing)
		return error_set(-EBUSY, "a view is open: end it with transport_view_end first");
	for (size_t i = 0; i < n; i++) {
		const struct region *region = views[i].region;

		ret = check_range(tr, region, views[i].off, views[i].len, RIGHT_READ);
		if (ret)
			return ret;
		addressable &= region->base != NULL;
		bytes += views[i].len;
	}
	if (addressable) {
		for (size_t i = 0; i < n; i++)
			views[i].ptr = views[i].region->base + views[i].off;
		tr->stats.reads += n;
		tr->stats.read_bytes += bytes;
		tr->viewing = true;
		return 0;
	}
	/* Copies, one behind the other in the buffer of the transport. */
	if (!chunk_make_room(&tr->view, bytes))
		return error_set(-ENOMEM, "cannot allocate a view of %zu bytes", bytes);
	bytes = 0;
	for (size_t i = 0; i < n; i++) {
		views[i].ptr = tr->view.ptr + bytes;
		io[i] = (struct transport_io){ .region = views[i].region,
					       .off = views[i].off,
					       .dst = tr->view.ptr + bytes,
					       .mem = &tr->view,
					       .len = views[i].len };
		bytes += views[i].len;
	}
	ret = transport_read(tr, io, n);
	tr->viewing = ret == 0;
	return ret;
}

void transport_view_end(struct transport *tr)
{
	tr->viewing = false;
}

/* -------- the rest -------- */

int transport_persist(struct region *region, uint64_t off, uint64_t len)
{
	struct transport *tr = region->tr;
	int ret = check_call(tr, 0);

	if (ret)
		return ret;
	if (off > region->size || len > region->size - off)
		return error_set(-EINVAL, "region %u: persist of offset %llu length %llu: has %llu",
				 region->id, (unsigned long long)off, (unsigned long long)len,
				 (unsigned long long)region->size);
	if (!(tr->caps & TRANSPORT_PERSISTENT))
		return error_set(-ENOTSUP, "region %u: its pool is volatile memory", region->id);
	return tr->ops->persist(tr, region, off, len ? len : region->size - off);
}

/* As note_end, but -ETIMEDOUT sets tr->broken, too: the target did not answer. */
static int note_timeout(struct transport *tr, int ret)
{
	if (ret == -ETIMEDOUT)
		tr->broken = ret;
	return note_end(tr, ret);
}

/*
 * Checks that a page of the region is at off (else -EINVAL), and does a step of its renewal; step
 * NULL: there is nothing to do.
 */
static int renew_page(struct region *region, uint64_t off,
		      int (*step)(struct transport *tr, struct region *region, uint64_t off))
{
	if (off % TRANSPORT_RANGE_ALIGN || off >= region->size)
		return error_set(-EINVAL, "region %u: renew the page at %llu: has %llu", region->id,
				 (unsigned long long)off, (unsigned long long)region->size);
	return step ? note_timeout(region->tr, step(region->tr, region, off)) : 0;
}

int transport_prepare(struct region *region, uint64_t off)
{
	return renew_page(region, off, region->tr->ops->prepare);
}

bool transport_renewing(struct transport *tr)
{
	return tr->ops->renewing && note_timeout(tr, tr->ops->renewing(tr)) == 1;
}

int transport_renew(struct region *region, uint64_t off)
{
	return renew_page(region, off, region->tr->ops->renew);
}

int transport_order(struct transport *tr)
{
	int ret = check_call(tr, 0);

	return ret ? ret : tr->ops->order(tr);
}

int transport_reach(struct transport *tr, const struct mem *mem)
{
	int ret = check_call(tr, 0);

	if (ret == 0 && !transport_reaches(tr))
		ret = error_set(-ENOTSUP, "%s: no RDMA READs fill memory of a device",
				tr->ops->name);
	return ret ? ret : tr->ops->reach(tr, mem);
}

/* -------- one word at a time -------- */

int transport_fetch(struct region *region, uint64_t off, void *dst, uint32_t len)
{
	struct transport_io io = { .region = region, .off = off, .dst = dst, .len = len };

	return transport_read(region->tr, &io, 1);
}

int transport_load(struct region *region, uint64_t off, uint64_t *word_out)
{
	return transport_fetch(region, off, word_out, sizeof(*word_out));
}

static int call_word(enum transport_verb verb, struct transport_atomic op, uint64_t *old_out)
{
	int ret = call_atomics(op.region->tr, verb, &op, 1);

	if (ret)
		return ret;
	if (op.status != ATOMIC_DONE)
		return error_set(-EIO, "region %u: offset %llu: the atomic's result is unknown",
				 op.region->id, (unsigned long long)op.off);
	*old_out = op.old;
	return 0;
}

int transport_cas_word(struct region *region, uint64_t off, uint64_t expected, uint64_t value,
		       uint64_t *old_out)
{
	const struct transport_atomic op = {
		.region = region, .off = off, .expected = expected, .value = value
	};

	return call_word(VERB_CAS, op, old_out);
}

int transport_faa_word(struct region *region, uint64_t off, uint64_t value, uint64_t *old_out)
{
	const struct transport_atomic op = { .region = region, .off = off, .value = value };

	return call_word(VERB_FAA, op, old_out);
}

int transport_store(struct region *region, uint64_t off, const void *src, uint32_t len)
{
	struct transport_io io = { .region = region, .off = off, .src = src, .len = len };

	return transport_write(region->tr, &io, 1);
}

/* -------- targets -------- */

void transport_target_close(struct transport_target **tg)
{
	if (!tg || !*tg)
		return;
	(*tg)->ops->close(*tg);
	*tg = NULL;
}
