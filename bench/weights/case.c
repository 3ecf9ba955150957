#include "bench/weights/weights.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "base/os/clock.h"
#include "bench/harness/time.h"
#include "bench/harness/yardstick.h"
#include "bench/weights/change.h"
#include "program/interrupt.h"

#define NAME "bench-weights"
#define WINDOW_BYTES (UINT64_C(64) << 20)
#define MOST_GENERATIONS 64u
#define WARM_GENERATIONS 8u
#define WATCH_NS (50 * CLOCK_NS_PER_MS)
#define LOOK_NS (CLOCK_NS_PER_MS / 5)
#define WAIT_NS ((uint64_t)60 * CLOCK_NS_PER_S)

struct weights_actor {
	struct worker worker; /* first */
	struct weights_case *of;
	struct actor_report *report;
	struct rlv_store *store;
	struct rlv_generations *weights;
	struct rlv_generation current;
	struct pages copy;
};

/* -------- an actor -------- */

static struct weights_actor *actor_of(struct worker *worker)
{
	return (struct weights_actor *)(void *)worker;
}

static int actor_fail(struct weights_actor *actor, int code, const char *what)
{
	return worker_fail(&actor->worker, code, what, rlv_last_error());
}

static int actor_open(struct worker *worker)
{
	struct weights_actor *actor = actor_of(worker);
	const struct weights_case *c = actor->of;
	int ret = pages_alloc(min_u64(c->config.bytes, WEIGHTS_COPY_MOST), PAGE_THP, &actor->copy);

	if (ret)
		return worker_fail(worker, ret, "memory", error_last());
	memset(actor->copy.ptr, 1, actor->copy.bytes);
	ret = rlv_store_open(c->shared->uri, NULL, &actor->store);
	if (ret == 0)
		ret = rlv_weights_open(actor->store, NAME, &actor->weights);
	return ret ? actor_fail(actor, ret, "open the weights") : 0;
}

static void actor_close(struct worker *worker)
{
	struct weights_actor *actor = actor_of(worker);

	rlv_generation_release(&actor->current);
	(void)!rlv_weights_close(&actor->weights);
	(void)!rlv_store_close(&actor->store);
	pages_free(&actor->copy);
}

static void actor_begin(struct worker *worker)
{
	(void)worker;
}

/* Copies that many bytes by memcpy, behind those that were copied before: *at_inout. */
static void copy_next(uint8_t *to, uint64_t *at_inout, const void *from, uint64_t bytes)
{
	for (uint64_t done = 0, n; done < bytes; done += n) {
		uint64_t at = *at_inout % WEIGHTS_COPY_MOST;

		n = min_u64(bytes - done, WEIGHTS_COPY_MOST - at);
		memcpy(to + at, (const uint8_t *)from + done, n);
		*at_inout += n;
	}
}

/* Copies the generation as memcpy does; what that takes. */
static uint64_t actor_memcpy(struct weights_actor *actor)
{
	uint64_t start = time_wall_ns(), at = 0;

	for (uint32_t i = 0; i < actor->current.n_tensors; i++) {
		const struct rlv_tensor *tensor = &actor->current.tensors[i];

		copy_next(actor->copy.ptr, &at, tensor->data, tensor->bytes);
	}
	yardstick_use(actor->copy.ptr);
	return time_wall_ns() - start;
}

