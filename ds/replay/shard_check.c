#include "ds/replay/shard_check.h"

#include "ds/limiter/limiter.h"
#include "ds/ring/row_scan.h"
#include "ds/part/slot.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/ring_layout.h"
#include "wire/sumtree_layout.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#define CHUNK_WORDS 1024u

struct check {
	struct shard *shard;
	struct shard_check_opts opts;
	struct shard_check_report *report;
	uint64_t *headers;      /* of all blocks */
	struct row_info *infos; /* of one block; NULL = rows are not checked */
};

/*
 * Adds 1 to *count and to the problems of the report, which keeps the message if it is among the
 * first.
 */
RLV_PRINTF(3, 4)
static void check_problem(struct check *check, uint64_t *count, const char *fmt, ...)
{
	struct shard_check_report *report = check->report;
	va_list args;

	++*count;
	report->problems++;
	if (report->n_texts == SHARD_CHECK_TEXTS)
		return;
	va_start(args, fmt);
	vsnprintf(report->text[report->n_texts++], SHARD_CHECK_TEXT_BYTES, fmt, args);
	va_end(args);
}

/* -------- words and slots -------- */

static int check_words(struct check *check)
{
	struct shard_check_report *report = check->report;
	struct shard_words words;
	uint64_t epoch;
	int rc = transport_fetch(check->shard->tree, check->shard->desc.words_off, &words,
				 sizeof(words));

	if (rc)
		return rc;
	epoch = rword64_load_relaxed(&words.part.epoch.word);
	report->epoch = epoch_number(epoch);
	report->head = rword64_load_relaxed(&words.head.word);
	report->dirty = rword64_load_relaxed(&words.part.dirty.word) !=
			rword64_load_relaxed(&words.part.clean.word);
	if (epoch_mode_of(epoch) != EPOCH_NORMAL) {
		report->dirty = true;
		check_problem(check, &report->wrong_tags,
			      "epoch %u: a rebuild by owner %u is in mode %d", report->epoch,
			      epoch_owner(epoch), (int)epoch_mode_of(epoch));
	}
	return 0;
}

static int check_slots(struct check *check)
{
	struct shard_check_report *report = check->report;
	struct slot_info infos[SLOT_READ_MAX];
	uint32_t all = check->shard->desc.max_clients;

	for (uint32_t first = 0; first < all; first += SLOT_READ_MAX) {
		uint32_t n = (uint32_t)min_u64(SLOT_READ_MAX, all - first);
		int rc = slot_read_many(&check->shard->part, first, n, infos);

		if (rc)
			return rc;
		for (const struct slot_info *info = infos; info < infos + n; info++) {
			uint32_t behind = report->epoch - (uint32_t)info->pin;

			if (info->state > SLOT_FENCED)
				check_problem(check, &report->wrong_slots, "slot %u: state %d",
					      info->slot, (int)info->state);
			report->live_slots += info->state == SLOT_LIVE;
			if (info->state == SLOT_FREE || info->pin == SLOT_IDLE)
				continue;
			report->busy_slots++;
			if (info->pin > UINT32_MAX || behind > 1)
				check_problem(check, &report->wrong_slots,
					      "slot %u: pin %" PRIu64 " under epoch %u", info->slot,
					      info->pin, report->epoch);
		}
	}
	return 0;
}

/* -------- headers -------- */

