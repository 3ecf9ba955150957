/*
 * transport.c - the thin calls: check the ranges, count, forward.
 *
 * A vectored call of 256 atomics costs 2 us, so its check costs an add and a compare per operation:
 * faults are gathered in one flag, and only then looked for again to say which one it was.
 */
#include "transport/transport.h"

#include <errno.h>

#include "transport/fork.h"
#include "transport/start.h"

#include "base/bits.h"

#define LEAST_NS ((uint64_t)CLOCK_NS_PER_S)

/* What is closed because a call failed leaves that call its words. */
void transport_close(struct transport **tr)
{
	struct error_kept kept;

	if (!tr || !*tr)
		return;
	error_keep(&kept);
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
		part_ns = min_u64(max_u64(part_ns, LEAST_NS), tr->timeout_ns);
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

static int check_region(const struct transport *tr, const struct region *region, uint32_t right)
{
	if (!region || region->tr != tr)
		return error_set(-EINVAL, "region is not attached to this transport");
	if (right & ~region->rights)
		return error_set(-EACCES, "region %u: operation needs the right %s, granted %s",
				 region->id, rights_text(right), rights_text(region->rights));
	return 0;
}

static bool range_is_bad(const struct region *region, uint64_t off, uint64_t len)
{
	return off > region->size || len > region->size - off || ((off | len) & 7);
}

static int range_error(const struct region *region, uint64_t off, uint64_t len)
{
	return error_set(-EINVAL,
			 "region %u: offset %llu length %llu: must be multiples of 8 within its "
			 "%llu bytes",
			 region->id, (unsigned long long)off, (unsigned long long)len,
			 (unsigned long long)region->size);
}

static int check_io(const struct transport *tr, const struct transport_io *io, uint32_t right)
{
	int ret = check_region(tr, io->region, right);

	if (ret)
		return ret;
	if (range_is_bad(io->region, io->off, io->len))
		return range_error(io->region, io->off, io->len);
	if ((uintptr_t)io->src & 7)
		return error_set(-EINVAL, "region %u: buffer %p: must be 8-aligned", io->region->id,
				 io->src);
	return 0;
}

static int check_atomic(const struct transport *tr, const struct transport_atomic *op)
{
	int ret = check_region(tr, op->region, RIGHT_ATOMIC);

	if (ret)
		return ret;
	return range_is_bad(op->region, op->off, 8) ? range_error(op->region, op->off, 8) : 0;
}

static int check_ios(const struct transport *tr, const struct transport_io *io, size_t n,
		     uint32_t right, uint64_t *bytes_out)
{
	const struct region *last = NULL;
	uint64_t bytes = 0;
	bool bad = false;
	int ret = check_call(tr, n);

	if (ret)
		return ret;
	for (size_t i = 0; i < n && !bad; i++) {
		if (!last || io[i].region != last) {
			ret = check_region(tr, io[i].region, right);
			if (ret)
				return ret;
			last = io[i].region;
		}
		bad = range_is_bad(last, io[i].off, io[i].len) || ((uintptr_t)io[i].src & 7);
		bytes += io[i].len;
		if (bad)
			return check_io(tr, &io[i], right);
	}
	*bytes_out = bytes;
	return 0;
}

static int check_atomics(const struct transport *tr, const struct transport_atomic *ops, size_t n)
{
	const struct region *last = NULL;
	uint64_t limit = 0, bad = 0;
	int ret = check_call(tr, n);

	if (ret)
		return ret;
	for (size_t i = 0; i < n; i++) {
		if (__builtin_expect(!last || ops[i].region != last, 0)) {
			ret = check_region(tr, ops[i].region, RIGHT_ATOMIC);
			if (ret)
				return ret;
			last = ops[i].region;
			limit = last->size - 8;
		}
		bad |= (uint64_t)(ops[i].off > limit) | (ops[i].off & 7);
	}
	for (size_t i = 0; __builtin_expect(bad != 0, 0) && i < n; i++) {
		ret = check_atomic(tr, &ops[i]);
		if (ret)
			return ret;
	}
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

int transport_attach(struct transport *tr, const struct region_grant *grant,
		     struct region **region_out)
{
	int ret = check_grant(tr, grant);

	if (ret == 0)
		ret = tr->ops->attach(tr, grant, region_out);
	if (ret == 0)
		(*region_out)->tr = tr;
	return ret;
}

int transport_attach_begin(struct transport *tr, const struct region_grant *grant)
{
	int ret = check_grant(tr, grant);

	return ret || !tr->ops->attach_begin ? ret : tr->ops->attach_begin(tr, grant);
}

int transport_attach_end(struct transport *tr, const struct region_grant *grant,
			 struct region **region_out)
{
	int ret;

	if (!tr->ops->attach_end)
		return transport_attach(tr, grant, region_out);
	ret = check_call(tr, 0);
	if (ret == 0)
		ret = tr->ops->attach_end(tr, grant, region_out);
	if (ret == 0)
		(*region_out)->tr = tr;
	return ret;
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

/* Passes ret on, and notes a connection that has ended. */
static int note_end(struct transport *tr, int ret)
{
	if (ret == -ECONNRESET || ret == -EHOSTDOWN)
		tr->broken = ret;
	return ret;
}

/* After start: waits where there is something to wait for. */
int transport_settle(struct transport *tr, int started)
{
	return note_end(tr, started == 0 && tr->ops->finish ? tr->ops->finish(tr) : started);
}

/* Whoever waits for a call has waited for the chains that were posted before it, too. */
static void count_phase(struct transport *tr)
{
	tr->stats.phases += (tr->caps & TRANSPORT_ASYNC) != 0; /* in place there is no round trip */
	tr->waited = tr->posted;
}

static void count_reads(struct transport *tr, uint64_t reads, uint64_t bytes)
{
	tr->stats.reads += reads;
	tr->stats.read_bytes += bytes;
}

int transport_start_view(struct transport *tr, struct transport_view *views, size_t n)
{
	const struct region *last = NULL;
	uint64_t bytes = 0;
	int ret = check_call(tr, n);

	if (ret)
		return ret;
	if (tr->viewing)
		return error_set(-EBUSY, "a view is open: transport_view_end comes first");
	for (size_t i = 0; i < n; i++) {
		if (!last || views[i].region != last) {
			ret = check_region(tr, views[i].region, RIGHT_READ);
			if (ret)
				return ret;
			last = views[i].region;
		}
		if (range_is_bad(last, views[i].off, views[i].len))
			return range_error(last, views[i].off, views[i].len);
		bytes += views[i].len;
	}
	count_phase(tr);
	count_reads(tr, n, bytes);
	ret = tr->ops->view(tr, views, n);
	tr->viewing = ret == 0;
	return ret;
}

int transport_start_read(struct transport *tr, const struct transport_io *io, size_t n)
{
	uint64_t bytes = 0;
	int ret = check_ios(tr, io, n, RIGHT_READ, &bytes);

	if (ret)
		return ret;
	count_phase(tr);
	count_reads(tr, n, bytes);
	return tr->ops->read(tr, io, n);
}

int transport_start_write(struct transport *tr, const struct transport_io *io, size_t n)
{
	uint64_t bytes = 0;
	int ret = check_ios(tr, io, n, RIGHT_WRITE, &bytes);

	if (ret)
		return ret;
	count_phase(tr);
	tr->stats.writes += n;
	tr->stats.write_bytes += bytes;
	return tr->ops->write(tr, io, n);
}

int transport_start_cas(struct transport *tr, struct transport_atomic *ops, size_t n)
{
	int ret = check_atomics(tr, ops, n);

	if (ret)
		return ret;
	count_phase(tr);
	tr->stats.cas += n;
	return tr->ops->cas(tr, ops, n);
}

int transport_start_faa(struct transport *tr, struct transport_atomic *ops, size_t n)
{
	int ret = check_atomics(tr, ops, n);

	if (ret)
		return ret;
	count_phase(tr);
	tr->stats.faa += n;
	return tr->ops->faa(tr, ops, n);
}

/* n = 0 starts nothing, but a transport of before a fork is refused all the same. */
int transport_view(struct transport *tr, struct transport_view *views, size_t n)
{
	int ret;

	if (n == 0)
		return check_call(tr, 0);
	ret = transport_start_view(tr, views, n);
	if (ret)
		return transport_settle(tr, ret);
	ret = transport_settle(tr, 0);
	if (ret)
		transport_view_end(tr);
	return ret;
}

void transport_view_end(struct transport *tr)
{
	if (!tr->viewing)
		return;
	tr->viewing = false;
	tr->ops->view_end(tr);
}

int transport_read(struct transport *tr, const struct transport_io *io, size_t n)
{
	return n ? transport_settle(tr, transport_start_read(tr, io, n)) : check_call(tr, 0);
}

int transport_write(struct transport *tr, const struct transport_io *io, size_t n)
{
	return n ? transport_settle(tr, transport_start_write(tr, io, n)) : check_call(tr, 0);
}

int transport_cas(struct transport *tr, struct transport_atomic *ops, size_t n)
{
	return n ? transport_settle(tr, transport_start_cas(tr, ops, n)) : check_call(tr, 0);
}

int transport_faa(struct transport *tr, struct transport_atomic *ops, size_t n)
{
	return n ? transport_settle(tr, transport_start_faa(tr, ops, n)) : check_call(tr, 0);
}

/* -------- chains -------- */

static int check_wr(const struct transport *tr, const struct transport_wr *wr)
{
	switch (wr->verb) {
	case VERB_READ:
		return check_io(tr, &wr->io, RIGHT_READ);
	case VERB_WRITE:
		return check_io(tr, &wr->io, RIGHT_WRITE);
	case VERB_CAS:
	case VERB_FAA:
		return check_atomic(tr, &wr->atomic);
	}
	return error_set(-EINVAL, "verb %u: unknown", (unsigned)wr->verb);
}

static void count_wr(struct transport_stats *stats, const struct transport_wr *wr)
{
	switch (wr->verb) {
	case VERB_READ:
		stats->reads++;
		stats->read_bytes += wr->io.len;
		break;
	case VERB_WRITE:
		stats->writes++;
		stats->write_bytes += wr->io.len;
		break;
	case VERB_CAS:
		stats->cas++;
		break;
	case VERB_FAA:
		stats->faa++;
		break;
	}
}

int transport_post(struct transport *tr, struct transport_wr *wrs, size_t n, uint64_t *ticket_out)
{
	uint64_t ticket;
	int ret = check_call(tr, n);

	for (size_t i = 0; ret == 0 && i < n; i++)
		ret = check_wr(tr, &wrs[i]);
	if (ret)
		return ret;
	if (n == 0) {
		*ticket_out = 0; /* done already */
		return 0;
	}
	ret = note_end(tr, tr->ops->post(tr, wrs, n, &ticket));
	if (ret)
		return ret;
	for (size_t i = 0; i < n; i++)
		count_wr(&tr->stats, &wrs[i]);
	tr->posted = ticket;
	*ticket_out = ticket;
	return 0;
}

int transport_post_read(struct transport *tr, const struct transport_io *io, size_t n,
			uint64_t *ticket_out)
{
	uint64_t bytes = 0;
	int ret = check_ios(tr, io, n, RIGHT_READ, &bytes);

	if (ret)
		return ret;
	count_reads(tr, n, bytes);
	*ticket_out = 0;
	if (!tr->ops->post_read) {
		count_phase(tr);
		return transport_settle(tr, tr->ops->read(tr, io, n));
	}
	ret = note_end(tr, tr->ops->post_read(tr, io, n, ticket_out));
	if (ret == 0 && *ticket_out)
		tr->posted = *ticket_out;
	return ret;
}

int transport_look(struct transport *tr, uint64_t ticket)
{
	int ret = check_call(tr, 0);

	return ret ? ret : note_end(tr, tr->ops->poll(tr, ticket, 0));
}

int transport_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns)
{
	int ret = check_call(tr, 0);

	if (ret)
		return ret;
	if (ticket > tr->posted)
		return error_set(-EINVAL, "ticket %llu: none such was posted",
				 (unsigned long long)ticket);
	if (ticket > tr->waited)
		count_phase(tr);
	return ticket ? note_end(tr, tr->ops->poll(tr, ticket, deadline_ns)) : 0;
}

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

int transport_renew(struct region *region, uint64_t off)
{
	struct transport *tr = region->tr;

	if (off % TRANSPORT_RANGE_ALIGN || off >= region->size)
		return error_set(-EINVAL, "region %u: renew the page at %llu: has %llu", region->id,
				 (unsigned long long)off, (unsigned long long)region->size);
	return tr->ops->renew ? note_end(tr, tr->ops->renew(tr, region, off)) : 0;
}

int transport_order(struct transport *tr)
{
	int ret = check_call(tr, 0);

	return ret ? ret : tr->ops->order(tr);
}

/* -------- one word at a time -------- */

int transport_load(struct region *region, uint64_t off, uint64_t *word_out)
{
	struct transport_io io = { .region = region, .off = off, .dst = word_out, .len = 8 };

	return transport_read(region->tr, &io, 1);
}

static int word_result(const struct transport_atomic *op, uint64_t *old_out)
{
	if (op->status != ATOMIC_DONE)
		return error_set(-EIO, "region %u: offset %llu: the atomic's result is unknown",
				 op->region->id, (unsigned long long)op->off);
	*old_out = op->old;
	return 0;
}

int transport_cas_word(struct region *region, uint64_t off, uint64_t expected, uint64_t value,
		       uint64_t *old_out)
{
	struct transport_atomic op = {
		.region = region, .off = off, .expected = expected, .value = value
	};
	int ret = transport_cas(region->tr, &op, 1);

	return ret ? ret : word_result(&op, old_out);
}

int transport_faa_word(struct region *region, uint64_t off, uint64_t value, uint64_t *old_out)
{
	struct transport_atomic op = { .region = region, .off = off, .value = value };
	int ret = transport_faa(region->tr, &op, 1);

	return ret ? ret : word_result(&op, old_out);
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
