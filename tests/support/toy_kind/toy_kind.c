#include "tests/support/toy_kind/toy_kind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem/alloc.h"

enum {
	TOY_OFF = DESC_OFF + 256,
	COUNT_OFF = TOY_OFF + sizeof(struct part_words),
	OPEN_OFF = COUNT_OFF + 64,
	REGION_BYTES = 2 * REGION_SUPERBLOCK_BYTES,
};

/* The descriptor that the catalog stores, and the state of a toy. */
struct toy_desc {
	uint8_t uuid[16];
	char name[STORE_NAME_BYTES];
	uint32_t id;
	uint32_t n_parts;
};

/* -------- the object -------- */

/* A request's descriptor is the number of parts. */
static int toy_take_wish(const struct kind_request *request, const void **details_out,
			 char name[OBJECT_NAME_BYTES])
{
	void *n_parts = request->len == sizeof(uint32_t) ? mem_alloc(request->len) : NULL;

	if (!n_parts)
		return error_set(-EPROTO, "toy %s: a wish of %zu bytes", name, request->len);
	*details_out = memcpy(n_parts, request->desc, request->len);
	return 0;
}

static int toy_describe(const struct catalog *cat, const struct catalog_wish *wish,
			const struct object_ids *ids, struct object_desc *desc_out)
{
	const uint32_t *n_parts = wish->details;
	struct toy_desc *desc = mem_zalloc(sizeof(*desc));

	(void)cat;
	if (!desc)
		return error_set(-ENOMEM, "toy %s: no memory", wish->name);
	memcpy(desc->uuid, ids->uuid, sizeof(desc->uuid));
	snprintf(desc->name, sizeof(desc->name), "%s", wish->name);
	desc->id = ids->id;
	desc->n_parts = *n_parts;
	*desc_out = (struct object_desc){ desc, sizeof(*desc) };
	return 0;
}

static int toy_load(struct catalog_object *object, const void *bytes, size_t len)
{
	struct toy_desc *desc;

	if (len != sizeof(*desc))
		return error_set(-EBADMSG, "toy %u: a descriptor of %zu bytes", object->id, len);
	desc = mem_alloc(sizeof(*desc));
	if (!desc)
		return error_set(-ENOMEM, "toy %u: no memory", object->id);
	object->desc = object->state = memcpy(desc, bytes, sizeof(*desc));
	object->desc_len = len;
	memcpy(object->uuid, desc->uuid, sizeof(object->uuid));
	memcpy(object->name, desc->name, sizeof(object->name));
	object->n_cut = desc->n_parts;
	object->max_clients = object->max_streams = TOY_CLIENTS;
	return 0;
}

static bool toy_is_wish_of(const struct catalog_object *object, const struct catalog_wish *wish)
{
	const struct toy_desc *desc = object->state;

	return desc->n_parts == *(const uint32_t *)wish->details;
}

int toy_create(struct catalog *cat, const char *name, uint32_t n_parts,
	       struct catalog_object **toy_out)
{
	const struct catalog_wish wish = { .kind = &kind_toy, .name = name, .details = &n_parts };

	return catalog_create(cat, &wish, toy_out);
}

/* -------- a part -------- */

static struct part_spec toy_spec(const struct toy_desc *desc, uint32_t s)
{
	struct part_spec spec = {
		.kind = OBJECT_TOY,
		.object = desc->id,
		.part = s,
		.bytes = { [REGION_TREE] = REGION_BYTES,
			   [REGION_ROWS] = REGION_BYTES,
			   [REGION_SLOTS] = REGION_BYTES,
			   [REGION_PAGES] = PAGES_OFF + TOY_CLIENTS * CLIENT_PAGE_BYTES },
		.words_off = TOY_OFF,
		.slots_off = TOY_OFF,
		.max_clients = TOY_CLIENTS,
		.name = desc->name,
		.desc = desc,
		.desc_bytes = sizeof(*desc),
		.told = { [PART_TOLD_USED] = part_told_at(REGION_TREE, COUNT_OFF) },
	};
	memcpy(spec.uuid, desc->uuid, sizeof(spec.uuid));
	return spec;
}

static void toy_plan(const struct catalog_object *object, uint32_t s, struct part_spec *spec_out)
{
	*spec_out = toy_spec(object->state, s);
}

