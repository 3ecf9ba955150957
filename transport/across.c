/*
 * across.c - one call over regions of several transports.
 *
 * The vector is sorted by transport into a copy, each part is started, then each is waited for, and
 * the results go back to where their operations stood. A vector of one transport goes as it is.
 */
#include "transport/transport.h"

#include <errno.h>
#include <string.h>

#include "transport/start.h"

enum kind { ACROSS_VIEW, ACROSS_READ, ACROSS_WRITE, ACROSS_CAS, ACROSS_FAA };

/* Every kind of operation begins with its region. */
static_assert(offsetof(struct transport_view, region) == 0, "region first");
static_assert(offsetof(struct transport_io, region) == 0, "region first");
static_assert(offsetof(struct transport_atomic, region) == 0, "region first");

static const size_t sizes[] = {
	[ACROSS_VIEW] = sizeof(struct transport_view),
	[ACROSS_READ] = sizeof(struct transport_io),
	[ACROSS_WRITE] = sizeof(struct transport_io),
	[ACROSS_CAS] = sizeof(struct transport_atomic),
	[ACROSS_FAA] = sizeof(struct transport_atomic),
};

/* Operations [first, first + n) of the sorted copy. */
struct part {
	struct transport *tr;
	uint16_t first, n;
	int ret;
};

struct sorted {
	enum kind kind;
	uint8_t *ops; /* the caller's */
	size_t n;
	struct part parts[TRANSPORT_VECTOR];
	size_t n_parts;
	uint16_t from[TRANSPORT_VECTOR]; /* where a sorted one stood */
	_Alignas(8) uint8_t copy[TRANSPORT_VECTOR * sizeof(struct transport_atomic)];
};

static struct region *region_at(const uint8_t *ops, size_t size, size_t i)
{
	return *(struct region *const *)(const void *)(ops + i * size);
}

static int start(enum kind kind, struct transport *tr, void *ops, size_t n)
{
	switch (kind) {
	case ACROSS_VIEW:
		return transport_start_view(tr, ops, n);
	case ACROSS_READ:
		return transport_start_read(tr, ops, n);
	case ACROSS_WRITE:
		return transport_start_write(tr, ops, n);
	case ACROSS_CAS:
		return transport_start_cas(tr, ops, n);
	case ACROSS_FAA:
		return transport_start_faa(tr, ops, n);
	}
	return -EINVAL;
}

static int finish(enum kind kind, struct part *part)
{
	bool started = part->ret == 0;
	int ret = transport_settle(part->tr, part->ret);

	if (kind == ACROSS_VIEW && started && ret)
		transport_view_end(part->tr);
	return ret;
}

static size_t count_of(const struct sorted *s, const struct transport *tr)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		n += region_at(s->ops, sizes[s->kind], i)->tr == tr;
	return n;
}

static struct part *part_of(struct sorted *s, struct transport *tr)
{
	const struct part *last = s->n_parts ? &s->parts[s->n_parts - 1] : NULL;
	struct part *part;

	for (size_t i = 0; i < s->n_parts; i++)
		if (s->parts[i].tr == tr)
			return &s->parts[i];
	part = &s->parts[s->n_parts++];
	*part = (struct part){ .tr = tr, .first = 0 };
	if (last)
		part->first = (uint16_t)(last->first + count_of(s, last->tr));
	return part;
}

static void sort(struct sorted *s)
{
	size_t size = sizes[s->kind];

	for (size_t i = 0; i < s->n; i++) {
		struct part *part = part_of(s, region_at(s->ops, size, i)->tr);
		size_t at = (size_t)part->first + part->n++;

		memcpy(s->copy + at * size, s->ops + i * size, size);
		s->from[at] = (uint16_t)i;
	}
}

static void unsort(struct sorted *s)
{
	size_t size = sizes[s->kind];

	for (size_t at = 0; at < s->n; at++)
		memcpy(s->ops + s->from[at] * size, s->copy + at * size, size);
}

static int run_sorted(struct sorted *s)
{
	int first = 0;

	sort(s);
	for (size_t p = 0; p < s->n_parts; p++) {
		struct part *part = &s->parts[p];
		uint8_t *ops = s->copy + part->first * sizes[s->kind];

		part->ret = start(s->kind, part->tr, ops, part->n);
		if (p > 0 && part->ret == 0) /* it shares the first one's phase */
			part->tr->stats.phases--;
	}
	for (size_t p = 0; p < s->n_parts; p++) {
		int ret = finish(s->kind, &s->parts[p]);

		first = first ? first : ret;
	}
	unsort(s);
	for (size_t p = 0; first && s->kind == ACROSS_VIEW && p < s->n_parts; p++)
		transport_view_end(s->parts[p].tr);
	return first;
}

/* All of one transport? Then it is an ordinary call. */
static bool is_plain(const struct sorted *s)
{
	const struct transport *tr = region_at(s->ops, sizes[s->kind], 0)->tr;

	for (size_t i = 1; i < s->n; i++)
		if (region_at(s->ops, sizes[s->kind], i)->tr != tr)
			return false;
	return true;
}

static int run(enum kind kind, void *ops, size_t n)
{
	struct sorted s;

	if (n == 0)
		return 0;
	if (n > TRANSPORT_VECTOR)
		return error_set(-EINVAL, "%zu operations in a call: at most %d", n,
				 TRANSPORT_VECTOR);
	s.kind = kind;
	s.ops = ops;
	s.n = n;
	s.n_parts = 0;
	for (size_t i = 0; i < n; i++)
		if (!region_at(ops, sizes[kind], i))
			return error_set(-EINVAL, "operation %zu names no region", i);
	if (is_plain(&s)) {
		struct part all = { .tr = region_at(ops, sizes[kind], 0)->tr };

		all.ret = start(kind, all.tr, ops, n);
		return finish(kind, &all);
	}
	return run_sorted(&s);
}

int transport_view_across(struct transport_view *views, size_t n)
{
	return run(ACROSS_VIEW, views, n);
}

void transport_view_end_across(const struct transport_view *views, size_t n)
{
	for (size_t i = 0; i < n; i++)
		transport_view_end(views[i].region->tr);
}

int transport_read_across(struct transport_io *io, size_t n)
{
	return run(ACROSS_READ, io, n);
}

int transport_write_across(struct transport_io *io, size_t n)
{
	return run(ACROSS_WRITE, io, n);
}

int transport_cas_across(struct transport_atomic *ops, size_t n)
{
	return run(ACROSS_CAS, ops, n);
}

int transport_faa_across(struct transport_atomic *ops, size_t n)
{
	return run(ACROSS_FAA, ops, n);
}
