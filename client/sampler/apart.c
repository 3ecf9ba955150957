#include "client/sampler/sampler.h"

#include "base/log.h"

#include <errno.h>

static const char no_rdma[] = "rows do not come by RDMA", not_mapped[] = "rows are not mapped here";

/* -------- which columns, which samplers -------- */

bool apart_takes(const struct rlv_sampler *sp, const struct window_output *o)
{
	return sp->apart.wanted && window_is_listed(o) &&
	       (!sp->apart.direct || (o->bytes | o->offset) % 8 == 0); /* as READs have it */
}

/* The output of a column, as far as apart_takes looks at it. */
static struct window_output output_of(const struct column_desc *col)
{
	return (struct window_output){ .kind = col->role == RLV_REWARD ? WINDOW_RETURN
								       : WINDOW_ANCHOR,
				       .bytes = col->bytes,
				       .offset = col->offset };
}

/* READs of all open shards fill memory of a device, as far as their transports tell. */
static bool rows_come_by_rdma(struct rlv_sampler *sp)
{
	bool come = true;

	for (uint32_t s = 0; come && s < sp->h.set.n_parts; s++)
		come = !handle_access(&sp->h, s) ||
		       transport_reaches(handle_shard(&sp->h, s)->rows->tr);
	return come;
}

/* Values of an item that are read of a large column, beside those of the rows of its window. */
static int64_t values_beyond_rows(const struct rlv_sampler *sp, uint32_t column)
{
	int64_t stack = sp->plan.stack, rows = stack + sp->plan.future, values = 1;

	if (sp->h.desc->columns[column].role == RLV_OBS)
		values = sp->opts.layout == RLV_WINDOW ? rows : 2 * stack;
	return (sp->columns[column] ? values : 0) - rows;
}

/* Columns of a sampler that are so large. */
struct large {
	uint32_t chosen; /* how many of them it has */
	int64_t more; /* bytes of an item that READs to a device bring, beyond those of its rows */
};

/* NULL: nothing. */
static const char *why_not_apart(struct rlv_sampler *sp, const struct large *large)
{
	uint32_t chosen = large->chosen;

	if (!chosen || 2 * chosen > LANDING_LISTS) /* of a column there are two arrays at most */
		return "the sampler has no large columns, or too many";
	if (sp->opts.verify == RLV_VERIFY_CRC)
		return "checksums of rows are verified on the CPU";
	if (sp->opts.short_batch || sp->view->max_times_sampled)
		return "gaps of short batches and of views that consume are closed on the CPU";
	if (sp->apart.direct && !rows_come_by_rdma(sp))
		return no_rdma;
	if (sp->apart.direct && !landing_is_asked(sp->opts.dest) && large->more > 0)
		return "stacked frames would cross the wire more often than their rows: RLV_WINDOW "
		       "has each once, or ask for the path";
	return NULL;
}

int apart_choose(struct rlv_sampler *sp)
{
	const struct rlv_landing *dest = sp->opts.dest;
	struct large large = { 0 };
	const char *why;

	sp->apart.direct = dest && landing_is_direct(dest);
	sp->apart.wanted = dest && (sp->apart.direct || landing_gathers(dest));
	for (uint32_t c = 0; sp->apart.wanted && c < sp->h.desc->n_columns; c++) {
		struct window_output o = output_of(&sp->h.desc->columns[c]);

		if (!apart_takes(sp, &o))
			continue;
		sp->apart.large++;
		large.chosen += sp->columns[c];
		large.more += values_beyond_rows(sp, c) * o.bytes;
	}
	why = sp->apart.wanted ? why_not_apart(sp, &large) : NULL;
	sp->apart.wanted &= !why;
	return why ? landing_copies(sp->opts.dest, why) : 0;
}

/* Makes the device's side of the buffer one that READs of all open shards fill; else batch->side.mem is NULL. */
static int apart_reach(struct rlv_sampler *sp, struct batch *batch)
{
	int ret = 0;

	batch->side.mem = NULL;
	if (!rows_come_by_rdma(sp))
		return landing_copies(sp->opts.dest, no_rdma);
	for (uint32_t s = 0; ret == 0 && s < sp->h.set.n_parts; s++)
		if (handle_access(&sp->h, s))
			ret = landing_reach(sp->opts.dest, batch->memory,
					    handle_shard(&sp->h, s)->rows->tr, &batch->side);
	if (ret)
		batch->side.mem = NULL;
	else if (!batch->side.mem)
		ret = error_set(-ENODATA, "sample: no shard is open");
	return ret;
}

