#include "tests/support/nodes_fixture.h"

#include "tests/support/test.h"
#include "tests/support/wire_transport.h"

#include "client/signature.h"

#include "ds/fence.h"
#include "ds/shard_check.h"
#include "ds/slot.h"

#include "transport/fault/fault.h"

#include "wire/region.h"

#include "base/alloc.h"
#include "base/process.h"

#include <errno.h>
#include <string.h>

#define SERVER 1u
#define CLIENT 2u
#define POOL_BYTES ((uint64_t)64 << 20)

struct nodes_link {
	struct nodes_link *next;
	struct transport *tr; /* as the client has it; NULL = closed */
	struct transport *fault;
	uint32_t node;
	struct transport_ops ops; /* the transport's own, but that we hear of its end */
	void (*close)(struct transport *tr);
};

static void expect_ok(int rc)
{
	if (rc)
		fail_msg("%s: %s", rlv_error_name(rc), rlv_last_error());
}

static struct nodes_fixture *of(struct meta *meta)
{
	return (struct nodes_fixture *)((uint8_t *)meta - offsetof(struct nodes_fixture, meta));
}

/* -------- the server -------- */

static int grant(struct nodes_fixture *nx, uint32_t s, const struct meta_access *access,
		 struct meta_shard *out)
{
	struct transport_target *tg = nx->nodes[s % nx->n_nodes].target;
	int rc = 0;

	for (uint32_t part = REGION_TREE; rc == 0 && part < SHARD_PARTS; part++) {
		struct region_range range;
		uint32_t rights;
		uint32_t role = shard_grant_of(access->kind, access->owner, part, &range, &rights);

		if (!role)
			continue;
		range.region = nx->shards[s]->parts.at[role]->id;
		rc = tg->ops->grant(tg, CLIENT, &range, rights, &out->grants[part]);
	}
	return rc;
}

static int fill_place(struct nodes_fixture *nx, const struct meta_access *access,
		      struct meta_table *out)
{
	struct meta_table place = { .desc = nx->desc, .n_shards = nx->n_shards };
	int rc = 0;

	place.control = nx->control;
	place.layout = nx->layout;
	place.shards = mem_array(nx->n_shards, sizeof(*place.shards));
	if (!place.shards)
		return error_set(-ENOMEM, "no memory");
	for (uint32_t s = 0; rc == 0 && s < nx->n_shards; s++) {
		struct meta_shard *shard = &place.shards[s];

		snprintf(shard->node_uri, sizeof(shard->node_uri), "node:%u", s % nx->n_nodes);
		snprintf(shard->node, sizeof(shard->node), "n%u", s % nx->n_nodes);
		shard->state = nx->states[s];
		shard->weight = nx->weights[s];
		shard->ramp_ns = nx->ramp_ns;
		shard->incarnation = nx->nodes[s % nx->n_nodes].target->incarnation;
		if (shard->state == RLV_SHARD_ACTIVE && !nx->nodes[s % nx->n_nodes].reachable)
			shard->state = RLV_SHARD_DOWN;
		rc = grant(nx, s, access, shard);
	}
	if (rc)
		meta_table_fini(&place);
	else
		*out = place;
	return rc;
}

/* Nobody answers for so long. */
static int no_answer(struct nodes_fixture *nx, uint64_t ns)
{
	nx->unanswered++;
	fake_clock_advance(&nx->clock, ns);
	return error_set(-ETIMEDOUT, "nobody answers");
}

static int meta_open(struct meta *meta, const char *name, struct meta_table *out)
{
	struct nodes_fixture *nx = of(meta);

	(void)name;
	if (++nx->opens == nx->back_at)
		for (uint32_t n = 0; n < nx->n_nodes; n++)
			nx->nodes[n].reachable = true;
	return fill_place(nx, META_LOOKS, out);
}

static int meta_refresh(struct meta *meta, const struct table_desc *desc,
			const struct meta_access *access, int64_t timeout_ns,
			struct meta_table *out)
{
	(void)desc;
	of(meta)->refreshes++;
	if (of(meta)->server_mute)
		return no_answer(of(meta), (uint64_t)timeout_ns);
	if (of(meta)->server_away)
		return error_set(-ECONNREFUSED, "the server is away");
	if (of(meta)->dropped)
		return error_set(-ESTALE, "the table was dropped");
	return fill_place(of(meta), access, out);
}

