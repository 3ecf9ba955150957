/*
 * Several learners on one table: what one costs the other, and which lines pass between them.
 *
 *   trees     1 and 2 processes, each pinned to a CPU, draw and update batches of 256 of one tree, or of 8
 *   levels    the same with words laid out like the levels of a tree. Leaves, level 1 and shared levels are
 *             read where they are written, the others privately
 *   actors    1 and 2 processes claim blocks and publish 64 steps a call, rows left out
 *   line      ns for a line of 256, by what the other process did with it before
 *   model     ratios for 2 to 32 learners or actors from ns and counts of lines: not measured
 *
 * The words lie in one mapping that the processes share. Each process opens a transport of its own: one
 * that was opened before the fork works in the parent only. A window in which another program had one
 * of the CPUs is repeated, and left out if all tries were like that.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/harness/micro.h"
#include "bench/harness/worker.h"

#include "ds/sumtree/kernel.h"
#include "ds/sumtree/sumtree.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/part_layout.h"

#include "base/bits.h"
#include "base/os/cpu.h"
#include "base/rng.h"
#include "base/stats.h"

#define BATCH 256u
#define LEAVES (1u << 20)
#define LEARNERS 2u
#define SHARDS 8u
#define TREES (1 + SHARDS) /* one of all leaves, then the shards */
#define LEVELS 5
#define CALL 64u /* steps that an actor publishes at once, into blocks of BATCH */
#define BLOCKS (LEAVES / BATCH)
#define LINES 256u
#define LINE_STEP 5u /* lines between two lines of a round: no prefetcher helps */
#define AHEAD 8u     /* words prefetched ahead of an addition */
#define WARM 8u
#define WINDOW_BATCHES 1000u /* at most */
#define ROUNDS (LINES / 2)   /* of two hand-overs */
#define REREAD 32u           /* as TOPS_DRAWS */
#define WINDOW_US 6000
#define TRIES 12 /* of a window */
#define LEAST_CPU 0.95
#define HEAD (CLIENT_PAGE_BYTES * (1 + LEARNERS)) /* words, and a page of each process */
#define AREA ((uint64_t)16 << 20)                 /* of a tree with its head */

/* Levels of a tree of 2^20 leaves with the fan-outs 8, 16, .. : leaves, level 1, top, the sums above. */
static const uint8_t shift[LEVELS + 1] = { 0, 3, 7, 11, 15, 20 };
static const uint8_t group_lines[LEVELS] = { 1, 2, 2, 2, 4 }; /* lines of the children of a node */

enum touch { NONE, FAA, LOAD, PREFETCHW };

/* What rows show of a job: a line, or learners or actors and what the model says of more. */
enum shown { LINE, DRAW_1, UPDATE_1, DRAW_2, UPDATE_2, RATIO, MODEL, SHOWN = MODEL + 5 };
static const char *const metric[] = { "line_ns", "draw_ns", "update_ns", "draw_ns", "update_ns" };
static const uint8_t learners[SHOWN] = { 2, 1, 1, 2, 2, 2, 2, 4, 8, 16, 32 };

struct row {
	struct job *job;
	double value;   /* of the last valid window */
	uint32_t asked; /* windows */
};

/* What the processes do in a window: lines, words of levels, or a tree. */
struct job {
	const char *name; /* of an event of a line, or the levels written; NULL = trees */
	bool actors;
	uint32_t trees;
	enum cpu_level level;
	uint32_t n_written, n_shared; /* levels; 0 = lines */
	/* The other process, then this one, touches the lines; then this one again, timed. */
	enum touch other, own, timed;
	struct row rows[SHOWN];
	uint32_t windows; /* measured */
	bool valid;       /* the last one was not disturbed */
};

enum {
	FAA_OWN,
	FAA_WRITTEN,
	FAA_READ,
	LOAD_OWN,
	LOAD_WRITTEN,
	FETCH_OWN,
	FETCH_WRITTEN,
	HAND_OVER
};

