#include "tests/support/attack/kept.h"

#include "tests/support/attack/crash_rows.h"

#include <math.h>
#include <string.h>

#define SALT 7u
#define WAIT_NS ((int64_t)10 * 1000000000)
/* As many strata as items: a batch contains all. */
#define BATCH 4096u

int kept_create(struct rlv_store *store, struct rlv_table **table_out)
{
	struct rlv_table_opts opts = crash_table_opts(4096);

	opts.max_writers = 1;
	opts.max_clients = 4;
	opts.row_crc = 1;
	return rlv_table_create(store, "kept", &opts, table_out);
}

int kept_append(struct rlv_writer *writer, uint32_t from, uint32_t to)
{
	static struct crash_rows rows;
	int ret = 0;

	for (uint32_t n = from; ret == 0 && n < to; n += 100) {
		crash_rows_fill(&rows, 1, n, 100);
		ret = rlv_writer_append(writer, 0, &rows.steps, NULL);
	}
	return ret;
}

static int open_sampler(struct rlv_table *table, struct rlv_sampler **sampler_out)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;

	opts.batch_size = BATCH;
	opts.gamma = 1;
	opts.seed = 1;
	return rlv_sampler_open(table, &opts, sampler_out);
}

int kept_reprioritise(struct rlv_table *table)
{
	static float priority[BATCH];
	const struct rlv_batch *batch;
	struct rlv_sampler *sampler;
	int ret = open_sampler(table, &sampler), closed;

	if (ret)
		return ret;
	ret = rlv_sampler_sample(sampler, BATCH, WAIT_NS, &batch);
	for (uint32_t k = 0; ret == 0 && k < batch->n; k++)
		priority[k] = crash_priority(crash_step_of(crash_ids(batch)[k]), SALT);
	if (ret == 0)
		ret = rlv_sampler_set_priorities(sampler, batch->key, priority, batch->n, NULL);
	closed = rlv_sampler_close(&sampler);
	return ret ? ret : closed;
}

static void look_at(const struct rlv_batch *batch, struct kept *kept)
{
	char why[CRASH_WHY];

	kept->wrong_bytes += crash_batch_check(batch, why);
	for (uint32_t k = 0; k < batch->n; k++) {
		uint32_t n = crash_step_of(crash_ids(batch)[k]);

		if (n >= KEPT_STEPS + KEPT_MORE || kept->step[n])
			continue;
		kept->step[n] = true;
		kept->items += n < KEPT_STEPS;
		/* The last ones became items with the steps after them. */
		kept->wrong_priorities += n + CRASH_FUTURE < KEPT_STEPS &&
					  fabsf(batch->priority[k] - crash_priority(n, SALT)) >
						  1e-4f;
	}
}

/* The first of an episode wait for their stack, the last of all for their return. */
static uint32_t count_missing(const struct kept *kept)
{
	uint32_t missing = 0;

	for (uint32_t n = CRASH_STACK; n + CRASH_FUTURE < KEPT_STEPS; n++)
		missing += !kept->step[n] && n % CRASH_EPISODE >= CRASH_STACK &&
			   n % CRASH_EPISODE + CRASH_FUTURE < CRASH_EPISODE;
	return missing;
}

int kept_look(struct rlv_table *table, struct kept *kept_out)
{
	const struct rlv_batch *batch;
	struct rlv_sampler *sampler;
	int ret = open_sampler(table, &sampler), closed;

	memset(kept_out, 0, sizeof(*kept_out));
	if (ret)
		return ret;
	ret = rlv_sampler_sample(sampler, BATCH, 0, &batch); /* there may be nothing left */
	if (ret == 0)
		look_at(batch, kept_out);
	kept_out->missing = count_missing(kept_out);
	closed = rlv_sampler_close(&sampler);
	return ret ? ret : closed;
}