static struct nodes_fixture *current; /* close() says nothing but the transport */

static void link_close(struct transport *tr)
{
	struct nodes_link *link = current->links;

	while (link->tr != tr)
		link = link->next;
	link->tr = NULL;
	link->close(tr);
}

static struct transport *wrap(struct nodes_fixture *nx, uint32_t node, struct transport *tr)
{
	struct nodes_link *link = calloc(1, sizeof(*link));

	assert_non_null(link);
	expect_ok(fault_wrap(tr, NULL, &link->fault));
	link->tr = nx->reach == NODES_WIRE ? wire_wrap(link->fault) : link->fault;
	link->node = node;
	link->ops = *link->tr->ops;
	link->close = link->ops.close;
	link->ops.close = link_close;
	link->tr->ops = &link->ops;
	link->next = nx->links;
	nx->links = link;
	return link->tr;
}

static int meta_connect(struct meta *meta, const char *node_uri, int64_t timeout_ns,
			uint64_t replaces, struct transport **tr_out)
{
	struct nodes_fixture *nx = of(meta);
	uint32_t node = (uint32_t)strtoul(node_uri + strlen("node:"), NULL, 10);
	const struct transport_opts opts = { .target = nx->nodes[node].target,
					     .client_id = CLIENT };
	struct transport *tr;
	int rc;

	if (nx->nodes[node].mute)
		return no_answer(nx, (uint64_t)timeout_ns);
	if (!nx->nodes[node].reachable)
		return error_set(-ECONNREFUSED, "node %u cannot be reached", node);
	rc = transport_open("embed:", &opts, &tr);
	if (rc)
		return rc;
	*tr_out = wrap(nx, node, tr);
	(*tr_out)->link = ++nx->nodes[node].link;
	nx->nodes[node].replaced = replaces;
	if (nx->timed)
		(*tr_out)->clock = &nx->clock.clock;
	return 0;
}

static bool is_free(struct nodes_fixture *nx, uint32_t slot)
{
	struct slot_info info;

	for (uint32_t s = 0; s < nx->n_shards; s++) {
		expect_ok(slot_read(nx->shards[s], slot, &info));
		if (info.state != SLOT_FREE)
			return false;
	}
	return true;
}

static int meta_slot_get(struct meta *meta, const struct table_desc *desc, uint32_t streams,
			 int64_t timeout_ns, struct meta_slot *slot_out)
{
	struct nodes_fixture *nx = of(meta);
	struct process_id self;
	uint32_t slot = 0;

	(void)streams;
	if (nx->server_mute)
		return no_answer(nx, (uint64_t)timeout_ns);
	if (nx->server_away)
		return error_set(-ECONNREFUSED, "the server is away");
	expect_ok(process_self(&self));
	while (slot < desc->max_clients && !is_free(nx, slot))
		slot++;
	if (slot == desc->max_clients)
		return error_set(-ENOSPC, "no slot");
	for (uint32_t s = 0; s < nx->n_shards; s++)
		expect_ok(slot_take(nx->shards[s], slot, &self, nx->lease));
	*slot_out = (struct meta_slot){ slot + 1, nx->lease };
	return 0;
}

static int meta_slot_put(struct meta *meta, const struct table_desc *desc,
			 const struct meta_slot *slot, int64_t timeout_ns)
{
	struct nodes_fixture *nx = of(meta);
	int first = 0;

	(void)desc;
	(void)timeout_ns;
	if (slot->lease != nx->lease)
		return 0;
	for (uint32_t n = 0; nx->back_at_put && n < nx->n_nodes; n++)
		nodes_return(nx, n);
	for (uint32_t s = 0; s < nx->n_shards; s++) {
		int rc = 0;

		if (nx->nodes[s % nx->n_nodes].reachable)
			rc = slot_release(nx->shards[s], slot->owner - 1);
		if (rc != -ESTALE && !first)
			first = rc;
	}
	return first;
}

static void meta_close(struct meta *meta)
{
	(void)meta;
}

