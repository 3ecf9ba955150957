#include "catalog/kind_heap.h"
#include "catalog/heap_stripes.h"

#include <errno.h>
#include <string.h>

#include "ds/heap/central.h"
#include "ds/heap/copies.h"

#include "catalog/catalog.h"

#include "base/mem/alloc.h"

#define MOVE_BYTES ((uint64_t)4 << 20) /* copied in one step */

/* -------- the object -------- */

static const struct heap_desc *desc_of(const struct catalog_object *object)
{
	return object->state;
}

/* A request's descriptor is one of heap_plan. */
static int heap_take_wish(const struct kind_request *request, const void **details_out,
			  char name_out[OBJECT_NAME_BYTES])
{
	struct heap_desc *desc;

	if (request->len != sizeof(*desc))
		return error_set(-EPROTO, "request: a heap descriptor has %zu bytes, want %zu",
				 request->len, sizeof(*desc));
	desc = mem_alloc(sizeof(*desc));
	if (!desc)
		return error_set(-ENOMEM, "cannot allocate memory");
	memcpy(desc, request->desc, sizeof(*desc));
	*details_out = desc;
	memcpy(name_out, desc->name, OBJECT_NAME_BYTES);
	return heap_desc_check(desc);
}

/* Each copy needs a node of its own. */
static int heap_check_nodes(const struct catalog *cat, const struct heap_desc *desc)
{
	struct placement_node places[NODES_MAX];
	struct node *nodes[NODES_MAX];
	uint32_t n = catalog_places(cat, NULL, places, nodes), takers = 0;

	for (uint32_t i = 0; i < n; i++)
		takers += places[i].takes;
	if (desc->copies == 1 || takers >= desc->copies)
		return 0;
	return error_set(-EINVAL,
			 "heap %s: copies %u: each needs a memory node of its own, and %u are up: "
			 "add one (relive node add), or ask for fewer copies",
			 desc->name, desc->copies, takers);
}

static int heap_describe(const struct catalog *cat, const struct catalog_wish *wish,
			 const struct object_ids *ids, struct object_desc *desc_out)
{
	struct heap_desc *desc = mem_alloc(sizeof(*desc));
	int ret;

	if (!desc)
		return error_set(-ENOMEM, "heap %s: cannot allocate memory", wish->name);
	memcpy(desc, wish->details, sizeof(*desc));
	ret = heap_check_nodes(cat, desc);
	if (ret) {
		mem_free(desc);
		return ret;
	}
	desc->id = ids->id;
	memcpy(desc->uuid, ids->uuid, sizeof(desc->uuid));
	memcpy(&desc->seed, ids->uuid, sizeof(desc->seed));
	heap_desc_seal(desc);
	*desc_out = (struct object_desc){ desc, sizeof(*desc) };
	return 0;
}

static int heap_load(struct catalog_object *object, const void *bytes, size_t len)
{
	struct heap_desc *desc;
	int ret;

	if (len != sizeof(*desc))
		return error_set(-EBADMSG, "heap %u: a descriptor of %zu bytes, not %zu",
				 object->id, len, sizeof(*desc));
	desc = mem_alloc(sizeof(*desc));
	if (!desc)
		return error_set(-ENOMEM, "heap %u: no memory", object->id);
	object->desc = object->state = memcpy(desc, bytes, sizeof(*desc));
	object->desc_len = len;
	ret = heap_desc_check(desc);
	if (ret == 0 && desc->id != object->id)
		ret = error_set(-EBADMSG, "heap %u: the descriptor is of heap %u", object->id,
				desc->id);
	if (ret)
		return ret;
	memcpy(object->uuid, desc->uuid, sizeof(object->uuid));
	memcpy(object->name, desc->name, sizeof(object->name));
	object->n_cut = heap_cut(desc);
	object->max_clients = object->max_streams = desc->max_clients;
	return 0;
}

static bool heap_is_wish_of(const struct catalog_object *object, const struct catalog_wish *wish)
{
	const struct heap_desc *has = desc_of(object), *want = wish->details;

	return has->mode == want->mode && has->n_parts == want->n_parts &&
	       has->copies == want->copies && has->writers == want->writers &&
	       has->max_clients == want->max_clients && has->buckets == want->buckets &&
	       has->extents == want->extents && has->extent_bytes == want->extent_bytes &&
	       has->stripe == want->stripe;
}

/* -------- copies -------- */

static bool heap_is_apart(const struct catalog_object *object, uint32_t a, uint32_t b)
{
	uint32_t n = desc_of(object)->n_parts;

	return a % n == b % n;
}

