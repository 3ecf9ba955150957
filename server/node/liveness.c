#include "server/node/liveness.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/os/random.h"

#define LOOK_LAST_NS ((uint64_t)CLOCK_NS_PER_S)

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

static uint64_t liveness_now(const struct liveness *live)
{
	return clock_now_ns(live->clock);
}

/* Renews the lease: the client is not suspect, no node has proved its death, and its next look is
   at lease_until. */
static void grant_time(struct liveness *live, struct client *client)
{
	client->lease_until = liveness_now(live) + live->lease_ns;
	client->suspect_since = 0;
	client->proved = 0;
	client->looks = 0;
	client->next_look = client->lease_until;
}

/* NULL: no memory. */
static struct client *client_add(struct liveness *live, const struct store_client *stored)
{
	struct client *client = mem_zalloc(sizeof(*client));

	if (!client) {
		(void)error_set(-ENOMEM, "clients: cannot allocate memory");
		return NULL;
	}
	client->holder = (struct slot_holder){ stored->id, stored->process };
	client->has_process = stored->process.pid != 0;
	memcpy(client->secret, stored->secret, sizeof(client->secret));
	client->generation = live->nodes->generation;
	client->since = liveness_now(live);
	client->next = live->first;
	live->first = client;
	grant_time(live, client);
	return client;
}

static void client_forget(struct liveness *live, struct client *client)
{
	struct client **link = &live->first;

	while (*link != client)
		link = &(*link)->next;
	*link = client->next;
	mem_free(client->waits);
	mem_free(client->lags);
	mem_free(client);
}

static void client_log(const struct client *client, const char *what)
{
	log_info("client %llu pid %u %s", (unsigned long long)client->holder.client_id,
		 client->holder.process.pid, what);
}

static void client_suspect(struct liveness *live, struct client *client)
{
	if (client->suspect_since == 0) {
		client->suspect_since = liveness_now(live);
		client->looks = 0;
	}
	client->next_look = liveness_now(live);
}

/* -------- load -------- */

static int load_one(void *ctx, const void *record)
{
	struct liveness *live = ctx;
	struct client *client = client_add(live, record);

	if (!client)
		return -ENOMEM;
	if (client->has_process) /* it may have ended while no server ran */
		client->next_look = liveness_now(live);
	return 0;
}

int liveness_load(struct liveness *live)
{
	return store_each(live->store, STORE_CLIENTS, load_one, live);
}

void liveness_fini(struct liveness *live)
{
	while (live->first)
		client_forget(live, live->first);
}

void liveness_watch(struct liveness *live, const struct slot_holder *holder)
{
	const struct store_client stored = { .id = holder->client_id, .process = holder->process };
	struct client *client;

	if (liveness_find(live, holder->client_id))
		return;
	client = client_add(live, &stored);
	if (!client) {
		log_error("watch client %llu: %s", (unsigned long long)holder->client_id,
			  error_last());
		return;
	}
	client_log(client, "holds slots");
	/* No client can resume that id: it is not in the store. */
	client_suspect(live, client);
}

/* -------- join and part -------- */

/* True if the guest is the client, of the same process and not fenced, and shows its secret. Id and
   process are readable in shared memory: only the secret proves the owner. */
static bool may_resume(const struct client *client, const struct liveness_guest *guest)
{
	const struct process_id *process = &guest->process;
	uint8_t hash[AUTH_HASH_BYTES];

	return client && !client->fenced && client->has_process == guest->has_process &&
	       client->holder.process.pid == process->pid &&
	       client->holder.process.start_time == process->start_time &&
	       memcmp(client->holder.process.boot_id, process->boot_id, sizeof(process->boot_id)) ==
		       0 &&
	       auth_hash_secret(guest->secret, hash) == 0 &&
	       auth_is_proof(client->secret, hash, sizeof(hash));
}

static int client_newcomer(struct liveness *live, struct liveness_guest *guest,
			   struct client **client_out)
{
	struct store_client stored = { .process = guest->process };
	int ret = auth_nonce(guest->secret);

