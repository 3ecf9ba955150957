#include "server/liveness.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/log.h"

#define LOOK_FIRST_NS (10 * (uint64_t)CLOCK_NS_PER_MS)
#define LOOK_LAST_NS ((uint64_t)CLOCK_NS_PER_S)
#define LOOK_DOUBLINGS 7u

/* -------- the list -------- */

struct client *liveness_find(const struct liveness *live, uint64_t client_id)
{
	struct client *client = live->first;

	while (client && client->holder.client_id != client_id)
		client = client->next;
	return client;
}

uint32_t liveness_count(const struct liveness *live)
{
	uint32_t n = 0;

	for (const struct client *client = live->first; client; client = client->next)
		n++;
	return n;
}

static struct client *add(struct liveness *live, const struct slot_holder *holder)
{
	struct client *client = mem_zalloc(sizeof(*client));

	if (!client)
		return NULL;
	client->holder = *holder;
	client->generation = live->nodes->generation;
	client->next = live->first;
	live->first = client;
	return client;
}

static void forget(struct liveness *live, struct client *client)
{
	struct client **link = &live->first;

	while (*link != client)
		link = &(*link)->next;
	*link = client->next;
	mem_free(client);
}

static uint64_t now(const struct liveness *live)
{
	return clock_now_ns(live->clock);
}

/* Before the lease began, or since long: it is looked at from lease_until on. */
static void grant_time(struct liveness *live, struct client *client)
{
	client->lease_until = now(live) + live->lease_ns;
	client->suspect_since = 0;
	client->looks = 0;
	client->next_look = client->lease_until;
}

static void suspect(struct liveness *live, struct client *client)
{
	if (client->suspect_since == 0) {
		client->suspect_since = now(live);
		client->looks = 0;
	}
	client->next_look = now(live);
}

/* -------- load -------- */

static int load_one(void *ctx, const struct store_client *stored)
{
	struct slot_holder holder = { .client_id = stored->id, .process = stored->process };
	struct liveness *live = ctx;
	struct client *client = add(live, &holder);

	if (!client)
		return error_set(-ENOMEM, "clients: no memory");
	client->has_process = stored->process.pid != 0;
	grant_time(live, client);
	return 0;
}

int liveness_load(struct liveness *live)
{
	return store_each_client(live->store, load_one, live);
}

void liveness_fini(struct liveness *live)
{
	while (live->first)
		forget(live, live->first);
}

void liveness_watch(struct liveness *live, const struct slot_holder *holder)
{
	struct client *client = liveness_find(live, holder->client_id);

	if (client)
		return;
	client = add(live, holder);
	if (!client) {
		log_error("watch client %llu: no memory", (unsigned long long)holder->client_id);
		return;
	}
	log_info("client %llu pid %u holds slots", (unsigned long long)holder->client_id,
		 holder->process.pid);
	client->has_process = holder->process.pid != 0;
	grant_time(live, client);
	/* Nobody of that id can come back: it is not in the store. */
	suspect(live, client);
}

/* -------- join and part -------- */

static int new_id(const struct liveness *live, uint64_t *id_out)
{
	uint64_t id;

	do {
		if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
			return error_set(-EIO, "getrandom: %s", strerror(errno));
		id &= INT64_MAX;
	} while (id == 0 || liveness_find(live, id));
	*id_out = id;
	return 0;
}

static bool is_same_process(const struct process_id *a, const struct process_id *b)
{
	return a->pid == b->pid && a->start_time == b->start_time &&
	       memcmp(a->boot_id, b->boot_id, sizeof(a->boot_id)) == 0;
}

static bool may_resume(const struct client *client, const struct liveness_guest *guest)
{
	return client && !client->proved_dead && client->has_process == guest->has_process &&
	       is_same_process(&client->holder.process, &guest->process);
}

static int newcomer(struct liveness *live, const struct liveness_guest *guest,
		    struct client **client_out)
{
	struct slot_holder holder = { .process = guest->process };
	struct store_client stored = { .process = guest->process };
	struct client *client;
	int ret = new_id(live, &holder.client_id);

	if (ret)
		return ret;
	stored.id = holder.client_id;
	ret = store_client_put(live->store, &stored);
	if (ret)
		return ret;
	client = add(live, &holder);
	if (!client)
		return error_set(-ENOMEM, "clients: no memory");
	client->has_process = guest->has_process;
	*client_out = client;
	return 0;
}

int liveness_join(struct liveness *live, const struct liveness_guest *guest,
		  struct client **client_out)
{
	struct client *client = guest->wanted_id ? liveness_find(live, guest->wanted_id) : NULL;

