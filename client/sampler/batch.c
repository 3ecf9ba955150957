/*
 * Batch buffers: one slab of memory cut into the arrays that the user sees.
 */
#include "client/sampler/sampler.h"

#include "relive/landing.h"

#include "client/table/signature.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ARRAY_ALIGN 64

/* Cuts the slab; run twice, first without memory to learn the size. */
struct cutter {
	const struct rlv_sampler *sp;
	struct batch *batch;
	uint8_t *memory; /* NULL = only measure */
	size_t used;
	uint8_t *far; /* the same for large arrays, if they are apart */
	size_t far_used;
	uint32_t far_values; /* of an item */
	uint32_t n_arrays;
};

static void *cutter_cut(struct cutter *c, size_t bytes)
{
	void *ptr = c->memory ? c->memory + c->used : NULL;

	c->used += align_up(bytes, ARRAY_ALIGN);
	return ptr;
}

/* The array of an output with so many values an item. */
static void *cutter_cut_output(struct cutter *c, const struct window_output *o, uint32_t values)
{
	uint64_t bytes = (uint64_t)values * o->bytes * c->sp->opts.batch_size;
	void *ptr = c->far ? c->far + c->far_used : NULL;

	if (!apart_takes(c->sp, o))
		return cutter_cut(c, bytes);
	c->far_used += align_up(bytes, ARRAY_ALIGN);
	c->far_values += values;
	return ptr;
}

static void cutter_add_output(struct cutter *c, enum window_kind kind,
			      const struct column_desc *col, void *out, uint64_t item_bytes)
{
	c->batch->outputs[c->batch->n_outputs++] = (struct window_output){
		.kind = kind,
		.offset = col ? col->offset : 0,
		.bytes = col ? col->bytes : 4,
		.dtype = col ? col->dtype : 0,
		.out = out,
		.item_bytes = item_bytes,
	};
}

/* Where the items of an array are. */
struct items {
	uint8_t *data;
	uint64_t bytes; /* of one item */
	uint32_t rows;  /* in it */
};

/* Describes one array of the batch: shape [batch_size, rows if above 1, shape of the column],
   name prefix + column. */
static void cutter_add_array(struct cutter *c, const char *prefix, const struct column_desc *col,
			     const struct items *items)
{
	struct rlv_array *a = &c->batch->arrays[c->n_arrays];
	char *name = c->batch->names[c->n_arrays++];
	int64_t stride = col->bytes;
	uint32_t d = 0;

	snprintf(name, sizeof(c->batch->names[0]), "%s%s", prefix, col->name);
	*a = (struct rlv_array){ .name = name, .data = items->data, .dtype = col->dtype };
	a->shape[d] = c->sp->opts.batch_size;
	a->strides[d++] = (int64_t)items->bytes;
	if (items->rows > 1) {
		a->shape[d] = items->rows;
		a->strides[d++] = stride;
	}
	for (uint32_t i = 0; i < col->ndim; i++) {
		stride /= col->shape[i];
		a->shape[d] = col->shape[i];
		a->strides[d++] = stride;
	}
	a->ndim = d;
}

static void cutter_add_packed(struct cutter *c, const char *prefix, const struct column_desc *col,
			      enum window_kind kind, uint32_t rows)
{
	uint64_t item_bytes = (uint64_t)rows * col->bytes;
	const struct window_output output = { .kind = kind,
					      .bytes = col->bytes,
					      .offset = col->offset };
	void *data = cutter_cut_output(c, &output, rows);

	cutter_add_array(c, prefix, col, &(struct items){ data, item_bytes, rows });
	cutter_add_output(c, kind, col, data, item_bytes);
}

/* Cuts one array of whole windows of a column; the column's arrays obs and next_obs are views of
   it, next_at rows apart. */
static void cutter_add_window(struct cutter *c, const struct column_desc *col)
{
	uint32_t stack = c->sp->plan.stack;
	uint32_t next_at = window_next_at(stack, c->sp->plan.n_step);
	uint32_t rows = window_all_rows(stack, c->sp->opts.n_step);
	uint64_t item_bytes = (uint64_t)rows * col->bytes;
	const struct window_output output = { .kind = WINDOW_ALL,
					      .bytes = col->bytes,
					      .offset = col->offset };
	uint8_t *data = cutter_cut_output(c, &output, rows);
	struct items items = { data, item_bytes, stack };

	cutter_add_array(c, "", col, &items);
	items.data = data ? data + (uint64_t)next_at * col->bytes : NULL;
	cutter_add_array(c, "next_", col, &items);
	cutter_add_output(c, WINDOW_ALL, col, data, item_bytes);
}

static void cutter_add_column(struct cutter *c, const struct column_desc *col)
{
	uint32_t stack = c->sp->plan.stack;

	switch (col->role) {
	case RLV_OBS:
		if (c->sp->opts.layout == RLV_WINDOW) {
			cutter_add_window(c, col);
			break;
		}
		cutter_add_packed(c, "", col, WINDOW_STACK, stack);
		cutter_add_packed(c, "next_", col, WINDOW_NEXT, stack);
		break;
	case RLV_REWARD:
		cutter_add_packed(c, "", col, WINDOW_RETURN, 1);
		break;
	case RLV_NEXT:
		cutter_add_packed(c, "", col, WINDOW_LAST, 1);
		break;
	default:
		cutter_add_packed(c, "", col, WINDOW_ANCHOR, 1);
	}
}

