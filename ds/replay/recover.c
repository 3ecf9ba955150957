#include "ds/replay/recover.h"

#include "ds/replay/priority.h"
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
	RECOVER_ZERO,   /* both inner arrays of a view; at: byte */
	RECOVER_BLOCKS, /* and the first level of sums; at: block */
	RECOVER_HEADERS,
	RECOVER_LEVELS, /* further levels of a view, at last its size word and maximum; at: node of `level` */
	RECOVER_WORDS,
	RECOVER_PERSIST, /* at: byte */
	RECOVER_DONE,
};

/* Totals of the leaves of a view. */
struct leaf_totals {
	uint64_t live;
	uint64_t max;
};

struct recovery {
	struct shard *shard;
	enum recover_step step;
	uint32_t view, level;
	uint64_t at; /* position within the step */
	struct leaf_totals totals[RING_MAX_VIEWS];
	struct recover_report report;
	uint32_t epoch;
	uint64_t *headers;      /* of all blocks */
	uint64_t *words;        /* CHUNK_WORDS */
	uint64_t *sums;         /* of as many nodes */
	struct row_info *infos; /* rows of block `scanned`; NULL = rows are not checked */
	uint32_t scanned;       /* block whose rows infos describes */
};

/* Moves to the beginning of a step. */
static void go_to(struct recovery *rec, enum recover_step step)
{
	rec->step = step;
	rec->at = 0;
}

/* Begins `step` for the next view or, after the last view, the step `behind` with view 0. */
static void next_view(struct recovery *rec, enum recover_step step, enum recover_step behind)
{
	bool more = ++rec->view < rec->shard->desc.n_views;

	rec->view = more ? rec->view : 0;
	go_to(rec, more ? step : behind);
}

/* Offset of the view's inner array that the present epoch uses. */
static uint64_t array_off(const struct recovery *rec, uint32_t view)
{
	return rec->shard->trees[view].inner_off[rec->epoch & 1];
}

/* -------- headers -------- */

/*
 * If a leaf is of a newer generation than the header of its block, raises the header's ticket to
 * it: the page of the header was lost in a power loss, and the ticket must not be reused. The
 * header is only changed in rec->headers, and counted as repaired.
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
 * Reads the epoch, and all headers into rec->headers. Closes the headers there; clears an invalid
 * owner, and a header with a ticket of another block.
 */
static int recovery_begin(struct recovery *rec)
{
	struct shard *shard = rec->shard;
	const struct table_desc *desc = &shard->desc;
	struct shard_words words;
	int rc = transport_fetch(shard->tree, desc->words_off, &words, sizeof(words));
	uint64_t word;

	if (!rc)
		rc = shard_read_headers(shard, rec->headers);
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
	go_to(rec, RECOVER_ZERO);
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
	for (uint32_t b = 0; !rc && b < desc->blocks; b += CHUNK_WORDS)
		rc = transport_store(rec->shard->tree, shard_header_off(rec->shard, b),
				     rec->headers + b,
				     (uint32_t)min_u64(CHUNK_WORDS, desc->blocks - b) * 8);
	if (!rc)
		go_to(rec, RECOVER_LEVELS);
	rec->level = 2;
	return rc;
}

/* -------- leaves -------- */

/*
 * Makes n leaves of block rec->at sound, in rec->words: one tag, a priority of at most max_prio,
 * none where no item can be. `row`: the first of them, in the block. False = all were sound.
 */
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

/*
 * Adds up each group of `fanout` of the n words in rec->words, into rec->sums. Returns the number
 * of sums.
 */
static uint32_t add_up(struct recovery *rec, uint32_t n, uint32_t fanout)
{
	uint32_t sums = 0;

	for (uint32_t i = 0; i < n; sums++)
		for (rec->sums[sums] = 0; i < n && i < (sums + 1) * fanout; i++)
			rec->sums[sums] += rec->words[i];
	return sums;
}

/*
 * Makes n leaves of block rec->at, from `row` on, sound and, if one had a priority, sets the nodes
 * of level 1 above them: a block has whole nodes.
 */