static struct job jobs[] = {
	[FAA_OWN] = { .name = "faa_owned", .other = NONE, .own = FAA, .timed = FAA },
	[FAA_WRITTEN] = { .name = "faa_written", .other = FAA, .own = NONE, .timed = FAA },
	[FAA_READ] = { .name = "faa_read", .other = LOAD, .own = LOAD, .timed = FAA },
	[LOAD_OWN] = { .name = "load_owned", .other = NONE, .own = FAA, .timed = LOAD },
	[LOAD_WRITTEN] = { .name = "load_written", .other = FAA, .own = NONE, .timed = LOAD },
	[FETCH_OWN] = { .name = "prefetchw_owned", .other = NONE, .own = FAA, .timed = PREFETCHW },
	[FETCH_WRITTEN] = { .name = "prefetchw_written", .other = FAA, .timed = PREFETCHW },
	[HAND_OVER] = { .name = "hand_over" },
	{ .actors = true, .n_shared = 1 },
	{ .name = "leaves", .n_written = 1, .n_shared = 2 },
	{ .name = "leaves,1", .n_written = 2, .n_shared = 2 },
	{ .name = "leaves,1,top", .n_written = 3, .n_shared = 2 },
	{ .name = "leaves,1,top_shared", .n_written = 3, .n_shared = 3 },
	{ .name = "all_shared", .n_written = 5, .n_shared = 5 },
	{ .trees = 1, .level = CPU_AVX512, .n_written = 3, .n_shared = 2 },
	{ .trees = SHARDS, .level = CPU_AVX512, .n_written = 3, .n_shared = 2 },
	{ .trees = 1, .level = CPU_AVX2, .n_written = 3, .n_shared = 2 },
	{ .trees = SHARDS, .level = CPU_AVX2, .n_written = 3, .n_shared = 2 },
	{ .trees = 1, .level = CPU_PLAIN, .n_written = 3, .n_shared = 2 },
	{ .trees = SHARDS, .level = CPU_PLAIN, .n_written = 3, .n_shared = 2 },
};

static struct shared {
	struct worker_board board;
	uint32_t job, running;    /* of the window: index, processes that work */
	bool disturbed[LEARNERS]; /* other programs had its CPU */
	double draw_ns[LEARNERS], update_ns[LEARNERS]; /* medians of the batches of a window */
	_Alignas(WIRE_LINE) struct rword64_line turn; /* index of the process that may touch lines */
	struct rword64_line ticket, committed;        /* of actors */
	struct rword64 headers[BLOCKS];
	struct rword64_line lines[LINES * LINE_STEP];
	_Alignas(4096) struct rword64 levels[2 * LEAVES];
	_Alignas(4096) uint8_t trees[TREES][AREA];
} * shared;

/* The learner that is this process. */
static struct {
	uint32_t index;
	struct region region; /* the trees */
	struct sumtree trees[TREES];
	struct epoch epochs[TREES];
	struct tree_deltas *deltas[TREES];
	struct forest one, shards;
	struct rng rng;
	struct rword64 levels[2 * LEAVES]; /* private sums */
	double draw_ns[WINDOW_BATCHES], update_ns[WINDOW_BATCHES];
	uint32_t batches, rounds, shard[BATCH], slot[BATCH];
	uint64_t word[BATCH], since;
	double probability[BATCH];
} me;

static struct workers workers;
static struct micro b = {
	.name = "micro_learners",
	.help = "Two learner processes on one sum tree against one, and the lines between them.",
};

static void must(int ret, const char *what)
{
	if (ret == 0)
		return;
	fprintf(stderr, "micro_learners: %s: %s: %s\n", what, error_name(ret), error_last());
	exit(EXIT_FAILURE);
}

/* -------- trees -------- */

