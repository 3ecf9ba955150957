/*
 * Batches that land on a device, whatever happens to the node and the actor: each byte of each is checked.
 *
 *   vm_landing create  --store URI
 *   vm_landing actor   --store URI --life N     appends until SIGTERM
 *   vm_landing learner --store URI              samples until SIGTERM, then says what it saw in a line of JSON
 *
 * The device is that of RLV_CUDA_LIBRARY, the fake driver, or without it the machine's (tools/check-gpudirect). A learner says "begun" after its first batch, "lost" when a
 * call has failed, and "again" after the next batch. Exit status: 0 = each batch was right and came by RDMA, and nothing
 * was left to the device; 1 = not so; 2 = usage.
 */
#include "relive/landing.h"

#include "tests/fakecuda/control.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TABLE "frames"
#define FRAME 4096u /* bytes of an observation */
#define WIDE 1024u
#define STEPS 16u
#define BATCH 32u
#define CALL_NS INT64_C(2000000000)

static const struct rlv_column columns[] = {
	{ .name = "id", .dtype = RLV_U64 },
	{ .name = "frame", .dtype = RLV_U8, .role = RLV_OBS, .ndim = 1, .shape = { FRAME } },
	{ .name = "wide", .dtype = RLV_U8, .ndim = 1, .shape = { WIDE } },
};

static volatile sig_atomic_t is_asked_to_end;

static void ask_to_end(int number)
{
	(void)number;
	is_asked_to_end = 1;
}

static void say(const char *word)
{
	printf("%s\n", word);
	fflush(stdout);
}

/* Says why, and waits a little. */
static int failed(int code, const char *what)
{
	const struct timespec pause = { 0, 100000000 };

	fprintf(stderr, "%s: %s: %s\n", what, rlv_error_name(code), rlv_last_error());
	(void)nanosleep(&pause, NULL);
	return code;
}

/* Each byte follows from the step's id and its column. */
static void fill(uint8_t *value, uint32_t bytes, uint64_t id)
{
	for (uint32_t i = 0; i < bytes; i++)
		value[i] = (uint8_t)(id * 37 + (id >> 32) * 11 + i * 7 + bytes);
	memcpy(value, &id, sizeof(id));
}

static int open_table(const char *uri, struct rlv_store **store, struct rlv_table **table)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	int ret;

	opts.timeout_ns = CALL_NS;
	ret = rlv_store_open(uri, &opts, store);
	return ret ? ret : rlv_table_open(*store, TABLE, table);
}

/* A close may fail for what was lost with a node: no error. */
static void close_table(struct rlv_store **store, struct rlv_table **table)
{
	if (rlv_table_close(table) || rlv_store_close(store))
		fprintf(stderr, "close: %s\n", rlv_last_error());
}

/* -------- roles -------- */

static int create(const char *uri)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_store_opts patient = RLV_STORE_OPTS_INIT;
	struct rlv_table *table = NULL;
	struct rlv_store *store;
	int ret;

	patient.timeout_ns = 15 * CALL_NS;
	ret = rlv_store_open(uri, &patient, &store);
	opts.columns = columns;
	opts.n_columns = sizeof(columns) / sizeof(columns[0]);
	opts.capacity = 2048;
	opts.shards = 1;
	if (ret == 0)
		ret = rlv_table_create(store, TABLE, &opts, &table);
	if (ret == -EEXIST) /* an earlier try that was too late */
		ret = rlv_table_open(store, TABLE, &table);
	if (ret)
		return failed(ret, "create");
	close_table(&store, &table);
	return 0;
}

static int append(struct rlv_writer *writer, uint64_t *next_id)
{
	static uint8_t frame[STEPS][FRAME], wide[STEPS][WIDE];
	static uint64_t id[STEPS];
	const void *const values[] = { id, frame, wide };
	struct rlv_steps steps = RLV_STEPS_INIT;

	for (uint32_t i = 0; i < STEPS; i++) {
		id[i] = *next_id + i;
		fill(frame[i], FRAME, id[i]);
		fill(wide[i], WIDE, id[i]);
	}
	steps.n = STEPS;
	steps.columns = values;
	*next_id += STEPS;
	return rlv_writer_append(writer, 0, &steps, NULL);
}

/* A writer that has failed is followed by one with other ids, so that no episode has a gap. */
static int act(const char *uri, uint64_t life)
{
	for (uint64_t tries = 0; !is_asked_to_end; tries++) {
		uint64_t next_id = (life << 48) + (tries << 32) + 1;
		struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
		struct rlv_writer *writer = NULL;
		struct rlv_table *table = NULL;
		struct rlv_store *store = NULL;
		int ret = open_table(uri, &store, &table);

		opts.timeout_ns = CALL_NS;
		if (ret == 0)
			ret = rlv_writer_open(table, &opts, &writer);
		while (ret == 0 && !is_asked_to_end)
			ret = append(writer, &next_id);
		if (ret)
			(void)failed(ret, "actor");
		if (rlv_writer_close(&writer))
			fprintf(stderr, "close: %s\n", rlv_last_error());
		close_table(&store, &table);
	}
	return 0;
}

struct learner {
	struct rlv_landing *landing;
	uint64_t batches, wrong, losses;
	bool is_lost;
};