int apart_begin(struct rlv_sampler *sp, struct batch *batch)
{
	int ret = 0;

	if (sp->apart.wanted && sp->apart.direct) {
		ret = apart_reach(sp, batch);
		sp->apart.ready = batch->side.mem;
	}
	batch->is_apart = sp->apart.ready;
	return ret && landing_is_strict(sp->opts.dest) ? ret : 0;
}

/* -------- rows that are shared with the device -------- */

static int apart_share(struct rlv_sampler *sp, uint32_t s)
{
	const struct region *rows = handle_shard(&sp->h, s)->rows;

	if (sp->apart.shared[s])
		return 0;
	sp->apart.ready = rows->base && !landing_share(sp->opts.dest, rows->base, rows->size);
	if (sp->apart.ready) {
		sp->apart.shared[s] = rows->base;
		return 0;
	}
	if (!rows->base)
		return landing_copies(sp->opts.dest, not_mapped);
	log_warn("sampler: batches land by a copy: %s", error_last());
	return landing_copies(sp->opts.dest, error_last());
}

int apart_follow(struct rlv_sampler *sp)
{
	uint32_t n = sp->h.set.n_parts;
	int ret = 0;

	sp->apart.ready = false;
	if (!sp->apart.wanted || sp->apart.direct)
		return 0;
	if (!sp->trees.addressable)
		return landing_copies(sp->opts.dest, not_mapped);
	if (n > sp->apart.n) {
		if (!mem_grow(&sp->apart.shared, sp->apart.n, n, sizeof(*sp->apart.shared)))
			return error_set(-ENOMEM, "sampler: cannot allocate memory for %u shards",
					 n);
		sp->apart.n = n;
	}
	sp->apart.ready = true;
	for (uint32_t s = 0; sp->apart.ready && s < n; s++)
		if (handle_access(&sp->h, s))
			ret = apart_share(sp, s);
	return ret;
}

void apart_leave(struct rlv_sampler *sp, uint32_t shard)
{
	if (shard >= sp->apart.n || !sp->apart.shared[shard])
		return;
	landing_unshare(sp->opts.dest, sp->apart.shared[shard]);
	sp->apart.shared[shard] = NULL;
	sp->apart.ready = false;
}

void apart_end(struct rlv_sampler *sp)
{
	for (uint32_t s = 0; s < sp->apart.n; s++)
		apart_leave(sp, s);
}

void apart_fini(struct rlv_sampler *sp)
{
	mem_free(sp->apart.shared);
}

/* -------- a round in place -------- */

/* Items [first, first + n) of a scratch, whose windows are here. */
struct found {
	const struct draw_scratch *s;
	uint32_t first, n;
};

/* Lists the large values of items behind each other; values of one size are one list. Returns how many. */
static uint32_t apart_list(const struct rlv_sampler *sp, const struct batch *batch,
			   const struct found *items, struct landing_list *lists)
{
	struct window_value *at[LANDING_LISTS], *next = batch->values;
	struct window_plan plan = sp->plan;
	uint32_t n_lists = 0;

	plan.outputs = batch->outputs + batch->n_near;
	plan.n_outputs = batch->n_outputs - batch->n_near;
	for (uint32_t c = 0; c < plan.n_outputs; c++) {
		const struct window_output *o = &plan.outputs[c];
		size_t values = (size_t)items->n * window_values_of(&plan, o);

		if (!n_lists || lists[n_lists - 1].bytes != o->bytes)
			lists[n_lists++] =
				(struct landing_list){ .values = next, .bytes = o->bytes };
		lists[n_lists - 1].n += values;
		at[c] = next;
		next += values;
	}
	window_list_values(&plan, items->s->window + items->first, items->s->at + items->first,
			   items->n, at);
	return n_lists;
}

