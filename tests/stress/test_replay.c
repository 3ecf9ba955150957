/*
 * Writers and learners of one store at once: embedded, of several nodes as over a wire with batches drawn
 * ahead, with rebuilds meanwhile, or while the table is saved. Every byte handed over is that of its step, and afterwards the trees
 * are exact.
 */
#include "relive/scan.h"

#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include "relive/save.h"

#include "ds/sumtree/rebuild.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define WRITERS 2
#define LEARNERS 2
#define STEPS 12000
#define CHUNK 24
#define BATCH 32
#define PASSES 60
#define ROUNDS 20
#define AFTER 50                      /* batches of a learner behind the last write or pass */
#define SOON_NS (10 * CLOCK_NS_PER_S) /* time for what is to succeed */

/* A thread: one or the other. */
struct job {
	uint32_t index;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
};

static atomic_int failed;
static atomic_int writing; /* writers and that other thread at work */

static void expect(bool ok, const char *what)
{
	if (ok)
		return;
	atomic_store(&failed, 1);
	print_message("%s: %s\n", what, rlv_last_error());
}

/* Rows as of replay_columns, in memory of the thread. */
struct rows {
	float obs[CHUNK][REPLAY_OBS];
	uint8_t frame[CHUNK][REPLAY_FRAME];
	int32_t action[CHUNK];
	float reward[CHUNK];
	double bonus[CHUNK];
	uint64_t id[CHUNK];
	uint16_t flags[CHUNK];
};

static void fill(struct rows *rows, uint32_t stream, uint32_t from)
{
	for (uint32_t i = 0; i < CHUNK; i++) {
		uint64_t id = replay_id(stream, from + i);

		replay_obs(id, rows->obs[i]);
		replay_frame(id, rows->frame[i]);
		rows->action[i] = replay_action(id);
		rows->reward[i] = replay_reward(id);
		rows->bonus[i] = replay_bonus(id);
		rows->id[i] = id;
		rows->flags[i] = (from + i) % 37 == 36 ? RLV_TERMINATED : 0;
	}
}

static void *write_steps(void *arg)
{
	const struct job *job = arg;
	struct rows rows;
	const void *const columns[] = { rows.obs,    rows.frame, rows.action,
					rows.reward, rows.bonus, rows.id };
	struct rlv_steps steps = RLV_STEPS_INIT;

	steps.n = CHUNK;
	steps.columns = columns;
	steps.flags = rows.flags;
	for (uint32_t at = 0; at < STEPS && !atomic_load(&failed); at += CHUNK) {
		fill(&rows, job->index, at);
		expect(rlv_writer_append(job->writer, 0, &steps, NULL) == 0, "append");
	}
	atomic_fetch_sub(&writing, 1);
	return NULL;
}

/* One step, no stack: obs and next_obs follow from the id. */
static void check(const struct rlv_batch *batch)
{
	const float *obs = replay_array(batch, "obs")->data;
	const float *next = replay_array(batch, "next_obs")->data;
	const float *reward = replay_array(batch, "reward")->data;
	const float *discount = replay_array(batch, "discount")->data;

	for (uint32_t i = 0; i < batch->n; i++) {
		uint64_t id = replay_batch_id(batch, i);
		bool ends = (id & UINT32_MAX) % 37 == 36;
		float want[REPLAY_OBS];

		replay_obs(id, want);
		expect(memcmp(obs + i * REPLAY_OBS, want, sizeof(want)) == 0, "obs");
		expect(reward[i] == replay_reward(id), "reward");
		expect((discount[i] == 0) == ends, "discount");
		replay_obs(id + 1, want);
		expect(ends || memcmp(next + i * REPLAY_OBS, want, sizeof(want)) == 0, "next_obs");
	}
}

