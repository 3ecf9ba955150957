#include "cli/why.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"
#include "base/os/clock.h"
#include "base/error.h"

int why_ask(struct rlv_store *store, struct why *why)
{
	why->n = WHY_MAX;
	return rlv_store_waits(store, why->waits, sizeof(why->waits[0]), &why->n);
}

static const char *kind_name(uint32_t kind)
{
	static const char *const names[] = { "?", "limiter", "rebuild", "drain", "stopped" };

	return kind < ARRAY_LEN(names) ? names[kind] : "?";
}

static size_t shown(const struct why *why)
{
	return why->n < WHY_MAX ? why->n : WHY_MAX;
}

void why_print(const struct why *why)
{
	if (why->n == 0)
		printf("nothing is waiting\n");
	for (size_t i = 0; i < shown(why); i++) {
		const struct rlv_wait *wait = &why->waits[i];

		printf("%-8s", kind_name(wait->kind));
		if (wait->pid)
			printf("  pid %u", wait->pid);
		else if (wait->client_id)
			printf("  client %" PRIx64 " of another host", wait->client_id);
		if (wait->slot)
			printf(" slot %u", wait->slot);
		if (wait->since_ns)
			printf("  for %.1f s", (double)wait->since_ns / (double)CLOCK_NS_PER_S);
		printf("  %s\n", wait->words);
	}
	if (why->n > shown(why))
		printf("and %zu more\n", why->n - shown(why));
}

static void put_wait(struct json *json, const struct rlv_wait *wait)
{
	json_object_begin(json);
	json_put_string(json, "kind", kind_name(wait->kind));
	json_put_u64(json, "client_id", wait->client_id);
	json_put_u64(json, "pid", wait->pid);
	json_put_u64(json, "slot", wait->slot);
	json_put_string(json, "table", wait->table);
	if (wait->kind == RLV_WAIT_LIMITER && wait->view != UINT32_MAX)
		json_put_u64(json, "view", wait->view);
	if (wait->kind == RLV_WAIT_REBUILD || wait->kind == RLV_WAIT_DRAIN)
		json_put_u64(json, "shard", wait->shard);
	if (wait->kind == RLV_WAIT_DRAIN) {
		json_put_string(json, "node", wait->node);
		json_put_u64(json, "items_left", wait->left);
	}
	json_put_bool(json, "stopped", wait->stopped);
	json_put_u64(json, "since_ns", wait->since_ns);
	json_put_string(json, "words", wait->words);
	json_object_end(json);
}

void why_json(struct json *json, const struct why *why)
{
	json_key(json, "waits");
	json_array_begin(json);
	for (size_t i = 0; i < shown(why); i++)
		put_wait(json, &why->waits[i]);
	json_array_end(json);
	json_put_u64(json, "waits_left_out", why->n - shown(why));
}