static int check_headers(struct check *check)
{
	const struct table_desc *desc = &check->shard->desc;
	struct shard_check_report *report = check->report;
	struct slot_info info;
	int rc = shard_read_headers(check->shard, check->headers);

	for (uint32_t b = 0; !rc && b < desc->blocks; b++) {
		uint64_t seq = block_seq(check->headers[b]);
		uint32_t owner = block_owner(check->headers[b]);
		bool open = block_is_open(check->headers[b]);

		if (!check->headers[b]) /* never claimed */
			continue;
		report->used_blocks++;
		report->open_blocks += open;
		if (seq % desc->blocks != b)
			check_problem(check, &report->wrong_headers,
				      "block %u: ticket %" PRIu64 " is of block %u", b, seq,
				      (uint32_t)(seq % desc->blocks));
		if (seq >= report->head)
			check_problem(check, &report->wrong_headers,
				      "block %u: ticket %" PRIu64 ", but head is at %" PRIu64, b,
				      seq, report->head);
		/* Recovery writes owner 0 into a header that it changed. */
		if (owner > desc->max_clients || (open && owner == 0)) {
			check_problem(check, &report->wrong_headers,
				      "block %u: %s by owner %u of %u", b, open ? "open" : "closed",
				      owner, desc->max_clients);
		} else if (open) {
			rc = slot_read(&check->shard->part, owner - 1, &info);
			if (!rc && info.state == SLOT_FREE)
				check_problem(check, &report->wrong_headers,
					      "block %u: open, but its owner's slot %u is free", b,
					      owner - 1);
		}
	}
	return rc;
}

/* -------- leaves and rows -------- */

/*
 * Checks the leaf of a view at `slot`, whose word has a priority: against max_prio, its block's
 * header and, if they were read, the rows of its window. Reports each problem.
 */
static void check_leaf(struct check *check, uint32_t view_no, uint32_t slot, uint64_t word)
{
	const struct table_desc *desc = &check->shard->desc;
	const struct view_desc *view = &desc->views[view_no];
	struct shard_check_report *report = check->report;
	uint32_t block = slot / desc->block, at = slot % desc->block, gen = leaf_gen(word);
	uint64_t header = check->headers[block];
	uint32_t now = block_gen(block_seq(header), desc->blocks);
	const struct row_info *row, *anchor;

	if (leaf_priority(word) > view->max_prio)
		check_problem(check, &report->wrong_leaves,
			      "view %u slot %u: priority %" PRIu64 " above %" PRIu64, view_no, slot,
			      leaf_priority(word), view->max_prio);
	/* An interrupted claim leaves items of older laps under a newer header. */
	if (!header || !gen || (now + LEAF_GEN_MASK - gen) % LEAF_GEN_MASK > LEAF_GEN_MASK / 2)
		check_problem(check, &report->wrong_leaves,
			      "view %u slot %u: live with gen %u under header %#" PRIx64, view_no,
			      slot, gen, header);
	if (at + 1 < desc->window_max)
		check_problem(check, &report->wrong_leaves,
			      "view %u slot %u: live on a repeated row of its block", view_no,
			      slot);
	if (!check->infos || at + 1 < view->window)
		return; /* no rows to check, or reported already */
	row = &check->infos[at];
	anchor = row - view->future;
	if (!row_scan_is_whole(check->infos, at, view->window, gen))
		check_problem(check, &report->wrong_rows,
			      "view %u slot %u: rows of its window are torn or not of gen %u",
			      view_no, slot, gen);
	else if (anchor->flags & (ROW_FINAL | ROW_FILLER))
		check_problem(check, &report->wrong_rows,
			      "view %u slot %u: its anchor has flags %#x", view_no, slot,
			      anchor->flags);
	else if (row->flags & ROW_REPEATED)
		check_problem(check, &report->wrong_rows, "view %u slot %u: live on a repeated row",
			      view_no, slot);
}

static int check_leaves(struct check *check, uint32_t view, uint32_t block)
{
	uint64_t words[CHUNK_WORDS] = { 0 };
	uint32_t rows = check->shard->desc.block;
	int rc = 0;

	for (uint32_t first = 0; !rc && first < rows; first += CHUNK_WORDS) {
		uint32_t n = (uint32_t)min_u64(CHUNK_WORDS, rows - first);
		uint32_t slot = block * rows + first;

		rc = transport_fetch(check->shard->tree, shard_leaf_off(check->shard, view, slot),
				     words, n * 8);
		for (uint32_t i = 0; !rc && i < n; i++)
			if (leaf_priority(words[i]))
				check_leaf(check, view, slot + i, words[i]);
	}
	return rc;
}

/* -------- sums and limits -------- */

