/*
 * Draws and updates of one sum tree over embed:, one thread, batches of 256.
 *
 * Pairs of cases that differ in one property show its cost: prefetches, page size, fan-outs, vector
 * width, deferred sums, warm or evicted caches. Updates are timed as in a learner: keys of the last
 * draw, in their order, with the leaf words that it read.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/micro.h"

#include "ds/sumtree/sumtree.h"

#include "transport/transport.h"

#include "wire/ring_layout.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/cpu.h"
#include "base/error.h"
#include "base/rng.h"

#define BATCH_MAX 1024u
#define EVICT_BYTES ((size_t)6 << 20)
#define BLOCK 1024u
#define WORDS_OFF 4096u
#define PAGE_OFF (WORDS_OFF + (uint32_t)sizeof(struct part_words))
#define CASES_MAX 40u
#define TREES_MAX 10u
#define DEFAULT_FANOUT "8,16" /* default of sumtree_geometry_init; checked */

enum metric { DRAW, UPDATE };

struct variant {
	const char *fanout; /* "16,8": leaves first */
	enum page_kind pages;
	enum cpu_level level;
	bool evicted;
	uint32_t defer;
	uint32_t batch;
};

struct tree_bench {
	const char *fanout;
	enum page_kind pages;
	struct transport_target *target;
	struct transport *tr;
	struct region *region;
	struct sumtree tree;
	struct epoch ep;
	struct tree_deltas *deltas[2]; /* deferred mode: flushed in each call */
};

struct tree_case {
	struct variant v;
	enum metric metric;
	struct tree_bench *tree;
	struct rng rng;
	struct series windows;
};

static uint32_t shard[BATCH_MAX], slot[BATCH_MAX];
static uint64_t word[BATCH_MAX];
static double probability[BATCH_MAX];
static struct leaf_op ops[BATCH_MAX];

static void must(int ret, const char *what)
{
	if (ret == 0)
		return;
	fprintf(stderr, "micro_sumtree: %s: %s: %s\n", what, error_name(ret), error_last());
	exit(EXIT_FAILURE);
}

/* -------- trees -------- */

static void open_region(struct tree_bench *t, uint64_t bytes)
{
	struct target_opts target_opts = { .pool_bytes = bytes,
					   .page_kind = (uint32_t)t->pages,
					   .private_memory = true };
	struct transport_opts opts = { .client_id = 1 };
	struct target_region spec = { .kind = 1, .size = bytes };
	struct region_grant grant;

	must(transport_target_open("shm", &target_opts, &t->target), "target");
	must(t->target->ops->register_region(t->target, &spec), "region");
	opts.target = t->target;
	must(transport_open("embed:", &opts, &t->tr), "transport");
	must(transport_grant(t->target, 1, spec.id, RIGHT_ALL, &grant), "grant");
	must(transport_attach(t->tr, &grant, &t->region), "attach");
}

static void fill_tree(struct tree_bench *t, uint64_t seed)
{
	uint64_t priorities[BLOCK];
	struct rng rng;

	rng_seed(&rng, seed, 7);
	must(epoch_enter(&t->ep), "epoch");
	for (uint32_t first = 0; first < t->tree.geo.leaves; first += BLOCK) {
		struct leaf_run run = { first, BLOCK, 1 };

		for (uint32_t i = 0; i < BLOCK; i++)
			priorities[i] = 1 + (rng_next_u64(&rng) >> 43);
		must(sumtree_claim(&t->tree, &t->ep, &run, t->deltas[0]), "claim");
		must(sumtree_publish(&t->tree, &t->ep, &run, priorities, t->deltas[0]), "publish");
		must(sumtree_flush(&t->tree, t->deltas[0], true), "flush");
	}
	must(epoch_leave(&t->ep), "epoch");
}

