#include "ds/replay/recover.h"

#include "ds/ring/row_scan.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/ring_layout.h"
#include "wire/sumtree_layout.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/clock.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define CHUNK_WORDS 4096u              /* leaves, headers or zeros per read or write */
#define HEAD_MAX (BLOCK_SEQ_MASK >> 1) /* tickets never come near: 2^47 blocks */

enum recover_step {
	RECOVER_BEGIN,
	RECOVER_BLOCKS, /* at: block */
	RECOVER_HEADERS,
	RECOVER_SUM,   /* one view; at: leaf */
	RECOVER_SPARE, /* at: byte; RECOVER_ZERO likewise */
	RECOVER_ZERO,
	RECOVER_LEVELS, /* at: level - 1 */
	RECOVER_VIEW,   /* size word and maximum */
	RECOVER_WORDS,
	RECOVER_PERSIST, /* at: byte */
	RECOVER_DONE,
};

/* Totals of the leaves, collected with the first inner level. */
struct leaf_totals {
	uint64_t live;
	uint64_t max;
};

/* The node of the next leaf, and the number of leaves that it still has. */
struct node_place {
	uint64_t *node;
	uint32_t left;
};

struct recovery {
	struct shard *shard;
	enum recover_step step;
	uint32_t view;
	uint64_t at; /* position within the step */
	struct leaf_totals totals;
	struct node_place place;
	struct recover_report report;
	uint32_t epoch;
	uint64_t *headers;      /* of all blocks */
	uint64_t *words;        /* CHUNK_WORDS */
	uint64_t *sums[2];      /* two levels: source and result */
	struct row_info *infos; /* rows of block `scanned`; NULL = rows are not checked */
	uint32_t scanned;       /* block whose rows infos describes */
};

static int read_words(struct shard *shard, uint64_t off, uint64_t *words, uint32_t n)
{
	struct transport_io io = { .region = shard->tree, .off = off, .dst = words, .len = n * 8 };

	return transport_read(shard->tree->tr, &io, 1);
}

/* Copies any number of words, in pieces that a transport accepts. */
static int copy_words(struct shard *shard, uint64_t off, uint64_t *words, uint64_t n, bool write)
{
	for (uint64_t i = 0; i < n; i += CHUNK_WORDS) {
		uint32_t some = (uint32_t)min_u64(CHUNK_WORDS, n - i);
		int rc = write ? transport_store(shard->tree, off + i * 8, words + i, some * 8)
			       : read_words(shard, off + i * 8, words + i, some);

		if (rc)
			return rc;
	}
	return 0;
}

/* Moves to the beginning of a step. */
static void go_to(struct recovery *rec, enum recover_step step)
{
	rec->step = step;
	rec->at = 0;
}

/* -------- headers -------- */

/*
 * Handles a leaf newer than its header: the page of the header was lost in a power loss. The
 * ticket must not be reused, so the header follows the leaf.
 */
static void follow_leaf(struct recovery *rec, uint32_t block, uint32_t gen)
{
	uint32_t blocks = rec->shard->desc.blocks;
	uint64_t seq = block_seq(rec->headers[block]);
	uint32_t ahead;

	if (seq % blocks != block) /* never claimed, or damaged: the first lap */
		seq = block;
	ahead = (gen + LEAF_GEN_MASK - block_gen(seq, blocks)) % LEAF_GEN_MASK;
	if (rec->headers[block] && (ahead == 0 || ahead > LEAF_GEN_MASK / 2))
		return; /* without a header the leaf cannot be older */
	seq += (uint64_t)ahead * blocks;
	rec->headers[block] = block_make(false, seq == 0, seq); /* never 0, which means no header */
	rec->report.repaired++;
}

/*
 * Reads the epoch and the headers. Closes the headers; clears an invalid owner, and a ticket of
 * another block.
 */
static int recovery_begin(struct recovery *rec)
{
	struct shard *shard = rec->shard;
	const struct table_desc *desc = &shard->desc;
	struct shard_words words;
	struct transport_io io = {
		.region = shard->tree, .off = desc->words_off, .dst = &words, .len = sizeof(words)
	};
	int rc = transport_read(shard->tree->tr, &io, 1);
	uint64_t word;

	if (!rc)
		rc = copy_words(shard, desc->headers_off, rec->headers, desc->blocks, false);
	if (rc)
		return rc;
	word = rword64_load_relaxed(&words.part.epoch.word);
	rec->epoch = epoch_number(word);
	rec->report.was_dirty = epoch_mode_of(word) != EPOCH_NORMAL ||
				rword64_load_relaxed(&words.part.dirty.word) !=
					rword64_load_relaxed(&words.part.clean.word);
	for (uint32_t b = 0; b < desc->blocks; b++) {
		uint64_t header = rec->headers[b], seq = block_seq(header);
		uint64_t sound = header & ~BLOCK_OPEN;

		if (header && (seq % desc->blocks != b || seq >= HEAD_MAX))
			sound = 0;
		else if (block_owner(header) > desc->max_clients)
			sound = block_make(false, 0, seq);
		rec->report.closed += block_is_open(header);
		rec->report.repaired += sound != (header & ~BLOCK_OPEN);
		rec->headers[b] = sound;
	}
	go_to(rec, RECOVER_BLOCKS);
	return 0;
}