static void cutter_cut_all(struct cutter *c)
{
	static const struct column_desc discount = { .name = "discount",
						     .dtype = RLV_F32,
						     .bytes = 4 };
	static const struct column_desc steps = { .name = "steps", .dtype = RLV_U32, .bytes = 4 };
	const struct table_desc *desc = c->sp->h.desc;
	struct batch *b = c->batch;
	size_t n = c->sp->opts.batch_size;

	b->n_outputs = 0;
	for (uint32_t i = 0; i < desc->n_columns; i++)
		if (c->sp->columns[i])
			cutter_add_column(c, &desc->columns[i]);
	b->policy_version = NULL;
	if (c->sp->reads_rows) {
		cutter_add_packed(c, "", &discount, WINDOW_DISCOUNT, 1);
		cutter_add_packed(c, "", &steps, WINDOW_STEPS, 1);
		b->policy_version = cutter_cut(c, n * sizeof(*b->policy_version));
		cutter_add_output(c, WINDOW_VERSION, NULL, b->policy_version,
				  sizeof(*b->policy_version));
	}
	b->key = cutter_cut(c, n * sizeof(*b->key));
	b->word = cutter_cut(c, n * sizeof(*b->word));
	b->probability = cutter_cut(c, n * sizeof(*b->probability));
	b->weight = cutter_cut(c, n * sizeof(*b->weight));
	b->priority = cutter_cut(c, n * sizeof(*b->priority));
	b->times_sampled = NULL;
	if (c->sp->view->counts_off)
		b->times_sampled = cutter_cut(c, n * sizeof(*b->times_sampled));
}

/* Puts the outputs whose arrays are apart behind the others. */
static void batch_part_outputs(const struct rlv_sampler *sp, struct batch *batch)
{
	struct window_output far[BATCH_OUTPUTS];
	uint32_t n_far = 0;

	batch->n_near = 0;
	for (uint32_t i = 0; i < batch->n_outputs; i++) {
		const struct window_output *o = &batch->outputs[i];

		if (apart_takes(sp, o))
			far[n_far++] = *o;
		else
			batch->outputs[batch->n_near++] = *o;
	}
	memcpy(batch->outputs + batch->n_near, far, n_far * sizeof(*far));
}

/* Describes the arrays of a batch for the plan's n_step, at most opts.n_step. Returns how many
   arrays it has. */
static uint32_t batch_describe(const struct rlv_sampler *sp, struct batch *batch)
{
	struct cutter c = { .sp = sp, .batch = batch, .memory = batch->memory };

	c.far = c.memory + batch->near_bytes;
	cutter_cut_all(&c);
	batch->values = (struct window_value *)(void *)(c.far + c.far_used);
	batch_part_outputs(sp, batch);
	batch->n_step = sp->plan.n_step;
	return c.n_arrays;
}

static int batch_init(const struct rlv_sampler *sp, struct batch *batch)
{
	struct cutter c = { .sp = sp, .batch = batch };

	cutter_cut_all(&c);
	batch->near_bytes = c.used;
	batch->bytes = c.used + c.far_used +
		       (size_t)c.far_values * sp->opts.batch_size * sizeof(*batch->values);
	batch->memory = alloc_buffer(&sp->hooks, ARRAY_ALIGN, batch->bytes);
	if (!batch->memory)
		return error_set(-ENOMEM, "batch: cannot allocate %zu bytes", batch->bytes);
	batch->pub = (struct rlv_batch){
		.n_arrays = batch_describe(sp, batch),
		.arrays = batch->arrays,
		.key = batch->key,
		.weight = batch->weight,
		.probability = batch->probability,
		.priority = batch->priority,
		.policy_version = batch->policy_version,
	};
	return 0;
}

int batch_add(struct rlv_sampler *sp)
{
	size_t n = sp->n_batches + 1;
	struct batch **batches = mem_resize(sp->batches, n * sizeof(struct batch *));
	struct batch *batch;
	int ret;

	if (batches)
		sp->batches = batches;
	batch = batches ? mem_zalloc(sizeof(*batch)) : NULL;
	if (!batch)
		return error_set(-ENOMEM, "sampler: cannot allocate memory for %zu batches", n);
	ret = batch_init(sp, batch);
	if (ret) {
		mem_free(batch);
		return ret;
	}
	sp->batches[sp->n_batches++] = batch;
	return 0;
}

/* Before the first use of a buffer: until then it has no pages. Buffers in use that together are beyond the
   L2 cache are written past it. */
