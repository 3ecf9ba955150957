/*
 * Draws and updates of one sum tree over embed:, one thread, batches of 256.
 *
 * Pairs of cases that differ in one property show its cost: page size, fan-outs, vector
 * width, warm or evicted caches. Updates are timed as in a learner: keys of the last
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

#define BATCH 256u
#define EVICT_BYTES ((size_t)6 << 20)
#define BLOCK 1024u
#define WORDS_OFF 4096u
#define PAGE_OFF (WORDS_OFF + (uint32_t)sizeof(struct part_words))
#define DEFAULT_FANOUT "default" /* that of sumtree_geometry_init */

enum metric { DRAW, UPDATE };

struct tree_bench {
	const char *fanout;
	enum page_kind pages;
	struct transport_target *target;
	struct transport *tr;
	struct region *region;
	struct sumtree tree;
	struct epoch ep;
	struct tree_deltas *deltas;
	struct sumtree_tops *tops;
	struct forest from;
};

struct tree_case {
	const char *fanout; /* "16,8": leaves first; or DEFAULT_FANOUT */
	enum page_kind pages;
	enum cpu_level level;
	bool evicted;
	enum metric metric;
	struct tree_bench *tree;
	struct rng rng;
};

static uint32_t shard[BATCH], slot[BATCH];
static uint64_t word[BATCH];
static double probability[BATCH];
static struct leaf_op ops[BATCH];

static void must(int ret, const char *what)
{
	if (ret == 0)
		return;
	fprintf(stderr, "micro_sumtree: %s: %s: %s\n", what, error_name(ret), error_last());
	exit(EXIT_FAILURE);
}

/* -------- trees -------- */

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
		must(sumtree_claim(&t->tree, &t->ep, &run, t->deltas), "claim");
		must(sumtree_publish(&t->tree, &t->ep, &run, priorities, t->deltas), "publish");
		must(sumtree_flush(&t->tree, t->deltas), "flush");
	}
	must(epoch_leave(&t->ep), "epoch");
}

static void open_tree(struct tree_bench *t, uint32_t leaves, const struct tree_case *c,
		      uint64_t seed)
{
	uint16_t fanout[TREE_MAX_LEVELS + 1] = { 0 };
	const char *text = c->fanout;
	char *end;
	struct tree_geometry geo;
	bool usual = strcmp(c->fanout, DEFAULT_FANOUT) == 0;
	struct tree_place place = { .max_prio = sumtree_max_prio(leaves) };
	struct part part = { .words_off = WORDS_OFF, .pages_off = PAGE_OFF };
	uint64_t idle = SLOT_IDLE, off = align_up(PAGE_OFF + sizeof(struct client_page), 4096);
	struct target_opts target_opts = { .page_kind = (uint32_t)c->pages,
					   .private_memory = true };
	struct transport_opts opts = { .client_id = 1 };
	struct target_region spec = { .kind = 1 };
	struct region_grant grant;

	t->fanout = c->fanout;
	t->pages = c->pages;
	for (int i = 0; !usual && i < TREE_MAX_LEVELS && *text; i++, text = *end ? end + 1 : end)
		fanout[i] = (uint16_t)strtoul(text, &end, 10);
	must(sumtree_geometry_init(&geo, leaves, usual ? NULL : fanout, SUMTREE_TOP_MAX),
	     "geometry");
	place.inner_off[0] = off;
	place.inner_off[1] = off + geo.inner_bytes;
	place.leaves_off = align_up(off + 2 * geo.inner_bytes, 4096);
	spec.size = target_opts.pool_bytes = place.leaves_off + sumtree_leaf_bytes(&geo);
	must(transport_target_open("shm", &target_opts, &t->target), "target");
	must(t->target->ops->register_region(t->target, &spec), "region");
	opts.target = t->target;
	must(transport_open("embed:", &opts, &t->tr), "transport");
	must(transport_grant(t->target, 1, spec.id, RIGHT_ALL, &grant), "grant");
	must(transport_attach(t->tr, &grant, &t->region), "attach");
	must(transport_store(t->region, PAGE_OFF + offsetof(struct client_page, pin), &idle,
			     sizeof(idle)),
	     "slot");
	sumtree_init(&t->tree, t->region, &geo, &place);
	part.tree = part.pages = t->region;
	epoch_init(&t->ep, &part, 1);
	must(tree_deltas_open(&t->deltas), "deltas");
	must(sumtree_tops_open(&t->tops), "tops");
	tree_deltas_show(t->deltas, &t->tree, t->tops, 0);
	t->from = (struct forest){ &t->tree, &t->ep, 1, t->tops };
	fill_tree(t, seed);
}

/* -------- one batch -------- */

static uint64_t timed_draw(struct tree_case *c)
{
	const struct draw_opts opts = { .stratified = true,
					.writes = c->metric == UPDATE,
					.now_ns = time_wall_ns() };
	const struct draws out = { shard, slot, word, probability };
	uint64_t start = time_wall_ns();

	must(sumtree_draw(&c->tree->from, &opts, &c->rng, BATCH, &out), "draw");
	return time_wall_ns() - start;
}

/* Evicts the L2 cache by reading a large buffer. */
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

/* Updates each item of the last draw once, with a new priority; returns the ns. *done_out:
   number of updated keys. */