static void open_tree(struct tree_bench *t, uint32_t leaves, const struct variant *v, uint64_t seed)
{
	const struct tree_deltas_opts defer = { .defer_calls = 16 };
	uint16_t fanout[TREE_MAX_LEVELS + 1] = { 0 };
	const char *text = v->fanout;
	char *end;
	struct tree_geometry geo, usual;
	struct tree_place place = { .max_prio = sumtree_max_prio(leaves) };
	struct part part = { .words_off = WORDS_OFF, .pages_off = PAGE_OFF };
	uint64_t idle = SLOT_IDLE, off = align_up(PAGE_OFF + sizeof(struct client_page), 4096);

	t->fanout = v->fanout;
	t->pages = v->pages;
	for (int i = 0; i < TREE_MAX_LEVELS && *text; i++, text = *end ? end + 1 : end)
		fanout[i] = (uint16_t)strtoul(text, &end, 10);
	must(sumtree_geometry_init(&geo, leaves, NULL), "geometry");
	usual = geo;
	must(sumtree_geometry_init(&geo, leaves, fanout), "geometry");
	if (strcmp(v->fanout, DEFAULT_FANOUT) == 0 && memcmp(&geo, &usual, sizeof(geo)) != 0)
		must(-EINVAL, "DEFAULT_FANOUT is not the default");
	place.inner_off[0] = off;
	place.inner_off[1] = off + geo.inner_bytes;
	place.leaves_off = align_up(off + 2 * geo.inner_bytes, 4096);
	open_region(t, place.leaves_off + sumtree_leaf_bytes(&geo));
	must(transport_store(t->region, PAGE_OFF + offsetof(struct client_page, pin), &idle,
			     sizeof(idle)),
	     "slot");
	sumtree_init(&t->tree, t->region, &geo, &place);
	part.tree = part.pages = t->region;
	epoch_init(&t->ep, &part, 1);
	must(tree_deltas_open(&t->tree, NULL, &t->deltas[0]), "deltas");
	must(tree_deltas_open(&t->tree, &defer, &t->deltas[1]), "deltas");
	fill_tree(t, seed);
}

static void close_tree(struct tree_bench *t)
{
	tree_deltas_close(&t->deltas[0]);
	tree_deltas_close(&t->deltas[1]);
	transport_detach(&t->region);
	transport_close(&t->tr);
	transport_target_close(&t->target);
}

/* -------- one batch -------- */

static uint64_t timed_draw(struct tree_case *c)
{
	const struct forest from = { &c->tree->tree, &c->tree->ep, 1 };
	const struct draw_opts opts = { .stratified = true };
	const struct draws out = { shard, slot, word, probability };
	uint64_t start = time_wall_ns();

	must(sumtree_draw(&from, &opts, &c->rng, c->v.batch, &out), "draw");
	return time_wall_ns() - start;
}

/* Each drawn item once, with a new priority. */
static size_t make_ops(struct tree_case *c)
{
	uint64_t random[BATCH_MAX];
	size_t n = 0;

	rng_fill_u64(&c->rng, random, c->v.batch);
	for (uint32_t i = 0; i < c->v.batch; i++) {
		if (n && ops[n - 1].slot == slot[i])
			continue;
		ops[n++] = (struct leaf_op){
			.slot = slot[i],
			.gen = leaf_gen(word[i]),
			.priority = 1 + (random[i] >> 43),
			.word = word[i],
		};
	}
	return n;
}

static uint64_t timed_update(struct tree_case *c, size_t n)
{
	struct tree_bench *t = c->tree;
	struct tree_deltas *deltas = t->deltas[c->v.defer > 1];
	uint64_t start = time_wall_ns();

	must(epoch_enter(&t->ep), "epoch");
	must(sumtree_update(&t->tree, &t->ep, ops, n, deltas), "update");
	must(sumtree_flush(&t->tree, deltas, false), "flush");
	if (tree_deltas_empty(deltas))
		must(epoch_leave(&t->ep), "epoch");
	return time_wall_ns() - start;
}

