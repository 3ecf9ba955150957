#include "bench/replay/group.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/clock.h"
#include "bench/replay/case.h"
#include "bench/replay/report.h"
#include "bench/replay/table.h"
#include "bench/harness/windows.h"
#include "bench/harness/yardstick.h"

/* Resources of a running group. */
struct running {
	const struct replay_group *group;
	const struct replay_output *output;
	struct replay_data data;
	struct replay_case *cases;
	uint32_t n_open; /* cases */
	bool is_private; /* on a store that was started for it */
	struct yardstick yardstick;
	char uri[REPLAY_URI_BYTES];
};

static int group_open(struct running *r)
{
	const struct replay_config *first = &r->group->cases[0];
	uint64_t bytes = UINT64_C(64) << 20;
	int ret = 0;

	if (first->store || replay_config_is_local(first)) {
		snprintf(r->uri, sizeof(r->uri), "%s", first->store ? first->store : "embed:");
	} else {
		for (uint32_t i = 0; i < r->group->n_cases; i++)
			bytes += replay_table_bytes(&r->group->cases[i], &r->data);
		r->is_private = true;
		ret = r->output->start_store(r->output->ctx, bytes, r->uri);
	}
	for (uint32_t i = 0; i < r->group->n_cases && ret == 0; i++) {
		ret = replay_case_open(&r->cases[i], &r->group->cases[i], &r->data);
		r->n_open = i + 1;
		r->cases[i].progress = r->output->progress;
		r->cases[i].progress_from = r->output->from;
	}
	for (uint32_t i = 0; i < r->n_open && ret == 0; i++) {
		ret = replay_case_start(&r->cases[i], r->uri);
		if (ret)
			ret = error_prefix(ret, "%s: ", r->cases[i].config.label);
	}
	return ret;
}

static int group_window(void *ctx, uint32_t index, double done)
{
	struct running *r = ctx;
	struct replay_case *c = &r->cases[index];
	int64_t ns = c->config.duration_ns / c->config.windows;
	uint64_t footprint;
	int ret;

	c->progress_from = done;
	progress_show(r->output->progress, done, "%s", c->config.label);
	ret = replay_case_window(c, ns);
	if (ret)
		return error_prefix(ret, "%s: ", c->config.label);
	footprint = min_u64(c->footprint_bytes, r->yardstick.memory.bytes);
	series_add(&c->line_ns,
		   yardstick_line_ns(r->yardstick.memory.ptr, footprint, c->line_ns.n));
	if (c->batch_bytes)
		series_add(&c->memcpy_gbps,
			   yardstick_memcpy_gbps(&r->yardstick, c->batch_bytes, c->config.inflight,
						 60 * CLOCK_NS_PER_MS));
	return 0;
}

static int group_measure(struct running *r)
{
	bool local = replay_config_is_local(&r->group->cases[0]);
	const struct windows windows = {
		.from = r->output->from,
		.to = r->output->to,
		.n = r->group->cases[0].windows,
		.cases = r->n_open,
		.run = group_window,
		.ctx = r,
	};
	uint64_t footprint = 0, batch = 0;
	int ret;

	for (uint32_t i = 0; i < r->n_open; i++) {
		struct replay_case *c = &r->cases[i];

		ret = replay_case_warm(c, 60 * CLOCK_NS_PER_MS);
		if (ret)
			return error_prefix(ret, "%s: ", c->config.label);
		footprint = max_u64(footprint, c->footprint_bytes);
		batch = max_u64(batch, c->batch_bytes * c->config.inflight);
	}
	ret = yardstick_open(&r->yardstick, footprint, batch, local ? PAGE_THP : PAGE_SMALL);
	return ret ? error_prefix(ret, "memory for the yardsticks: ") : windows_run(&windows);
}

/* Closes the group. Returns ret with its message, or if ret is 0 the first error of closing. */
static int group_close(struct running *r, int ret)
{
	char why[ERROR_TEXT_BYTES];

	snprintf(why, sizeof(why), "%s", error_last());
	yardstick_close(&r->yardstick);
	for (uint32_t i = 0; i < r->n_open; i++) {
		int closed = replay_case_close(&r->cases[i]);

		if (ret)
			(void)error_set(ret, "%s", why);
		else
			ret = closed;
	}
	replay_data_close(&r->data);
	mem_free(r->cases);
	return ret;
}

int replay_group_run(const struct replay_group *group, const struct replay_output *output,
		     bool *ok_out)
{
	const struct replay_config *first = &group->cases[0];
	struct running *r = mem_zalloc(sizeof(*r));
	struct json *json = output->json;
	int ret;

	if (!r)
		return -ENOMEM;
	r->group = group;
	r->output = output;
	r->cases = mem_array(group->n_cases, sizeof(*r->cases));
	ret = r->cases ? replay_data_open(first->trace, first->shape, first->seed, &r->data)
		       : -ENOMEM;
	if (ret && r->cases)
		ret = error_prefix(ret, "%s: ", first->trace ? first->trace : first->shape);
	if (ret == 0)
		ret = group_open(r);
	if (ret == 0)
		ret = group_measure(r);
	progress_clear(output->progress);
	if (ret == 0 && !json) {
		printf("\n%s\n", group->title);
		ret = replay_report_text(r->cases, r->n_open, stdout);
	}
	for (uint32_t i = 0; i < r->n_open && ret == 0; i++) {
		struct replay_case *c = &r->cases[i];

		if (json)
			replay_report_json(c, r->is_private ? "shm:private" : r->uri, json);
		if (c->config.check)
			ret = replay_table_check(c, stdout, json);
		*ok_out = *ok_out && c->ok;
	}
	if (ret == 0 && first->beside)
		replay_report_ratio(r->cases, r->is_private ? "shm:private" : r->uri, stdout, json);
	fflush(stdout);
	ret = group_close(r, ret);
	mem_free(r);
	return ret;
}
