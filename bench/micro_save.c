/*
 * Saving a table: GB/s of a save against those of the disk, written plainly and synced, in turn; and samples
 * of 256 for each second of their thread's CPU time, alone and beside saves without end. Files lie in TMPDIR:
 * name a disk.
 */
#include "bench/harness/micro.h"

#include "relive/save.h"

#include "base/mem/alloc.h"
#include "base/os/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH 256u
#define PIECE ((size_t)1 << 20)
#define PIECES 8u /* that are written in turn: other memory than the file's */
#define SAMPLE_NS UINT64_C(1000000000)

static struct rlv_store *store;
static struct rlv_table *table;
static struct rlv_sampler *sampler;
static char path[512];
static uint64_t file_bytes;
static uint8_t *noise;

static int failed(const char *what)
{
	fprintf(stderr, "micro_save: %s: %s\n", what, rlv_last_error());
	return -1;
}

/* -------- bandwidth -------- */

static double gbps(uint64_t bytes, uint64_t since_ns)
{
	return (double)bytes / (double)(time_wall_ns() - since_ns);
}

/* As many bytes as the saved table, over the file, as a save writes over an earlier one's. */
static int run_disk(struct micro_case *c)
{
	char draft[sizeof(path) + 8];
	uint64_t start = time_wall_ns(), done = 0;
	int fd, ret = 0;

	snprintf(draft, sizeof(draft), "%s.plain", path);
	fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	while (fd >= 0 && ret == 0 && done < file_bytes) {
		size_t n = file_bytes - done < PIECE ? file_bytes - done : PIECE;

		ret = write(fd, noise + done / PIECE % PIECES * PIECE, n) != (ssize_t)n;
		done += n;
	}
	if (fd < 0 || ret || fsync(fd) || close(fd)) {
		perror(draft);
		return -1;
	}
	series_add(&c->result.series, gbps(file_bytes, start));
	return unlink(draft);
}

static int run_save(struct micro_case *c)
{
	uint64_t start = time_wall_ns();

	if (rlv_table_save(table, path, NULL, NULL))
		return failed("save");
	series_add(&c->result.series, gbps(file_bytes, start));
	return unlink(path);
}

/* -------- samplers -------- */

static atomic_bool ended;

static void *save_on(void *arg)
{
	int *ret = arg;

	while (*ret == 0 && !atomic_load(&ended))
		*ret = rlv_table_save(table, path, NULL, NULL);
	return NULL;
}

static int sample_for_a_while(struct micro_case *c)
{
	uint64_t start = time_wall_ns(), cpu = clock_read_ns(CLOCK_THREAD_CPUTIME_ID), n = 0;

	for (; time_wall_ns() - start < SAMPLE_NS; n++) {
		const struct rlv_batch *batch;

		if (rlv_sampler_sample(sampler, BATCH, -1, &batch))
			return failed("sample");
		rlv_batch_release(sampler, batch);
	}
	series_add(&c->result.series,
		   (double)n * 1e9 / (double)(clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - cpu));
	return 0;
}

static int run_sample(struct micro_case *c)
{
	pthread_t saver;
	int saved = 0, ret;

	if (strcmp(c->result.metric, "samples_beside_saves") != 0)
		return sample_for_a_while(c);
	atomic_store(&ended, false);
	if (pthread_create(&saver, NULL, save_on, &saved))
		return -1;
	ret = sample_for_a_while(c);
	atomic_store(&ended, true);
	pthread_join(saver, NULL);
	return saved ? failed("save") : ret;
}

/* -------- tables -------- */

static int fill(uint64_t steps_wanted, uint32_t frame)
{
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_writer *writer;
	uint8_t *frames = mem_zalloc((size_t)BATCH * frame);
	float reward[BATCH] = { 0 };
	const void *columns[] = { frames, reward };

	if (!frames || rlv_writer_open(table, NULL, &writer))
		return failed("writer");
	steps.n = BATCH;
	steps.columns = columns;
	for (uint64_t done = 0; done < steps_wanted; done += BATCH) {
		for (uint32_t i = 0; i < BATCH; i++)
			memset(frames + (size_t)i * frame, (int)(done + i), frame);
		if (rlv_writer_append(writer, 0, &steps, NULL))
			return failed("append");
	}
	mem_free(frames);
	return rlv_writer_close(&writer) ? failed("close") : 0;
}

static int open_table(uint64_t steps, uint32_t frame)
{
	const struct rlv_column columns[] = {
		{ .name = "obs", .dtype = RLV_U8, .role = RLV_OBS, .ndim = 1, .shape = { frame } },
		{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
	};
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_save_info info = { .size = sizeof(info) };

	opts.columns = columns;
	opts.n_columns = 2;
	opts.capacity = steps;
	if (rlv_store_open("embed:", NULL, &store) || rlv_table_create(store, "t", &opts, &table) ||
	    fill(steps, frame) || rlv_sampler_open(table, NULL, &sampler) ||
	    rlv_table_save(table, path, NULL, &info))
		return failed("table");
	file_bytes = info.bytes;
	return unlink(path);
}

static bool measure(struct micro *b, const char *shape, uint64_t steps, uint32_t frame)
{
	struct micro_case c = {
		.run = run_disk,
		.result = { .metric = "disk",
			    .unit = "GB/s",
			    .higher = true,
			    .params = { { .key = "shape", .text = shape },
					{ .key = "steps", .number = steps } } },
	};
	bool ok;

	if (open_table(steps, frame))
		return false;
	micro_add(b, &c);
	c.run = run_save;
	c.result.metric = "save";
	micro_add(b, &c);
	c.run = run_sample;
	c.result.metric = "samples";
	c.result.unit = "1/cpu s";
	micro_add(b, &c);
	c.result.metric = "samples_beside_saves";
	micro_add(b, &c);
	ok = micro_run(b, shape) == 0;
	(void)unlink(path);
	return !rlv_sampler_close(&sampler) && !rlv_table_close(&table) &&
	       !rlv_store_close(&store) && ok;
}

int main(int argc, char **argv)
{
	static struct micro b = {
		.name = "micro_save",
		.help = "Saves tables to TMPDIR, beside plain writes and beside a sampler.",
	};
	const char *dir = getenv("TMPDIR");
	int status;

	if (!micro_init(&b, argc, argv, &status))
		return status;
	snprintf(path, sizeof(path), "%.400s/micro_save.%d", dir ? dir : "/tmp", (int)getpid());
	noise = mem_zalloc(PIECES * PIECE);
	if (noise)
		memset(noise, 0x5a, PIECES * PIECE);
	return micro_finish(&b, noise && measure(&b, "frames", 1u << 15, 84 * 84) &&
					measure(&b, "vectors", 1u << 21, 64));
}
