#include "tests/support/replay_fixture.h"

#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#define MOST_ROWS 4096

const struct rlv_column replay_obs_columns[REPLAY_COLUMNS] = {
	{ .name = "obs", .dtype = RLV_F32, .role = RLV_OBS, .ndim = 1, .shape = { REPLAY_OBS } },
	{ .name = "frame", .dtype = RLV_U8, .role = RLV_OBS, .ndim = 2, .shape = { 2, 3 } },
	{ .name = "action", .dtype = RLV_I32 },
	{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
	{ .name = "bonus", .dtype = RLV_F64, .role = RLV_REWARD },
	{ .name = "id", .dtype = RLV_U64 },
};

const struct rlv_column replay_next_columns[REPLAY_NEXT_COLUMNS] = {
	{ .name = "obs", .dtype = RLV_F32, .ndim = 1, .shape = { REPLAY_OBS } },
	{ .name = "after", .dtype = RLV_F32, .role = RLV_NEXT, .ndim = 1, .shape = { REPLAY_OBS } },
	{ .name = "action", .dtype = RLV_I32 },
	{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
	{ .name = "bonus", .dtype = RLV_F64, .role = RLV_REWARD },
	{ .name = "id", .dtype = RLV_U64 },
};

void replay_expect(int rc, int code, const char *word)
{
	if (rc != code)
		fail_msg("got %s (%s), want %s", rlv_error_name(rc), rlv_last_error(),
			 rlv_error_name(code));
	if (word && !strstr(rlv_last_error(), word))
		fail_msg("message \"%s\" does not name \"%s\"", rlv_last_error(), word);
}

static void expect_ok(int rc)
{
	if (rc)
		fail_msg("%s: %s", rlv_error_name(rc), rlv_last_error());
}

/* -------- open, close -------- */

void replay_open(struct replay_fixture *fx, const struct rlv_table_opts *opts)
{
	struct rlv_table_opts full = *opts;
	struct rlv_store_opts store = RLV_STORE_OPTS_INIT;

	memset(fx, 0, sizeof(*fx));
	store.pages = RLV_PAGES_SMALL;
	full.size = sizeof(full);
	full.capacity = full.capacity ? full.capacity : 4096;
	if (!full.columns) {
		full.columns = replay_obs_columns;
		full.n_columns = REPLAY_COLUMNS;
	}
	replay_oracle_init(&fx->oracle, full.columns[0].role == RLV_OBS);
	expect_ok(rlv_store_open("embed:", &store, &fx->store));
	expect_ok(rlv_table_create(fx->store, "t", &full, &fx->table));
}

void replay_close(struct replay_fixture *fx)
{
	replay_verify(fx->table);
	expect_ok(rlv_table_close(&fx->table));
	expect_ok(rlv_store_close(&fx->store));
	replay_oracle_fini(&fx->oracle);
}

struct rlv_writer *replay_writer(struct replay_fixture *fx, uint32_t streams)
{
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct rlv_writer *writer = NULL;

	opts.streams = streams;
	expect_ok(rlv_writer_open(fx->table, &opts, &writer));
	return writer;
}

struct rlv_sampler *replay_sampler(struct replay_fixture *fx, const struct rlv_sampler_opts *opts)
{
	struct rlv_sampler_opts full = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler = NULL;

	if (opts)
		full = *opts;
	full.size = sizeof(full);
	full.seed = full.seed ? full.seed : 1234;
	expect_ok(rlv_sampler_open(fx->table, &full, &sampler));
	return sampler;
}

void replay_writer_done(struct rlv_writer **writer)
{
	expect_ok(rlv_writer_close(writer));
	assert_null(*writer);
}

void replay_sampler_done(struct rlv_sampler **sampler)
{
	expect_ok(rlv_sampler_close(sampler));
	assert_null(*sampler);
}

void replay_end(struct replay_fixture *fx, struct rlv_writer **writer, struct rlv_sampler **sampler)
{
	replay_sampler_done(sampler);
	replay_writer_done(writer);
	replay_close(fx);
}

/* -------- append -------- */

static struct {
	float obs[MOST_ROWS][REPLAY_OBS];
	uint8_t frame[MOST_ROWS][REPLAY_FRAME];
	int32_t action[MOST_ROWS];
	float reward[MOST_ROWS];
	double bonus[MOST_ROWS];
	uint64_t id[MOST_ROWS];
	const void *columns[REPLAY_COLUMNS];
} rows;

static void fill_row(uint32_t i, uint64_t id)
{
	replay_obs(id, rows.obs[i]);
	replay_frame(id, rows.frame[i]);
	rows.action[i] = replay_action(id);
	rows.reward[i] = replay_reward(id);
	rows.bonus[i] = replay_bonus(id);
	rows.id[i] = id;
}

static const void *const *columns_of(const struct replay_fixture *fx)
{
	rows.columns[0] = rows.obs;
	rows.columns[1] = fx->oracle.has_obs ? (const void *)rows.frame : rows.obs;
	rows.columns[2] = rows.action;
	rows.columns[3] = rows.reward;
	rows.columns[4] = rows.bonus;
	rows.columns[5] = rows.id;
	return rows.columns;
}

const void *const *replay_columns(const struct replay_fixture *fx, uint32_t stream, size_t row,
				  uint32_t n)
{
	assert_true(n <= MOST_ROWS);
	for (uint32_t i = 0; i < n; i++)
		fill_row(i, replay_id(stream, row + i));
	return columns_of(fx);
}

int replay_append(struct replay_fixture *fx, struct rlv_writer *writer,
		  const struct replay_put *put)
{
	uint32_t stream = put->first_stream + put->stream;
	struct rlv_steps steps = RLV_STEPS_INIT;
	uint32_t done = 0;
	int rc;

	steps.n = put->n;
	steps.columns = replay_columns(fx, stream, fx->oracle.streams[stream].n, put->n);
	steps.flags = put->flags;
	steps.td_error = put->td;
	steps.policy_version = put->version;
	rc = rlv_writer_append(writer, put->stream, &steps, &done);
	for (uint32_t i = 0; i < done; i++) {
		const struct replay_row row = {
			.flags = put->flags ? put->flags[i] : 0,
			.version = put->version,
			.td = put->td ? put->td[i] : -1,
		};
		replay_oracle_add(&fx->oracle, stream, row);
	}
	return rc;
}

void replay_append_plain(struct replay_fixture *fx, struct rlv_writer *writer, uint32_t stream,
			 uint32_t n)
{
	const struct replay_put put = { .stream = stream, .n = n };

	expect_ok(replay_append(fx, writer, &put));
}

void replay_append_episode(struct replay_fixture *fx, struct rlv_writer *writer, uint32_t stream,
			   uint32_t n, uint16_t flag, bool final)
{
	uint16_t flags[MOST_ROWS] = { 0 };
	const struct replay_put put = { .stream = stream, .n = n + final, .flags = flags };

	flags[n - 1] = flag;
	if (final)
		flags[n] = RLV_FINAL;
	expect_ok(replay_append(fx, writer, &put));
}

int replay_append_vector(struct replay_fixture *fx, struct rlv_writer *writer, uint32_t n,
			 const uint16_t *flags, const double *td)
{
	struct rlv_steps steps = RLV_STEPS_INIT;
	int rc;

	for (uint32_t i = 0; i < n; i++)
		fill_row(i, replay_id(i, fx->oracle.streams[i].n));
	steps.n = n;
	steps.columns = columns_of(fx);
	steps.flags = flags;
	steps.td_error = td;
	rc = rlv_writer_append_vector(writer, &steps);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		replay_oracle_add(&fx->oracle, i,
				  (struct replay_row){ .flags = flags ? flags[i] : 0,
						       .td = td ? td[i] : -1 });
	return rc;
}

int replay_end_episode(struct replay_fixture *fx, struct rlv_writer *writer, uint32_t stream,
		       bool final)
{
	struct rlv_steps step = RLV_STEPS_INIT;
	int rc;

	step.n = 1;
	step.columns = replay_columns(fx, stream, fx->oracle.streams[stream].n, 1);
	rc = rlv_writer_end_episode(writer, stream, final ? &step : NULL);
	if (rc)
		return rc;
	if (final)
		replay_oracle_add(&fx->oracle, stream,
				  (struct replay_row){ .flags = RLV_FINAL, .td = -1 });
	replay_oracle_end(&fx->oracle, stream);
	return 0;
}

/* -------- sample, look -------- */

const struct rlv_batch *replay_sample(struct rlv_sampler *sampler, uint32_t n)
{
	const struct rlv_batch *batch = NULL;

	expect_ok(rlv_sampler_sample(sampler, n, 0, &batch));
	assert_non_null(batch);
	return batch;
}

void replay_verify(struct rlv_table *table)
{
	struct rlv_verify_report report = { .size = sizeof(report) };

	expect_ok(rlv_table_verify(table, &report));
	if (report.problems)
		fail_msg("%u problems, first: %s", report.problems, report.first_problem);
}

struct rlv_table_info replay_info(struct rlv_table *table)
{
	struct rlv_table_info info = { .size = sizeof(info) };

	expect_ok(rlv_table_info(table, &info));
	return info;
}

struct rlv_stats replay_writer_stats(struct rlv_writer *writer)
{
	struct rlv_stats stats = { .size = sizeof(stats) };

	expect_ok(rlv_writer_stats(writer, &stats));
	return stats;
}

struct rlv_stats replay_sampler_stats(struct rlv_sampler *sampler)
{
	struct rlv_stats stats = { .size = sizeof(stats) };

	expect_ok(rlv_sampler_stats(sampler, &stats));
	return stats;
}