/* A client does not hear in time of a copy that others put into. */
static bool heap_stays(const struct catalog_object *object)
{
	return desc_of(object)->writers == HEAP_WRITERS_MANY;
}

/* A part that has copies left, but too few that stay, gets one more; not one with several writers. */
static uint32_t heap_missing(const struct catalog_object *object)
{
	const struct heap_desc *desc = desc_of(object);

	for (uint32_t p = 0; p < desc->n_parts && !heap_stays(object); p++) {
		uint32_t left = 0, stay = 0, next = p;

		for (uint32_t s = p; s < object->n_parts; s += desc->n_parts) {
			left += !catalog_part_is_lost(object, s);
			stay += object->parts[s].state == PART_ACTIVE;
			next = s + desc->n_parts;
		}
		if (left > 0 && stay < desc->copies)
			return next;
	}
	return UINT32_MAX;
}

struct heap_state kind_heap_state(const struct catalog_object *heap)
{
	const struct heap_desc *desc = desc_of(heap);
	struct heap_state state = { .mode = desc->mode,
				    .parts = desc->n_parts,
				    .wanted = heap_cut(desc) };

	for (uint32_t s = 0; s < heap->n_parts; s++) {
		bool whole = false;

		if (!catalog_state_is_usable(catalog_part_view(heap, s)))
			continue;
		if (heap_is_whole(heap_of(heap->attached[s]), &whole))
			error_clear(); /* it is not reached */
		else if (!whole)
			state.filling++;
		state.whole += whole && state.whole < state.wanted;
	}
	return state;
}

/* The copies of part p as they are; false: one is away. */
static bool heap_line_of(const struct catalog_object *object, uint32_t p, struct heap_copies *out)
{
	*out = (struct heap_copies){ .n = 0 };
	for (uint32_t s = p; s < object->n_parts; s += desc_of(object)->n_parts) {
		struct heap *heap;
		bool whole;

		if (catalog_part_is_lost(object, s))
			continue;
		if (!catalog_state_is_usable(catalog_part_view(object, s)) ||
		    out->n_all == HEAP_LINE_MAX)
			return false;
		heap = heap_of(object->attached[s]);
		if (heap_is_whole(heap, &whole)) {
			error_clear();
			return false;
		}
		out->at[out->n_all++] = heap;
		out->n += whole;
	}
	return out->n > 0;
}

/* Fills copies of parts that no client owns; then completes intents of dead clients. */
static int heap_mend(struct catalog_object *object, uint32_t owner, uint64_t lease,
		     enum mend *found_out)
{
	const struct copies_owner self = { owner, lease };

	*found_out = MEND_NOTHING;
	for (uint32_t p = 0; p < desc_of(object)->n_parts; p++) {
		struct heap_copies copies;
		bool done;
		int ret;

		if (!heap_line_of(object, p, &copies) || copies.n == copies.n_all)
			continue;
		*found_out = MEND_LATER;
		ret = owner ? heap_copies_mend(&copies, &self, MOVE_BYTES, &done) : -EBUSY;
		if (ret == 0)
			*found_out = MEND_NOW;
		if (ret != -EBUSY && ret != -EAGAIN)
			return ret;
		error_clear();
	}
	return *found_out == MEND_NOTHING ? heap_stripes_mend(object, owner, found_out) : 0;
}

/* -------- a part -------- */

static void heap_plan_part(const struct catalog_object *object, uint32_t s,
			   struct part_spec *spec_out)
{
	*spec_out = heap_spec(desc_of(object), s);
}

static int heap_format_part(struct catalog *cat, const struct catalog_object *object, uint32_t s,
			    const struct part_regions *regions)
{
	struct part_origin origin = { .ms_term = cat->ids.term,
				      .incarnation = object->parts[s].incarnation };

	memcpy(origin.store_uuid, cat->ids.uuid, sizeof(origin.store_uuid));
	return heap_format(regions, desc_of(object), s, &origin);
}

static int heap_settle_dead(void *ctx, struct part *part, uint32_t owner)
{
	(void)ctx;
	heap_stripes_note(heap_of(part), owner);
	return heap_settle(heap_of(part), owner);
}

static int heap_leave(struct part *part, uint32_t owner)
{
	return heap_settle(heap_of(part), owner);
}

/* -------- drain -------- */

/* A part that leaves: where its contents go, and how far that is. */
struct moving {
	struct heap_move_at at;
	uint32_t to;
};

static_assert(sizeof(struct moving) <= sizeof(((struct part_drain *)0)->at), "it is kept there");

static uint32_t heap_leaver(const struct catalog_object *object)
{
	for (uint32_t s = 0; s < object->n_parts; s++)
		if (object->parts[s].state == PART_ACTIVE && object->parts[s].node->draining &&
		    !heap_stays(object))
			return s;
	return UINT32_MAX;
}