static const struct meta_ops ops = {
	.open = meta_open,
	.refresh = meta_refresh,
	.connect = meta_connect,
	.slot_get = meta_slot_get,
	.slot_put = meta_slot_put,
	.close = meta_close,
};

/* -------- what happens to nodes -------- */

void nodes_cut(struct nodes_fixture *nx, uint32_t node, uint64_t n)
{
	const struct fault_plan plan = { .cut_at = n };

	nx->nodes[node].reachable = false;
	for (struct nodes_link *link = nx->links; link; link = link->next)
		if (link->node == node && link->tr)
			fault_set(link->fault, &plan);
}

void nodes_fail(struct nodes_fixture *nx, uint32_t node, uint64_t n)
{
	const struct fault_plan plan = { .fail_at = n };

	for (struct nodes_link *link = nx->links; link; link = link->next)
		if (link->node == node && link->tr)
			fault_set(link->fault, &plan);
}

/* -------- silence -------- */

#define TICK_NS ((uint64_t)CLOCK_NS_PER_MS) /* of a look at the clock */

void nodes_time(struct nodes_fixture *nx, struct handle *h)
{
	if (!nx->timed)
		fake_clock_init(&nx->clock, clock_now_ns(clock_monotonic()));
	atomic_store(&nx->clock.step_ns, TICK_NS);
	nx->timed = true;
	h->clock = h->nodes.clock = &nx->clock.clock;
	for (uint32_t i = 0; i < h->nodes.n_nodes; i++)
		if (h->nodes.nodes[i].tr)
			h->nodes.nodes[i].tr->clock = h->clock;
}

static int mute_wait(struct transport *tr)
{
	if (!tr->broken)
		no_answer(current, transport_give_up_ns(tr) - clock_now_ns(tr->clock));
	tr->broken = -ECONNRESET;
	return error_set(-ETIMEDOUT, "nobody answers");
}

static int mute_view(struct transport *tr, struct transport_view *views, size_t n)
{
	(void)tr;
	(void)views;
	(void)n;
	return 0;
}

static void mute_view_end(struct transport *tr)
{
	(void)tr;
}

static int mute_read(struct transport *tr, const struct transport_io *io, size_t n)
{
	(void)tr;
	(void)io;
	(void)n;
	return 0;
}

static int mute_write(struct transport *tr, const struct transport_io *io, size_t n)
{
	(void)tr;
	(void)io;
	(void)n;
	return 0;
}

static int mute_atomic(struct transport *tr, struct transport_atomic *atomics, size_t n)
{
	(void)tr;
	(void)atomics;
	(void)n;
	return 0;
}

static int mute_post(struct transport *tr, struct transport_wr *wrs, size_t n, uint64_t *ticket_out)
{
	(void)wrs;
	(void)n;
	*ticket_out = tr->posted + 1;
	return 0;
}

static int mute_post_read(struct transport *tr, const struct transport_io *io, size_t n,
			  uint64_t *ticket_out)
{
	(void)io;
	(void)n;
	*ticket_out = tr->posted + 1;
	return 0;
}

static int mute_poll(struct transport *tr, uint64_t ticket, uint64_t deadline_ns)
{
	(void)ticket;
	return deadline_ns ? mute_wait(tr) : -EAGAIN;
}

void nodes_mute(struct nodes_fixture *nx, uint32_t node)
{
	assert_true(nx->timed);
	nx->nodes[node].mute = true;
	for (struct nodes_link *link = nx->links; link; link = link->next) {
		if (link->node != node || !link->tr)
			continue;
		if (nx->reach == NODES_WIRE)
			wire_forget(link->tr);
		link->ops.finish = link->ops.order = mute_wait;
		link->ops.view = mute_view;
		link->ops.view_end = mute_view_end;
		link->ops.read = mute_read;
		link->ops.write = mute_write;
		link->ops.cas = link->ops.faa = mute_atomic;
		link->ops.post = mute_post;
		link->ops.poll = mute_poll;
		link->ops.post_read = mute_post_read;
	}
}

/* Connections of before stay dead: what they lead to is not theirs any more. */
void nodes_return(struct nodes_fixture *nx, uint32_t node)
{
	nx->nodes[node].reachable = true;
	nx->layout++;
	atomic_store(&nx->meta.layout, nx->layout);
}