static void open_tree(uint32_t t)
{
	const uint64_t off = t * AREA;
	struct forest *forest = t ? &me.shards : &me.one;
	const struct part part = { .tree = &me.region,
				   .pages = &me.region,
				   .words_off = off,
				   .pages_off = off + CLIENT_PAGE_BYTES };
	struct tree_place place = { .max_prio = sumtree_max_prio(LEAVES) };
	struct tree_geometry geo;

	must(sumtree_geometry_init(&geo, LEAVES / forest->n, NULL, SUMTREE_TOP_MAX / forest->n),
	     "tree");
	place.inner_off[0] = off + HEAD;
	place.inner_off[1] = place.inner_off[0] + geo.inner_bytes;
	place.leaves_off = align_up(place.inner_off[1] + geo.inner_bytes, 4096);
	sumtree_init(&me.trees[t], &me.region, &geo, &place);
	epoch_init(&me.epochs[t], &part, 1 + me.index);
	must(tree_deltas_open(&me.deltas[t]), "deltas");
	tree_deltas_show(me.deltas[t], &me.trees[t], forest->tops, t ? t - 1 : 0);
}

static void fill_tree(uint32_t t)
{
	must(epoch_enter(&me.epochs[t]), "epoch");
	for (uint32_t first = 0; first < me.trees[t].geo.leaves; first += BATCH) {
		struct leaf_run run = { first, BATCH, 1 };
		uint64_t priorities[BATCH];

		for (uint32_t i = 0; i < BATCH; i++)
			priorities[i] = 1 + (rng_next_u64(&me.rng) >> 43);
		must(sumtree_claim(&me.trees[t], &me.epochs[t], &run, me.deltas[t]), "claim");
		must(sumtree_publish(&me.trees[t], &me.epochs[t], &run, priorities, me.deltas[t]),
		     "publish");
		must(sumtree_flush(&me.trees[t], me.deltas[t]), "flush");
	}
	must(epoch_leave(&me.epochs[t]), "epoch");
}

static int open_learner(struct worker *worker)
{
	const struct target_opts target_opts = { .pool_bytes = AREA, .private_memory = true };
	struct transport_opts opts = { .client_id = 1 + worker->index };

	must(transport_target_open("shm", &target_opts, &opts.target), "target");
	must(transport_open("embed:", &opts, &me.region.tr), "transport");
	me.region.rights = RIGHT_ALL;
	me.region.size = sizeof(shared->trees);
	me.region.base = shared->trees[0];
	me.index = worker->index;
	rng_seed(&me.rng, b.seed, 1 + me.index);
	memset(me.levels, 0, sizeof(me.levels)); /* so that no window pays for the pages */
	memset(shared->levels, 0, sizeof(shared->levels));
	me.one = (struct forest){ .trees = me.trees, .epochs = me.epochs, .n = 1 };
	me.shards = (struct forest){ .trees = me.trees + 1, .epochs = me.epochs + 1, .n = SHARDS };
	must(sumtree_tops_open(&me.one.tops), "tops");
	must(sumtree_tops_open(&me.shards.tops), "tops");
	for (uint32_t t = 0; t < TREES; t++) {
		open_tree(t);
		if (me.index == 0)
			fill_tree(t);
	}
	return 0;
}

/* -------- what a process does in a step -------- */

static void record(double draw_ns, double update_ns)
{
	uint32_t i = me.batches++ - WARM;

	if (i >= WINDOW_BATCHES) /* also the first ones */
		return;
	me.draw_ns[i] = draw_ns;
	me.update_ns[i] = update_ns;
}

