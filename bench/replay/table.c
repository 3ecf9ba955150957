#include "bench/replay/table.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/os/clock.h"
#include "program/interrupt.h"

#define TIMEOUT_NS (10 * CLOCK_NS_PER_S)
#define FILL_ROWS 1024
#define P_MIN 1e-4 /* a correct table fails one run in ten thousand */
#define EXTENT_BYTES (UINT64_C(2) << 20)

static uint32_t serial; /* table number in this process */

/* Sets the error code with the message "what: " and the library's last error. Returns code. */
static int replay_failed(int code, const char *what)
{
	const char *why = rlv_last_error();

	return error_set(code, "%s: %s", what, *why ? why : strerror(-code));
}

uint64_t replay_table_capacity(const struct replay_config *config, const struct replay_data *data)
{
	if (config->capacity)
		return config->capacity;
	return UINT64_C(1) << (data->shape.row_bytes > 1024 ? 17 : 20);
}

uint64_t replay_table_bytes(const struct replay_config *config, const struct replay_data *data)
{
	uint64_t row = align_up(data->shape.row_bytes + 8, 8) + 32;
	uint64_t streams = (uint64_t)config->actors * config->envs + 1;
	uint64_t block = config->block ? config->block : 1024;
	uint64_t slots = replay_table_capacity(config, data) + 4 * streams * block;

	/* Both arrays of a view, leaves and counts use less than 32 B per slot. */
	return align_up(slots * (row + 32), EXTENT_BYTES) + config->shards * (16 * EXTENT_BYTES);
}

/* Number of rows to fill: config->prefill; if that is the whole ring and there is a limiter,
   ahead of which prefill must not run: half of the capacity. */
static uint64_t prefill_of(const struct replay_config *config)
{
	if (config->prefill != REPLAY_PREFILL_RING)
		return config->prefill;
	return config->spi > 0 ? config->capacity / 2 : REPLAY_PREFILL_RING;
}

static int create_table(struct replay_case *c)
{
	const struct replay_config *config = &c->config;
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_view view = { .stack = config->stack, .n_step = config->n_step };
	struct rlv_table_info info = { .size = sizeof(info) };
	int ret;

	view.limiter = rlv_limiter_min_size(1);
	if (config->spi > 0)
		view.limiter = rlv_limiter_sample_to_insert(
			config->spi, prefill_of(config),
			2 * (config->spi * (double)config->insert_batch * config->actors +
			     (double)config->batch * config->learners));
	opts.n_columns = c->data->shape.n_columns;
	opts.columns = c->data->shape.columns;
	opts.capacity = config->capacity;
	opts.views = &view;
	opts.n_views = 1;
	opts.shards = config->shards;
	opts.block = config->block;
	/* Default: four; more for many appenders. One is the filler's. */
	opts.max_writers = (uint32_t)max_u64((uint64_t)config->actors * config->envs + 1, 4);
	snprintf(c->shared->table, sizeof(c->shared->table), "bench-%d-%u", (int)getpid(),
		 ++serial);
	ret = rlv_table_create(c->store, c->shared->table, &opts, &c->table);
	if (ret)
		return replay_failed(ret, "create the table");
	ret = rlv_table_info(c->table, &info);
	if (ret)
		return replay_failed(ret, "read the table");
	c->footprint_bytes = info.rows_bytes + info.tree_bytes;
	c->priority_alpha = info.views[0].view.alpha;
	c->priority_eps = info.views[0].view.eps;
	if (config->prefill == REPLAY_PREFILL_RING)
		c->config.prefill = config->spi > 0 ? prefill_of(config) : info.slots;
	return 0;
}

/* -------- filling -------- */

static int fill_table(struct replay_case *c)
{
	struct replay_feed feed = { .data = c->data,
				    .number = pattern_first(0),
				    .patterned = c->config.check };
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct rlv_writer *writer = NULL;
	uint64_t n = c->config.prefill;
	int ret = 0, closed;

	if (c->config.check && pattern_rows_open(&feed.made, &c->data->shape, FILL_ROWS))
		ret = error_set(-ENOMEM, "fill the table: cannot allocate a block of rows");
	opts.timeout_ns = TIMEOUT_NS;
	if (ret == 0) {
		ret = rlv_writer_open(c->table, &opts, &writer);
		ret = ret ? replay_failed(ret, "open a writer") : 0;
	}
	while (ret == 0 && feed.number < n) {
		struct rlv_steps steps = RLV_STEPS_INIT;

		if (c->progress)
			progress_show(c->progress, c->progress_from, "%s: fill %llu of %llu",
				      c->config.label, (unsigned long long)feed.number,
				      (unsigned long long)n);
		replay_feed_next(&feed, (uint32_t)min_u64(FILL_ROWS, n - feed.number), &steps);
		ret = rlv_writer_append(writer, 0, &steps, NULL);
		if (ret)
			ret = replay_failed(ret, "fill the table");
		else if (interrupt_pending())
			ret = error_set(-EINTR, "interrupted");
		replay_feed_advance(&feed, steps.n);
	}
	closed = rlv_writer_close(&writer);
	if (ret == 0 && closed)
		ret = replay_failed(closed, "close the writer");
	pattern_rows_close(&feed.made);
	return ret;
}