/* What a part that leaves finds beside it. */
struct beside {
	bool before;    /* another one is before it: readers do not use it */
	uint32_t whole; /* copies that stay and have everything */
	uint32_t next;  /* one that stays; n_parts: none is attached */
};

static int heap_look_beside(const struct catalog_object *object, uint32_t s, struct beside *out)
{
	uint32_t n_parts = desc_of(object)->n_parts;

	*out = (struct beside){ .next = object->n_parts };
	for (uint32_t i = s % n_parts; i < object->n_parts; i += n_parts) {
		bool whole = false;
		int ret;

		if (i == s || catalog_part_is_lost(object, i))
			continue;
		out->before |= i < s;
		if (object->parts[i].state != PART_ACTIVE || !object->attached[i])
			continue;
		ret = heap_is_whole(heap_of(object->attached[i]), &whole);
		if (ret)
			return ret;
		out->whole += whole;
		out->next = i;
	}
	return 0;
}

/* With one copy its contents go to the new one. With more, the others have them, and the owner has
   filled the new one. */
static int heap_move_part(struct catalog_object *object, uint32_t s, bool *done_out)
{
	const struct heap_desc *desc = desc_of(object);
	struct part_drain *drain = &object->parts[s].drain;
	uint32_t heads = heap_heads(desc);
	struct beside beside;
	struct moving moving;
	struct heap *to = NULL;
	int ret = heap_look_beside(object, s, &beside);

	memcpy(&moving, drain->at, sizeof(moving));
	drain->items = 2 * (uint64_t)heads;
	if (ret || beside.next == object->n_parts ||
	    (desc->copies > 1 && beside.whole < desc->copies))
		return ret;
	*done_out = desc->copies > 1 && beside.before;
	if (*done_out)
		return 0;
	if (moving.to != beside.next)
		moving = (struct moving){ .to = beside.next };
	if (desc->copies == 1)
		to = heap_of(object->attached[beside.next]);
	ret = heap_move(heap_of(object->attached[s]), to, &moving.at, MOVE_BYTES, done_out);
	drain->taken = moving.at.bucket + (moving.at.closing ? heads : 0);
	memcpy(drain->at, &moving, sizeof(moving));
	return ret;
}

static int heap_part_is_held(struct part *part, bool *held_out)
{
	return heap_is_held(heap_of(part), held_out);
}

/* -------- adoption: each part has the object's descriptor -------- */

static int heap_desc_of_part(const void *bytes, size_t len, uint32_t s,
			     struct object_desc *desc_out)
{
	struct heap_desc *desc = len == sizeof(*desc) ? mem_alloc(len) : NULL;
	int ret;

	if (!desc)
		return error_set(-EPROTO, "heap part %u: a descriptor of %zu bytes", s, len);
	memcpy(desc, bytes, len);
	ret = heap_desc_check(desc);
	if (ret) {
		mem_free(desc);
		return ret;
	}
	*desc_out = (struct object_desc){ desc, len };
	return 0;
}

/* -------- mode central -------- */

int kind_heap_call(struct catalog *cat, const struct heap_part_name *name,
		   struct central_call *call)
{
	struct catalog_object *object =
		catalog_find_same(cat, name->object, name->uuid, name->uuid_bytes);
	struct part *part;
	uint32_t s = name->part;

	if (!object || object->kind != &kind_heap)
		return error_set(-ESTALE, "the heap was dropped");
	while (s < object->n_parts && catalog_part_is_lost(object, s)) /* it has moved */
		s += desc_of(object)->n_parts;
	part = s < object->n_parts ? object->attached[s] : NULL;
	if (!part || !object->parts[s].joined)
		return error_set(-EHOSTDOWN, "%s: part %u of %u is away", object->text, name->part,
				 object->n_parts);
	return central_serve(heap_of(part), call);
}

const struct object_kind kind_heap = {
	.name = "heap",
	.part = "part",
	.id = OBJECT_HEAP,
	.take_wish = heap_take_wish,
	.describe = heap_describe,
	.load = heap_load,
	.is_wish_of = heap_is_wish_of,
	.is_apart = heap_is_apart,
	.missing = heap_missing,
	.plan = heap_plan_part,
	.format = heap_format_part,
	.open = heap_open_part,
	.close = heap_close_part,
	.settle_dead = heap_settle_dead,
	.leave = heap_leave,
	.mend = heap_mend,
	.stays = heap_stays,
	.leaver = heap_leaver,
	.move = heap_move_part,
	.is_held = heap_part_is_held,
	.desc_of_part = heap_desc_of_part,
};