int apart_gather(struct rlv_sampler *sp, const struct round *round)
{
	const struct batch *batch = round->batch;
	struct draw_scratch *s = &sp->scratch;
	struct landing_list lists[LANDING_LISTS];
	struct landing_mark mark;
	uint32_t n = round->found;
	const struct found items = { s, 0, n };
	int ret;

	/* After an error the device may still read the lists of an earlier try. */
	if (!landing_idle(sp->opts.dest, batch->memory))
		return error_set(-EAGAIN, "sample: the device still gathers for this batch");
	sampler_find_windows(sp, 0, n);
	ret = landing_gather(sp->opts.dest, lists, apart_list(sp, batch, &items, lists), &mark);
	if (ret)
		return ret;
	sp->plan.outputs = batch->outputs;
	sp->plan.n_outputs = batch->n_near;
	window_gather(&sp->plan, s->window, s->at, n);
	ret = landing_await(sp->opts.dest, &mark);
	if (ret == 0) /* the device has read all rows, as this thread sees by the mark */
		sampler_look_in_place(sp, s, 0, n);
	return ret;
}

/* -------- a round over a wire -------- */

/* READs of one window without its large values; returns how many. */
static size_t near_reads(const struct rlv_sampler *sp, const struct transport_io *window,
			 struct transport_io *io)
{
	const struct table_desc *desc = sp->h.desc;
	uint32_t from = 0;
	size_t n = 0;

	for (uint32_t row = 0; row < window->len; row += desc->row_bytes) {
		for (uint32_t c = 0; c < desc->n_columns; c++) {
			struct window_output o = output_of(&desc->columns[c]);

			if (!apart_takes(sp, &o))
				continue;
			io[n] = *window;
			io[n].off += from;
			io[n].dst = (uint8_t *)window->dst + from;
			io[n].len = row + o.offset - from;
			n += io[n].len > 0;
			from = row + o.offset + o.bytes;
		}
	}
	io[n] = *window;
	io[n].off += from;
	io[n].dst = (uint8_t *)window->dst + from;
	io[n].len = window->len - from;
	return n + 1; /* rows end with their tail */
}

int apart_aim_near(struct rlv_sampler *sp, struct async_sample *async, size_t *n_io_out)
{
	struct transport_io window = { .mem = &async->rows, .len = sampler_window_bytes(sp) };
	size_t each = (size_t)sp->apart.large * (sp->plan.stack + sp->plan.future) + 1, n_io = 0;
	uint8_t *dst = async->rows.ptr;
	int ret = async_sample_room(async, each * async->rows_n);

	for (uint32_t k = 0; ret == 0 && k < async->rows_n; k++, dst += window.len) {
		uint32_t i = async->rows_first + k;

		window.region = handle_shard(&sp->h, async->s->shard[i])->rows;
		window.off = sampler_window_off(sp, async->s, i);
		window.dst = dst;
		async->s->window[i] = dst;
		n_io += near_reads(sp, &window, async->io + n_io);
	}
	*n_io_out = n_io;
	return ret;
}

int apart_aim_far(struct rlv_sampler *sp, struct async_sample *async, size_t *n_io_out)
{
	const struct found items = { async->s, async->rows_first, async->rows_n };
	const struct batch *batch = async->batch;
	const struct window_value *value = batch->values;
	struct landing_list lists[LANDING_LISTS];
	uint32_t n_lists = apart_list(sp, batch, &items, lists);
	size_t n_io = 0;
	uint64_t bytes = 0;
	int ret;

	for (uint32_t l = 0; l < n_lists; l++) {
		n_io += lists[l].n;
		bytes += lists[l].n * lists[l].bytes;
	}
	ret = async_sample_room(async, n_io);
	*n_io_out = 0;
	for (uint32_t c = batch->n_near; ret == 0 && c < batch->n_outputs; c++) {
		const struct window_output *o = &batch->outputs[c];
		uint32_t each = window_values_of(&sp->plan, o);

		for (uint32_t v = 0; v < each * items.n; v++, value++) {
			uint32_t i = items.first + v / each;
			const uint8_t *window = items.s->window[i];

			async->io[(*n_io_out)++] = (struct transport_io){
				.region = handle_shard(&sp->h, items.s->shard[i])->rows,
				.off = sampler_window_off(sp, items.s, i) +
				       (value->from - (uint64_t)(uintptr_t)window),
				.dst = batch->side.at +
				       (value->to - (uint64_t)(uintptr_t)batch->memory),
				.mem = batch->side.mem,
				.len = o->bytes,
			};
		}
	}
	if (ret == 0)
		landing_count_direct(sp->opts.dest, bytes);
	return ret;
}
