#include "ds/shard.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int access_open(struct access *acc, struct shard *shard, uint32_t owner, uint32_t view_mask,
		const struct tree_deltas_opts *opts)
{
	const struct table_desc *desc = &shard->desc;
	uint64_t head;
	int rc;

	if (owner < 1 || owner > desc->max_clients)
		return error_set(-EINVAL, "owner %u: must be 1 to %u", owner, desc->max_clients);
	if (view_mask >> desc->n_views)
		return error_set(-EINVAL, "view mask %#x: the table has %u views", view_mask,
				 desc->n_views);
	memset(acc, 0, sizeof(*acc));
	acc->shard = shard;
	acc->owner = owner;
	acc->view_mask = view_mask;
	epoch_init(&acc->epoch, shard->tree, desc->words_off, desc->slots_off, owner - 1);
	rc = transport_load(shard->tree, shard_word_off(shard, offsetof(struct shard_words, head)),
			    &head);
	acc->next_ticket = head;
	for (uint32_t i = 0; !rc && i < desc->n_views; i++)
		if (view_mask >> i & 1)
			rc = tree_deltas_open(&shard->trees[i], opts, &acc->deltas[i]);
	if (rc)
		access_close(acc);
	return rc;
}

void access_close(struct access *acc)
{
	for (uint32_t i = 0; i < RING_MAX_VIEWS; i++)
		if (acc->deltas[i])
			tree_deltas_close(&acc->deltas[i]);
	acc->shard = NULL;
}

/* Adds deltas to their ancestors, or keeps them where force is off; *held_out: some were kept. */
static int flush_views(struct access *acc, bool force, bool *held_out)
{
	int first = 0;

	*held_out = false;
	for (uint32_t i = 0; i < acc->shard->desc.n_views; i++) {
		int rc;

		if (!acc->deltas[i])
			continue;
		rc = sumtree_flush(&acc->shard->trees[i], acc->deltas[i], force);
		if (rc && !first)
			first = rc;
		if (!tree_deltas_empty(acc->deltas[i]))
			*held_out = true;
	}
	return first;
}

/* A sum whose addition may or may not have happened is wrong until the next rebuild. */
static int lost_answer(struct access *acc, int rc)
{
	int marked;

	if (rc != -EIO)
		return rc;
	marked = shard_mark_dirty(acc->shard);
	return marked && marked != -EIO ? marked : rc;
}

int access_enter(struct access *acc)
{
	int rc = epoch_enter(&acc->epoch);

	if (rc != -ESTALE)
		return rc;
	/* A rebuild waits for the deltas that we kept. */
	rc = access_flush(acc);
	return rc ? rc : epoch_enter(&acc->epoch);
}

int access_leave(struct access *acc)
{
	bool held;
	int rc = flush_views(acc, false, &held);

	if (rc)
		rc = lost_answer(acc, rc);
	if (!held) {
		int left = epoch_leave(&acc->epoch);

		rc = rc ? rc : left;
	}
	return rc;
}

int access_flush(struct access *acc)
{
	bool held;
	int rc = flush_views(acc, true, &held);

	if (rc)
		rc = lost_answer(acc, rc);
	if (!held && acc->epoch.entered) {
		int left = epoch_leave(&acc->epoch);

		rc = rc ? rc : left;
	}
	return rc;
}
