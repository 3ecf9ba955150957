#include "tests/support/test.h"

#include "tests/support/tree_fixture.h"

#include <string.h>

#include "ds/sumtree_nodes.h"

#include "wire/ring_layout.h"

#include "base/bits.h"

#define WORDS_OFF 4096u
#define SLOTS_OFF (WORDS_OFF + (uint32_t)sizeof(struct shard_words))

void tree_fixture_open(struct tree_fixture *fx, uint32_t leaves, const uint16_t *fanout)
{
	uint64_t off = SLOTS_OFF + TREE_FIXTURE_SLOTS * sizeof(struct client_page);

	assert_int_equal(sumtree_geometry_init(&fx->geo, leaves, fanout), 0);
	assert_int_equal(sumtree_geometry_check(&fx->geo), 0);
	fx->place.inner_off[0] = off;
	fx->place.inner_off[1] = off + fx->geo.inner_bytes;
	fx->place.leaves_off = off + 2 * fx->geo.inner_bytes;
	fx->place.max_prio = sumtree_max_prio(leaves);
	fx->size = fx->place.leaves_off + sumtree_leaf_bytes(&fx->geo);
	fx->size = align_up(fx->size, 64);
	fx->bytes = aligned_alloc(64, fx->size);
	assert_non_null(fx->bytes);
	memset(fx->bytes, 0, fx->size);
	for (uint32_t i = 0; i < TREE_FIXTURE_SLOTS; i++) {
		uint64_t idle = SLOT_IDLE;

		memcpy(fx->bytes + SLOTS_OFF + i * sizeof(struct client_page) +
			       offsetof(struct client_page, promise),
		       &idle, sizeof(idle));
	}
}

void tree_fixture_close(struct tree_fixture *fx)
{
	free(fx->bytes);
	fx->bytes = NULL;
}

void tree_handle_open(struct tree_handle *h, const struct tree_fixture *fx, uint32_t slot,
		      bool in_place, const struct tree_deltas_opts *opts)
{
	memory_transport_init(&h->mt, fx->bytes, fx->size, in_place);
	sumtree_init(&h->tree, &h->mt.region, &fx->geo, &fx->place);
	epoch_init(&h->ep, &h->mt.region, WORDS_OFF, &h->mt.region,
		   SLOTS_OFF + slot * (uint32_t)sizeof(struct client_page));
	assert_int_equal(tree_deltas_open(&h->tree, opts, &h->deltas), 0);
}

void tree_handle_close(struct tree_handle *h)
{
	tree_deltas_close(&h->deltas);
	memory_transport_fini(&h->mt);
}

static uint8_t *word_ptr(const struct tree_fixture *fx, uint32_t level, uint32_t i)
{
	struct region nowhere = { 0 };
	struct sumtree tree;

	sumtree_init(&tree, &nowhere, &fx->geo, &fx->place);
	return fx->bytes + node_off(&tree, 0, level, i);
}

uint64_t tree_fixture_word(const struct tree_fixture *fx, uint32_t level, uint32_t i)
{
	uint64_t word;

	memcpy(&word, word_ptr(fx, level, i), sizeof(word));
	return word;
}

void tree_fixture_set_word(struct tree_fixture *fx, uint32_t level, uint32_t i, uint64_t word)
{
	memcpy(word_ptr(fx, level, i), &word, sizeof(word));
}

void tree_handle_fill(struct tree_handle *h, const struct leaf_run *run, const uint64_t *priorities)
{
	assert_int_equal(epoch_enter(&h->ep), 0);
	assert_int_equal(sumtree_claim(&h->tree, &h->ep, run, h->deltas), 0);
	assert_int_equal(sumtree_publish(&h->tree, &h->ep, run, priorities, h->deltas), 0);
	assert_int_equal(sumtree_flush(&h->tree, h->deltas, true), 0);
	assert_int_equal(epoch_leave(&h->ep), 0);
}

void tree_handle_assert_exact(struct tree_handle *h)
{
	struct sumtree_report report;
	uint64_t total;

	assert_int_equal(sumtree_check(&h->tree, &h->ep, &report), 0);
	assert_int_equal(report.wrong_nodes, 0);
	assert_int_equal(report.wrong_tags, 0);
	assert_int_equal(report.size_error, 0);
	assert_int_equal(sumtree_total(&h->tree, &h->ep, &total), 0);
	assert_int_equal(total, report.total);
}