/* Read a buffer that evicts the L2 cache. */
static void evict_caches(void)
{
	static struct pages pages;
	const uint8_t *bytes;

	if (!pages.ptr) {
		must(pages_alloc(EVICT_BYTES, PAGE_THP, &pages), "memory that evicts the cache");
		memset(pages.ptr, 1, EVICT_BYTES);
	}
	bytes = pages.ptr;
	for (size_t i = 0; i < EVICT_BYTES; i += CACHE_LINE)
		yardstick_use_u64(bytes[i]);
}

/* ns per draw or key over one window. */
static void run_case(struct tree_case *c)
{
	uint64_t begin = time_wall_ns(), cpu = time_cpu_ns(), timed = 0, done = 0;

	cpu_level_limit(c->v.level);
	for (uint32_t i = 0; i < 8; i++) /* the caches are this case's again */
		timed_draw(c);
	/* 3 ms of timed work within 40 ms: short windows find a quiet moment. */
	while (timed < 3000000 && (time_wall_ns() - begin < 40000000 || done == 0)) {
		uint64_t ns = 0;
		size_t n = c->v.batch;

		if (c->metric == UPDATE) {
			timed_draw(c);
			n = make_ops(c);
		}
		if (c->v.evicted)
			evict_caches();
		ns = c->metric == UPDATE ? timed_update(c, n) : timed_draw(c);
		timed += ns;
		done += n;
	}
	must(sumtree_flush(&c->tree->tree, c->tree->deltas[c->v.defer > 1], true), "flush");
	must(epoch_leave(&c->tree->ep), "epoch");
	cpu_level_limit(CPU_AVX512);
	series_add(&c->windows, (double)timed / (double)done);
	c->windows.cpu_ns += (double)(time_cpu_ns() - cpu);
	c->windows.wall_ns += (double)(time_wall_ns() - begin);
}

/* -------- cases -------- */

struct group {
	struct micro *b;
	uint32_t leaves;
	struct tree_bench trees[TREES_MAX];
	uint32_t n_trees;
	struct tree_case cases[CASES_MAX];
	uint32_t n_cases;
	struct series line, copy;
};

#define PARAMS 10u

/* Labels of a case. params: room for PARAMS. */
static struct result result_of(const struct group *g, const struct variant *v, enum metric metric,
			       struct param *params)
{
	const struct param all[PARAMS] = {
		{ .key = "leaves", .number = g->leaves },
		{ .key = "fanout", .text = v->fanout },
		{ .key = "threads", .number = 1 },
		{ .key = "batch", .number = v->batch },
		{ .key = "evicted", .number = v->evicted, .kind = PARAM_FLAG },
		{ .key = "transport", .text = "embed" },
		{ .key = "seed", .number = g->b->seed },
		{ .key = "pages", .text = page_kind_name(v->pages) },
		{ .key = "vector", .text = cpu_level_name(v->level) },
		{ .key = "defer", .number = v->defer },
	};

	memcpy(params, all, sizeof(all));
	return (struct result){ metric == DRAW ? "draw_ns" : "update_ns", "ns", false, params,
				PARAMS };
}

static struct tree_bench *find_tree(struct group *g, const struct variant *v)
{
	struct tree_bench *t = g->trees, *end = t + g->n_trees;

	while (t < end && (strcmp(t->fanout, v->fanout) != 0 || t->pages != v->pages))
		t++;
	if (t == end) {
		open_tree(t, g->leaves, v, g->b->seed);
		g->n_trees++;
	}
	return t;
}

static void add_case(struct group *g, const struct variant *v, enum metric metric)
{
	struct tree_case *c = &g->cases[g->n_cases];
	struct param params[PARAMS];
	struct result what = result_of(g, v, metric, params);

	if (v->level > cpu_level() || !micro_wants(g->b, &what))
		return;
	memset(c, 0, sizeof(*c));
	c->v = *v;
	c->metric = metric;
	c->tree = find_tree(g, v);
	rng_seed(&c->rng, g->b->seed, g->n_cases);
	g->n_cases++;
}