/* Fetches the newest generation, if there is one above the current. */
static int actor_step(struct worker *worker)
{
	struct weights_actor *actor = actor_of(worker);
	struct actor_report *report = actor->report;
	struct rlv_weights_info before = RLV_WEIGHTS_INFO_INIT, after = RLV_WEIGHTS_INFO_INIT;
	struct rlv_generation next = RLV_GENERATION_INIT, old = actor->current;
	uint64_t version, start;
	int ret = rlv_weights_watch(actor->weights, old.version, WATCH_NS, &version);

	if (ret == -ETIMEDOUT)
		return 0;
	report->seen_at_ns = time_wall_ns();
	if (ret == 0)
		ret = rlv_weights_info(actor->weights, &before);
	start = time_wall_ns();
	if (ret == 0)
		ret = (actor->of->config.view ? rlv_weights_map : rlv_weights_fetch)(
			actor->weights, old.version, 0, &next);
	report->fetch_ns = time_wall_ns() - start;
	if (ret == 0)
		ret = rlv_weights_info(actor->weights, &after);
	if (ret)
		return actor_fail(actor, ret, "fetch");
	start = time_wall_ns();
	actor->current = next;
	rlv_generation_release(&old);
	report->pause_ns = time_wall_ns() - start;
	report->memcpy_ns = actor_memcpy(actor);
	report->round_trips = after.round_trips - before.round_trips;
	report->bytes = after.read_bytes - before.read_bytes;
	report->copied = next.bytes - next.mapped;
	/* The publisher reads the report when it sees the version. */
	atomic_store_explicit(&report->version, next.version, memory_order_release);
	return 0;
}

static int actor_end(struct worker *worker)
{
	(void)worker;
	return 0;
}

static const struct worker_ops actor_ops = {
	.open = actor_open,
	.begin = actor_begin,
	.step = actor_step,
	.end = actor_end,
	.close = actor_close,
};

/* -------- the publisher -------- */

static void change_tensors(struct weights_case *c)
{
	uint64_t elements = c->tensors[0].shape[0];

	for (uint32_t i = 0; i < WEIGHTS_TENSORS; i++)
		change_elements(&c->rng, (uint8_t *)c->data.ptr + i * elements * 2, elements, 2,
				c->config.density);
}

static int publish(struct weights_case *c)
{
	int ret = rlv_weights_publish(c->weights, c->tensors, WEIGHTS_TENSORS, c->version + 1, 0);

	if (ret)
		return error_set(ret, "publish: %s", rlv_last_error());
	c->version++;
	return 0;
}

/* Waits until all actors have the newest generation. */
static int await_actors(struct weights_case *c)
{
	uint64_t deadline = time_wall_ns() + WAIT_NS;

	for (uint32_t i = 0; i < c->config.actors;) {
		int ret;

		if (atomic_load_explicit(&c->shared->reports[i].version, memory_order_acquire) ==
		    c->version) {
			i++;
			continue;
		}
		ret = interrupt_pending() ? error_set(-EINTR, "interrupted")
					  : workers_look(&c->workers);
		if (ret)
			return ret;
		if (time_wall_ns() > deadline)
			return error_set(-ETIMEDOUT, "actor %u did not fetch version %" PRIu64, i,
					 c->version);
		interrupt_sleep(LOOK_NS);
	}
	return 0;
}

/* Sums over the generations, and actors, of a window. */
struct window {
	double ns[WEIGHTS_ROLES], memcpy_ns[WEIGHTS_ROLES], trips[WEIGHTS_ROLES],
		wire[WEIGHTS_ROLES];
	double pause_ns, first_ns, copied;
};