void nodes_set(struct nodes_fixture *nx, uint32_t shard, uint32_t state, uint32_t weight)
{
	nx->states[shard] = state;
	nx->weights[shard] = weight;
	nx->layout++;
	atomic_store(&nx->meta.layout, nx->layout);
}

static uint64_t take_word(struct shard *shard, uint64_t off)
{
	const uint64_t zero = 0;
	uint64_t word;

	expect_ok(transport_load(shard->limits, off, &word));
	expect_ok(transport_store(shard->limits, off, &zero, sizeof(zero)));
	return word;
}

/* Nobody is in a call: what was admitted and not committed is given back. */
static void move_counts(struct nodes_fixture *nx, struct shard *from, struct shard *to, uint32_t v)
{
	uint64_t words_off = shard_limits_off(from, v);
	uint64_t at = words_off + offsetof(struct view_limits, ins_committed);
	uint64_t ins = take_word(from, at);
	uint64_t smp = take_word(from, words_off + offsetof(struct view_limits, smp_committed));

	take_word(from, words_off + offsetof(struct view_limits, ins_admitted));
	take_word(from, words_off + offsetof(struct view_limits, smp_admitted));
	expect_ok(transport_store(to->limits, at, &ins, 8));
	at = words_off + offsetof(struct view_limits, ins_admitted);
	if (nx->desc.views[v].limit.max_diff != INT64_MAX)
		expect_ok(transport_store(to->limits, at, &ins, 8));
	at = words_off + offsetof(struct view_limits, smp_committed);
	expect_ok(transport_store(to->limits, at, &smp, 8));
	at = words_off + offsetof(struct view_limits, smp_admitted);
	if (nx->desc.views[v].limit.min_diff != INT64_MIN)
		expect_ok(transport_store(to->limits, at, &smp, 8));
}

void nodes_move_control(struct nodes_fixture *nx, uint32_t shard)
{
	for (uint32_t v = 0; v < nx->desc.n_views; v++)
		move_counts(nx, nx->shards[nx->control], nx->shards[shard], v);
	nx->control = shard;
	nx->layout++;
	atomic_store(&nx->meta.layout, nx->layout);
}

void nodes_lose(struct nodes_fixture *nx, uint32_t node)
{
	nodes_cut(nx, node, 1);
	for (uint32_t s = node; s < nx->n_shards; s += nx->n_nodes) {
		expect_ok(shard_set_state(nx->shards[s], REGION_ORPHANED));
		nodes_set(nx, s, RLV_SHARD_LOST, 0);
	}
}

void nodes_fence_all(struct nodes_fixture *nx)
{
	nx->lease++;
	for (uint32_t s = 0; s < nx->n_shards; s++)
		for (uint32_t owner = 1; owner <= nx->desc.max_clients; owner++)
			expect_ok(fence_settle(nx->shards[s], owner, NULL));
}

/* Calls that had not heard of the move yet went on counting where they did before. */
static void sweep_counts(struct nodes_fixture *nx)
{
	static const size_t members[] = { offsetof(struct view_limits, ins_admitted),
					  offsetof(struct view_limits, ins_committed),
					  offsetof(struct view_limits, smp_admitted),
					  offsetof(struct view_limits, smp_committed) };

	for (uint32_t s = 0; s < nx->n_shards; s++)
		for (uint32_t v = 0; s != nx->control && v < nx->desc.n_views; v++)
			for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
				uint64_t off = shard_limits_off(nx->shards[s], v) + members[i], old;
				uint64_t word = take_word(nx->shards[s], off);

				expect_ok(transport_faa_word(nx->shards[nx->control]->limits, off,
							     word, &old));
			}
}

uint64_t nodes_items(struct nodes_fixture *nx, uint32_t shard, uint32_t view)
{
	const struct shard_check_opts opts = { .rows = true,
					       .control = nx->control,
					       .limit_slack = UINT64_MAX / 2 };
	struct shard_check_report report;

	sweep_counts(nx);
	expect_ok(shard_check(nx->shards[shard], &opts, &report));
	if (report.problems)
		fail_msg("shard %u: %s", shard, report.text[0]);
	return report.live[view];
}

/* -------- open, close -------- */