/* Gathers what was drawn, and the next items of a scan that begins anew at its end. */
static void scan_some(struct rlv_sampler *sampler, const struct rlv_batch *drawn)
{
	const struct rlv_batch *batch;
	int rc = rlv_sampler_gather(sampler, drawn->key, drawn->n, SOON_NS, &batch);

	expect(rc == 0, "gather");
	for (uint32_t i = 0; rc == 0 && i < batch->n; i++)
		expect(batch->key[i] == 0 ||
			       (batch->key[i] == drawn->key[i] &&
				replay_batch_id(batch, i) == replay_batch_id(drawn, i)),
		       "gather: another item");
	if (rc == 0)
		rlv_batch_release(sampler, batch);
	rc = rlv_sampler_scan(sampler, BATCH, SOON_NS, &batch);
	expect(rc == 0 || rc == -ENODATA, "scan");
	if (rc == 0) {
		check(batch);
		rlv_batch_release(sampler, batch);
	} else {
		expect(rlv_sampler_scan_start(sampler, false, SOON_NS) == 0, "scan_start");
	}
}

static void *learn(void *arg)
{
	const struct job *job = arg;
	struct rlv_sampler *sampler = job->sampler;
	float td[BATCH];
	uint32_t turn = 0;

	for (int left = AFTER; left && !atomic_load(&failed); left -= !atomic_load(&writing)) {
		const struct rlv_batch *batch;
		int rc = rlv_sampler_sample(sampler, BATCH, 1000000, &batch);

		expect(rc == 0 || rc == -ETIMEDOUT, "sample");
		if (rc)
			continue;
		check(batch);
		for (uint32_t i = 0; i < batch->n; i++)
			td[i] = (float)(batch->key[i] % 97) / 10;
		expect(rlv_sampler_update(sampler, batch->key, td, batch->n, NULL) == 0, "update");
		if (++turn % 8 == 0) /* it drops batches drawn ahead */
			scan_some(sampler, batch);
		rlv_batch_release(sampler, batch);
	}
	return NULL;
}

/* Rebuilds the sums of one shard after the other; learners go on until the end. */
static void *rebuild_shards(void *arg)
{
	const struct nodes_fixture *nx = arg;
	const struct rebuild_opts opts = { .owner = nx->desc.max_clients,
					   .deadline_ns = UINT64_MAX };
	struct rebuild_report report = { 0 };

	for (uint32_t i = 0; i < PASSES && !atomic_load(&failed); i++)
		expect(sumtree_rebuild_pass(nx->shards[i % nx->n_shards], &opts, &report) == 0,
		       "rebuild");
	expect(report.repaired_tags == 0, "tags");
	atomic_fetch_sub(&writing, 1);
	return NULL;
}

/* Loads a saved table into a store of its own, and draws from it. */
static void check_saved(const char *path)
{
	struct rlv_verify_report report = { .size = sizeof(report) };
	struct rlv_sampler *sampler;
	struct rlv_store *store;
	struct rlv_table *table;

	expect(rlv_store_open("embed:", NULL, &store) == 0, "open");
	expect(rlv_table_load(store, path, NULL, NULL, &table) == 0, "load");
	expect(rlv_sampler_open(table, NULL, &sampler) == 0, "sampler");
	for (uint32_t i = 0; i < AFTER && !atomic_load(&failed); i++) {
		const struct rlv_batch *batch;
		int rc = rlv_sampler_sample(sampler, BATCH, 0, &batch);

		if (rc == -ENODATA) /* saved before there was an item */
			break;
		expect(rc == 0, "sample");
		check(batch);
		rlv_batch_release(sampler, batch);
	}
	expect(rlv_table_verify(table, &report) == 0 && report.problems == 0, "verify");
	expect(rlv_sampler_close(&sampler) == 0, "close");
	expect(rlv_table_close(&table) == 0 && rlv_store_close(&store) == 0, "close");
}

/* Saves the table again and again while steps come, each time upon the file before. */
static void *save_table(void *arg)
{
	const struct replay_fixture *fx = arg;
	char dir[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES + 8];
	struct rlv_save_opts opts = RLV_SAVE_OPTS_INIT;

	temp_dir_make(dir);
	snprintf(path, sizeof(path), "%s/table", dir);
	do {
		struct rlv_table_info before = replay_info(fx->table);
		struct rlv_save_info info = { .size = sizeof(info) };

		expect(rlv_table_save(fx->table, path, &opts, &info) == 0, "save");
		/* No step was overwritten: what was there before the call is in the file. */
		expect(before.capacity < WRITERS * STEPS ||
			       (int64_t)info.items[0] >= before.views[0].items,
		       "items saved");
		check_saved(path);
		opts.base = path;
	} while (atomic_load(&writing) > 1 && !atomic_load(&failed));
	temp_dir_remove(dir);
	atomic_fetch_sub(&writing, 1);
	return NULL;
}