static const struct rlv_array *array_of(const struct rlv_batch *batch, const char *name)
{
	const struct rlv_array *array = batch->arrays;

	while (strcmp(array->name, name) != 0)
		array++;
	return array;
}

/* The device's bytes of an array are those of the items' ids, `later` steps on. */
static int check_array(struct learner *l, const struct rlv_batch *batch, const char *name,
		       uint64_t later)
{
	const struct rlv_array *array = array_of(batch, name);
	const uint64_t *id = array_of(batch, "id")->data;
	uint32_t bytes = (uint32_t)array->shape[1];
	uint8_t *seen = array->data, want[FRAME];
	int ret;

	memset(seen, 0xee, (size_t)batch->n * bytes); /* the host's side, which has nothing */
	ret = rlv_landing_fetch(l->landing, seen, (size_t)batch->n * bytes);
	for (uint32_t i = 0; ret == 0 && i < batch->n; i++) {
		fill(want, bytes, id[i] + later);
		l->wrong += memcmp(want, seen + (size_t)i * bytes, bytes) != 0;
	}
	return ret;
}

static int learn(struct learner *l, struct rlv_sampler *sampler)
{
	const struct rlv_batch *batch;
	int ret = rlv_sampler_sample(sampler, BATCH, CALL_NS, &batch);

	if (ret)
		return ret;
	ret = check_array(l, batch, "frame", 0);
	if (ret == 0)
		ret = check_array(l, batch, "next_frame", 1);
	if (ret == 0)
		ret = check_array(l, batch, "wide", 0);
	rlv_batch_release(sampler, batch);
	if (ret == 0 && (l->batches++ == 0 || l->is_lost)) {
		say(l->is_lost ? "again" : "begun");
		l->is_lost = false;
	}
	return ret;
}

static void lose(struct learner *l, int code)
{
	if (l->batches && !l->is_lost) {
		l->losses++;
		l->is_lost = true;
		say("lost");
	}
	(void)failed(code, "learner");
}

static int report(struct learner *l)
{
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;
	const struct fakecuda_control *fake = NULL;
	void *library = dlopen(getenv("RLV_CUDA_LIBRARY"), RTLD_NOW);
	fakecuda_control_fn *fn = NULL;
	char text[128] = "";
	uint64_t left = 0;
	bool by_rdma, good;
	int ret = rlv_landing_info(l->landing, &info);

	by_rdma = info.path == RLV_LANDING_DMABUF || info.path == RLV_LANDING_PEERMEM;
	ret = ret ? ret : rlv_landing_close(&l->landing);
	if (library)
		*(void **)&fn = dlsym(library, FAKECUDA_SYMBOL);
	if (fn)
		fake = fn();
	if (fake)
		left = fake->created_bytes() + fake->mapped_bytes() +
		       fake->violations(text, sizeof(text));
	good = ret == 0 && !l->wrong && !left && by_rdma &&
	       info.direct_bytes >= l->batches * BATCH * (2 * FRAME + WIDE);
	printf("{\"batches\":%llu,\"losses\":%llu,\"wrong\":%llu,\"path\":%u,\"direct_bytes\":%llu,"
	       "\"copied_bytes\":%llu,\"left\":%llu,\"broken\":\"%s\",\"reason\":\"%s\",\"good\":%s}\n",
	       (unsigned long long)l->batches, (unsigned long long)l->losses,
	       (unsigned long long)l->wrong, info.path, (unsigned long long)info.direct_bytes,
	       (unsigned long long)info.copied_bytes, (unsigned long long)left, text, info.reason,
	       good ? "true" : "false");
	return good ? 0 : -EBADMSG;
}

static int run_learner(const char *uri)
{
	struct rlv_landing_opts how = RLV_LANDING_OPTS_INIT;
	struct learner l = { 0 };
	int ret;

	how.path = RLV_LANDING_DMABUF;
	ret = rlv_landing_open(&how, &l.landing);
	if (ret)
		return failed(ret, "landing");
	while (!is_asked_to_end) {
		struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
		struct rlv_sampler *sampler = NULL;
		struct rlv_table *table = NULL;
		struct rlv_store *store = NULL;

		opts.batch_size = BATCH;
		opts.prefetch = 1;
		opts.dest = l.landing;
		ret = open_table(uri, &store, &table);
		if (ret == 0)
			ret = rlv_sampler_open(table, &opts, &sampler);
		while (ret == 0 && !is_asked_to_end)
			ret = learn(&l, sampler);
		if (ret)
			lose(&l, ret);
		if (rlv_sampler_close(&sampler))
			fprintf(stderr, "close: %s\n", rlv_last_error());
		close_table(&store, &table);
	}
	return report(&l);
}

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "", *uri = argc > 3 ? argv[3] : NULL;
	int ret = 2;

	(void)signal(SIGTERM, ask_to_end);
	if (!uri || strcmp(argv[2], "--store") != 0)
		role = "";
	if (strcmp(role, "create") == 0)
		ret = create(uri);
	else if (strcmp(role, "actor") == 0 && argc == 6)
		ret = act(uri, strtoull(argv[5], NULL, 10));
	else if (strcmp(role, "learner") == 0)
		ret = run_learner(uri);
	else
		fprintf(stderr, "usage: vm_landing create|actor|learner --store URI [--life N]\n");
	return ret < 0 ? 1 : ret;
}