static void batch_touch(struct rlv_sampler *sp, struct batch *batch)
{
	const size_t stream_stores_from = (size_t)1 << 20;

	memset(batch->memory, 0, batch->bytes);
	batch->touched = true;
	sp->n_touched++;
	sp->plan.stream_stores = batch->bytes * sp->n_touched >= stream_stores_from;
}

void batch_free_all(struct rlv_sampler *sp)
{
	for (uint32_t i = 0; i < sp->n_batches; i++) {
		alloc_buffer_free(&sp->hooks, sp->batches[i]->memory, sp->batches[i]->bytes);
		mem_free(sp->batches[i]);
	}
	mem_free(sp->batches);
}

/* Most of a device's buffers are in use for as long as its work is queued: those of a landing are few. */
#define LANDED_MOST 8

static bool batch_is_free(const struct rlv_sampler *sp, const struct batch *batch)
{
	return !batch->held && !batch->prefetched &&
	       (!sp->opts.dest || landing_idle(sp->opts.dest, batch->memory));
}

struct batch *batch_find(struct rlv_sampler *sp)
{
	struct batch *batch = NULL;

	for (uint32_t i = 0; !batch && i < sp->n_batches; i++)
		if (batch_is_free(sp, sp->batches[i]))
			batch = sp->batches[i];
	if (!batch && sp->opts.batches == RLV_BATCHES_ANY &&
	    (!sp->opts.dest || sp->n_batches < LANDED_MOST) && batch_add(sp) == 0)
		batch = sp->batches[sp->n_batches - 1];
	if (batch && !batch->touched)
		batch_touch(sp, batch);
	if (batch && batch->n_step != sp->plan.n_step)
		batch_describe(sp, batch);
	return batch;
}

int batch_get(struct rlv_sampler *sp, uint32_t n, struct batch **batch_out)
{
	bool leaves = n && sp->ahead == RLV_AHEAD_LEAVE;
	struct batch *batch = NULL;
	uint32_t held = 0;

	for (uint32_t i = 0; i < sp->n_batches; i++)
		held += sp->batches[i]->held;
	if (held < sp->opts.batches && !leaves)
		batch = prefetch_buffer(sp, n);
	if (held < sp->opts.batches && !batch)
		batch = batch_find(sp);
	if (held < sp->opts.batches && !batch && sp->n_prefetched) {
		prefetch_cancel(sp); /* frees theirs */
		batch = batch_find(sp);
	}
	if (batch) {
		batch->is_apart &= batch->prefetched;
		*batch_out = batch;
		return 0;
	}
	if (sp->opts.dest && held < sp->n_batches)
		return error_set(-EAGAIN,
				 "sampler: the device still uses all %u batches that were "
				 "released",
				 sp->n_batches - held);
	if (sp->opts.batches == RLV_BATCHES_ANY && !sp->opts.dest)
		return -ENOMEM;
	return error_set(-EBUSY, "sampler: all %u batches are held; release one, or open with more",
			 held);
}

void rlv_batch_release(struct rlv_sampler *sampler, const struct rlv_batch *batch)
{
	for (uint32_t i = 0; sampler && i < sampler->n_batches; i++)
		if (&sampler->batches[i]->pub == batch) {
			sampler->batches[i]->held = false;
			if (sampler->opts.dest)
				landing_done(sampler->opts.dest, sampler->batches[i]->memory);
		}
}

static int batch_land_parts(const struct rlv_sampler *sp, const struct batch *batch)
{
	struct landing_part parts[BATCH_OUTPUTS + 4];
	uint32_t n = 1, items = batch->pub.n;
	uint32_t n_outputs = batch->is_apart ? batch->n_near : batch->n_outputs;
	bool weighs = sampler_weighs_apart(sp);

	parts[0] = (struct landing_part){ batch->memory,
					  batch->is_apart ? batch->near_bytes : batch->bytes };
	if (items < sp->opts.batch_size) {
		for (n = 0; n < n_outputs; n++)
			parts[n] = (struct landing_part){ batch->outputs[n].out,
							  items * batch->outputs[n].item_bytes };
		parts[n++] = (struct landing_part){ batch->key, items * sizeof(*batch->key) };
		parts[n++] = (struct landing_part){ batch->probability,
						    items * sizeof(*batch->probability) };
		if (!weighs)
			parts[n++] = (struct landing_part){ batch->weight,
							    items * sizeof(*batch->weight) };
		parts[n++] =
			(struct landing_part){ batch->priority, items * sizeof(*batch->priority) };
	}
	return landing_land(sp->opts.dest, parts, n, weighs ? &batch->weights : NULL);
}

int batch_land(const struct rlv_sampler *sp, struct batch *batch)
{
	uint32_t apart = sp->apart.direct ? batch->side.path : RLV_LANDING_GATHER;
	int ret = sp->opts.dest ? batch_land_parts(sp, batch) : 0;

	if (ret == 0 && sp->opts.dest)
		batch->path = landing_count(sp->opts.dest, batch->is_apart ? apart : 0);
	return ret;
}

uint32_t rlv_batch_path(const struct rlv_batch *batch)
{
	return batch ? ((const struct batch *)(const void *)batch)->path : 0;
}