static int sound_piece(struct recovery *rec, uint32_t view, uint32_t row, uint32_t n)
{
	struct shard *shard = rec->shard;
	uint32_t block = (uint32_t)rec->at, slot = block * shard->desc.block + row;
	uint64_t off = shard_leaf_off(shard, view, slot);
	const struct sumtree *tree = &shard->trees[view];
	struct leaf_totals *totals = &rec->totals[view];
	uint32_t nodes;
	bool has_item = false;
	int rc = transport_fetch(shard->tree, off, rec->words, n * 8);

	for (uint32_t i = 0; !rc && !has_item && i < n; i++)
		has_item = leaf_priority(rec->words[i]);
	/* Rows are read only for items; one scan of a block serves all views. */
	if (has_item && rec->infos && rec->scanned != block) {
		rc = row_scan_block(shard, block, true, rec->infos);
		rec->scanned = rc ? UINT32_MAX : block;
	}
	if (!rc && sound_leaves(rec, view, row, n))
		rc = transport_store(shard->tree, off, rec->words, n * 8);
	if (rc || !has_item)
		return rc;
	for (uint32_t i = 0; i < n; i++) {
		rec->words[i] = leaf_priority(rec->words[i]);
		totals->live += rec->words[i] != 0;
		totals->max = max_u64(totals->max, rec->words[i]);
	}
	nodes = add_up(rec, n, tree->geo.fanout[0]);
	return transport_store(shard->tree,
			       array_off(rec, view) + tree->level_off[1] +
				       (uint64_t)slot / tree->geo.fanout[0] * 8,
			       rec->sums, nodes * 8);
}

static int sound_block(struct recovery *rec)
{
	const struct table_desc *desc = &rec->shard->desc;
	uint32_t most = CHUNK_WORDS / desc->tree.fanout[0] * desc->tree.fanout[0];
	int rc = 0;

	for (uint32_t v = 0; !rc && v < desc->n_views; v++)
		for (uint32_t i = 0; !rc && i < desc->block; i += most)
			rc = sound_piece(rec, v, i, (uint32_t)min_u64(most, desc->block - i));
	if (!rc && ++rec->at == desc->blocks)
		go_to(rec, RECOVER_HEADERS);
	return rc;
}

/* -------- sums -------- */

/*
 * Zeroes the next piece of the two inner arrays of view rec->view, which follow each other; after
 * the last one begins the next view or step.
 */
static int zero_arrays(struct recovery *rec)
{
	const struct sumtree *tree = &rec->shard->trees[rec->view];
	uint64_t bytes = tree->inner_off[1] + tree->geo.inner_bytes - tree->inner_off[0];
	uint32_t len = (uint32_t)min_u64(CHUNK_WORDS * sizeof(uint64_t), bytes - rec->at);
	int rc;

	memset(rec->words, 0, CHUNK_WORDS * sizeof(uint64_t));
	rc = transport_store(tree->region, tree->inner_off[0] + rec->at, rec->words, len);
	rec->at += len;
	if (!rc && rec->at == bytes)
		next_view(rec, RECOVER_ZERO, RECOVER_BLOCKS);
	return rc;
}

/*
 * Writes the size word and the running maximum of view rec->view, whose sums are all written, and
 * begins the next view, or the next step.
 */
static int end_view(struct recovery *rec)
{
	const struct leaf_totals *totals = &rec->totals[rec->view];
	struct shard *shard = rec->shard;
	int rc = transport_store(shard->tree, array_off(rec, rec->view), &totals->live,
				 sizeof(totals->live));

	if (!rc && totals->max)
		rc = transport_store(shard->tree, priority_max_off(shard, rec->view), &totals->max,
				     sizeof(totals->max));
	if (rc)
		return rc;
	rec->report.items += totals->live;
	rec->level = 2;
	next_view(rec, RECOVER_LEVELS, RECOVER_WORDS);
	return 0;
}

/*
 * Writes the next nodes of level rec->level of view rec->view, as sums of the level below; after
 * the last level ends the view.
 */
