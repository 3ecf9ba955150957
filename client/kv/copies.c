#include "client/kv/copies.h"
#include "client/kv/filler.h"

#include "ds/heap/writers/writers.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FILL_BYTES ((uint64_t)64 << 10) /* of a new copy, behind each put */
#define FILL_NS CLOCK_NS_PER_S          /* of a piece without a put */

/* The line of a part as it is now; opened: when this handle opened each copy. */
struct kv_line {
	struct heap_copies copies;
	uint64_t opened[HEAP_LINE_MAX];
};

/* What the handle knows of a part that has copies. */
struct kv_owned {
	struct kv_line line; /* when it became the owner */
	bool claimed;        /* the owner's word may be ours */
	bool owns;           /* and the copies are the same; or it is one of several writers */
	bool waits;          /* the last put was -EAGAIN: a copy may be lost */
	struct heap_writers *writers;
};

int kv_copies_init(struct rlv_kv *kv)
{
	if (kv->desc.copies == 1)
		return 0;
	kv_turns_init(kv);
	kv->owned = mem_array(kv->desc.n_parts, sizeof(kv->owned[0]));
	return kv->owned ? 0 : error_set(-ENOMEM, "heap: cannot allocate memory");
}

/* -------- the line -------- */

static int copy_away(const struct rlv_kv *kv, uint32_t p, const char *what)
{
	return error_set(-EHOSTDOWN, "heap %s: %s of part %u, which has the key, %s", kv->desc.name,
			 what, p, "cannot be reached");
}

static int line_add(const struct rlv_kv *kv, struct kv_line *line, uint32_t s)
{
	struct heap_copies *copies = &line->copies;
	struct heap *heap = heap_of(kv->set.parts[s]);
	bool whole;
	int ret = heap_is_whole(heap, &whole);

	if (ret)
		return ret;
	if (copies->n_all == HEAP_LINE_MAX || (whole && copies->n < copies->n_all))
		return error_set(-EPROTO, "heap %s: part %u has its copies in no order",
				 kv->desc.name, s % kv->desc.n_parts);
	line->opened[copies->n_all] = kv->set.statuses[s].opened;
	copies->at[copies->n_all++] = heap;
	copies->line |= kv->desc.writers == HEAP_WRITERS_MANY ? heap_copy_bit(heap) : 0;
	copies->n += whole;
	return 0;
}

/* The copies of part p in their order; without `all`, the primary alone. */
static int line_find(const struct rlv_kv *kv, uint32_t p, bool all, struct kv_line *line)
{
	int ret = 0;

	*line = (struct kv_line){ .copies = { .n = 0 } };
	for (uint32_t s = p; s < kv->set.n_parts; s += kv->desc.n_parts) {
		if (kv_part_is_gone(kv, s))
			continue;
		if (!kv->set.parts[s])
			return copy_away(kv, p, line->copies.n ? "a copy" : "the primary copy");
		ret = line_add(kv, line, s);
		if (ret || (!all && line->copies.n))
			break;
	}
	if (ret == 0 && line->copies.n == 0)
		ret = copy_away(kv, p, "every whole copy");
	return ret;
}

static bool line_is(const struct kv_line *line, const struct kv_line *other)
{
	return line->copies.n_all == other->copies.n_all &&
	       memcmp(line->opened, other->opened, sizeof(line->opened)) == 0;
}

/* -EHOSTDOWN if the memory of one of them was given up, which mapped memory says at once. */
static int line_check(struct rlv_kv *kv, const struct kv_line *line)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < line->copies.n_all; i++)
		if (line->copies.at[i]->part.slots->base)
			ret = part_state(&line->copies.at[i]->part);
	if (ret == -EHOSTDOWN)
		(void)part_set_drop(&kv->set);
	return ret;
}

/* -------- the owner -------- */

static struct copies_owner kv_self(const struct rlv_kv *kv)
{
	return (struct copies_owner){ kv->slot.owner, kv->slot.lease };
}

static struct heap_access *line_access(const struct rlv_kv *kv, const struct kv_line *line)
{
	return kv->set.states[line->copies.at[0]->part.number];
}

void kv_copies_forget(struct heap_access *acc)
{
	if (acc->writers)
		heap_writers_leave(acc);
	acc->copies = acc->space.copies = NULL;
}

/* Becomes the owner, and brings all copies to the same state if somebody may have left them unequal. */
static int kv_own(struct rlv_kv *kv, uint32_t p, const struct kv_line *line)
{
	struct heap_access *acc = line_access(kv, line);
	struct kv_owned *owned = &kv->owned[p];
	const struct copies_owner self = kv_self(kv);
	uint64_t newest;
	bool settle;
	int ret;

	owned->owns = false;
	kv_copies_forget(acc);
	owned->claimed = true;
	ret = heap_copies_claim(&line->copies, &self, &settle, &newest);
	/* Somebody may have owned the others since the first one was lost, and given them back. */
	if (ret == 0)
		ret = line_check(kv, line);
	if (ret)
		return ret;
	if (newest >= kv->set.n_parts) { /* a copy that was made since our last look */
		ret = part_set_heal(&kv->set);
		return ret ? ret : error_set(-EAGAIN, "heap %s: has a new copy", kv->desc.name);
	}
	ret = settle ? heap_copies_settle(&line->copies, self.owner) : 0;
	if (ret)
		return ret;
	heap_access_reset(acc);
	owned->line = *line;
	owned->owns = true;
	acc->copies = acc->space.copies = &owned->line.copies;
	kv_filler_start(kv);
	return 0;
}