static int generation(struct weights_case *c, struct window *w)
{
	struct rlv_weights_info before = RLV_WEIGHTS_INFO_INIT, after = RLV_WEIGHTS_INFO_INIT;
	uint64_t start, published_at, at = 0;
	int ret = rlv_weights_info(c->weights, &before);

	change_tensors(c);
	start = time_wall_ns();
	ret = ret ? error_set(ret, "counters: %s", rlv_last_error()) : publish(c);
	published_at = time_wall_ns();
	if (ret == 0)
		ret = await_actors(c);
	if (ret == 0 && rlv_weights_info(c->weights, &after))
		ret = error_set(-EIO, "counters: %s", rlv_last_error());
	if (ret)
		return ret;
	w->ns[WEIGHTS_PUBLISH] += (double)(published_at - start);
	w->trips[WEIGHTS_PUBLISH] += (double)(after.round_trips - before.round_trips);
	w->wire[WEIGHTS_PUBLISH] += (double)(after.write_bytes - before.write_bytes);
	for (uint32_t i = 0; i < c->config.actors; i++) {
		const struct actor_report *report = &c->shared->reports[i];

		w->ns[WEIGHTS_FETCH] += (double)report->fetch_ns;
		w->memcpy_ns[WEIGHTS_FETCH] += (double)report->memcpy_ns;
		w->trips[WEIGHTS_FETCH] += (double)report->round_trips;
		w->wire[WEIGHTS_FETCH] += (double)report->bytes;
		w->pause_ns += (double)report->pause_ns;
		w->copied += (double)report->copied;
		if (report->seen_at_ns > published_at)
			w->first_ns += (double)(report->seen_at_ns - published_at);
	}
	start = time_wall_ns();
	copy_next(c->copy, &at, c->data.ptr, c->config.bytes);
	yardstick_use(c->copy);
	w->memcpy_ns[WEIGHTS_PUBLISH] += (double)(time_wall_ns() - start);
	return 0;
}

static void window_add(struct weights_case *c, const struct window *w, double generations)
{
	for (int role = 0; role < WEIGHTS_ROLES; role++) {
		double calls = generations * (role == WEIGHTS_FETCH ? c->config.actors : 1);
		double bytes = (double)c->config.bytes * calls;
		struct series *series = c->series[role];

		series_add(&series[WEIGHTS_GBPS], bytes / w->ns[role]);
		series_add(&series[WEIGHTS_OF_MEMCPY], w->memcpy_ns[role] / w->ns[role]);
		if (w->trips[role] == 0)
			continue;
		series_add(&series[WEIGHTS_TRIPS], w->trips[role] / calls);
		series_add(&series[WEIGHTS_WIRE], bytes / w->wire[role]);
	}
	generations *= c->config.actors;
	series_add(&c->series[WEIGHTS_FETCH][WEIGHTS_COPIES],
		   w->copied / generations / (double)c->config.bytes);
	series_add(&c->series[WEIGHTS_FETCH][WEIGHTS_PAUSE], w->pause_ns / generations / 1e3);
	series_add(&c->series[WEIGHTS_FETCH][WEIGHTS_FIRST_BYTE], w->first_ns / generations / 1e3);
}

int weights_case_window(struct weights_case *c)
{
	struct window w = { .pause_ns = 0 };
	uint64_t n = max_u64(1, min_u64(MOST_GENERATIONS, WINDOW_BYTES / c->config.bytes));

	for (uint64_t i = 0; i < n; i++) {
		int ret = generation(c, &w);

		if (ret)
			return ret;
	}
	window_add(c, &w, (double)n);
	return 0;
}

/* -------- a case -------- */

uint64_t weights_case_bytes(const struct weights_config *config)
{
	return 9 * config->bytes / 2 + (UINT64_C(256) << 20);
}

uint64_t weights_case_memory(const struct weights_config *config)
{
	uint64_t of_store = config->fresh ? 3 : 4, of_publisher = config->view ? 1 : 2;
	uint64_t of_actors = config->view ? 0 : 2 * (uint64_t)config->actors;

	return (of_store + of_publisher + of_actors) * config->bytes +
	       (1 + config->actors) * min_u64(config->bytes, WEIGHTS_COPY_MOST);
}

