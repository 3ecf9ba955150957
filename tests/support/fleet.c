#include "tests/support/fleet.h"

#include "tests/support/test.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>

#define POOL_BYTES ((uint64_t)48 << 20)
#define WAIT_NS (10 * CLOCK_NS_PER_S)
#define LOOK_NS CLOCK_NS_PER_MS

static void on_holder(void *ctx, const struct slot_holder *holder)
{
	(void)ctx;
	(void)holder;
}

static bool all_know(void *ctx, uint64_t layout)
{
	struct fleet *fx = ctx;

	fx->asked = layout;
	return fx->all_know;
}

static void on_progress(void *ctx)
{
	((struct fleet *)ctx)->progress++;
}

static const struct catalog_ops catalog_ops = { on_holder, all_know, on_progress };

static void on_down(void *ctx, struct node *node)
{
	catalog_node_down(&((struct fleet *)ctx)->cat, node);
}

static void on_lost(void *ctx, struct node *node)
{
	catalog_node_lost(&((struct fleet *)ctx)->cat, node);
}

static void on_news(void *ctx)
{
	(void)ctx;
}

static const struct nodes_ops node_ops = { on_down, on_lost, on_news };

static void must(int ret)
{
	if (ret)
		fail_msg("%s", error_last());
}

void fleet_load(struct fleet *fx)
{
	fx->nodes = (struct nodes){
		.base = fx->base,
		.store = fx->store,
		.clock = &fx->clock.clock,
		.ops = &node_ops,
		.ctx = fx,
		.attach_client_id = 4711,
	};
	fx->cat = (struct catalog){
		.store = fx->store,
		.nodes = &fx->nodes,
		.clock = &fx->clock.clock,
		.ops = &catalog_ops,
		.ctx = fx,
		.name = "s",
		.ramp_ns = FLEET_RAMP_NS,
		.patience_ns = FLEET_PATIENCE_NS,
	};
	must(nodes_load(&fx->nodes));
	must(catalog_load(&fx->cat));
	fake_clock_advance(&fx->clock, 10 * (uint64_t)CLOCK_NS_PER_S); /* past the grace */
}

int fleet_setup(void **state)
{
	static struct fleet fx;

	memset(&fx, 0, sizeof(fx));
	fx.all_know = true;
	fake_clock_init(&fx.clock, 1000);
	fx.base = event_base_new();
	assert_non_null(fx.base);
	must(store_open(":memory:", &fx.store));
	fleet_load(&fx);
	*state = &fx;
	return 0;
}

int fleet_teardown(void **state)
{
	struct fleet *fx = *state;

	catalog_fini(&fx->cat);
	nodes_fini(&fx->nodes);
	for (uint32_t n = 0; n < FLEET_NODES; n++)
		if (fx->mem[n].target)
			memory_node_close(&fx->mem[n]);
	event_base_free(fx->base);
	store_close(&fx->store);
	return 0;
}

/* -------- nodes -------- */

static void settle(struct node *node)
{
	uint64_t deadline = deadline_after(clock_monotonic(), WAIT_NS);

	while (node->up && (node->calls || node_is_attaching(node))) {
		(void)!channel_wait(&node->channel, deadline_after(clock_monotonic(), LOOK_NS));
		node_read(node);
		node_deliver(node);
		(void)node_attach_watch(node);
		if (deadline_expired(clock_monotonic(), deadline))
			fail_msg("node %s does not answer", node->name);
	}
	node_deliver(node);
}

void fleet_settle(struct fleet *fx)
{
	do
		for (struct node *node = fx->nodes.first; node; node = node->next)
			settle(node);
	while (catalog_retire_tick(&fx->cat));
	for (struct node *node = fx->nodes.first; node; node = node->next)
		settle(node);
}

static bool is_attaching(const struct fleet *fx)
{
	bool any = false;

	for (struct node *node = fx->nodes.first; node; node = node->next)
		any |= node->up && node_is_attaching(node);
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++)
		any |= fx->cat.tables[id] && catalog_table_is_recovering(fx->cat.tables[id]);
	return any;
}

/* What a node came with is attached, or cannot be. */
static void attach(struct fleet *fx)
{
	while (is_attaching(fx)) {
		fleet_settle(fx);
		fx->cat.slice_until = 0;
		for (uint32_t id = 1; id <= TABLE_MAX_ID; id++)
			if (fx->cat.tables[id])
				catalog_attach_tick(&fx->cat, fx->cat.tables[id]);
	}
}