static int check_sums(struct check *check, uint32_t view)
{
	struct shard *shard = check->shard;
	struct shard_check_report *report = check->report;
	struct sumtree_report sums;
	struct epoch ep;
	int rc;

	epoch_init(&ep, &shard->part, 0);
	rc = sumtree_check(&shard->trees[view], &ep, &sums);
	if (rc)
		return rc;
	report->live[view] = sums.live_leaves;
	report->total[view] = sums.total;
	report->wrong_nodes += sums.wrong_nodes;
	report->wrong_tags += sums.wrong_tags;
	report->wrong_sizes += sums.size_error != 0;
	if (report->dirty)
		return 0;
	if (sums.wrong_nodes || sums.wrong_tags || sums.size_error)
		check_problem(check, &(uint64_t){ 0 },
			      "view %u: %" PRIu64 " sums and %" PRIu64
			      " tags are wrong, size is %" PRId64 " off, and no rebuild is due",
			      view, sums.wrong_nodes, sums.wrong_tags, sums.size_error);
	return 0;
}

static void check_side(struct check *check, uint32_t view, const char *side, uint64_t admitted,
		       uint64_t committed)
{
	int64_t missing = (int64_t)(committed - admitted); /* admitted may be negative, too */

	if (missing > 0 && (uint64_t)missing > check->opts.limit_slack)
		check_problem(check, &check->report->wrong_limits,
			      "view %u: %" PRIu64 " %s committed, only %" PRId64 " admitted", view,
			      committed, side, (int64_t)admitted);
}

static int check_limits(struct check *check, uint32_t view)
{
	const struct view_desc *desc = &check->shard->desc.views[view];
	struct limiter_words words;
	int rc = limiter_words_read(check->shard->part.limits, shard_limits_off(check->shard, view),
				    &words);

	if (rc)
		return rc;
	if (check->shard->desc.shard != check->opts.control) {
		if (words.ins_admitted | words.ins_committed | words.smp_admitted |
		    words.smp_committed)
			check_problem(
				check, &check->report->wrong_limits,
				"view %u: counted on shard %u, which is not the control shard",
				view, check->shard->desc.shard);
		return 0;
	}
	/* An unbounded side counts commits but no admissions. */
	if (desc->limit.max_diff != INT64_MAX)
		check_side(check, view, "inserts", words.ins_admitted, words.ins_committed);
	if (desc->limit.min_diff != INT64_MIN)
		check_side(check, view, "samples", words.smp_admitted, words.smp_committed);
	return 0;
}

/* -------- all of it -------- */

int shard_check(struct shard *shard, const struct shard_check_opts *opts,
		struct shard_check_report *report_out)
{
	const struct table_desc *desc = &shard->desc;
	struct shard_check_report report = { 0 };
	struct check check = { .shard = shard, .report = &report };
	bool rows;
	int rc;

	if (opts)
		check.opts = *opts;
	rows = check.opts.rows || check.opts.crc;
	check.headers = mem_array(desc->blocks, sizeof(uint64_t));
	check.infos = rows ? mem_array(desc->block, sizeof(*check.infos)) : NULL;
	if (!check.headers || (rows && !check.infos))
		rc = error_set(-ENOMEM, "shard check: cannot allocate memory for %u block headers",
			       desc->blocks);
	else
		rc = check_words(&check);
	if (!rc)
		rc = check_slots(&check);
	if (!rc)
		rc = check_headers(&check);
	for (uint32_t b = 0; !rc && b < desc->blocks; b++) {
		if (rows)
			rc = row_scan_block(shard, b, check.opts.crc, check.infos);
		for (uint32_t v = 0; !rc && v < desc->n_views; v++)
			rc = check_leaves(&check, v, b);
	}
	for (uint32_t v = 0; !rc && v < desc->n_views; v++) {
		rc = check_sums(&check, v);
		if (!rc)
			rc = check_limits(&check, v);
	}
	mem_free(check.infos);
	mem_free(check.headers);
	if (!rc)
		*report_out = report;
	return rc;
}