/* -------- several writers -------- */

/* Begins to put into the copies of the line. Extents that we have there, or got when a put failed, become orphans. */
static int kv_join(struct rlv_kv *kv, uint32_t p, const struct kv_line *line)
{
	struct heap_access *acc = line_access(kv, line), *at[HEAP_LINE_MAX];
	struct kv_owned *owned = &kv->owned[p];
	int ret = 0;

	owned->owns = false;
	kv_copies_forget(acc);
	for (uint32_t i = 0; ret == 0 && i < line->copies.n_all; i++) {
		at[i] = kv->set.states[line->copies.at[i]->part.number];
		ret = at[i] ? 0 : copy_away(kv, p, "a copy");
		if (ret == 0 && owned->writers)
			ret = heap_settle_self(line->copies.at[i], kv->slot.owner);
	}
	if (ret == 0 && !owned->writers)
		owned->writers = mem_zalloc(sizeof(*owned->writers));
	if (ret == 0 && !owned->writers)
		ret = error_set(-ENOMEM, "heap: cannot allocate memory");
	if (ret)
		return ret;
	heap_access_reset(acc);
	owned->line = *line;
	ret = heap_writers_join(owned->writers, &owned->line.copies, at);
	if (ret == 0) /* somebody may have put into the others since one was lost */
		ret = line_check(kv, line);
	owned->owns = ret == 0;
	return ret == -EAGAIN ? kv_seek(kv) : ret;
}

/* Whether one of the copies is lost: a put that waits for memory does not look. */
static int kv_look(struct rlv_kv *kv, struct kv_owned *owned)
{
	const struct heap_copies *copies = &owned->line.copies;
	int ret = 0;

	owned->waits = false;
	for (uint32_t i = 0; ret == 0 && i < copies->n_all; i++)
		ret = heap_writers_check(copies, copies->at[i]);
	return ret == -EAGAIN ? kv_seek(kv) : ret;
}

static int kv_own_or_join(struct rlv_kv *kv, uint32_t p, const struct kv_line *line)
{
	struct kv_owned *owned = &kv->owned[p];

	if (owned->owns && line_is(line, &owned->line))
		return owned->waits ? kv_look(kv, owned) : 0;
	return line->copies.line ? kv_join(kv, p, line) : kv_own(kv, p, line);
}

int kv_copy(struct rlv_kv *kv, uint32_t p, bool puts, struct heap_access **acc_out)
{
	struct kv_line line;
	bool owns = puts && kv->slot.owner;
	int ret = line_find(kv, p, owns, &line);

	if (ret == 0)
		ret = line_check(kv, &line);
	if (ret)
		return ret;
	/* A slot that was fenced may be another client's now, with its extents. */
	*acc_out = owns && kv->fenced ? NULL : line_access(kv, &line);
	if (!*acc_out)
		return 0;
	return owns ? kv_own_or_join(kv, p, &line) : 0;
}

void kv_copies_failed(struct rlv_kv *kv, uint32_t p, int code)
{
	bool nothing = code == -ENOENT || code == -ESTALE || code == -ENOSPC || code == -EAGAIN ||
		       code == -ERANGE || code == -EACCES;

	if (!nothing)
		kv->owned[p].owns = false;
	kv->owned[p].waits = code == -EAGAIN && kv->owned[p].writers;
}

/* Gives part p back. */
static int kv_disown(struct rlv_kv *kv, uint32_t p)
{
	const struct copies_owner self = kv_self(kv);
	struct kv_owned *owned = &kv->owned[p];
	struct heap_access *acc;
	int ret;

	if (!owned->claimed)
		return 0;
	ret = kv_copy(kv, p, true, &acc);
	if (ret == 0 && acc) {
		heap_access_reset(acc);
		kv_copies_forget(acc);
		owned->owns = false;
		ret = heap_copies_release(&owned->line.copies, &self);
	}
	owned->claimed = ret != 0;
	return ret == -EBUSY ? 0 : ret;
}

/* Gives the extents of part p back, as one of several writers. */
static void kv_leave(struct rlv_kv *kv, uint32_t p)
{
	struct kv_owned *owned = &kv->owned[p];
	struct kv_line line;

	if (line_find(kv, p, true, &line))
		error_clear();
	else if (owned->owns && line_is(&line, &owned->line))
		heap_access_reset(line_access(kv, &line));
	owned->owns = false;
}

