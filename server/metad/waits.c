#include "server/metad/waits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"

#include "server/metad/metad.h"

struct said {
	uint32_t view, slot;
	uint64_t since; /* time of the server's clock */
	char table[STORE_NAME_BYTES];
	char words[WAITS_WORDS_BYTES];
};

struct waits_said {
	uint64_t at_ns;
	uint32_t n;
	struct said at[WAITS_CLIENT];
};

/* -------- reports of clients -------- */

/* Copies text to out, cut to room bytes; for terminals, control characters become '?'. */
static void take_text(char *out, size_t room, const char *text)
{
	snprintf(out, room, "%s", text);
	for (; *out; out++)
		if ((unsigned char)*out < ' ' || *out == 0x7f)
			*out = '?';
}

void waits_say(struct waits_said **said, const Relive__Waiting *const *waits, size_t n,
	       uint64_t now_ns)
{
	if (n == 0 || (!*said && !(*said = mem_zalloc(sizeof(**said))))) {
		mem_free(*said);
		*said = NULL;
		return;
	}
	(*said)->at_ns = now_ns;
	(*said)->n = n < WAITS_CLIENT ? (uint32_t)n : WAITS_CLIENT;
	for (uint32_t i = 0; i < (*said)->n; i++) {
		struct said *one = &(*said)->at[i];

		one->view = waits[i]->view;
		one->slot = waits[i]->slot;
		one->since = now_ns - min_u64(waits[i]->since_ns, now_ns);
		take_text(one->table, sizeof(one->table), waits[i]->table);
		take_text(one->words, sizeof(one->words), waits[i]->words);
	}
}

/* Number of waiting calls in the client's last report; 0 if that is older than 4 s (clients report
   once a second) or the client is fenced. */
static uint32_t waits_of_client(const struct client *client, uint64_t now_ns)
{
	const uint64_t fresh_ns = 4 * (uint64_t)CLOCK_NS_PER_S;

	if (!client->waits || client->fenced || now_ns > client->waits->at_ns + fresh_ns)
		return 0;
	return client->waits->n;
}

/* -------- the answer -------- */

/* One entry of the answer, with storage for its pointers. */
struct entry {
	Relive__Waiting waiting;
	char words[WAITS_WORDS_BYTES];
};

/* One allocation: reply->waits is its first member. */
struct waits_block {
	Relive__Waiting *list[WAITS_MAX];
	struct entry entries[WAITS_MAX];
};

struct list {
	const struct metad *md;
	Relive__StoreInfoReply *reply;
	struct entry *entries;
	uint64_t now_ns;
};

/* Adds an entry to list->reply, for the table if it is not NULL. NULL: WAITS_MAX are there;
   waits_left_out counts the omission. */
static struct entry *waits_add(struct list *list, uint32_t kind, const struct catalog_object *table)
{
	Relive__StoreInfoReply *reply = list->reply;
	struct entry *entry;

	if (reply->n_waits == WAITS_MAX) {
		reply->waits_left_out++;
		return NULL;
	}
	entry = &list->entries[reply->n_waits];
	relive__waiting__init(&entry->waiting);
	entry->words[0] = '\0';
	entry->waiting.kind = kind;
	entry->waiting.words = entry->words;
	if (table)
		entry->waiting.table = (char *)table->name;
	reply->waits[reply->n_waits++] = &entry->waiting;
	return entry;
}

static uint64_t waits_since(const struct list *list, uint64_t began_ns)
{
	return began_ns && list->now_ns > began_ns ? list->now_ns - began_ns : 0;
}

static void add_limiters(struct list *list, const struct client *client)
{
	uint32_t n = waits_of_client(client, list->now_ns);

	for (uint32_t i = 0; i < n; i++) {
		struct said *said = &client->waits->at[i];
		struct entry *entry = waits_add(list, RELIVE__WAIT_KIND__WAIT_LIMITER, NULL);

		if (!entry)
			continue;
		entry->waiting.client_id = client->holder.client_id;
		entry->waiting.pid = client->has_process ? client->holder.process.pid : 0;
		entry->waiting.table = said->table;
		entry->waiting.view = said->view;
		entry->waiting.slot = said->slot;
		entry->waiting.since_ns = waits_since(list, said->since);
		entry->waiting.words = said->words;
	}
}

/* -------- rebuilds -------- */

static void add_rebuild(struct list *list, const struct catalog_object *table)
{
	const struct repair_wait *wait = &list->md->repair.waiting[table->id];
	const struct slot_entry *slot = NULL;
	struct entry *entry;

	if (!wait->words[0])
		return;
	entry = waits_add(list, RELIVE__WAIT_KIND__WAIT_REBUILD, table);
	if (!entry)
		return;
	entry->waiting.pid = wait->pid;
	entry->waiting.slot = wait->owner;
	entry->waiting.shard = wait->shard;
	entry->waiting.since_ns = waits_since(list, wait->since);
	if (wait->owner && wait->owner <= table->slots.n)
		slot = &table->slots.entries[wait->owner - 1];
	if (slot) {
		entry->waiting.client_id = slot->holder.client_id;
		entry->waiting.stopped = slot->taken && process_is_stopped(&slot->holder.process);
	}
	if (wait->owner)
		snprintf(entry->words, WAITS_WORDS_BYTES, "%s, slot %u%s", wait->words, wait->owner,
			 entry->waiting.stopped ? ", which is stopped (state T): continue it" : "");
	else
		snprintf(entry->words, WAITS_WORDS_BYTES, "%s", wait->words);
}

