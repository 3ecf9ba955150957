#include "ds/replay/shard.h"

#include "ds/replay/priority.h"
#include "ds/sumtree/deferred.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int access_open(struct access *acc, struct shard *shard, uint32_t owner, uint32_t view_mask)
{
	const struct table_desc *desc = &shard->desc;
	uint64_t head;
	int rc;

	if (owner > desc->max_clients)
		return error_set(-EINVAL, "owner %u: must be 1 to %u, or 0 to read", owner,
				 desc->max_clients);
	if (view_mask >> desc->n_views)
		return error_set(-EINVAL, "view mask %#x: the table has %u views", view_mask,
				 desc->n_views);
	memset(acc, 0, sizeof(*acc));
	acc->shard = shard;
	acc->owner = owner;
	acc->view_mask = view_mask;
	if (owner && !part_has_page(&shard->part, owner - 1))
		return error_set(-EINVAL, "owner %u: its page is not attached", owner);
	epoch_init(&acc->epoch, &shard->part, owner);
	rc = transport_load(shard->tree, shard_word_off(shard, offsetof(struct shard_words, head)),
			    &head);
	acc->next_ticket = head;
	if (!rc && !transport_changes_in_place(shard->tree)) {
		unwaited_init(&acc->unwaited, shard->tree->tr, acc->max_seen);
		acc->chained = true;
		/* Epoch and maxima in advance: a chained call does not wait for them. */
		rc = epoch_refresh(&acc->epoch);
		for (uint32_t v = 0; !rc && v < desc->n_views; v++)
			rc = priority_max_read(shard, v, &acc->max_seen[v]);
	}
	for (uint32_t i = 0; !rc && i < desc->n_views; i++)
		if (view_mask >> i & 1)
			rc = tree_deltas_open(&acc->deltas[i]);
	if (rc)
		access_close(acc);
	return rc;
}

void access_close(struct access *acc)
{
	if (acc->chained)
		unwaited_fini(&acc->unwaited);
	wr_list_fini(&acc->chain);
	mem_free(acc->claim);
	acc->claim = NULL;
	acc->chained = false;
	for (uint32_t i = 0; i < RING_MAX_VIEWS; i++)
		if (acc->deltas[i])
			tree_deltas_close(&acc->deltas[i]);
	acc->shard = NULL;
}

void access_share(struct access *acc, const struct access *with)
{
	for (uint32_t v = 0; v < RING_MAX_VIEWS && !acc->chained && !with->chained; v++) {
		if (!acc->deltas[v] || !with->deltas[v])
			continue;
		tree_deltas_close(&acc->deltas[v]);
		acc->deltas[v] = tree_deltas_share(with->deltas[v]);
	}
}

int access_flush_sums(struct access *acc)
{
	int first = 0;

	for (uint32_t views = acc->view_mask; views; views &= views - 1) {
		uint32_t i = bits_ctz(views);
		int rc = 0;

		if (!tree_deltas_are_none(acc->deltas[i]))
			rc = sumtree_flush(&acc->shard->trees[i], acc->deltas[i]);
		first = first ? first : rc;
	}
	return first;
}

/* -------- in place -------- */

static int leave_in_place(struct access *acc)
{
	int rc = access_flush_sums(acc);
	int left = acc->epoch.entered ? epoch_leave(&acc->epoch) : 0;

	return rc ? rc : left;
}

/* -------- by chains -------- */

/*
 * Reports what earlier chains found: marks the shard dirty if an answer was lost. -EOWNERDEAD:
 * another party closed a block of this handle, so it was fenced.
 */
static int judge_unwaited(struct access *acc)
{
	int rc = acc->unwaited.lost ? part_mark_dirty(&acc->shard->part) : 0;

	if (rc)
		return rc;
	acc->unwaited.lost = false;
	if (acc->unwaited.fenced)
		return error_set(-EOWNERDEAD, "shard %u: a block of owner %u was closed: fenced",
				 acc->shard->desc.shard, acc->owner);
	return 0;
}

/*
 * Returns rc. After an error of a chain its withdrawal of the pin may be lost: marks the pin as
 * standing, so that the next leave withdraws it again.
 */