/*
 * Handles are opened and closed here: a fixture is of one thread. meanwhile: what another thread does with arg,
 * unless NULL.
 */
static void run(struct replay_fixture *fx, uint32_t prefetch, void *(*meanwhile)(void *), void *arg)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	pthread_t threads[WRITERS + LEARNERS], other;
	struct job jobs[WRITERS + LEARNERS] = { 0 };

	opts.batch_size = BATCH;
	opts.short_batch = true;
	opts.prefetch = prefetch;
	for (uint32_t i = 0; i < WRITERS + LEARNERS; i++) {
		jobs[i].index = i;
		if (i < WRITERS) {
			jobs[i].writer = replay_writer(fx, 1);
			continue;
		}
		opts.seed = i + 1;
		jobs[i].sampler = replay_sampler(fx, &opts);
	}
	atomic_store(&writing, WRITERS + (meanwhile != NULL));
	for (uint32_t i = 0; i < WRITERS + LEARNERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL,
						i < WRITERS ? write_steps : learn, &jobs[i]),
				 0);
	if (meanwhile) {
		assert_int_equal(pthread_create(&other, NULL, meanwhile, arg), 0);
		pthread_join(other, NULL);
	}
	for (uint32_t i = 0; i < WRITERS + LEARNERS; i++)
		pthread_join(threads[i], NULL);
	for (uint32_t i = 0; i < WRITERS + LEARNERS; i++) {
		expect(rlv_writer_close(&jobs[i].writer) == 0, "close");
		expect(rlv_sampler_close(&jobs[i].sampler) == 0, "close");
	}
	assert_int_equal(atomic_load(&failed), 0);
}

TEST(replay__writers_and_learners)
{
	const struct rlv_table_opts opts = {
		.capacity = 1024, .block = 32, .max_writers = WRITERS, .shards = 2
	};
	struct replay_fixture fx;

	replay_open(&fx, &opts);
	run(&fx, 0, NULL, NULL);
	replay_close(&fx);
}

TEST(replay__batches_ahead_over_a_wire)
{
	const struct nodes_opts opts = {
		.nodes = 2,
		.reach = NODES_WIRE,
		.table = { .capacity = 1024, .block = 32, .max_writers = WRITERS },
	};
	static struct nodes_fixture nx;

	nodes_open(&nx, &opts);
	run(&nx.fx, 3, NULL, NULL);
	nodes_close(&nx);
}

TEST(replay__updates_of_many_shards_meet_rebuilds)
{
	const struct nodes_opts opts = {
		.nodes = 2,
		.reach = NODES_IN_PLACE,
		.table = { .capacity = 4096, .block = 32, .max_writers = WRITERS, .shards = 4 },
	};
	static struct nodes_fixture nx;

	nodes_open(&nx, &opts);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		run(&nx.fx, 0, rebuild_shards, &nx);
		for (uint32_t s = 0; s < nx.n_shards; s++)
			assert_true(nodes_items(&nx, s, 0) > 0);
	}
	nodes_close(&nx);
}

TEST(replay__is_saved_meanwhile)
{
	const struct rlv_table_opts opts = { .capacity = 2 * WRITERS * STEPS,
					     .max_writers = WRITERS,
					     .shards = 2 };
	struct replay_fixture fx;

	replay_open(&fx, &opts);
	run(&fx, 0, save_table, &fx);
	replay_close(&fx);
}

TEST(replay__is_saved_over_a_wire_while_it_is_overwritten)
{
	const struct nodes_opts opts = {
		.nodes = 2,
		.reach = NODES_WIRE,
		.table = { .capacity = 1024, .block = 32, .max_writers = WRITERS },
	};
	static struct nodes_fixture nx;

	nodes_open(&nx, &opts);
	run(&nx.fx, 0, save_table, &nx.fx);
	nodes_close(&nx);
}

int main(void)
{
	return test_run(NULL, NULL);
}