	if (!may_resume(client, guest)) {
		int ret = newcomer(live, guest, &client);

		if (ret)
			return ret;
	}
	if (client->conn && client->conn != guest->conn)
		live->ops->on_cut(live->ctx, client->conn);
	client->conn = guest->conn;
	grant_time(live, client);
	log_info("client %llu pid %u %s", (unsigned long long)client->holder.client_id,
		 client->holder.process.pid,
		 client->holder.client_id == guest->wanted_id ? "is back" : "joins");
	*client_out = client;
	return 0;
}

void liveness_renew(struct liveness *live, struct client *client)
{
	if (!client->proved_dead)
		grant_time(live, client);
}

void liveness_part(struct liveness *live, struct client *client)
{
	client->conn = NULL;
	suspect(live, client);
}

/* -------- the fence -------- */

/* Does every node say that it can touch nothing? Cuts it off from those that say so. */
static bool fenced_by_nodes(struct liveness *live, const struct client *client, enum fence_how how)
{
	bool all = client->generation == live->nodes->generation;

	for (struct node *node = live->nodes->first; node; node = node->next) {
		enum fence_result result = FENCE_ALIVE;

		if (!node->up) {
			all = false;
			continue;
		}
		if (node_fence(node, client->holder.client_id, how, &result))
			log_warn("fence client %llu: %s",
				 (unsigned long long)client->holder.client_id, error_last());
		all = all && result == FENCE_DEAD;
	}
	return all;
}

static bool is_dead(struct liveness *live, const struct client *client, enum fence_how how)
{
	bool fenced = fenced_by_nodes(live, client, how);

	/* Asked after the nodes: a kill may just have ended it. */
	return fenced || (client->has_process && process_is_gone(&client->holder.process));
}

/* All of it is settled: as if it had never been. */
static void bury(struct liveness *live, struct client *client)
{
	int ret = store_client_delete(live->store, client->holder.client_id);

	if (ret)
		log_warn("forget client %llu: %s", (unsigned long long)client->holder.client_id,
			 error_last());
	log_info("client %llu pid %u is gone", (unsigned long long)client->holder.client_id,
		 client->holder.process.pid);
	if (client->conn)
		live->ops->on_cut(live->ctx, client->conn);
	forget(live, client);
}

static void look_again(struct liveness *live, struct client *client)
{
	uint32_t doublings = client->looks < LOOK_DOUBLINGS ? client->looks : LOOK_DOUBLINGS;
	uint64_t pause = LOOK_FIRST_NS << doublings;

	client->looks++;
	client->next_look = now(live) + (pause < LOOK_LAST_NS ? pause : LOOK_LAST_NS);
}

static bool is_to_be_killed(struct liveness *live, const struct client *client)
{
	return live->kill_stalled && now(live) >= client->suspect_since + live->stall_ns &&
	       live->ops->holds(live->ctx, client->holder.client_id);
}

static void look(struct liveness *live, struct client *client)
{
	suspect(live, client);
	if (!client->proved_dead) {
		bool kill = is_to_be_killed(live, client);

		if (kill)
			log_warn("kill stalled client %llu pid %u",
				 (unsigned long long)client->holder.client_id,
				 client->holder.process.pid);
		client->proved_dead = is_dead(live, client, kill ? FENCE_KILL : FENCE_ASK);
	}
	if (client->proved_dead && live->ops->on_dead(live->ctx, client->holder.client_id) == 0)
		bury(live, client);
	else
		look_again(live, client);
}

/* Renewals that came while we were away have not been read yet. */
static void forgive(struct liveness *live)
{
	uint64_t until = now(live) + live->lease_ns / 2;

	for (struct client *client = live->first; client; client = client->next)
		if (client->suspect_since == 0 && client->lease_until < until) {
			client->lease_until = until;
			client->next_look = until;
		}
}

uint64_t liveness_tick(struct liveness *live)
{
	uint64_t next = now(live) + LOOK_LAST_NS;
	struct client *client = live->first;

	if (live->last_tick && now(live) - live->last_tick > LOOK_LAST_NS + live->lease_ns / 4)
		forgive(live);
	live->last_tick = now(live);
	while (client) {
		struct client *after = client->next;
		uint64_t due = client->next_look;

		if (now(live) >= due)
			look(live, client);
		else if (due < next)
			next = due;
		client = after;
	}
	for (client = live->first; client; client = client->next)
		if (client->next_look < next)
			next = client->next_look;
	return next;
}