static void forest_batch(const struct forest *forest)
{
	static struct leaf_op ops[BATCH];
	const struct draws out = { me.shard, me.slot, me.word, me.probability };
	struct tree_deltas **deltas = me.deltas + (forest->trees - me.trees);
	uint64_t start = time_wall_ns(), draw_ns;
	const struct draw_opts opts = { .stratified = true, .writes = true, .now_ns = start };
	uint32_t end[SHARDS] = { 0 }, n = 0;

	must(sumtree_draw(forest, &opts, &me.rng, BATCH, &out), "draw");
	draw_ns = time_wall_ns() - start;
	for (uint32_t i = 0; i < BATCH; i++) {
		if (n == 0 || me.shard[i] != me.shard[i - 1] || ops[n - 1].slot != me.slot[i])
			ops[n++] = (struct leaf_op){ .slot = me.slot[i],
						     .gen = leaf_gen(me.word[i]),
						     .priority = 1 + (rng_next_u64(&me.rng) >> 43),
						     .word = me.word[i] };
		end[me.shard[i]] = n;
	}
	start = time_wall_ns();
	for (uint32_t s = 0, first = 0; s < forest->n; s++) {
		if (end[s] <= first)
			continue;
		must(epoch_enter(&forest->epochs[s]), "epoch");
		must(sumtree_update(&forest->trees[s], &forest->epochs[s], ops + first,
				    end[s] - first, deltas[s]),
		     "update");
		must(sumtree_flush(&forest->trees[s], deltas[s]), "flush");
		must(epoch_leave(&forest->epochs[s]), "epoch");
		first = end[s];
	}
	record((double)draw_ns / BATCH, (double)(time_wall_ns() - start) / n);
}

/* A block of BATCH leaves, as a writer in place changes tree 0 and the words beside it. */
static void actor_block(void)
{
	struct sumtree *tree = &me.trees[0];
	struct leaf_run run = { .n = BATCH };
	uint64_t start = time_wall_ns(), priorities[CALL], ticket, old;
	struct rword64 *header;

	for (uint32_t i = 0; i < CALL; i++)
		priorities[i] = 1 << 20; /* the mean of fill_tree */
	ticket = rword64_load_relaxed(&shared->ticket.word);
	while (!rword64_cas(&shared->ticket.word, &ticket, ticket + 1))
		continue;
	header = &shared->headers[ticket % BLOCKS];
	old = rword64_load_relaxed(header);
	while (!rword64_cas(header, &old, ticket))
		continue;
	run.first = (uint32_t)(ticket % BLOCKS) * BATCH;
	run.gen = 2 + (uint32_t)(ticket / BLOCKS);
	for (uint32_t call = 0; call <= BATCH / CALL; call++) {
		must(epoch_enter(&me.epochs[0]), "epoch");
		must(call ? sumtree_publish(tree, &me.epochs[0], &run, priorities, me.deltas[0])
			  : sumtree_claim(tree, &me.epochs[0], &run, me.deltas[0]),
		     "leaves");
		must(sumtree_flush(tree, me.deltas[0]), "flush");
		must(epoch_leave(&me.epochs[0]), "epoch");
		if (call)
			rword64_add(&shared->committed.word, CALL);
		run.first += call ? CALL : 0;
		run.n = CALL;
	}
	record(0, (double)(time_wall_ns() - start) / BATCH);
}

/* A level of n words lies from n to 2 n. */
static struct rword64 *level_words(int level, bool is_shared)
{
	return (is_shared ? shared->levels : me.levels) + (LEAVES >> shift[level]);
}

/* Line i of those that a draw reads of a level. */
static const struct rword64 *drawn_line(const struct rword64 *words, int level, uint32_t i)
{
	const uint32_t n = group_lines[level], up = shift[level + 1];

	return words + (me.slot[i / n] >> up << (up - shift[level])) + i % n * 8;
}