int weights_case_fork(struct weights_case *c, const struct weights_config *config)
{
	int ret = 0;

	memset(c, 0, sizeof(*c));
	c->config = *config;
	c->config.bytes = round_up(config->bytes, WEIGHTS_TENSORS * CACHE_LINE);
	rng_seed(&c->rng, config->seed, 0);
	c->shared = mmap(NULL, sizeof(*c->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	c->actors = mem_zalloc(config->actors * sizeof(*c->actors));
	if (c->shared == MAP_FAILED || !c->actors) {
		c->shared = c->shared == MAP_FAILED ? NULL : c->shared;
		return error_set(-ENOMEM, "cannot map memory for %u actors", config->actors);
	}
	c->workers.board = &c->shared->board;
	for (uint32_t i = 0; ret == 0 && i < config->actors; i++) {
		struct weights_actor *actor = &c->actors[i];

		actor->of = c;
		actor->report = &c->shared->reports[i];
		actor->worker.ops = &actor_ops;
		actor->worker.name = "actor";
		ret = workers_start(&c->workers, &actor->worker, true);
	}
	return ret;
}

static int make_tensors(struct weights_case *c)
{
	uint64_t elements = c->config.bytes / WEIGHTS_TENSORS / 2;
	int ret = pages_alloc(c->config.bytes, PAGE_THP, &c->data);

	if (ret)
		return ret;
	c->copy = mmap(NULL, min_u64(c->config.bytes, WEIGHTS_COPY_MOST), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (c->copy == MAP_FAILED) {
		c->copy = NULL;
		return error_set(-ENOMEM, "cannot map memory for memcpy");
	}
	rng_fill_u64(&c->rng, c->data.ptr, c->config.bytes / 8);
	memset(c->copy, 1, min_u64(c->config.bytes, WEIGHTS_COPY_MOST));
	for (uint32_t i = 0; i < WEIGHTS_TENSORS; i++) {
		(void)snprintf(c->names[i], sizeof(c->names[i]), "layer.%u.weight", i);
		c->tensors[i] = (struct rlv_tensor){
			.size = sizeof(c->tensors[i]),
			.dtype = RLV_BF16,
			.ndim = 1,
			.name = c->names[i],
			.shape = { elements },
			.data = (const uint8_t *)c->data.ptr + i * elements * 2,
		};
	}
	return 0;
}

/* Buffers of all get their memory, and what the heap has room for was written once. */
static int warm_up(struct weights_case *c)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < WARM_GENERATIONS; i++) {
		uint64_t start;

		change_tensors(c);
		start = time_wall_ns();
		ret = publish(c);
		if (i == 0)
			series_add(&c->series[WEIGHTS_PUBLISH][WEIGHTS_FIRST_GBPS],
				   (double)c->config.bytes / (double)(time_wall_ns() - start));
		ret = ret ? ret : await_actors(c);
	}
	return ret;
}

int weights_case_start(struct weights_case *c, const char *uri)
{
	struct rlv_weights_opts opts = RLV_WEIGHTS_OPTS_INIT;
	int ret = make_tensors(c);

	if (ret)
		return ret;
	opts.bytes = c->config.bytes;
	opts.keep = 1; /* all actors have the newest before the next is published */
	opts.anchor_every = c->config.view ? 1 : RLV_WEIGHTS_ANCHOR_EVERY;
	opts.max_clients = c->config.actors + 8;
	opts.prefault = !c->config.fresh;
	(void)snprintf(c->shared->uri, sizeof(c->shared->uri), "%s", uri);
	ret = rlv_store_open(uri, NULL, &c->store);
	if (ret == 0) /* of the case before */
		(void)!rlv_kv_drop(c->store, NAME);
	if (ret == 0)
		ret = rlv_weights_create(c->store, NAME, &opts, &c->weights);
	if (ret)
		return error_set(ret, "create the weights: %s", rlv_last_error());
	ret = workers_open(&c->workers);
	if (ret == 0)
		ret = workers_run(&c->workers);
	return ret ? ret : warm_up(c);
}

void weights_case_close(struct weights_case *c)
{
	workers_stop(&c->workers);
	(void)!rlv_weights_close(&c->weights);
	(void)!rlv_store_close(&c->store);
	pages_free(&c->data);
	if (c->copy)
		munmap(c->copy, min_u64(c->config.bytes, WEIGHTS_COPY_MOST));
	if (c->shared)
		munmap(c->shared, sizeof(*c->shared));
	mem_free(c->actors);
	c->shared = NULL;
	c->actors = NULL;
}