static int write_headers(struct recovery *rec)
{
	const struct table_desc *desc = &rec->shard->desc;
	uint64_t off = shard_word_off(rec->shard, offsetof(struct shard_words, head)), head;
	int rc = transport_load(rec->shard->tree, off, &head);

	if (!rc && head > HEAD_MAX)
		rc = error_set(-EPROTO, "shard words: head %llu is not a valid ticket",
			       (unsigned long long)head);
	if (rc)
		return rc;
	for (uint32_t b = 0; b < desc->blocks; b++)
		if (rec->headers[b])
			head = max_u64(head, block_seq(rec->headers[b]) + 1);
	rec->report.head = head;
	rc = transport_store(rec->shard->tree, off, &head, sizeof(head));
	if (!rc)
		rc = copy_words(rec->shard, desc->headers_off, rec->headers, desc->blocks, true);
	if (!rc)
		go_to(rec, RECOVER_SUM);
	return rc;
}

/* -------- leaves -------- */

/* Makes n leaves of a block sound, in rec->words; false = all were. */
static bool sound_leaves(struct recovery *rec, uint32_t view, uint32_t row, uint32_t n)
{
	const struct table_desc *desc = &rec->shard->desc;
	const struct view_desc *view_desc = &desc->views[view];
	uint32_t followed = 0; /* generation; usually that of the previous leaf */
	bool changed = false;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t found = rec->words[i];
		uint64_t priority = min_u64(leaf_priority(found), view_desc->max_prio);
		uint32_t gen = leaf_gen(found);
		bool can_live = gen != 0 && row + i + 1 >= desc->window_max;

		if (priority && can_live && rec->infos)
			can_live = row_scan_is_item(rec->infos, row + i, view_desc, gen);
		if (priority && !can_live) {
			rec->report.retired++;
			priority = 0;
		}
		if (gen && gen != followed) {
			followed = gen;
			follow_leaf(rec, (uint32_t)rec->at, gen);
		}
		rec->words[i] = leaf_make(rec->epoch & 3u, gen, priority);
		changed |= rec->words[i] != found;
	}
	return changed;
}

static int sound_piece(struct recovery *rec, uint32_t view, uint32_t row, uint32_t n)
{
	struct shard *shard = rec->shard;
	uint32_t block = (uint32_t)rec->at;
	uint64_t off = shard_leaf_off(shard, view, block * shard->desc.block + row);
	bool has_item = false;
	int rc = read_words(shard, off, rec->words, n);

	for (uint32_t i = 0; !rc && !has_item && i < n; i++)
		has_item = leaf_priority(rec->words[i]);
	/* Rows are read only for items; one scan of a block serves all views. */
	if (has_item && rec->infos && rec->scanned != block) {
		rc = row_scan_block(shard, block, true, rec->infos);
		rec->scanned = rc ? UINT32_MAX : block;
	}
	if (!rc && sound_leaves(rec, view, row, n))
		rc = transport_store(shard->tree, off, rec->words, n * 8);
	return rc;
}

static int sound_block(struct recovery *rec)
{
	const struct table_desc *desc = &rec->shard->desc;
	int rc = 0;

	for (uint32_t v = 0; !rc && v < desc->n_views; v++)
		for (uint32_t i = 0; !rc && i < desc->block; i += CHUNK_WORDS)
			rc = sound_piece(rec, v, i,
					 (uint32_t)min_u64(CHUNK_WORDS, desc->block - i));
	if (!rc && ++rec->at == desc->blocks)
		go_to(rec, RECOVER_HEADERS);
	return rc;
}

/* -------- sums -------- */

static const struct sumtree *tree_of(const struct recovery *rec)
{
	return &rec->shard->trees[rec->view];
}