static struct region *make_region(struct nodes_fixture *nx, uint32_t s, uint32_t role)
{
	struct nodes_node *node = &nx->nodes[s % nx->n_nodes];
	struct target_region spec = shard_region_spec(&nx->desc, s, role);
	struct region_grant grant;
	struct region *region;

	expect_ok(node->target->ops->register_region(node->target, &spec));
	expect_ok(transport_grant(node->target, SERVER, spec.id, RIGHT_ALL, &grant));
	expect_ok(transport_attach(node->tr, &grant, &region));
	return region;
}

static void make_shard(struct nodes_fixture *nx, uint32_t s)
{
	struct shard_ids ids = { .store_uuid = { 1 } };
	struct shard_parts parts = { .owner = 0 };

	table_desc_seal(&nx->desc, s);
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		parts.at[role] = make_region(nx, s, role);
	expect_ok(shard_format(&parts, &nx->desc, &ids));
	expect_ok(shard_open(&parts, &nx->desc, &nx->shards[s]));
	nx->states[s] = RLV_SHARD_ACTIVE;
	nx->weights[s] = META_WEIGHT_FULL;
}

static void make_node(struct nodes_node *node)
{
	const struct target_opts opts = { .pool_bytes = POOL_BYTES, .private_memory = true };
	struct transport_opts connect = { .client_id = SERVER };

	expect_ok(transport_target_open("shm", &opts, &node->target));
	connect.target = node->target;
	expect_ok(transport_open("embed:", &connect, &node->tr));
	node->reachable = true;
}

static void plan(struct nodes_fixture *nx, const struct rlv_table_opts *opts)
{
	const struct table_plan_opts wishes = { .block = opts->block, .fanout = opts->fanout };
	struct rlv_table_opts full = *opts;

	full.size = sizeof(full);
	full.capacity = full.capacity ? full.capacity : 4096;
	full.shards = full.shards ? full.shards : nx->n_nodes;
	if (!full.columns) {
		full.columns = replay_obs_columns;
		full.n_columns = REPLAY_COLUMNS;
	}
	replay_oracle_init(&nx->fx.oracle, full.columns[0].role == RLV_OBS);
	expect_ok(signature_encode("t", &full, false, &nx->desc));
	nx->desc.table_id = 1;
	memset(nx->desc.uuid, 7, sizeof(nx->desc.uuid));
	expect_ok(table_plan(&nx->desc, &wishes));
	nx->n_shards = full.shards;
	assert_true(nx->n_shards <= NODES_SHARDS);
}

void nodes_open(struct nodes_fixture *nx, const struct nodes_opts *opts)
{
	struct rlv_store_opts store = RLV_STORE_OPTS_INIT;

	memset(nx, 0, sizeof(*nx));
	current = nx;
	store.pages = RLV_PAGES_SMALL;
	nx->n_nodes = opts->nodes ? opts->nodes : 3;
	nx->reach = opts->reach;
	nx->lease = 100;
	nx->layout = 1;
	plan(nx, &opts->table);
	for (uint32_t n = 0; n < nx->n_nodes; n++)
		make_node(&nx->nodes[n]);
	for (uint32_t s = 0; s < nx->n_shards; s++)
		make_shard(nx, s);
	nx->meta.ops = &ops;
	expect_ok(rlv_store_open("embed:", &store, &nx->fx.store));
	nx->own = nx->fx.store->meta;
	nx->fx.store->meta = &nx->meta;
	expect_ok(rlv_table_open(nx->fx.store, "t", &nx->fx.table));
}

void nodes_close(struct nodes_fixture *nx)
{
	sweep_counts(nx);
	replay_verify(nx->fx.table);
	expect_ok(rlv_table_close(&nx->fx.table));
	nx->fx.store->meta = nx->own;
	expect_ok(rlv_store_close(&nx->fx.store));
	replay_oracle_fini(&nx->fx.oracle);
	for (uint32_t s = 0; s < nx->n_shards; s++)
		shard_close(&nx->shards[s]);
	for (uint32_t n = 0; n < nx->n_nodes; n++) {
		transport_close(&nx->nodes[n].tr);
		transport_target_close(&nx->nodes[n].target);
	}
	for (struct nodes_link *link = nx->links, *next; link; link = next) {
		next = link->next;
		free(link);
	}
}