static uint64_t timed_update(struct tree_case *c, uint64_t *done_out)
{
	struct tree_bench *t = c->tree;
	uint64_t random[BATCH], start;
	size_t n = 0;

	rng_fill_u64(&c->rng, random, BATCH);
	for (uint32_t i = 0; i < BATCH; i++) {
		if (n && ops[n - 1].slot == slot[i])
			continue;
		ops[n++] = (struct leaf_op){
			.slot = slot[i],
			.gen = leaf_gen(word[i]),
			.priority = 1 + (random[i] >> 43),
			.word = word[i],
		};
	}
	if (c->evicted)
		evict_caches();
	start = time_wall_ns();
	must(epoch_enter(&t->ep), "epoch");
	must(sumtree_update(&t->tree, &t->ep, ops, n, t->deltas), "update");
	must(sumtree_flush(&t->tree, t->deltas), "flush");
	must(epoch_leave(&t->ep), "epoch");
	*done_out = n;
	return time_wall_ns() - start;
}

/* Measures one window of a case: adds the ns per draw, or per updated key, to its series. */
static int run_case(struct micro_case *at)
{
	struct tree_case *c = at->ctx;
	uint64_t begin = time_wall_ns(), timed = 0, done = 0, ns;

	cpu_level_limit(c->level);
	for (uint32_t i = 0; i < 8; i++) /* the caches are this case's again */
		timed_draw(c);
	/* 3 ms of timed work within 40 ms: short windows find a quiet moment. */
	while (timed < 3000000 && (time_wall_ns() - begin < 40000000 || done == 0)) {
		uint64_t n = BATCH;

		if (c->evicted && c->metric == DRAW)
			evict_caches();
		ns = timed_draw(c);
		if (c->metric == UPDATE)
			ns = timed_update(c, &n);
		timed += ns;
		done += n;
	}
	cpu_level_limit(CPU_AVX512);
	series_add(&at->result.series, (double)timed / (double)done);
	return 0;
}

/* -------- cases -------- */

static struct {
	uint32_t leaves;
	struct tree_bench trees[10];
	uint32_t n_trees;
	struct tree_case cases[MICRO_CASES];
	uint32_t n_cases;
} group;

/* Adds a case, if the CPU has its vector level and --only selects it. Cases with the same fanout
   and pages share a tree, which the first of them opens. */
static void add_case(struct micro *b, struct tree_case c, enum metric metric)
{
	const struct micro_case shown = {
		.run = run_case,
		.ctx = &group.cases[group.n_cases],
		.result = { .metric = metric == DRAW ? "draw_ns" : "update_ns",
			    .unit = "ns",
			    .higher = false,
			    .params = { { .key = "leaves", .number = group.leaves },
					{ .key = "fanout", .text = c.fanout },
					{ .key = "threads", .number = 1 },
					{ .key = "batch", .number = BATCH },
					{ .key = "evicted",
					  .number = c.evicted,
					  .kind = PARAM_FLAG },
					{ .key = "transport", .text = "embed" },
					{ .key = "seed", .number = b->seed },
					{ .key = "pages", .text = page_kind_name(c.pages) },
					{ .key = "vector", .text = cpu_level_name(c.level) } } },
	};
	struct tree_bench *t = group.trees, *end = t + group.n_trees;

	if (c.level > cpu_level() || !micro_add(b, &shown))
		return;
	while (t < end && (strcmp(t->fanout, c.fanout) != 0 || t->pages != c.pages))
		t++;
	if (t == end) {
		open_tree(t, group.leaves, &c, b->seed);
		group.n_trees++;
	}
	c.metric = metric;
	c.tree = t;
	rng_seed(&c.rng, b->seed, group.n_cases);
	group.cases[group.n_cases++] = c;
}

static void add_cases(struct micro *b, struct tree_case c)
{
	add_case(b, c, DRAW);
	add_case(b, c, UPDATE);
}

/* For each number of leaves the usual case, and cases that differ from it in one property:
   evicted caches always; vector level, pages and fanout from 2^20 leaves on, or with --full. */
int main(int argc, char **argv)
{
	static const uint8_t bits[] = { 10, 16, 20, 24, 12, 14, 18, 22 }; /* the usual ones first */
	static const char *const fanouts[] = { "16", "8", "16,8", "8,8,16", "8,32", "16,32" };
	static struct micro b = {
		.name = "micro_sumtree",
		.help = "Draws and updates of one sum tree over embed:, in ns for each draw or key.",
	};
	const struct tree_case base = { .fanout = DEFAULT_FANOUT,
					.pages = PAGE_THP,
					.level = cpu_level() };
	int status;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	for (size_t i = 0; i < (b.full ? ARRAY_LEN(bits) : 4); i++) {
		const struct param params[] = { { .key = "leaves", .number = 1u << bits[i] },
						{ 0 } };
		struct tree_case c = base;
		const struct region *region;
		char what[32];

		memset(&group, 0, sizeof(group));
		group.leaves = 1u << bits[i];
		add_cases(&b, c);
		c.evicted = true;
		add_cases(&b, c);
		if (b.full || bits[i] >= 20) {
			for (c = base, c.level = CPU_PLAIN; c.level < CPU_AVX512; c.level++)
				add_case(&b, c, DRAW);
			c = base;
			c.pages = PAGE_SMALL;
			add_cases(&b, c);
			c = base;
			for (size_t f = 0; f < (b.full ? ARRAY_LEN(fanouts) : 2); f++) {
				c.fanout = fanouts[f];
				add_cases(&b, c);
			}
		}
		if (group.n_cases == 0)
			continue;
		region = group.trees[0].region;
		micro_add_yardsticks(&b, region->base, region->size, params);
		snprintf(what, sizeof(what), "%u leaves", group.leaves);
		must(micro_run(&b, what), "measure");
		for (struct tree_bench *t = group.trees; t < group.trees + group.n_trees; t++) {
			tree_deltas_close(&t->deltas);
			sumtree_tops_close(&t->tops);
			transport_detach(&t->region);
			transport_close(&t->tr);
			transport_target_close(&t->target);
		}
	}
	return micro_finish(&b, true);
}