static int sum_leaves(struct recovery *rec)
{
	const struct sumtree *tree = tree_of(rec);
	struct leaf_totals *totals = &rec->totals;
	struct node_place *place = &rec->place;
	uint32_t n = (uint32_t)min_u64(CHUNK_WORDS, tree->geo.leaves - rec->at);
	int rc;

	if (rec->at == 0) {
		memset(rec->sums[0], 0, tree->nodes[1] * sizeof(uint64_t));
		*totals = (struct leaf_totals){ 0 };
		*place = (struct node_place){ rec->sums[0], tree->geo.fanout[0] };
	}
	rc = read_words(rec->shard, tree->leaves_off + rec->at * 8, rec->words, n);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t priority = leaf_priority(rec->words[i]);

		*place->node += priority;
		totals->live += priority != 0;
		totals->max = max_u64(totals->max, priority);
		if (--place->left == 0) {
			place->node++;
			place->left = tree->geo.fanout[0];
		}
	}
	rec->at += n;
	if (rec->at == tree->geo.leaves)
		go_to(rec, RECOVER_SPARE);
	return 0;
}

/* Zeros a piece of an array of inner nodes. */
static int zero_array(struct recovery *rec, uint64_t off, enum recover_step next)
{
	uint64_t bytes = tree_of(rec)->geo.inner_bytes;
	uint32_t len = (uint32_t)min_u64(CHUNK_WORDS * sizeof(uint64_t), bytes - rec->at);
	int rc;

	memset(rec->words, 0, CHUNK_WORDS * sizeof(uint64_t));
	rc = transport_store(rec->shard->tree, off + rec->at, rec->words, len);
	if (rc)
		return rc;
	rec->at += len;
	if (rec->at == bytes)
		go_to(rec, next);
	return 0;
}

static uint64_t array_off(const struct recovery *rec, uint32_t epoch)
{
	return tree_of(rec)->inner_off[epoch & 1];
}

/* Writes one level; sums[0] first holds level 1. */
static int write_level(struct recovery *rec)
{
	const struct sumtree *tree = tree_of(rec);
	uint32_t level = (uint32_t)rec->at + 1;
	uint64_t *below = rec->sums[(level - 1) & 1], *above = rec->sums[level & 1];
	int rc = copy_words(rec->shard, array_off(rec, rec->epoch) + tree->level_off[level], below,
			    tree->nodes[level], true);

	if (rc)
		return rc;
	if (level == tree->geo.levels) {
		go_to(rec, RECOVER_VIEW);
		return 0;
	}
	memset(above, 0, tree->nodes[level + 1] * sizeof(uint64_t));
	for (uint32_t i = 0; i < tree->nodes[level]; i++)
		above[i / tree->geo.fanout[level]] += below[i];
	rec->at++;
	return 0;
}

static int end_view(struct recovery *rec)
{
	const struct leaf_totals *totals = &rec->totals;
	struct shard *shard = rec->shard;
	int rc = transport_store(shard->tree, array_off(rec, rec->epoch), &totals->live,
				 sizeof(totals->live));

	if (!rc && totals->max)
		rc = transport_store(shard->tree,
				     shard->desc.views[rec->view].words_off +
					     offsetof(struct view_words, max_priority),
				     &totals->max, sizeof(totals->max));
	if (rc)
		return rc;
	rec->report.items += totals->live;
	rec->view++;
	go_to(rec, rec->view < shard->desc.n_views ? RECOVER_SUM : RECOVER_WORDS);
	return 0;
}

/* -------- words -------- */

/* Sets admitted := committed, for one side. */
static int settle_side(struct shard *shard, uint64_t admitted_off, uint64_t committed_off)
{
	uint64_t committed;
	int rc = transport_load(shard->part.limits, committed_off, &committed);

	return rc ? rc : transport_store(shard->part.limits, admitted_off, &committed, 8);
}

/* -------- all of it -------- */

/* Words of the limiter, client slots, and at last the epoch. */
static int settle_words(struct recovery *rec)
{
	struct shard *shard = rec->shard;
	const struct client_slot nobody = { .pid = 0 };
	uint64_t epoch = epoch_make(rec->epoch, EPOCH_NORMAL, 0), dirty;
	uint64_t epoch_off = shard_word_off(shard, offsetof(struct shard_words, part.epoch));
	uint64_t dirty_off = shard_word_off(shard, offsetof(struct shard_words, part.dirty));
	uint64_t clean_off = shard_word_off(shard, offsetof(struct shard_words, part.clean));
	int rc = 0;

	for (uint32_t v = 0; !rc && v < shard->desc.n_views; v++) {
		uint64_t off = shard_limits_off(shard, v);

		rc = settle_side(shard, off + offsetof(struct view_limits, ins_admitted),
				 off + offsetof(struct view_limits, ins_committed));
		if (!rc)
			rc = settle_side(shard, off + offsetof(struct view_limits, smp_admitted),
					 off + offsetof(struct view_limits, smp_committed));
	}
	for (uint32_t i = 0; !rc && i < shard->desc.max_clients; i++)
		rc = transport_store(shard->part.slots, part_slot_off(&shard->part, i), &nobody,
				     sizeof(nobody));
	if (!rc)
		rc = transport_load(shard->tree, dirty_off, &dirty);
	if (!rc)
		rc = transport_store(shard->tree, clean_off, &dirty, sizeof(dirty));
	if (!rc)
		rc = transport_order(shard->tree->tr);
	if (!rc)
		rc = transport_store(shard->tree, epoch_off, &epoch, sizeof(epoch));
	if (!rc)
		go_to(rec, shard->tree->tr->caps & TRANSPORT_PERSISTENT ? RECOVER_PERSIST
									: RECOVER_DONE);
	return rc;
}