/* The lines that a draw of the tree reads, level by level, prefetched as there. The CPU has prefetchw. */
static void levels_draw(const struct job *job)
{
	uint64_t sum = 0;

	if (job->n_shared == 2 && me.batches % REREAD == 0)
		transport_copy_racy(level_words(2, false), level_words(2, true),
				    (LEAVES >> shift[2]) * sizeof(struct rword64));
	for (int level = LEVELS - 1; level >= 0; level--) {
		const struct rword64 *words = level_words(level, level < (int)job->n_shared);
		const uint32_t n = BATCH * group_lines[level];

		for (uint32_t i = 0; i < n; i++) {
			if (level < 2)
				cpu_prefetch_to_write(drawn_line(words, level, i));
			else
				__builtin_prefetch(drawn_line(words, level, i));
		}
		for (uint32_t i = 0; i < n; i++)
			sum += rword64_load_relaxed(drawn_line(words, level, i));
	}
	yardstick_use_u64(sum);
}

static void levels_update(const struct job *job)
{
	for (uint32_t i = 0; i < BATCH; i++) {
		const struct rword64 *leaf = &level_words(0, true)[me.slot[i]];
		uint64_t old = rword64_load_relaxed(leaf);

		while (!rword64_cas(leaf, &old, old + 1))
			continue;
	}
	for (int level = 1; level < LEVELS; level++) {
		const bool writes = level < (int)job->n_written;
		const struct rword64 *words = level_words(level, true);

		for (uint32_t i = 0; i < BATCH; i++) {
			uint32_t node = me.slot[i] >> shift[level];

			if (i && node == me.slot[i - 1] >> shift[level])
				continue;
			if (writes && i + AHEAD < BATCH)
				cpu_prefetch_to_write(&words[me.slot[i + AHEAD] >> shift[level]]);
			if (writes)
				rword64_add(&words[node], 1);
			if (level >= (int)job->n_shared)
				level_words(level, false)[node].raw++;
		}
	}
}

static void levels_batch(const struct job *job)
{
	uint64_t start, middle;

	for (uint32_t i = 0; i < BATCH; i++)
		me.slot[i] =
			i * (LEAVES / BATCH) + (uint32_t)(rng_next_u64(&me.rng) % (LEAVES / BATCH));
	start = time_wall_ns();
	levels_draw(job);
	middle = time_wall_ns();
	levels_update(job);
	record((double)(middle - start) / BATCH, (double)(time_wall_ns() - middle) / BATCH);
}

static struct rword64 *line_at(uint32_t i)
{
	return &shared->lines[i * 101 % LINES * LINE_STEP].word;
}

static void touch_lines(enum touch how)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < LINES && how == PREFETCHW; i++)
		cpu_prefetch_to_write(line_at(i));
	for (uint32_t i = 0; i < LINES && how == FAA; i++) {
		cpu_prefetch_to_write(line_at(i + AHEAD));
		rword64_add(line_at(i), 1);
	}
	for (uint32_t i = 0; i < LINES && how >= LOAD; i++)
		sum += rword64_load_relaxed(line_at(i));
	yardstick_use_u64(sum);
}

/* The process whose turn it is touches the lines. A hand-over alone times the turn's line. */
static void lines_turn(const struct job *job)
{
	if (rword64_load_acquire(&shared->turn.word) != me.index)
		return;
	touch_lines(me.index ? job->other : job->own);
	if (me.index == 0 && (job->timed || me.rounds++ % ROUNDS == 0)) {
		uint64_t start = job->timed ? time_wall_ns() : me.since;

		touch_lines(job->timed);
		me.since = time_wall_ns();
		record(0, (double)(me.since - start) / LINES);
	}
	rword64_announce(&shared->turn.word, 1 - me.index);
}

static int step(struct worker *worker)
{
	const struct job *job = &jobs[shared->job];

	if (worker->index >= shared->running)
		usleep(1000);
	else if (job->actors)
		actor_block();
	else if (job->trees)
		forest_batch(job->trees == 1 ? &me.one : &me.shards);
	else if (job->n_shared)
		levels_batch(job);
	else
		lines_turn(job);
	return 0;
}

static void begin(struct worker *worker)
{
	(void)worker;
	me.batches = 0;
	cpu_level_limit(jobs[shared->job].level);
}