static void add_pairs(struct group *g, const struct variant *base)
{
	static const char *const fanouts[] = { "8", "16", "16,8", "8,8,16", "8,32", "16,32" };
	struct variant v;

	for (int level = CPU_PLAIN; level < CPU_AVX512; level++) {
		v = *base;
		v.level = (enum cpu_level)level;
		add_case(g, &v, DRAW);
	}
	v = *base;
	v.defer = 16;
	add_case(g, &v, UPDATE);
	v = *base;
	v.pages = PAGE_SMALL;
	add_case(g, &v, DRAW);
	add_case(g, &v, UPDATE);
	for (size_t i = 0; i < (g->b->full ? ARRAY_LEN(fanouts) : 2); i++) {
		v = *base;
		v.fanout = fanouts[i];
		if (strcmp(v.fanout, base->fanout) == 0)
			continue;
		add_case(g, &v, DRAW);
		add_case(g, &v, UPDATE);
		v.defer = 16;
		add_case(g, &v, UPDATE);
	}
}

/* Yardsticks first, then the cases. */
static int run_window(void *ctx, uint32_t index)
{
	struct group *g = ctx;
	const struct region *region = g->cases[0].tree->region;

	if (index > 0) {
		run_case(&g->cases[index - 1]);
		return 0;
	}
	series_add(&g->line, yardstick_line_ns(region->base, region->size, g->b->seed + g->line.n));
	series_add(&g->copy, micro_memcpy_gbps(g->b));
	return 0;
}

static void run_group(struct group *g)
{
	const struct param params[] = { { .key = "leaves", .number = g->leaves } };
	const struct result line = { "calib_line_ns", "ns", false, params, 1 };
	const struct result copy = { "memcpy_gbps", "GB/s", true, params, 1 };
	char what[32];
	const struct micro_cases cases = { what, g->n_cases + 1, run_window, g };

	snprintf(what, sizeof(what), "%u leaves", g->leaves);
	must(micro_run(g->b, &cases), "measure");
	micro_print(g->b, &line, &g->line);
	micro_print(g->b, &copy, &g->copy);
	for (uint32_t i = 0; i < g->n_cases; i++) {
		struct tree_case *c = &g->cases[i];
		struct param of_case[PARAMS];
		struct result result = result_of(g, &c->v, c->metric, of_case);

		micro_print(g->b, &result, &c->windows);
	}
}

static void measure_size(struct micro *b, uint32_t leaves, bool pairs)
{
	static struct group g;
	struct variant v = { .fanout = DEFAULT_FANOUT,
			     .pages = PAGE_THP,
			     .level = cpu_level(),
			     .defer = 1,
			     .batch = 256 };

	memset(&g, 0, sizeof(g));
	g.b = b;
	g.leaves = leaves;
	add_case(&g, &v, DRAW);
	add_case(&g, &v, UPDATE);
	v.evicted = true;
	add_case(&g, &v, DRAW);
	add_case(&g, &v, UPDATE);
	v.evicted = false;
	if (pairs)
		add_pairs(&g, &v);
	if (g.n_cases)
		run_group(&g);
	for (uint32_t i = 0; i < g.n_trees; i++)
		close_tree(&g.trees[i]);
}

int main(int argc, char **argv)
{
	static const uint8_t usual[] = { 10, 16, 20, 24 };
	static const uint8_t all[] = { 10, 12, 14, 16, 18, 20, 22, 24 };
	/* static: the cases, which are static, point to it */
	static struct micro b = {
		.name = "micro_sumtree",
		.help = "Draws and updates of one sum tree over embed:, in ns for each draw or key.",
	};
	int status;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	for (size_t i = 0; i < (b.full ? sizeof(all) : sizeof(usual)); i++) {
		uint8_t bits = b.full ? all[i] : usual[i];

		measure_size(&b, 1u << bits, b.full || bits >= 20);
	}
	return micro_finish(&b, true);
}
