#include "server/catalog/catalog.h"

#include <errno.h>
#include <string.h>

#include "wire/region.h"

#include "base/bits.h"
#include "base/log.h"

#define TICK_NS (100 * (uint64_t)CLOCK_NS_PER_MS)
#define IDLE_NS ((uint64_t)CLOCK_NS_PER_S)
#define READING_NS ((uint64_t)CLOCK_NS_PER_S) /* interval between two readings of limiter words */
#define GRACE_NS (3 * (uint64_t)CLOCK_NS_PER_S)
#define WEIGHT_FIRST 100u /* of RELIVE__SHARD_WEIGHT__SHARD_WEIGHT_FULL */

/* -------- find -------- */

struct catalog_object *catalog_find(const struct catalog *cat, const char *name)
{
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		if (cat->objects[id] && strcmp(cat->objects[id]->name, name) == 0)
			return cat->objects[id];
	return NULL;
}

struct catalog_object *catalog_find_same(const struct catalog *cat, uint32_t id,
					 const uint8_t *uuid, size_t uuid_len)
{
	struct catalog_object *object = id <= OBJECT_MAX_ID ? cat->objects[id] : NULL;

	if (object && uuid_len == sizeof(object->uuid) && memcmp(object->uuid, uuid, uuid_len) == 0)
		return object;
	return NULL;
}

uint32_t catalog_count(const struct catalog *cat, const struct object_kind *kind)
{
	uint32_t n = 0;

	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		n += cat->objects[id] && cat->objects[id]->kind == kind;
	return n;
}

/* -------- load -------- */

struct doomed {
	struct catalog *cat;
	bool ids[OBJECT_MAX_ID + 1];
};

static int load_object(void *ctx, const struct statedb_object *stored)
{
	const struct object_kind *kind = object_kind_find(stored->kind);
	struct doomed *doomed = ctx;
	struct catalog_object *object;
	uint32_t id = stored->object;
	int ret;

	if (!kind || id == 0 || id > OBJECT_MAX_ID || stored->control >= OBJECT_MAX_PARTS)
		return error_set(-EBADMSG, "state database: object %u of kind %u, control part %u",
				 id, stored->kind, stored->control);
	ret = catalog_object_new(kind, id, stored->desc, stored->desc_len, &object);
	if (ret)
		return error_prefix(ret, "state database: ");
	if (stored->state != STORE_OBJECT_LIVE) {
		doomed->ids[id] = true;
		catalog_object_free(object);
		return 0;
	}
	doomed->cat->objects[id] = object;
	object->control = stored->control;
	object->auto_parts = stored->auto_parts;
	object->n_parts = object->slots.n_parts = object->n_cut;
	return 0;
}

static bool is_stored_state(uint32_t state)
{
	return catalog_state_is_usable(state) || state == RELIVE__SHARD_STATE__SHARD_LOST ||
	       state == RELIVE__SHARD_STATE__SHARD_GONE;
}

static int load_part(void *ctx, const struct statedb_part *stored)
{
	struct doomed *doomed = ctx;
	struct catalog *cat = doomed->cat;
	struct catalog_object *object =
		stored->object <= OBJECT_MAX_ID ? cat->objects[stored->object] : NULL;
	struct catalog_part *shard;

	if (!object)
		return 0;
	if (stored->part >= OBJECT_MAX_PARTS || !is_stored_state(stored->state))
		return error_set(-EBADMSG, "state database: shard %u of %s", stored->part,
				 object->text);
	if (stored->part >= object->n_parts)
		object->n_parts = object->slots.n_parts = stored->part + 1;
	shard = &object->parts[stored->part];
	shard->node = nodes_find(cat->nodes, stored->node);
	shard->incarnation = stored->incarnation;
	memcpy(shard->ids, stored->regions, sizeof(shard->ids));
	shard->state = stored->state;
	return 0;
}

/* Clients are assumed to know the layout that the store has. */
static void finish_object(struct catalog *cat, struct catalog_object *object)
{
	for (uint32_t s = 0; s < object->n_parts; s++) {
		struct catalog_part *shard = &object->parts[s];

		if (shard->state != RELIVE__SHARD_STATE__SHARD_GONE && !shard->node)
			shard->state = RELIVE__SHARD_STATE__SHARD_LOST;
		if (shard->state == RELIVE__SHARD_STATE__SHARD_LOST ||
		    shard->state == RELIVE__SHARD_STATE__SHARD_GONE)
			object->lost[s] = true;
		shard->announced = shard->state;
	}
	object->layout = cat->layout;
	if (object->auto_parts)
		catalog_spread_soon(object);
}

int catalog_load(struct catalog *cat)
{
	struct doomed doomed = { .cat = cat };
	uint64_t last = 0;
	int ret = statedb_each_object(cat->store, load_object, &doomed);

	statedb_ids(cat->store, &cat->ids);
	if (ret == 0)
		ret = statedb_each_part(cat->store, load_part, &doomed);
	if (ret == 0)
		ret = statedb_number(cat->store, "last_table", &last);
	if (ret == 0)
		ret = statedb_number(cat->store, "layout", &cat->layout);
	cat->last_id = (uint32_t)last;
	cat->grace_until = clock_now_ns(cat->clock) + GRACE_NS;
	/* Forget half-created objects; their regions are freed when the nodes register. */
	for (uint32_t id = 1; ret == 0 && id <= OBJECT_MAX_ID; id++)
		if (doomed.ids[id])
			ret = statedb_object_delete(cat->store,
						    id); /* keeps its provisioning records */
	for (uint32_t id = 1; ret == 0 && id <= OBJECT_MAX_ID; id++)
		if (cat->objects[id])
			finish_object(cat, cat->objects[id]);
	return ret;
}