int replay_table_open(struct replay_case *c, const char *uri)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	int ret;

	opts.pages = c->config.pages;
	/* A server creates and drops a shard in up to half a second. */
	opts.timeout_ns = TIMEOUT_NS + c->config.shards * CLOCK_NS_PER_S;
	snprintf(c->shared->uri, sizeof(c->shared->uri), "%s", uri);
	ret = rlv_store_open(uri, &opts, &c->store);
	if (ret)
		return replay_failed(ret, uri);
	ret = create_table(c);
	return ret ? ret : fill_table(c);
}

int replay_table_close(struct replay_case *c)
{
	int ret = 0, closed;

	if (!c->store)
		return 0;
	if (c->table) {
		ret = rlv_table_close(&c->table);
		if (ret == 0)
			ret = rlv_table_drop(c->store, c->shared->table);
		if (ret)
			ret = replay_failed(ret, "drop the table");
	}
	closed = rlv_store_close(&c->store);
	if (ret == 0 && closed)
		ret = replay_failed(closed, "close the store");
	return ret;
}

/* -------- checks -------- */

static void print_check(struct json *json, FILE *file, const struct replay_case *c,
			const struct rlv_verify_report *report)
{
	if (!json) {
		fprintf(file,
			"check %s: %llu items checked byte by byte, %llu wrong; %u broken "
			"invariants%s%s\n",
			c->config.label, (unsigned long long)c->items_checked,
			(unsigned long long)c->items_wrong, report->problems,
			report->problems ? ": " : "", report->first_problem);
		return;
	}
	json_object_begin(json);
	json_put_string(json, "bench", "replay");
	json_put_string(json, "check", "content");
	json_put_string(json, "case", c->config.label);
	json_put_u64(json, "items_checked", c->items_checked);
	json_put_u64(json, "items_wrong", c->items_wrong);
	json_put_u64(json, "problems", report->problems);
	json_put_u64(json, "redraws", c->redraws);
	json_object_end(json);
	json_newline(json);
}

static void print_draws(struct json *json, FILE *file, uint32_t role, const struct chi_square *chi)
{
	if (!json) {
		fprintf(file,
			"  learner %u: chi-square %.2f with %.0f degrees of freedom, p %.4g%s\n",
			role, chi->statistic, chi->df, chi->p,
			chi->p < P_MIN ? "  the draws do NOT follow the priorities" : "");
		return;
	}
	json_object_begin(json);
	json_put_string(json, "bench", "replay");
	json_put_string(json, "check", "chi_square");
	json_put_u64(json, "learner", role);
	json_put_double(json, "statistic", chi->statistic);
	json_put_double(json, "df", chi->df);
	json_put_double(json, "p", chi->p);
	json_object_end(json);
	json_newline(json);
}

int replay_table_check(struct replay_case *c, FILE *file, struct json *json)
{
	struct rlv_verify_report report = { .size = sizeof(report) };
	double weight[PATTERN_CLASSES]; /* of the classes in the tree */
	int ret = rlv_table_verify(c->table, &report);

	if (report.problems)
		c->ok = false;
	if (ret)
		return replay_failed(ret, "verify the table");
	if (c->items_wrong || (c->config.learners && c->items_checked == 0))
		c->ok = false;
	print_check(json, file, c, &report);
	for (uint32_t i = 0; i < PATTERN_CLASSES; i++)
		weight[i] = pow(pattern_td(i) + c->priority_eps, c->priority_alpha);
	for (uint32_t i = 0; i < c->n_roles; i++) {
		const struct role_slot *slot = c->roles[i].slot;
		const char *why = c->roles[i].worker.slot->why;
		struct chi_square chi;

		if (!json && why[0])
			fprintf(file, "  first: %s\n", why);
		if (!c->roles[i].samples)
			continue;
		chi = chi_square_test(slot->classes, weight, PATTERN_CLASSES);
		if (chi.p < P_MIN)
			c->ok = false;
		print_draws(json, file,
			    c->roles[i].worker.index - (c->config.loop ? 0 : c->config.actors),
			    &chi);
	}
	return 0;
}