static int write_level(struct recovery *rec)
{
	const struct sumtree *tree = &rec->shard->trees[rec->view];
	uint64_t off = array_off(rec, rec->view);
	uint32_t level = rec->level, fanout, n, nodes;
	int rc;

	if (level > tree->geo.levels)
		return end_view(rec);
	fanout = tree->geo.fanout[level - 1];
	n = (uint32_t)min_u64(CHUNK_WORDS / fanout * fanout,
			      tree->nodes[level - 1] - rec->at * fanout);
	rc = transport_fetch(tree->region, off + tree->level_off[level - 1] + rec->at * fanout * 8,
			     rec->words, n * 8);
	nodes = add_up(rec, n, fanout);
	if (!rc)
		rc = transport_store(tree->region, off + tree->level_off[level] + rec->at * 8,
				     rec->sums, nodes * 8);
	rec->at += nodes;
	if (!rc && rec->at == tree->nodes[level]) {
		rec->at = 0;
		rec->level++;
	}
	return rc;
}

/* -------- words -------- */

/*
 * Sets admitted := committed in all limiter words, frees all client slots, sets clean := dirty and,
 * last, the epoch word to NORMAL without an owner.
 */
static int settle_words(struct recovery *rec)
{
	struct shard *shard = rec->shard;
	const struct client_slot nobody = { .pid = 0 };
	uint64_t epoch = epoch_make(rec->epoch, EPOCH_NORMAL, 0), dirty;
	uint64_t epoch_off = shard_word_off(shard, offsetof(struct shard_words, part.epoch));
	uint64_t dirty_off = shard_word_off(shard, offsetof(struct shard_words, part.dirty));
	uint64_t clean_off = shard_word_off(shard, offsetof(struct shard_words, part.clean));
	int rc = 0;

	for (uint32_t side = 0; !rc && side < 2 * shard->desc.n_views; side++) {
		uint64_t off = shard_limits_off(shard, 0) + side * VIEW_LIMITS_SIDE, committed;

		rc = transport_load(shard->part.limits, off + sizeof(struct rword64_line),
				    &committed);
		if (!rc)
			rc = transport_store(shard->part.limits, off, &committed, 8);
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

/*
 * Makes the next 4 MiB of the tree region durable and, after the last of them, slots and pages.
 * Rows were not written.
 */
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

int recover_begin(struct shard *shard, const struct recover_opts *opts, struct recovery **rec_out)
{
	struct recovery *rec = mem_zalloc(sizeof(*rec));
	const struct table_desc *desc = &shard->desc;
	bool scan = opts && opts->scan_rows;

	if (!rec)
		return error_set(-ENOMEM, "recover: cannot allocate memory");
	rec->shard = shard;
	rec->scanned = UINT32_MAX;
	rec->headers = mem_array(desc->blocks, sizeof(uint64_t));
	rec->words = mem_array(CHUNK_WORDS, sizeof(uint64_t));
	rec->sums = mem_array(CHUNK_WORDS, sizeof(uint64_t));
	rec->infos = scan ? mem_array(desc->block, sizeof(*rec->infos)) : NULL;
	if (rec->headers && rec->words && rec->sums && (rec->infos || !scan)) {
		*rec_out = rec;
		return 0;
	}
	recover_end(&rec);
	return error_set(-ENOMEM, "recover: cannot allocate the headers of %u blocks",
			 desc->blocks);
}

/* The function that does one piece of each step. */
static int (*const pieces[])(struct recovery *) = {
	[RECOVER_BEGIN] = recovery_begin,  [RECOVER_ZERO] = zero_arrays,
	[RECOVER_BLOCKS] = sound_block,    [RECOVER_HEADERS] = write_headers,
	[RECOVER_LEVELS] = write_level,    [RECOVER_WORDS] = settle_words,
	[RECOVER_PERSIST] = persist_piece, [RECOVER_DONE] = NULL,
};

int recover_go_on(struct recovery *rec, const struct clock *clk, uint64_t until_ns,
		  struct recover_report *report_out)
{
	int rc;

	do
		rc = pieces[rec->step] ? pieces[rec->step](rec) : 0;
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
	mem_free(rec->sums);
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