void kv_copies_fini(struct rlv_kv *kv)
{
	for (uint32_t p = 0; kv->owned && p < kv->desc.n_parts; p++) {
		if (kv->owned[p].writers)
			kv_leave(kv, p);
		if (kv->slot.owner && !kv->fenced && kv_disown(kv, p))
			error_clear(); /* who comes next settles */
	}
}

void kv_copies_free(struct rlv_kv *kv)
{
	for (uint32_t p = 0; kv->owned && p < kv->desc.n_parts; p++)
		mem_free(kv->owned[p].writers);
	mem_free(kv->owned);
}

int rlv_kv_release(struct rlv_kv *kv)
{
	int ret = kv ? kv_turn_begin(kv) : error_set(-EINVAL, "kv is NULL");

	if (ret)
		return ret;
	ret = kv_enter(kv, kv->store->timeout_ns);
	for (uint32_t p = 0; ret == 0 && kv->owned && p < kv->desc.n_parts; p++)
		ret = kv_disown(kv, p);
	kv_turn_end(kv);
	return ret;
}

/* -------- repair -------- */

/* Fills the copies of part p; adds to *left the buckets that they lack. */
static int part_repair(struct rlv_kv *kv, uint32_t p, uint64_t bytes, uint64_t *left)
{
	struct heap_copies *copies = &kv->owned[p].line.copies;
	struct heap_access *acc;
	struct kv_line line;
	int ret = line_find(kv, p, true, &line);

	if (ret || line.copies.n == line.copies.n_all)
		return ret;
	ret = kv_copy(kv, p, true, &acc);
	if (ret == 0 && !acc)
		ret = error_set(-EOWNERDEAD, "heap %s: this handle was fenced", kv->desc.name);
	if (ret)
		return ret;
	ret = heap_copies_fill(copies, bytes);
	if (ret)
		kv_copies_failed(kv, p, ret);
	else if (copies->n < copies->n_all)
		*left += kv->desc.buckets + HEAP_PROBES - copies->filled;
	return ret;
}

bool kv_copies_fill(struct rlv_kv *kv)
{
	bool claimed = false;
	uint64_t left = 0;
	int ret;

	for (uint32_t p = 0; p < kv->desc.n_parts; p++)
		claimed |= kv->owned[p].claimed;
	if (!claimed)
		return false;
	ret = kv_enter(kv, FILL_NS);

	for (uint32_t p = 0; ret == 0 && p < kv->desc.n_parts; p++)
		if (kv->owned[p].claimed && part_repair(kv, p, FILL_BYTES, &left))
			error_clear(); /* a node went: the next look sees it */
	if (ret)
		error_clear();
	return left > 0;
}

/* A piece is as large as the put: else a value that is put all the time would never be filled. */
void kv_copies_go_on(struct rlv_kv *kv, uint32_t p, uint64_t bytes)
{
	struct kv_owned *owned = &kv->owned[p];
	struct heap_copies *copies = &owned->line.copies;
	int ret;

	if (!owned->owns || copies->n == copies->n_all)
		return;
	ret = heap_copies_fill(copies, FILL_BYTES + bytes);
	if (ret) {
		kv_copies_failed(kv, p, ret);
		error_clear();
	}
}

int rlv_kv_repair(struct rlv_kv *kv, uint64_t bytes, uint64_t *left_out)
{
	uint64_t left = 0;
	int ret;

	if (!kv || !left_out)
		return error_set(-EINVAL, "kv or left_out is NULL");
	if (!kv->slot.owner)
		return error_set(-EACCES, "the handle was opened read-only");
	ret = kv_turn_begin(kv);
	if (ret)
		return ret;
	ret = kv_enter(kv, kv->store->timeout_ns);
	for (uint32_t p = 0; ret == 0 && kv->owned && p < kv->desc.n_parts; p++)
		ret = part_repair(kv, p, bytes, &left);
	kv_turn_end(kv);
	if (ret == 0)
		*left_out = left;
	return ret;
}

/* -------- state -------- */

void kv_copies_count(const struct rlv_kv *kv, struct rlv_kv_info *info)
{
	struct kv_line line;

	info->copies_wanted = heap_cut(&kv->desc);
	for (uint32_t p = 0; p < kv->desc.n_parts; p++) {
		if (line_find(kv, p, true, &line)) /* up to one that is away */
			error_clear();
		info->copies += line.copies.n;
	}
}

int kv_copies_compare(struct rlv_kv *kv, uint32_t p, struct rlv_kv_report *report)
{
	uint64_t differ = 0;
	struct kv_line line;
	int ret = line_find(kv, p, true, &line);

	if (ret == 0)
		ret = heap_copies_compare(&line.copies, &differ);
	if (ret == 0 && differ && report->problems == 0)
		snprintf(report->first_problem, sizeof(report->first_problem),
			 "part %u: %" PRIu64 " keys differ between its copies", p, differ);
	report->problems += differ;
	return ret == -EHOSTDOWN ? 0 : ret;
}