int fleet_claim(struct fleet *fx, uint32_t n, uint32_t claim)
{
	struct node_news news = memory_node_news(&fx->mem[n]);
	struct catalog_arrival arrival = {
		.node = nodes_find(&fx->nodes, fx->mem[n].name),
		.news = &news,
		.store_name = "",
		.claim = claim,
	};
	struct memnode_regions regions;
	int ret;

	must(memnode_regions_open(fx->mem[n].target, claim != 0, &regions));
	arrival.regions = (const Relive__NodeRegion *const *)regions.list;
	arrival.n_regions = regions.n;
	ret = catalog_admit(&fx->cat, &arrival);
	if (ret == 0) {
		arrival.node = memory_node_join(&fx->mem[n], &fx->nodes, &arrival.replaced);
		fx->node[n] = arrival.node;
		ret = catalog_take(&fx->cat, &arrival);
		if (ret == 0)
			catalog_node_up(&fx->cat, &arrival);
		if (!fx->hasty)
			attach(fx);
	}
	memnode_regions_close(&regions);
	return ret;
}

void fleet_join(struct fleet *fx, uint32_t n)
{
	must(fleet_claim(fx, n, RELIVE__POOL_CLAIM__POOL_KEEP));
}

void fleet_start(struct fleet *fx, uint32_t n)
{
	char name[8];

	snprintf(name, sizeof(name), "%u", n);
	memory_node_open(&fx->mem[n], name, POOL_BYTES);
	fleet_join(fx, n);
}

void fleet_start_on_file(struct fleet *fx, uint32_t n)
{
	memory_node_open_file(&fx->mem[n], "file", POOL_BYTES);
	fleet_join(fx, n);
}

void fleet_go_down(struct fleet *fx, uint32_t n)
{
	memory_node_hang_up(&fx->mem[n]);
	(void)nodes_tick(&fx->nodes);
	assert_false(fx->node[n]->up);
}

void fleet_tick(struct fleet *fx, uint64_t ns)
{
	uint32_t progress;
	bool attaching;

	fleet_settle(fx); /* before the clock moves */
	fake_clock_advance(&fx->clock, ns);
	do {
		progress = fx->progress;
		fx->cat.next_tick = 0;
		(void)catalog_tick(&fx->cat);
		attaching = is_attaching(fx);
		fleet_settle(fx);
	} while (attaching || progress != fx->progress);
}

/* -------- a table -------- */

struct catalog_wish fleet_wish(uint32_t n_shards, bool auto_shards)
{
	struct catalog_wish wish = {
		.auto_shards = auto_shards,
		.desc = {
			.capacity = 4096,
			.n_shards = n_shards,
			.n_columns = 1,
			.n_views = 1,
			.max_writers = 2,
			.max_clients = 4,
			.name = "t",
			.columns = { { .name = "x", .dtype = DTYPE_F32, .bytes = 4 } },
			.views = { { .stack = 1, .n_step = 1, .period = 1, .alpha = 1 } },
		},
	};

	wish.desc.views[0].limit = (struct limit_desc){
		.min_size = 1,
		.spi = 1 << LIMIT_SPI_BITS,
		.min_diff = INT64_MIN,
		.max_diff = INT64_MAX,
	};
	must(table_plan(&wish.desc, &wish.opts));
	return wish;
}

int fleet_create(struct fleet *fx, const struct catalog_wish *wish,
		 struct catalog_table **table_out)
{
	int ret = catalog_create(&fx->cat, wish, table_out);

	while (ret == -EAGAIN) {
		fleet_settle(fx);
		ret = catalog_create(&fx->cat, wish, table_out);
	}
	return ret;
}

int fleet_add_shard(struct fleet *fx, uint32_t n)
{
	int ret = catalog_add_shard(&fx->cat, fx->table, fx->node[n], NULL);

	while (ret == -EAGAIN) {
		fleet_settle(fx);
		ret = catalog_add_shard(&fx->cat, fx->table, fx->node[n], NULL);
	}
	return ret;
}

void fleet_make_table(struct fleet *fx, uint32_t n_shards, bool auto_shards)
{
	struct catalog_wish wish = fleet_wish(n_shards, auto_shards);

	wish.crc_by_nodes = true;
	must(fleet_create(fx, &wish, &fx->table));
}

uint32_t fleet_view(struct fleet *fx, uint32_t s)
{
	return catalog_shard_view(fx->table, s);
}

int fleet_grant(struct fleet *fx, uint32_t s, const struct catalog_guest *guest,
		struct catalog_grants *out)
{
	int ret = catalog_grant(fx->table, s, guest, out);

	while (ret == -EAGAIN) {
		fleet_settle(fx);
		ret = catalog_grant(fx->table, s, guest, out);
	}
	return ret;
}