void catalog_fini(struct catalog *cat)
{
	catalog_provision_forget_all(cat);
	catalog_retire_forget(cat);
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		catalog_object_free(cat->objects[id]);
		cat->objects[id] = NULL;
	}
}

/* -------- drop -------- */

int catalog_drop(struct catalog *cat, const char *name)
{
	struct catalog_object *object = catalog_find(cat, name);
	struct catalog_provisioning *provisioning;
	int ret;

	if (!object)
		return error_set(-ENOENT, "no table %.64s in this store", name);
	provisioning = catalog_provision_of(cat, object);
	if (object->kind->drop)
		object->kind->drop(cat, object);
	ret = catalog_give_up_object(cat, object);
	if (ret)
		return ret;
	if (provisioning) {
		catalog_retire_part(cat, object, provisioning->first, REGION_DROPPED);
		catalog_provision_abandon(provisioning);
	}
	catalog_retire_object(cat, object);
	cat->objects[object->id] = NULL;
	log_info("drop %s id %u", object->text, object->id);
	catalog_object_free(object);
	return 0;
}

/* -------- layouts for clients -------- */

/* A version lost in a restart would hide later changes from clients that know a newer one. */
void catalog_changed(struct catalog *cat, struct catalog_object *object)
{
	object->layout = ++cat->layout;
	if (statedb_number_put(cat->store, "layout", cat->layout))
		log_error("%s: layout: %s", object->text, error_last());
}

void catalog_refresh(struct catalog *cat, struct catalog_object *object)
{
	bool changed = false;

	for (uint32_t s = 0; s < object->n_parts; s++) {
		struct catalog_part *shard = &object->parts[s];
		uint32_t view = catalog_part_view(object, s);

		changed |= shard->announced != view;
		shard->announced = view;
	}
	if (changed)
		catalog_changed(cat, object);
}

static bool is_in_grace(const struct catalog *cat)
{
	return clock_now_ns(cat->clock) < cat->grace_until;
}

uint64_t catalog_newest_layout(const struct catalog *cat)
{
	return is_in_grace(cat) ? 0 : cat->layout;
}

bool catalog_is_known(const struct catalog *cat, uint64_t layout, uint64_t since)
{
	return cat->ops->all_know(cat->ctx, layout) ||
	       clock_now_ns(cat->clock) >= since + cat->patience_ns;
}

uint32_t catalog_weight(const struct catalog *cat, const struct catalog_part *shard,
			uint64_t *ramp_ns_out)
{
	const uint32_t full = RELIVE__SHARD_WEIGHT__SHARD_WEIGHT_FULL;
	uint64_t ramp = cat->ramp_ns ? cat->ramp_ns : CATALOG_RAMP_NS;
	uint64_t age = clock_now_ns(cat->clock) - shard->since;

	if (shard->since == 0 || age >= ramp) {
		*ramp_ns_out = 0;
		return full;
	}
	*ramp_ns_out = ramp - age;
	return WEIGHT_FIRST +
	       (uint32_t)((double)(full - WEIGHT_FIRST) * (double)age / (double)ramp);
}

int catalog_grant(struct catalog_object *object, uint32_t s, const struct catalog_guest *guest,
		  struct catalog_grants *out)
{
	const struct catalog_part *place = &object->parts[s];
	struct node_wish wish = { .asker = guest->asker, .client_id = guest->client_id };
	int first = 0;

	for (uint32_t at = REGION_TREE; at < PART_PLACES; at++) {
		uint32_t role = part_grant_of((enum part_access)guest->access, guest->owner, at,
					      &wish.range, &wish.rights);
		int ret = 0;

		out->places[at] = (struct region_grant){ .bytes = 0 };
		wish.range.region = place->ids[role];
		if (role)
			ret = node_grant(place->node, &wish, &out->places[at]);
		if (ret && (first == 0 || first == -EAGAIN))
			first = ret;
	}
	return first;
}

/* -------- upkeep -------- */

/* True if there is more to do soon. */
static bool keep_up(struct catalog *cat, struct catalog_object *object)
{
	bool busy;

	catalog_attach_tick(cat, object);
	if (is_in_grace(cat))
		return true;
	if (object->kind->tick)
		object->kind->tick(cat, object);
	busy = catalog_spread_tick(cat, object);
	catalog_drain_tick(cat, object);
	catalog_refresh(cat, object);
	for (uint32_t s = 0; s < object->n_parts; s++)
		busy |= object->parts[s].drain.phase != DRAIN_FILLING ||
			object->parts[s].state == RELIVE__SHARD_STATE__SHARD_DRAINING;
	return busy;
}

uint64_t catalog_tick(struct catalog *cat)
{
	uint64_t now = clock_now_ns(cat->clock);
	bool reading = now >= cat->next_reading, busy = false, recovers = false;

	if (now < cat->next_tick)
		return cat->next_tick;
	cat->slice_until = 0;
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		if (!cat->objects[id])
			continue;
		if (reading && cat->objects[id]->kind->look)
			cat->objects[id]->kind->look(cat->objects[id]);
		busy |= keep_up(cat, cat->objects[id]);
		recovers |= catalog_object_is_recovering(cat->objects[id]);
	}
	if (reading)
		cat->next_reading = now + READING_NS;
	busy |= catalog_retire_tick(cat);
	cat->next_tick = now + (busy ? TICK_NS : IDLE_NS);
	if (recovers)
		cat->next_tick = now;
	return cat->next_tick;
}