static int toy_format(struct catalog *cat, const struct catalog_object *object, uint32_t s,
		      const struct part_regions *regions)
{
	struct part_origin origin = { .ms_term = cat->ids.term,
				      .incarnation = object->parts[s].incarnation };
	struct part_spec spec;
	int ret;

	memcpy(origin.store_uuid, cat->ids.uuid, sizeof(origin.store_uuid));
	toy_plan(object, s, &spec);
	ret = part_format(regions, &spec, &origin);
	return ret ? ret : part_publish(regions);
}

int toy_part_open(const void *desc, uint32_t s, const struct part_regions *regions,
		  struct part **part_out)
{
	struct part *part = mem_zalloc(sizeof(*part));
	struct part_spec spec = toy_spec(desc, s);
	int ret = part ? part_check_live(regions, OBJECT_TOY) : -ENOMEM;

	if (ret == 0)
		ret = part_open(part, regions, &spec);
	if (ret)
		mem_free(part);
	else
		*part_out = part;
	return ret;
}

void toy_part_close(struct part *part)
{
	part_close(part);
	mem_free(part);
}

/* Each part has the object's descriptor. */
static int toy_desc_of_part(const void *bytes, size_t len, uint32_t s, struct object_desc *desc_out)
{
	void *copy = len == sizeof(struct toy_desc) ? mem_alloc(len) : NULL;

	if (!copy)
		return error_set(-EPROTO, "toy part %u: a descriptor of %zu bytes", s, len);
	*desc_out = (struct object_desc){ memcpy(copy, bytes, len), len };
	return 0;
}

/* -------- counting -------- */

static uint64_t open_off(uint32_t owner)
{
	return OPEN_OFF + (uint64_t)(owner - 1) * 8;
}

int toy_begin(struct part *part, uint32_t owner, uint64_t n)
{
	return transport_store(part->tree, open_off(owner), &n, sizeof(n));
}

int toy_end(struct part *part, uint32_t owner)
{
	uint64_t n, old, none = 0;
	int ret = transport_load(part->tree, open_off(owner), &n);

	if (ret == 0)
		ret = transport_faa_word(part->tree, COUNT_OFF, n, &old);
	return ret ? ret : transport_store(part->tree, open_off(owner), &none, sizeof(none));
}

int toy_count(struct part *part, uint64_t *n_out)
{
	return transport_load(part->tree, COUNT_OFF, n_out);
}

/* An open count was not added yet, or was: it is withdrawn either way. */
static int toy_settle_dead(void *ctx, struct part *part, uint32_t owner)
{
	const uint64_t none = 0;

	(void)ctx;
	return transport_store(part->tree, open_off(owner), &none, sizeof(none));
}

static int toy_leave(struct part *part, uint32_t owner)
{
	return toy_settle_dead(NULL, part, owner);
}

static uint64_t toy_taken_in(struct part *part, uint64_t *seen)
{
	uint64_t n, before = *seen;

	if (toy_count(part, &n))
		return 0;
	*seen = n + 1;
	return before ? *seen - before : 0;
}

static int toy_is_open(struct part *part, bool *is_open_out)
{
	uint64_t counts[TOY_CLIENTS] = { 0 };
	struct transport_io io = {
		.region = part->tree, .off = OPEN_OFF, .dst = counts, .len = sizeof(counts)
	};
	int ret = transport_read(part->tree->tr, &io, 1);

	*is_open_out = false;
	for (uint32_t i = 0; ret == 0 && i < TOY_CLIENTS; i++)
		*is_open_out |= counts[i] != 0;
	return ret;
}

const struct object_kind kind_toy = {
	.name = "toy",
	.part = "part",
	.id = OBJECT_TOY,
	.take_wish = toy_take_wish,
	.describe = toy_describe,
	.load = toy_load,
	.is_wish_of = toy_is_wish_of,
	.plan = toy_plan,
	.format = toy_format,
	.open = toy_part_open,
	.close = toy_part_close,
	.settle_dead = toy_settle_dead,
	.leave = toy_leave,
	.items = toy_count,
	.taken_in = toy_taken_in,
	.is_open = toy_is_open,
	.desc_of_part = toy_desc_of_part,
};