	if (ret == 0)
		ret = auth_hash_secret(guest->secret, stored.secret);
	if (ret)
		return ret;
	do {
		ret = random_fill(&stored.id, sizeof(stored.id));
		if (ret)
			return ret;
		stored.id &= INT64_MAX;
	} while (stored.id == 0 || liveness_find(live, stored.id));
	ret = store_put(live->store, STORE_CLIENTS, &stored);
	/* Not stored: the next server would treat it as unknown, and it would join as a new
	   client. */
	if (ret == -ENOSPC || ret == -EIO)
		log_warn("client %llu is not in the catalog: %s", (unsigned long long)stored.id,
			 error_last());
	else if (ret)
		return ret;
	*client_out = client_add(live, &stored);
	if (!*client_out)
		return -ENOMEM;
	(*client_out)->has_process = guest->has_process;
	return 0;
}

int liveness_join(struct liveness *live, struct liveness_guest *guest, struct client **client_out)
{
	struct client *client = guest->wanted_id ? liveness_find(live, guest->wanted_id) : NULL;

	if (!may_resume(client, guest)) {
		int ret = client_newcomer(live, guest, &client);

		if (ret)
			return ret;
	}
	if (client->conn && client->conn != guest->conn)
		live->ops->on_cut(live->ctx, client->conn);
	client->conn = guest->conn;
	grant_time(live, client);
	client_log(client, client->holder.client_id == guest->wanted_id ? "is back" : "joins");
	*client_out = client;
	return 0;
}

void liveness_renew(struct liveness *live, struct client *client)
{
	if (!client->fenced)
		grant_time(live, client);
}

void liveness_part(struct liveness *live, struct client *client)
{
	client->conn = NULL;
	client_suspect(live, client);
}

/* -------- the fence -------- */

static uint64_t bit_of(const struct node *node)
{
	return UINT64_C(1) << node->number;
}

void liveness_forget_node(struct liveness *live, const struct node *node)
{
	for (struct client *client = live->first; client; client = client->next) {
		client->proved &= ~bit_of(node);
		client->waiting &= ~bit_of(node);
	}
}

bool liveness_is_proved(const struct client *client, const struct node *node)
{
	return client->fenced && (client->gone || (client->proved & bit_of(node)));
}

static bool lease_is_over(const struct liveness *live, const struct client *client)
{
	return liveness_now(live) >= client->lease_until;
}

/* Asks every node that is up to fence the client, unless it has proved the death or owes an answer.
   FENCE_ASK; FENCE_CUT if fenced; FENCE_KILL if stalled and that is configured. */
static void ask_nodes(struct liveness *live, struct client *client)
{
	enum fence_how how = client->fenced ? FENCE_CUT : FENCE_ASK;

	if (live->kill_stalled && liveness_now(live) >= client->suspect_since + live->stall_ns &&
	    live->ops->holds(live->ctx, client->holder.client_id)) {
		how = FENCE_KILL;
		log_warn("kill stalled client %llu pid %u",
			 (unsigned long long)client->holder.client_id, client->holder.process.pid);
	}
	for (struct node *node = live->nodes->first; node; node = node->next) {
		if (!node->up || ((client->proved | client->waiting) & bit_of(node)))
			continue;
		client->waiting |= bit_of(node);
		if (live->ops->fence(live->ctx, node, client->holder.client_id, how))
			client->waiting &= ~bit_of(node);
	}
}

void liveness_answer(struct liveness *live, uint64_t client_id, const struct node *node, int code,
		     enum fence_result result)
{
	struct client *client = liveness_find(live, client_id);

	if (!client || !(client->waiting & bit_of(node)))
		return;
	client->waiting &= ~bit_of(node);
	if (code)
		log_warn("fence client %llu by node %s: %s", (unsigned long long)client_id,
			 node->name, error_name(code));
	/* The client may have reconnected: then its death need not be proved. */
	if (code == 0 && result == FENCE_DEAD && client->suspect_since &&
	    nodes_is_witness(node, client->generation)) {
		client->proved |= bit_of(node);
		client->next_look = liveness_now(live);
	}
}

/*
 * True if every node that is up (there must be one, if the store has nodes) has proved that the
 * client has nothing there. A down node that is not lost prevents this while the lease runs: the
 * client may have all its attachments there.
 */
