/*
 * Leases with a simulated clock, over two nodes that answer as the test says, or not. At first only
 * the first one is known, and it is down, so that only the process itself can be the proof.
 */
#include "tests/support/fake/fake_clock.h"
#include "tests/support/test.h"

#include "server/node/liveness.h"
#include "server/statedb/statedb.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define LEASE_NS 1000000000u
#define STALL_NS 5000000000u

struct fixture {
	struct fake_clock clock;
	struct catalog_store *store;
	struct nodes nodes;
	struct node a, b;
	enum { SILENT, DEAD, ALIVE, POWERLESS } says[2]; /* by number */
	uint32_t asked[2];
	enum fence_how how[2]; /* as last asked */
	struct liveness live;
	uint32_t deaths;
	uint64_t dead_id;
	bool proved[2]; /* at the last on_dead */
	int death_code; /* result of on_dead */
	uint32_t cuts, buried;
	bool holds;
	struct {
		uint64_t id;
		uint8_t secret[AUTH_SECRET_BYTES];
	} owned[16]; /* leases as their owners keep them */
	uint32_t n_owned;
};

static bool holds(void *ctx, uint64_t client_id)
{
	(void)client_id;
	return ((struct fixture *)ctx)->holds;
}

/* POWERLESS: its queue pairs are there, and nobody is at their other end. */
static bool is_dead(const struct fixture *fx, const struct node *node)
{
	if (fx->says[node->number] == POWERLESS)
		return fx->how[node->number] != FENCE_ASK;
	return fx->says[node->number] == DEAD;
}

static int fence(void *ctx, struct node *node, uint64_t client_id, enum fence_how how)
{
	struct fixture *fx = ctx;

	fx->asked[node->number]++;
	fx->how[node->number] = how;
	if (fx->says[node->number] != SILENT)
		liveness_answer(&fx->live, client_id, node, 0,
				is_dead(fx, node) ? FENCE_DEAD : FENCE_ALIVE);
	return 0;
}

static int on_dead(void *ctx, const struct client *client)
{
	struct fixture *fx = ctx;

	fx->deaths++;
	fx->dead_id = client->holder.client_id;
	fx->proved[0] = liveness_is_proved(client, &fx->a);
	fx->proved[1] = liveness_is_proved(client, &fx->b);
	return fx->death_code;
}

static void on_cut(void *ctx, struct conn *conn)
{
	(void)conn;
	((struct fixture *)ctx)->cuts++;
}

static void on_buried(void *ctx, struct conn *conn)
{
	(void)conn;
	((struct fixture *)ctx)->buried++;
}

static const struct liveness_ops ops = { holds, fence, on_dead, on_cut, on_buried };

static void start(struct fixture *fx)
{
	fx->live = (struct liveness){
		.clock = &fx->clock.clock,
		.store = fx->store,
		.nodes = &fx->nodes,
		.ops = &ops,
		.ctx = fx,
		.lease_ns = LEASE_NS,
		.stall_ns = STALL_NS,
	};
	assert_int_equal(liveness_load(&fx->live), 0);
}

static int setup(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	fake_clock_init(&fx.clock, 1000);
	assert_int_equal(statedb_open(":memory:", &fx.store), 0);
	snprintf(fx.a.name, sizeof(fx.a.name), "a");
	snprintf(fx.b.name, sizeof(fx.b.name), "b");
	fx.b.number = 1;
	fx.nodes.first = &fx.a;
	start(&fx);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	liveness_fini(&fx->live);
	statedb_close(&fx->store);
	return 0;
}

static struct conn *conn_number(uintptr_t n)
{
	return (struct conn *)n; /* only compared */
}

/* Connects as the owner: shows the secret of the lease that it wants, keeps that of a new one. */
static struct client *join_as_owner(struct fixture *fx, struct liveness_guest *guest)
{
	struct client *client = NULL;

	for (uint32_t i = 0; i < fx->n_owned; i++)
		if (fx->owned[i].id == guest->wanted_id)
			memcpy(guest->secret, fx->owned[i].secret, AUTH_SECRET_BYTES);
	assert_int_equal(liveness_join(&fx->live, guest, &client), 0);
	if (client->holder.client_id == guest->wanted_id)
		return client;
	assert_true(fx->n_owned < 16);
	fx->owned[fx->n_owned].id = client->holder.client_id;
	memcpy(fx->owned[fx->n_owned++].secret, guest->secret, AUTH_SECRET_BYTES);
	return client;
}