/* 0: no batch. */
static int end(struct worker *worker)
{
	const struct worker_slot *slot = worker->slot;
	const uint64_t n = min_u64(me.batches, WARM + WINDOW_BATCHES);

	shared->disturbed[me.index] = me.index < shared->running &&
				      (double)slot->cpu_ns < LEAST_CPU * (double)slot->wall_ns;
	shared->draw_ns[me.index] = n > WARM ? stats_median(me.draw_ns, n - WARM) : 0;
	shared->update_ns[me.index] = n > WARM ? stats_median(me.update_ns, n - WARM) : 0;
	return 0;
}

static void close_learner(struct worker *worker)
{
	(void)worker; /* the process ends */
}

/* -------- the model -------- */

/* Distinct lines of a level that a stratified batch touches, n for each key. */
static double model_lines(uint32_t level, uint32_t n)
{
	return (double)min_u64(BATCH * n, LEAVES >> shift[level] >> 3);
}

/* ns that an event takes longer than on a line that the process owns. */
static double excess(int event, int own)
{
	const double taken = jobs[event].rows[LINE].value, owned = jobs[own].rows[LINE].value;

	return taken > 0 && owned > 0 ? taken - owned : NAN;
}

/*
 * ns that n actors alike add to a step: each call hands over the lines of the size word, a top and
 * the committed word, each claim those of the ticket, a header, the size word and a top.
 */
static double model_actor_ns(uint32_t n)
{
	const uint32_t lines = 3 * (BATCH / CALL) + 4;

	return lines * excess(HAND_OVER, FAA_OWN) * (n - 1) / n / BATCH;
}

/*
 * ns that n learners alike add to a key. A line was last touched by another learner in (n - 1) / n of
 * the cases. Lines fetched to write in a draw are owned in the update. A shared sum is fetched by a
 * draw, and taken from its other readers by an update. A top that draws read privately is taken from
 * its last writer, and is read once in REREAD draws.
 */
static double model_ns(const struct job *job, uint32_t n)
{
	const double fetch = excess(FETCH_WRITTEN, FETCH_OWN);
	const double load = excess(LOAD_WRITTEN, LOAD_OWN);
	const double add = excess(FAA_WRITTEN, FAA_OWN), upgrade = excess(FAA_READ, FAA_OWN);
	double ns = 0;

	if (job->actors)
		return model_actor_ns(n);
	for (uint32_t level = 0; level < LEVELS; level++) {
		const double read = model_lines(level, group_lines[level]);
		const double written = model_lines(level, 1), all = LEAVES >> shift[level] >> 3;

		if (level < 2)
			ns += read * fetch;
		else if (level < job->n_shared)
			ns += read * load + written * upgrade;
		else if (level < job->n_written)
			ns += written * add + all / REREAD * (load + upgrade);
	}
	return ns * (n - 1) / n / BATCH;
}

/* -------- measuring -------- */

static uint32_t lost_windows;

/* job->valid: at least one try was not disturbed. */
static int run_window(struct job *job, uint32_t running)
{
	shared->job = (uint32_t)(job - jobs);
	shared->running = running;
	job->valid = false;
	for (int i = 0; i < TRIES && !job->valid; i++) {
		int ret = workers_run(&workers);

		usleep(WINDOW_US);
		if (ret == 0)
			ret = workers_pause(&workers);
		if (ret)
			return ret;
		job->valid = !shared->disturbed[0] && !shared->disturbed[1];
	}
	lost_windows += !job->valid;
	return 0;
}