/* -------- drains -------- */

static bool waits_drains(const struct catalog_part *shard)
{
	return shard->node && (shard->drain.phase == DRAIN_LEAVING ||
			       shard->state == RELIVE__SHARD_STATE__SHARD_DRAINING);
}

static void add_drains(struct list *list, const struct catalog_object *table)
{
	for (uint32_t s = 0; s < table->n_parts; s++) {
		const struct catalog_part *shard = &table->parts[s];
		const struct part_drain *drain = &shard->drain;
		uint64_t left = drain->items > drain->taken ? drain->items - drain->taken : 0;
		const char *why = "a writer has a block open there, and fills or closes it first";
		struct entry *entry;
		char items[160];

		if (!waits_drains(shard))
			continue;
		entry = waits_add(list, RELIVE__WAIT_KIND__WAIT_DRAIN, table);
		if (!entry)
			continue;
		entry->waiting.shard = s;
		entry->waiting.node = shard->node->name;
		entry->waiting.left = drain->phase == DRAIN_FILLING ? left : 0;
		if (drain->phase == DRAIN_HANDING) {
			why = "its limiter words are another shard's: clients learn of that";
		} else if (drain->phase == DRAIN_LEAVING) {
			why = "it is empty: clients learn that it goes, and release what they have mapped";
		} else if (!drain->begun) {
			why = "its node is not there, or it is counted now";
		} else if (table->kind->move) {
			why = left < drain->items
				      ? "its contents are being copied to another node"
				      : "a new copy on another node is made, or its owner fills it";
		} else if (left) {
			snprintf(items, sizeof(items),
				 "%" PRIu64 " of %" PRIu64
				 " items are still to be overwritten: as many have to be inserted "
				 "elsewhere",
				 left, drain->items);
			why = items;
		}
		snprintf(entry->words, sizeof(entry->words), "%s: shard %u leaves node %s: %s",
			 table->text, s, shard->node->name, why);
	}
}

/* -------- stopped processes -------- */

static void add_stopped(struct list *list, const struct client *client,
			const struct catalog_object *table, uint32_t slot)
{
	struct entry *entry = waits_add(list, RELIVE__WAIT_KIND__WAIT_STOPPED, table);
	uint32_t pid = client->holder.process.pid;

	if (!entry)
		return;
	entry->waiting.client_id = client->holder.client_id;
	entry->waiting.pid = pid;
	entry->waiting.slot = slot;
	entry->waiting.stopped = true;
	if (table)
		snprintf(entry->words, sizeof(entry->words),
			 "pid %u is stopped (state T) and holds slot %u of %s, with the blocks "
			 "that it has open",
			 pid, slot, table->text);
	else
		snprintf(entry->words, sizeof(entry->words),
			 "pid %u is stopped (state T) and holds no slot", pid);
}

static void add_slots(struct list *list, const struct client *client)
{
	uint32_t found = 0;

	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		const struct catalog_object *table = list->md->catalog.objects[id];

		for (uint32_t i = 0; table && i < table->slots.n; i++)
			if (table->slots.entries[i].taken &&
			    table->slots.entries[i].holder.client_id == client->holder.client_id) {
				add_stopped(list, client, table, i + 1);
				found++;
			}
	}
	if (found == 0)
		add_stopped(list, client, NULL, 0);
}

/* -------- all -------- */

void waits_count(const struct metad *md, struct waits_counts *out)
{
	uint64_t now_ns = clock_now_ns(md->live.clock);

	*out = (struct waits_counts){ 0 };
	for (const struct client *client = md->live.first; client; client = client->next)
		out->limiter += waits_of_client(client, now_ns);
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		const struct catalog_object *table = md->catalog.objects[id];

		out->rebuild += md->repair.waiting[id].words[0] != '\0';
		for (uint32_t s = 0; table && s < table->n_parts; s++)
			out->drain += waits_drains(&table->parts[s]);
	}
}

int waits_fill(const struct metad *md, Relive__StoreInfoReply *reply)
{
	struct list list = { .md = md, .reply = reply, .now_ns = clock_now_ns(md->live.clock) };
	struct waits_block *block = mem_alloc(sizeof(*block));

	if (!block)
		return error_set(-ENOMEM, "cannot allocate memory for the list of waits");
	reply->waits = block->list;
	list.entries = block->entries;
	for (const struct client *client = md->live.first; client; client = client->next)
		if (client->has_process && !client->fenced &&
		    process_is_stopped(&client->holder.process))
			add_slots(&list, client);
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		if (!md->catalog.objects[id])
			continue;
		add_rebuild(&list, md->catalog.objects[id]);
		add_drains(&list, md->catalog.objects[id]);
	}
	for (const struct client *client = md->live.first; client; client = client->next)
		add_limiters(&list, client);
	return 0;
}

void waits_free(Relive__StoreInfoReply *reply)
{
	mem_free(reply->waits);
}