static int note_lost(struct access *acc, int rc)
{
	if (rc)
		acc->epoch.standing = true;
	return rc;
}

void access_add_to(struct access *acc, struct wr_list *list)
{
	for (uint32_t v = 0; v < RING_MAX_VIEWS; v++)
		if (acc->deltas[v])
			acc->deltas[v]->sink = list;
}

/*
 * Directs the additions of the call, in all views, to the list of the next chain. Returns the error
 * of the chain that used the list before.
 */
static int open_sink(struct access *acc)
{
	struct wr_list *sink;
	int rc = unwaited_next(&acc->unwaited, &sink);

	access_add_to(acc, sink);
	return note_lost(acc, rc);
}

static int leave_chained(struct access *acc)
{
	struct wr_list *list = &acc->unwaited.chains[acc->unwaited.next].list;
	struct transport_wr withdraw;
	int rc = access_flush_sums(acc), sent;

	if (rc) /* some additions did not get into the chain */
		acc->unwaited.lost = true;
	sent = wr_list_reserve(list, list->n + RING_MAX_VIEWS + 1);
	for (uint32_t v = 0; !sent && v < acc->shard->desc.n_views; v++) {
		if (acc->max_raise[v] > acc->max_seen[v])
			*wr_list_add(list, NOTE_MAX + v) =
				wr_swap(acc->shard->tree, priority_max_off(acc->shard, v),
					acc->max_seen[v], acc->max_raise[v]);
		else
			acc->max_raise[v] = 0;
	}
	if (!sent && epoch_withdraw(&acc->epoch, &withdraw))
		*wr_list_add(list, NOTE_NONE) = withdraw;
	if (!sent)
		sent = note_lost(acc, unwaited_send(&acc->unwaited));
	return rc ? rc : sent;
}

/* -------- both -------- */

static int enter_epoch(struct access *acc)
{
	return acc->chained ? epoch_enter_chain(&acc->epoch) : epoch_enter(&acc->epoch);
}

int access_enter(struct access *acc)
{
	int rc = acc->chained ? open_sink(acc) : 0;

	if (!rc && acc->chained)
		rc = judge_unwaited(acc);
	if (!rc)
		rc = enter_epoch(acc);
	if (rc != -ESTALE)
		return rc;
	/* A rebuild waits for our pin. */
	rc = access_flush(acc);
	if (!rc && acc->chained)
		rc = open_sink(acc);
	return rc ? rc : enter_epoch(acc);
}

int access_enter_end(struct access *acc)
{
	int rc = epoch_enter_end(&acc->epoch);

	if (rc != -ESTALE)
		return rc;
	rc = access_flush(acc);
	return rc ? rc : epoch_enter(&acc->epoch);
}

int access_leave(struct access *acc)
{
	int rc = acc->chained ? leave_chained(acc) : leave_in_place(acc);

	if (rc || __builtin_expect(!acc->epoch.damaged, 1))
		return rc;
	/* A leaf with a damaged tag makes its sums unreliable. */
	rc = part_mark_dirty(&acc->shard->part);
	acc->epoch.damaged = rc != 0;
	return rc;
}

int access_flush(struct access *acc)
{
	bool lost;
	int rc, err;

	if (!acc->owner) /* a reader holds nothing */
		return 0;
	if (!acc->chained)
		return leave_in_place(acc);
	rc = open_sink(acc);
	err = leave_chained(acc);
	rc = rc ? rc : err;
	err = note_lost(acc, unwaited_wait(&acc->unwaited));
	rc = rc ? rc : err;
	lost = acc->unwaited.lost;
	err = judge_unwaited(acc);
	rc = rc ? rc : err;
	if (!rc && lost)
		return error_set(-EIO, "shard %u: answers of additions were lost",
				 acc->shard->desc.shard);
	return rc;
}

int access_raise_max(struct access *acc, uint32_t view, uint64_t quanta)
{
	if (!acc->chained)
		return priority_max_raise(acc->shard, view, quanta);
	if (quanta > acc->max_raise[view])
		acc->max_raise[view] = quanta;
	return 0;
}