static bool is_proved_everywhere(const struct liveness *live, const struct client *client)
{
	bool any = !live->nodes->first;

	for (const struct node *node = live->nodes->first; node; node = node->next) {
		if (node->lost)
			continue;
		if (node->up && !(client->proved & bit_of(node)))
			return false;
		if (!node->up && !lease_is_over(live, client))
			return false;
		any |= node->up;
	}
	return any;
}

static void client_judge(const struct liveness *live, struct client *client)
{
	const char *why = NULL;

	if (client->has_process && process_is_gone(&client->holder.process))
		client->gone = true;
	if (client->fenced)
		return;
	if (client->gone)
		why = "is fenced: its process is gone";
	else if (!client->has_process && lease_is_over(live, client))
		why = "is fenced: its lease is over";
	else if (is_proved_everywhere(live, client))
		why = "is fenced: no node knows it";
	if (why)
		client_log(client, why);
	client->fenced = why != NULL;
}

/* Forgets a client whose slots are all settled: deletes it from the store and frees it. */
static void client_bury(struct liveness *live, struct client *client)
{
	const struct store_client row = { .id = client->holder.client_id };
	int ret = store_delete(live->store, STORE_CLIENTS, &row, 1);

	if (ret)
		log_warn("forget client %llu: %s", (unsigned long long)client->holder.client_id,
			 error_last());
	client_log(client, "is gone");
	if (client->conn)
		live->ops->on_buried(live->ctx, client->conn);
	client_forget(live, client);
}

static void look_again(struct liveness *live, struct client *client)
{
	const uint64_t pause = 10 * (uint64_t)CLOCK_NS_PER_MS << min_u64(client->looks, 7);

	client->looks++;
	client->next_look = liveness_now(live) + min_u64(pause, LOOK_LAST_NS);
}

/* True if every node that is up has proved that the client has no access to its memory. */
static bool is_cut_off(const struct liveness *live, const struct client *client)
{
	for (const struct node *node = live->nodes->first; node; node = node->next)
		if (node->up && !liveness_is_proved(client, node))
			return false;
	return true;
}

static void client_look(struct liveness *live, struct client *client)
{
	/*
	 * The client joined before the server's start, is alive, and may still reconnect: it is not
	 * suspect yet.
	 */
	if (client->has_process && !client->conn && client->suspect_since == 0 &&
	    !lease_is_over(live, client) && !process_is_gone(&client->holder.process)) {
		look_again(live, client);
		client->next_look = min_u64(client->next_look, client->lease_until);
		return;
	}
	client_suspect(live, client);
	client_judge(live, client);
	ask_nodes(live, client); /* also for a dead process: the nodes then forget it */
	if (client->fenced && live->ops->on_dead(live->ctx, client) == 0 &&
	    is_cut_off(live, client))
		client_bury(live, client);
	else
		look_again(live, client);
}

bool liveness_is_missing(const struct client *client)
{
	return !client->conn && client->looks >= 4; /* 150 ms: a killed process has ended by then */
}

bool liveness_all_know(const struct liveness *live, uint64_t layout)
{
	for (const struct client *client = live->first; client; client = client->next)
		if (client->conn && client->suspect_since == 0 && client->layout < layout)
			return false;
	return true;
}

uint64_t liveness_tick(struct liveness *live)
{
	uint64_t next = liveness_now(live) + LOOK_LAST_NS,
		 until = liveness_now(live) + live->lease_ns / 2;
	bool stopped = live->last_tick &&
		       liveness_now(live) - live->last_tick > LOOK_LAST_NS + live->lease_ns / 4;
	struct client *client, *after;

	/* Renewals that arrived while the server was stopped are still unread. */
	for (client = stopped ? live->first : NULL; client; client = client->next)
		if (client->suspect_since == 0 && client->lease_until < until) {
			client->lease_until = until;
			client->next_look = until;
		}
	live->last_tick = liveness_now(live);
	for (client = live->first; client; client = after) {
		after = client->next;
		if (liveness_now(live) >= client->next_look)
			client_look(live, client);
	}
	for (client = live->first; client; client = client->next)
		next = min_u64(next, client->next_look);
	return next;
}