/* Values of all rows of a job, if it was not disturbed. */
static int measure(struct job *job)
{
	struct row *rows = job->rows;
	/* A first window brings back words that the case before pushed out of the caches. */
	int ret = job->n_shared ? run_window(job, 1) : 0;
	double one;

	job->windows++;
	if (ret)
		return ret;
	for (uint32_t n = job->n_shared ? 1 : LEARNERS; n <= LEARNERS; n++) {
		const int draw = n == 1 ? DRAW_1 : DRAW_2;

		ret = run_window(job, n);
		if (ret || !job->valid)
			return ret;
		rows[LINE].value = shared->update_ns[0];
		rows[draw].value = (shared->draw_ns[0] + shared->draw_ns[1]) / n;
		rows[draw + 1].value = (shared->update_ns[0] + shared->update_ns[1]) / n;
	}
	one = rows[DRAW_1].value + rows[UPDATE_1].value;
	rows[RATIO].value = 2 * one / (rows[DRAW_2].value + rows[UPDATE_2].value);
	for (int r = MODEL; r < SHOWN; r++)
		rows[r].value = learners[r] * one / (one + model_ns(job, learners[r]));
	return 0;
}

/* The first row that asks for a window measures it for all rows of the job. */
static int run_row(struct micro_case *at)
{
	struct row *row = at->ctx;
	int ret = 0;

	if (row->asked++ == row->job->windows)
		ret = measure(row->job);
	if (row->job->valid && row->value > 0)
		series_add(&at->result.series, row->value);
	return ret;
}

/* -------- rows -------- */

static bool has_row(const struct job *job, int shown)
{
	if (job->actors && (shown == DRAW_1 || shown == DRAW_2))
		return false;
	return (shown == LINE) == (job->n_shared == 0);
}

static void add_row(struct job *job, int shown)
{
	const char *key = shown == LINE ? "line" : job->trees ? "trees" : "levels";
	const bool ratio = shown >= RATIO;
	struct micro_case row = {
		.run = run_row,
		.ctx = &job->rows[shown],
		.result = { .metric = ratio         ? "ratio"
				      : job->actors ? "publish_ns"
						    : metric[shown],
			    .unit = ratio ? "x" : "ns",
			    .higher = ratio,
			    .params = { { .key = job->actors ? "actors" : "learners",
					  .number = learners[shown] },
					{ .key = "model",
					  .number = shown >= MODEL,
					  .kind = PARAM_FLAG },
					{ .key = "leaves", .number = LEAVES },
					{ .key = "batch", .number = BATCH },
					{ .key = "seed", .number = b.seed },
					{ .key = job->actors ? "call" : key,
					  .text = job->name,
					  .number = job->actors ? CALL : job->trees } } },
	};

	if (job->trees)
		row.result.params[6] =
			(struct param){ .key = "vector", .text = cpu_level_name(job->level) };
	job->rows[shown].job = job;
	(void)micro_add(&b, &row);
}

static void start_learners(void)
{
	static const struct worker_ops ops = { open_learner, begin, step, end, close_learner };
	static struct worker worker[LEARNERS];

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	must(shared == MAP_FAILED ? error_set(-errno, "%s", strerror(errno)) : 0, "shared memory");
	(void)madvise(shared, sizeof(*shared), MADV_HUGEPAGE);
	workers.board = &shared->board;
	for (uint32_t i = 0; i < LEARNERS; i++) {
		worker[i] = (struct worker){ .ops = &ops, .name = "learner", .pin = true };
		must(workers_start(&workers, &worker[i], true), "fork");
	}
	must(workers_open(&workers), "start");
}

int main(int argc, char **argv)
{
	const struct param params[] = { { .key = "leaves", .number = LEAVES }, { 0 } };
	int status;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	start_learners();
	micro_add_yardsticks(&b, shared->trees, sizeof(shared->trees), params);
	for (struct job *job = jobs; job < jobs + ARRAY_LEN(jobs); job++) {
		if (job->trees ? job->level > cpu_level() : !cpu_has_prefetchw())
			continue;
		for (int r = 0; r < SHOWN; r++)
			if (has_row(job, r))
				add_row(job, r);
	}
	must(micro_run(&b, "two learners"), "measure");
	workers_stop(&workers);
	if (lost_windows)
		fprintf(stderr, "micro_learners: %u disturbed windows left out\n", lost_windows);
	return micro_finish(&b, true);
}