static struct client *join(struct fixture *fx, uint64_t wanted_id, bool alive, uintptr_t conn)
{
	struct liveness_guest guest = {
		.wanted_id = wanted_id,
		.has_process = true,
		.conn = conn_number(conn),
	};

	assert_int_equal(process_self(&guest.process), 0);
	guest.process.start_time += !alive;
	return join_as_owner(fx, &guest);
}

/* A client of another host: nobody here can see its process. */
static struct client *join_remote(struct fixture *fx, uint64_t wanted_id, uintptr_t conn)
{
	struct liveness_guest guest = { .wanted_id = wanted_id, .conn = conn_number(conn) };

	return join_as_owner(fx, &guest);
}

static void set_up(struct fixture *fx, bool a, bool b)
{
	fx->a.up = a;
	fx->b.up = b;
	fx->a.next = &fx->b;
}

static void advance(struct fixture *fx, uint64_t ns)
{
	fake_clock_advance(&fx->clock, ns);
	(void)liveness_tick(&fx->live);
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/* Each bit of the secret counts, and the stored digest is not the secret. */
CASE(liveness_join__without_the_secret_gives_another_lease)
{
	struct fixture *fx = *state;
	struct client *owner = join(fx, 0, true, 1), *thief = NULL;
	uint64_t id = owner->holder.client_id;
	struct liveness_guest guest = {
		.wanted_id = id,
		.has_process = true,
		.process = owner->holder.process,
		.conn = conn_number(2),
	};

	for (int bit = -1; bit < 8 * AUTH_SECRET_BYTES; bit += 17) {
		memcpy(guest.secret, bit < 0 ? owner->secret : fx->owned[0].secret,
		       AUTH_SECRET_BYTES);
		if (bit >= 0)
			guest.secret[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(liveness_join(&fx->live, &guest, &thief), 0);
		assert_true(thief->holder.client_id != id);
	}
	assert_ptr_equal(owner->conn, conn_number(1));
	assert_int_equal(fx->cuts, 0);
	assert_ptr_equal(join(fx, id, true, 3), owner);
}

/* The server has begun anew, and knows the hash from its store. */
CASE(liveness_load__a_lease_is_resumed_by_its_secret_alone)
{
	struct fixture *fx = *state;
	struct client *owner = join(fx, 0, true, 1), *thief = NULL;
	uint64_t id = owner->holder.client_id;
	struct liveness_guest guest = { .wanted_id = id, .has_process = true };

	guest.process = owner->holder.process;
	liveness_fini(&fx->live);
	start(fx);
	assert_int_equal(liveness_join(&fx->live, &guest, &thief), 0);
	assert_true(thief->holder.client_id != id);
	assert_true(join(fx, id, true, 2)->holder.client_id == id);
}

CASE(liveness_join__ids_differ)
{
	struct fixture *fx = *state;
	struct client *a = join(fx, 0, true, 1), *b = join(fx, 0, true, 2);

	assert_true(a->holder.client_id != b->holder.client_id);
	assert_int_equal(liveness_count(&fx->live), 2);
	assert_ptr_equal(liveness_find(&fx->live, a->holder.client_id), a);
}

CASE(liveness_join__resumes_its_lease)
{
	struct fixture *fx = *state;
	struct client *a = join(fx, 0, true, 1);
	uint64_t id = a->holder.client_id;

	liveness_part(&fx->live, a);
	assert_ptr_equal(join(fx, id, true, 2), a);
	assert_ptr_equal(a->conn, conn_number(2));
	assert_int_equal(liveness_count(&fx->live), 1);
}

CASE(liveness_join__a_second_connection_cuts_the_first)
{
	struct fixture *fx = *state;
	struct client *a = join(fx, 0, true, 1);

	(void)join(fx, a->holder.client_id, true, 2);
	assert_int_equal(fx->cuts, 1);
}

CASE(liveness_join__another_process_gets_another_lease)
{
	struct fixture *fx = *state;
	uint64_t id = join(fx, 0, true, 1)->holder.client_id;

	assert_true(join(fx, id, false, 2)->holder.client_id != id);
}

CASE(liveness_join__unknown_id_gets_another_lease)
{
	struct fixture *fx = *state;

	assert_true(join(fx, 4711, true, 1)->holder.client_id != 4711);
}

CASE(liveness_tick__a_renewed_lease_is_not_looked_at)
{
	struct fixture *fx = *state;
	struct client *dead = join(fx, 0, false, 1);

	for (int i = 0; i < 10; i++) {
		advance(fx, LEASE_NS / 2);
		liveness_renew(&fx->live, dead);
	}
	assert_int_equal(fx->deaths, 0);
}

CASE(liveness_tick__lease_over_and_process_gone)
{
	struct fixture *fx = *state;
	uint64_t id = join(fx, 0, false, 1)->holder.client_id;

	advance(fx, LEASE_NS - 1);
	assert_int_equal(fx->deaths, 0);
	advance(fx, 1);
	assert_int_equal(fx->deaths, 1);
	assert_true(fx->dead_id == id);
	assert_int_equal(fx->buried, 1);
	assert_int_equal(liveness_count(&fx->live), 0);
}

CASE(liveness_tick__connection_lost_and_process_gone)
{
	struct fixture *fx = *state;

	liveness_part(&fx->live, join(fx, 0, false, 1));
	advance(fx, 0);
	assert_int_equal(fx->deaths, 1);
}

CASE(liveness_tick__a_living_suspect_keeps_all)
{
	struct fixture *fx = *state;

	fx->holds = true;
	liveness_part(&fx->live, join(fx, 0, true, 1));
	for (int i = 0; i < 100; i++)
		advance(fx, LEASE_NS);
	assert_int_equal(fx->deaths, 0);
	assert_int_equal(liveness_count(&fx->live), 1);
}

/* Settled in one shard and not in another: asked again, and not forgotten meanwhile. */
CASE(liveness_tick__unsettled_is_settled_again)
{
	struct fixture *fx = *state;
	uint64_t id;

	fx->death_code = -EAGAIN;
	id = join(fx, 0, false, 1)->holder.client_id;
	advance(fx, LEASE_NS);
	advance(fx, LEASE_NS);
	assert_int_equal(fx->deaths, 2);
	assert_int_equal(liveness_count(&fx->live), 1);
	assert_true(join(fx, id, false, 2)->holder.client_id != id);
	fx->death_code = 0;
	advance(fx, LEASE_NS);
	assert_null(liveness_find(&fx->live, id));
}

CASE(liveness_tick__no_nodes_fence_at_once)
{
	struct fixture *fx = *state;

	fx->nodes.first = NULL;
	liveness_part(&fx->live, join(fx, 0, true, 1));
	advance(fx, 0);
	assert_int_equal(fx->deaths, 1);
}

/* The node's new incarnation does not know the client's mappings of the old one. */
CASE(liveness_tick__a_replaced_node_is_no_witness)
{
	struct fixture *fx = *state;
	struct client *client = join(fx, 0, true, 1);

	fx->a.up = true;
	fx->a.persistent = true;
	fx->a.since = ++fx->nodes.generation;
	fx->says[0] = DEAD;
	liveness_part(&fx->live, client);
	advance(fx, LEASE_NS);
	advance(fx, LEASE_NS);
	assert_true(fx->asked[0] > 0);
	assert_int_equal(fx->deaths, 0);
	fx->a.sole_opener = true; /* nobody had it mapped when it began */
	advance(fx, LEASE_NS);
	advance(fx, LEASE_NS);
	assert_int_equal(fx->deaths, 1);
}

CASE(liveness_tick__every_node_says_it_has_nothing)
{
	struct fixture *fx = *state;

	set_up(fx, true, true);
	fx->says[0] = fx->says[1] = DEAD;
	liveness_part(&fx->live, join(fx, 0, true, 1));
	advance(fx, 0);
	advance(fx, LEASE_NS / 2);
	assert_int_equal(fx->how[0], FENCE_ASK);
	assert_int_equal(fx->deaths, 1);
	assert_int_equal(liveness_count(&fx->live), 0);
}

CASE(liveness_tick__one_node_says_it_lives)
{
	struct fixture *fx = *state;

	set_up(fx, true, true);
	fx->says[0] = DEAD;
	fx->says[1] = ALIVE;
	liveness_part(&fx->live, join(fx, 0, true, 1));
	for (int i = 0; i < 10; i++)
		advance(fx, LEASE_NS);
	assert_int_equal(fx->deaths, 0);
}

/*
 * All attachments of the client may be at the node that is away; it is cut off when its lease ends.
 */
CASE(liveness_tick__a_node_that_is_away_counts_until_the_lease_is_over)
{
	struct fixture *fx = *state;

	set_up(fx, true, false);
	fx->says[0] = DEAD;
	fx->death_code = -EAGAIN; /* something of it is at b */
	liveness_part(&fx->live, join(fx, 0, true, 1));
	advance(fx, 0);
	advance(fx, LEASE_NS / 2);
	assert_int_equal(fx->deaths, 0);
	advance(fx, LEASE_NS / 2);
	assert_true(fx->deaths > 0);
	assert_true(fx->proved[0]);
	assert_false(fx->proved[1]);
}

CASE(liveness_tick__a_remote_client_is_cut_off_when_its_lease_is_over)
{
	struct fixture *fx = *state;

	set_up(fx, true, true);
	(void)join_remote(fx, 0, 1);
	advance(fx, LEASE_NS - 1);
	assert_int_equal(fx->asked[0], 0);
	advance(fx, 1);
	assert_int_equal(fx->how[0], FENCE_CUT);
	assert_int_equal(fx->how[1], FENCE_CUT);
	assert_false(fx->proved[0]);
	assert_int_equal(liveness_count(&fx->live), 1);
}

/* The client's TCP connection broke; it may reconnect in a moment. */
CASE(liveness_tick__a_remote_client_is_only_asked_for_before)
{
	struct fixture *fx = *state;
	struct client *client = join_remote(fx, 0, 1);
	uint64_t id = client->holder.client_id;

	set_up(fx, true, true);
	fx->says[0] = fx->says[1] = ALIVE;
	liveness_part(&fx->live, client);
	advance(fx, LEASE_NS / 2);
	assert_int_equal(fx->how[0], FENCE_ASK);
	assert_int_equal(fx->deaths, 0);
	assert_true(join_remote(fx, id, 2)->holder.client_id == id);
}

/* No goodbye, neither here nor at the nodes: to be asked, they say that it lives, for ever. */
CASE(liveness_tick__a_client_whose_host_lost_power_is_cut_off)
{
	struct fixture *fx = *state;
	struct client *client = join_remote(fx, 0, 1);
	uint64_t id = client->holder.client_id;

	set_up(fx, true, true);
	fx->says[0] = fx->says[1] = POWERLESS;
	liveness_part(&fx->live, client); /* its host started again, and knows no connection */
	advance(fx, LEASE_NS / 2);
	assert_int_equal(fx->how[0], FENCE_ASK);
	assert_int_equal(fx->deaths, 0);
	advance(fx, LEASE_NS / 2);
	assert_int_equal(fx->how[0], FENCE_CUT);
	assert_int_equal(fx->how[1], FENCE_CUT);
	assert_true(fx->proved[0] && fx->proved[1]);
	assert_null(liveness_find(&fx->live, id));
}

CASE(liveness_tick__what_one_node_proved_is_settled_while_another_is_away)
{
	struct fixture *fx = *state;
	uint64_t id;

	set_up(fx, true, false);
	fx->says[0] = fx->says[1] = DEAD;
	fx->death_code = -EAGAIN;
	id = join_remote(fx, 0, 1)->holder.client_id;
	advance(fx, LEASE_NS);
	advance(fx, LEASE_NS);
	assert_true(fx->proved[0]);
	assert_false(fx->proved[1]);
	assert_int_equal(fx->asked[1], 0);
	assert_int_equal(fx->asked[0], 1); /* once is enough */
	fx->b.up = true;
	advance(fx, LEASE_NS);
	fx->death_code = 0;
	advance(fx, LEASE_NS);
	assert_true(fx->proved[1]);
	assert_null(liveness_find(&fx->live, id));
}

CASE(liveness_join__a_fenced_client_gets_another_lease)
{
	struct fixture *fx = *state;
	struct client *client = join_remote(fx, 0, 1);
	uint64_t id = client->holder.client_id;

	fx->a.up = true;
	advance(fx, LEASE_NS);
	assert_true(client->fenced);
	liveness_renew(&fx->live, client);
	assert_true(client->suspect_since != 0);
	assert_true(join_remote(fx, id, 2)->holder.client_id != id);
}

/* A node that answers when the client is long back proves nothing. */
CASE(liveness_answer__late_one_is_not_believed)
{
	struct fixture *fx = *state;
	struct client *client = join(fx, 0, true, 1);

	fx->a.up = true;
	liveness_part(&fx->live, client);
	advance(fx, 0);
	(void)join(fx, client->holder.client_id, true, 2);
	liveness_answer(&fx->live, client->holder.client_id, &fx->a, 0, FENCE_DEAD);
	liveness_part(&fx->live, client);
	fx->says[0] = ALIVE;
	advance(fx, 0);
	advance(fx, LEASE_NS);
	assert_int_equal(fx->deaths, 0);
}

CASE(liveness_answer__error_is_asked_again)
{
	struct fixture *fx = *state;
	struct client *client = join(fx, 0, true, 1);

	fx->a.up = true;
	liveness_part(&fx->live, client);
	advance(fx, 0);
	advance(fx, LEASE_NS);
	assert_int_equal(fx->asked[0], 1); /* it owes an answer */
	liveness_answer(&fx->live, client->holder.client_id, &fx->a, -EHOSTDOWN, FENCE_ALIVE);
	advance(fx, LEASE_NS);
	assert_int_equal(fx->asked[0], 2);
}

CASE(liveness_tick__a_stalled_one_is_killed_if_so_told)
{
	struct fixture *fx = *state;

	fx->a.up = true;
	fx->says[0] = ALIVE;
	fx->holds = true;
	fx->live.kill_stalled = true;
	liveness_part(&fx->live, join(fx, 0, true, 1));
	advance(fx, LEASE_NS);
	assert_int_equal(fx->how[0], FENCE_ASK);
	advance(fx, STALL_NS);
	assert_int_equal(fx->how[0], FENCE_KILL);
}

CASE(liveness_all_know__counts_who_is_heard_of)
{
	struct fixture *fx = *state;
	struct client *a = join(fx, 0, true, 1), *b = join(fx, 0, true, 2);

	assert_true(liveness_all_know(&fx->live, 0));
	a->layout = 7;
	assert_false(liveness_all_know(&fx->live, 7));
	liveness_part(&fx->live, b);
	assert_true(liveness_all_know(&fx->live, 7));
	assert_false(liveness_all_know(&fx->live, 8));
}

CASE(liveness_load__the_dead_of_before_are_found)
{
	struct fixture *fx = *state;
	uint64_t id = join(fx, 0, false, 1)->holder.client_id;

	liveness_fini(&fx->live);
	start(fx);
	assert_int_equal(liveness_count(&fx->live), 1);
	advance(fx, 0); /* no lease is waited for: its process has ended */
	assert_int_equal(fx->deaths, 1);
	assert_true(fx->dead_id == id);
	liveness_fini(&fx->live);
	start(fx);
	assert_int_equal(liveness_count(&fx->live), 0);
}

/* The client may return until its lease ends; no node is asked before that. */
CASE(liveness_load__the_living_have_a_lease_to_come_back)
{
	struct fixture *fx = *state;

	(void)join(fx, 0, true, 1);
	liveness_fini(&fx->live);
	set_up(fx, true, true);
	start(fx);
	for (uint32_t i = 0; i < 10; i++)
		advance(fx, LEASE_NS / 10 - 1);
	assert_int_equal(fx->live.first->suspect_since, 0);
	assert_int_equal(fx->deaths, 0);
	advance(fx, 10);
	assert_int_not_equal(fx->live.first->suspect_since, 0);
}

/* The client was alive when the server restarted, and ended before it reconnected. */
CASE(liveness_load__who_ends_before_it_is_back)
{
	struct fixture *fx = *state;
	struct client *client;

	(void)join(fx, 0, true, 1);
	liveness_fini(&fx->live);
	start(fx);
	advance(fx, 0);
	client = fx->live.first;
	assert_int_equal(fx->deaths, 0);
	client->holder.process.start_time++;
	fake_clock_advance(&fx->clock, client->next_look - clock_now_ns(&fx->clock.clock));
	assert_true(clock_now_ns(&fx->clock.clock) < client->lease_until);
	(void)liveness_tick(&fx->live);
	assert_int_equal(fx->deaths, 1);
}

/* Nobody here can see its process: its lease decides. */
CASE(liveness_load__a_remote_client_has_its_lease)
{
	struct fixture *fx = *state;

	(void)join_remote(fx, 0, 1);
	liveness_fini(&fx->live);
	start(fx);
	advance(fx, LEASE_NS - 1);
	assert_int_equal(fx->deaths, 0);
	advance(fx, 1);
	assert_int_equal(fx->deaths, 1);
}

CASE(liveness_load__the_living_come_back)
{
	struct fixture *fx = *state;
	uint64_t id = join(fx, 0, true, 1)->holder.client_id;

	liveness_fini(&fx->live);
	start(fx);
	assert_true(join(fx, id, true, 2)->holder.client_id == id);
	assert_int_equal(liveness_count(&fx->live), 1);
}

CASE(liveness_watch__a_holder_nobody_knows)
{
	struct fixture *fx = *state;
	struct slot_holder holder = { .client_id = 4711 };

	assert_int_equal(process_self(&holder.process), 0);
	holder.process.start_time++;
	liveness_watch(&fx->live, &holder);
	liveness_watch(&fx->live, &holder);
	assert_int_equal(liveness_count(&fx->live), 1);
	advance(fx, 0);
	assert_int_equal(fx->deaths, 1);
	assert_true(fx->dead_id == 4711);
}

int main(void)
{
	if (test_skips_msan("SQLite"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