/* Makes a piece of the tree region durable, at last slots and pages; recovery does not write rows. */
static int persist_piece(struct recovery *rec)
{
	const uint64_t piece = (uint64_t)4 << 20;
	struct region *tree = rec->shard->tree;
	uint64_t len = min_u64(piece, tree->size - rec->at);
	int rc = transport_persist(tree, rec->at, len);

	rec->at += len;
	if (rc || rec->at < tree->size)
		return rc;
	rc = transport_persist(rec->shard->part.slots, 0, 0);
	if (!rc)
		rc = transport_persist(rec->shard->part.pages, 0, 0);
	if (!rc)
		go_to(rec, RECOVER_DONE);
	return rc;
}

static int do_piece(struct recovery *rec)
{
	switch (rec->step) {
	case RECOVER_BEGIN:
		return recovery_begin(rec);
	case RECOVER_BLOCKS:
		return sound_block(rec);
	case RECOVER_HEADERS:
		return write_headers(rec);
	case RECOVER_SUM:
		return sum_leaves(rec);
	case RECOVER_SPARE:
		return zero_array(rec, array_off(rec, ~rec->epoch), RECOVER_ZERO);
	case RECOVER_ZERO:
		return zero_array(rec, array_off(rec, rec->epoch), RECOVER_LEVELS);
	case RECOVER_LEVELS:
		return write_level(rec);
	case RECOVER_VIEW:
		return end_view(rec);
	case RECOVER_WORDS:
		return settle_words(rec);
	case RECOVER_PERSIST:
		return persist_piece(rec);
	case RECOVER_DONE:
		break;
	}
	return 0;
}

int recover_begin(struct shard *shard, const struct recover_opts *opts, struct recovery **rec_out)
{
	struct recovery *rec = mem_zalloc(sizeof(*rec));
	const struct table_desc *desc = &shard->desc;
	bool scan = opts && opts->scan_rows;
	size_t nodes = shard->trees[0].nodes[1];

	if (!rec)
		return error_set(-ENOMEM, "recover: cannot allocate memory");
	rec->shard = shard;
	rec->scanned = UINT32_MAX;
	rec->headers = mem_array(desc->blocks, sizeof(uint64_t));
	rec->words = mem_array(CHUNK_WORDS, sizeof(uint64_t));
	rec->sums[0] = mem_array(nodes, sizeof(uint64_t));
	rec->sums[1] = mem_array(nodes, sizeof(uint64_t));
	rec->infos = scan ? mem_array(desc->block, sizeof(*rec->infos)) : NULL;
	if (rec->headers && rec->words && rec->sums[0] && rec->sums[1] && (rec->infos || !scan)) {
		*rec_out = rec;
		return 0;
	}
	recover_end(&rec);
	return error_set(-ENOMEM, "recover: cannot allocate the sums of %u leaves", desc->slots);
}

int recover_go_on(struct recovery *rec, const struct clock *clk, uint64_t until_ns,
		  struct recover_report *report_out)
{
	int rc;

	do
		rc = do_piece(rec);
	while (!rc && rec->step != RECOVER_DONE && clock_now_ns(clk) < until_ns);
	if (!rc && rec->step != RECOVER_DONE)
		return -EAGAIN;
	if (!rc && report_out)
		*report_out = rec->report;
	return rc;
}

void recover_end(struct recovery **rec_ptr)
{
	struct recovery *rec = *rec_ptr;

	if (!rec)
		return;
	mem_free(rec->infos);
	mem_free(rec->sums[1]);
	mem_free(rec->sums[0]);
	mem_free(rec->words);
	mem_free(rec->headers);
	mem_free(rec);
	*rec_ptr = NULL;
}

int recover_shard(struct shard *shard, const struct recover_opts *opts,
		  struct recover_report *report_out)
{
	struct recovery *rec = NULL;
	int rc = recover_begin(shard, opts, &rec);

	if (!rc)
		rc = recover_go_on(rec, clock_monotonic(), UINT64_MAX, report_out);
	recover_end(&rec);
	return rc;
}
