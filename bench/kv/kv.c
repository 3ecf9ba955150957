#include "bench/kv/kv.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "bench/harness/time.h"
#include "bench/harness/yardstick.h"
#include "bench/kv/batch.h"
#include "bench/kv/keys.h"
#include "bench/kv/redis.h"
#include "program/interrupt.h"

#define TIMED_EVERY 32u /* two looks at the clock take a sixth of a get, and order its loads */
#define LOOK_NS (50 * CLOCK_NS_PER_MS)
static_assert(KV_BATCH == REDIS_DEPTH, "calls of many keys are compared with pipelines of as many");

struct kv_client {
	struct worker worker; /* first member: pointers convert to each other */
	struct kv_case *of;
	struct kv_window *window;
	struct rlv_store *store;
	struct rlv_kv *kv;
	struct redis redis; /* if the case is Redis's */
	struct kv_batch batches[KV_OPS];
	struct kv_keys keys;
	uint8_t *value;
	struct rlv_kv_info before;
};

const char *const kv_mode_names[KV_ENGINES] = { "clover", "direct", "central", "redis" };
const char *const kv_dist_names[KV_DISTS] = { [KV_ZIPF] = "zipf", [KV_UNIFORM] = "uniform" };
const char *const kv_writers_names[KV_WRITERS] = { "one", "many" };
const char *const kv_op_names[KV_OPS] = { [KV_GET] = "get", [KV_PUT] = "put" };

static const char *heap_name(const struct kv_case *c, char name[32])
{
	(void)snprintf(name, 32, "bench-%s%s", kv_mode_names[c->config.mode],
		       c->config.batched ? "-many" : "");
	return name;
}

/* -------- a client -------- */

static struct kv_client *client_of(struct worker *worker)
{
	return (struct kv_client *)(void *)worker;
}

static int client_fail(struct kv_client *client, int code, const char *what)
{
	return worker_fail(&client->worker, code, what, rlv_last_error());
}

static int client_open(struct worker *worker)
{
	struct kv_client *client = client_of(worker);
	const struct kv_config *config = &client->of->config;
	char name[32];
	int ret;

	client->value = mem_zalloc(max_u64(config->value, 8));
	if (!client->value || kv_keys_init(&client->keys, client->of, worker->index + 1))
		return client_fail(client, -ENOMEM, "a value");
	if (config->mode == KV_REDIS) {
		ret = redis_connect(&client->redis, client->of->shared->uri, config->value);
		return ret ? worker_fail(worker, ret, "connect to Redis", error_last()) : 0;
	}
	for (int op = 0; config->batched && op < KV_OPS; op++)
		if (kv_batch_init(&client->batches[op], max_u64(config->value, 8)))
			return client_fail(client, -ENOMEM, "a batch");
	ret = rlv_store_open(client->of->shared->uri, NULL, &client->store);
	if (ret == 0)
		ret = rlv_kv_open(client->store, heap_name(client->of, name), &client->kv);
	return ret ? client_fail(client, ret, "open the heap") : 0;
}

static void client_close(struct worker *worker)
{
	struct kv_client *client = client_of(worker);

	(void)!rlv_kv_close(&client->kv);
	(void)!rlv_store_close(&client->store);
	redis_disconnect(&client->redis);
	for (int op = 0; op < KV_OPS; op++)
		kv_batch_fini(&client->batches[op]);
	kv_keys_fini(&client->keys);
	mem_free(client->value);
}

static void client_begin(struct worker *worker)
{
	struct kv_client *client = client_of(worker);
	struct kv_window *window = client->window;

	memset(window, 0, sizeof(*window));
	for (int op = 0; op < KV_OPS; op++)
		stats_hist_init(&window->latency_ns[op]);
	client->redis.flushes = client->redis.bytes = 0;
	client->before = (struct rlv_kv_info)RLV_KV_INFO_INIT;
	if (client->kv)
		(void)!rlv_kv_info(client->kv, &client->before);
}

static int client_end(struct worker *worker)
{
	struct kv_client *client = client_of(worker);
	struct rlv_kv_info now = RLV_KV_INFO_INIT;
	int ret = 0;

	if (!client->kv) {
		ret = redis_flush(&client->redis);
		client->window->round_trips = client->redis.flushes;
		client->window->bytes = client->redis.bytes;
		return ret ? worker_fail(worker, ret, "Redis", error_last()) : 0;
	}
	for (int op = 0; ret == 0 && op < KV_OPS; op++)
		ret = kv_batch_flush(&client->batches[op], client->kv);
	if (ret == 0)
		ret = rlv_kv_info(client->kv, &now);
	if (ret)
		return client_fail(client, ret, "counters");
	client->window->round_trips = now.round_trips - client->before.round_trips;
	client->window->bytes = now.read_bytes + now.write_bytes - client->before.read_bytes -
				client->before.write_bytes;
	client->window->server_calls = now.server_calls - client->before.server_calls;
	return 0;
}

/* Into the pipeline or batch; what is timed is its flush every 64 operations. */
static int pipeline_do(struct kv_client *client, enum kv_op op, struct rlv_bytes key)
{
	struct kv_window *window = client->window;
	uint32_t n = client->kv ? client->batches[op].n : client->redis.n;
	bool flushes = n + 1 == KV_BATCH;
	uint64_t start = flushes ? time_wall_ns() : 0;
	struct rlv_bytes value = { NULL, 0 };
	int ret;

	if (op == KV_PUT)
		value = (struct rlv_bytes){ client->value, client->of->config.value };
	ret = client->kv ? kv_batch_add(&client->batches[op], client->kv, key, value)
			 : redis_add(&client->redis, key, value);
	if (ret && client->kv)
		return client_fail(client, ret, kv_op_names[op]);
	if (ret)
		return worker_fail(&client->worker, ret, "Redis", error_last());
	window->ops[op]++;
	if (flushes)
		stats_hist_record(&window->latency_ns[op], time_wall_ns() - start);
	return 0;
}

static int client_do(struct kv_client *client, enum kv_op op, uint64_t number)
{
	struct kv_window *window = client->window;
	bool timed = window->ops[op] % TIMED_EVERY == 0;
	uint64_t start = timed ? time_wall_ns() : 0;
	struct rlv_kv_value got = RLV_KV_VALUE_INIT;
	struct kv_key_text key;
	int ret;

	if (!client->kv || client->of->config.batched)
		return pipeline_do(client, op, kv_key_bytes(&key, number));
	if (op == KV_GET) {
		got.ptr = client->value;
		got.room = max_u64(client->of->config.value, 8);
		ret = rlv_kv_get(client->kv, kv_key_bytes(&key, number), &got);
		yardstick_use(client->value);
		if (ret == -ENOENT && client->of->config.workload == 'd') /* being put just now */
			ret = 0;
	} else {
		memcpy(client->value, &window->ops[op], sizeof(uint64_t));
		ret = rlv_kv_put(client->kv, kv_key_bytes(&key, number),
				 (struct rlv_bytes){ client->value, client->of->config.value },
				 NULL);
	}
	if (ret)
		return client_fail(client, ret, kv_op_names[op]);
	window->ops[op]++;
	if (timed)
		stats_hist_record(&window->latency_ns[op], time_wall_ns() - start);
	return 0;
}

/* Puts with that probability, or else gets. */
static int client_mix(struct kv_client *client, uint64_t puts_percent)
{
	bool puts = kv_keys_percent(&client->keys) < puts_percent;

	return client_do(client, puts ? KV_PUT : KV_GET, kv_keys_draw(&client->keys));
}

static int client_step(struct worker *worker)
{
	struct kv_client *client = client_of(worker);
	uint64_t key;
	int ret;

	switch (client->of->config.workload) {
	case 'a':
		return client_mix(client, 50);
	case 'b':
		return client_mix(client, 5);
	case 'd':
		if (kv_keys_percent(&client->keys) < 5)
			return client_do(client, KV_PUT, kv_keys_new(&client->keys));
		return client_do(client, KV_GET, kv_keys_draw(&client->keys));
	case 'f':
		key = kv_keys_draw(&client->keys);
		ret = client_do(client, KV_GET, key);
		return ret || kv_keys_percent(&client->keys) >= 50 ? ret
								   : client_do(client, KV_PUT, key);
	case 'w':
		return client_do(client, KV_PUT, kv_keys_draw(&client->keys));
	default:
		return client_do(client, KV_GET, kv_keys_draw(&client->keys));
	}
}

static const struct worker_ops client_ops = {
	.open = client_open,
	.begin = client_begin,
	.step = client_step,
	.end = client_end,
	.close = client_close,
};

/* -------- a case -------- */

void kv_config_fill(struct kv_config *config)
{
	config->workload = config->workload ? config->workload : 'b';
	config->clients = config->clients ? config->clients : 1;
	config->value = config->value ? config->value : 1024;
	config->copies = config->copies ? config->copies : 1;
	if (!config->keys)
		config->keys = max_u64(100, min_u64(100000, ((uint64_t)64 << 20) / config->value));
}

static uint64_t case_keys(const struct kv_config *config)
{
	return config->workload == 'd' ? KV_KEY_SPACE * config->keys : config->keys;
}

/* Of an entry, or of a copy. */
static uint64_t entry_bytes(const struct kv_config *config)
{
	return round_up(128 + config->value, 64);
}

/* Entries of the keys and as many that are replaced, and extents in use by clients. */
static uint64_t extents_bytes(const struct kv_config *config)
{
	return 2 * case_keys(config) * (entry_bytes(config) + config->value / 4) +
	       (uint64_t)(config->clients + 1) * (16 << 20);
}

uint64_t kv_case_bytes(const struct kv_config *config)
{
	uint64_t keys = case_keys(config) + 100;
	uint64_t copies = 4 * keys * entry_bytes(config);

	return (config->mode == RLV_KV_CLOVER ? extents_bytes(config) : copies) + 512 * keys +
	       ((uint64_t)32 << 20);
}

int kv_case_fork(struct kv_case *c, const struct kv_config *config)
{
	int ret = 0;

	memset(c, 0, sizeof(*c));
	c->config = *config;
	(void)snprintf(c->label, sizeof(c->label), "%s%s %c %s %" PRIu64 " B, %u client%s",
		       kv_mode_names[config->mode], config->batched ? " many" : "",
		       config->workload, kv_dist_names[config->dist], config->value,
		       config->clients, config->clients == 1 ? "" : "s");
	if (config->copies > 1) {
		size_t used = strlen(c->label);

		(void)snprintf(c->label + used, sizeof(c->label) - used, ", %u copies, %s writer%s",
			       config->copies, kv_writers_names[config->writers],
			       config->writers == RLV_KV_MANY_WRITERS ? "s" : "");
	}
	kv_zipf_init(&c->zipf, config->keys);
	c->shared_bytes = sizeof(*c->shared) + config->clients * sizeof(struct kv_window);
	c->shared = mmap(NULL, c->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			 -1, 0);
	c->clients = mem_zalloc(config->clients * sizeof(*c->clients));
	if (c->shared == MAP_FAILED || !c->clients) {
		c->shared = c->shared == MAP_FAILED ? NULL : c->shared;
		return error_set(-ENOMEM, "cannot map %zu bytes of shared memory", c->shared_bytes);
	}
	c->workers.board = &c->shared->board;
	for (uint32_t i = 0; ret == 0 && i < config->clients; i++) {
		struct kv_client *client = &c->clients[i];

		client->of = c;
		client->window = &c->shared->windows[i];
		client->worker.ops = &client_ops;
		client->worker.name = "client";
		ret = workers_start(&c->workers, &client->worker, true);
	}
	return ret;
}

static int fill_heap(struct kv_case *c, struct rlv_kv *kv)
{
	uint8_t *value = mem_zalloc(max_u64(c->config.value, 8));
	struct kv_key_text key;
	int ret = value ? 0 : error_set(-ENOMEM, "no memory for a value");

	for (uint64_t i = 0; ret == 0 && i < c->config.keys; i++) {
		ret = rlv_kv_put(kv, kv_key_bytes(&key, i),
				 (struct rlv_bytes){ value, c->config.value }, NULL);
		if (ret)
			ret = error_set(ret, "fill the heap: %s", rlv_last_error());
	}
	atomic_store_explicit(&c->shared->newest, c->config.keys, memory_order_relaxed);
	mem_free(value);
	return ret;
}

static int fill_redis(struct kv_case *c)
{
	const struct kv_config *config = &c->config;
	uint8_t *value = mem_zalloc(max_u64(config->value, 8));
	struct redis redis = { 0 };
	struct kv_key_text key;
	int ret = value ? redis_connect(&redis, c->shared->uri, config->value) : -ENOMEM;

	for (uint64_t i = 0; ret == 0 && i < config->keys; i++)
		ret = redis_add(&redis, kv_key_bytes(&key, i),
				(struct rlv_bytes){ value, config->value });
	if (ret == 0)
		ret = redis_flush(&redis);
	atomic_store_explicit(&c->shared->newest, config->keys, memory_order_relaxed);
	redis_disconnect(&redis);
	mem_free(value);
	return ret;
}

int kv_case_start(struct kv_case *c, const char *uri)
{
	struct rlv_kv_opts opts = RLV_KV_OPTS_INIT;
	struct rlv_store *store = NULL;
	struct rlv_kv *kv = NULL;
	char name[32];
	int ret;

	(void)snprintf(c->shared->uri, sizeof(c->shared->uri), "%s", uri);
	if (c->config.mode == KV_REDIS) {
		ret = fill_redis(c);
		return ret ? ret : workers_open(&c->workers);
	}
	opts.keys = case_keys(&c->config);
	opts.mode = c->config.mode;
	if (opts.mode == RLV_KV_CLOVER)
		opts.bytes = extents_bytes(&c->config);
	else
		opts.extent_bytes = entry_bytes(&c->config);
	opts.copies = c->config.copies;
	opts.writers = c->config.writers;
	opts.max_clients = c->config.clients + 8;
	ret = rlv_store_open(uri, NULL, &store);
	if (ret == 0) /* of the case before */
		(void)!rlv_kv_drop(store, heap_name(c, name));
	if (ret == 0)
		ret = rlv_kv_create(store, name, &opts, &kv);
	if (ret)
		ret = error_set(ret, "create the heap: %s", rlv_last_error());
	if (ret == 0)
		ret = fill_heap(c, kv);
	(void)!rlv_kv_close(&kv);
	(void)!rlv_store_close(&store);
	return ret ? ret : workers_open(&c->workers);
}

/* Adds the figures of an operation in the last window, over all clients. */
static void gather_op(struct kv_case *c, enum kv_op op, uint64_t server_ns,
		      struct stats_hist *latency)
{
	double ops = 0, all = 0, cpu = 0, round_trips = 0, bytes = 0, server = 0;

	stats_hist_init(latency);
	for (uint32_t i = 0; i < c->config.clients; i++) {
		const struct kv_window *window = c->clients[i].window;
		const struct worker_slot *slot = c->clients[i].worker.slot;

		ops += (double)window->ops[op] * 1e9 / (double)max_u64(slot->wall_ns, 1);
		all += (double)(window->ops[KV_GET] + window->ops[KV_PUT]);
		cpu += (double)slot->cpu_ns;
		round_trips += (double)window->round_trips;
		bytes += (double)window->bytes;
		server += (double)window->server_calls;
		stats_hist_merge(latency, &window->latency_ns[op]);
	}
	if (ops == 0)
		return;
	series_add(&c->series[op][KV_OPS_PER_S], ops);
	series_add(&c->series[op][KV_P50], (double)stats_hist_quantile(latency, 0.5) / 1e3);
	series_add(&c->series[op][KV_P99], (double)stats_hist_quantile(latency, 0.99) / 1e3);
	series_add(&c->series[op][KV_ROUND_TRIPS], round_trips / all);
	series_add(&c->series[op][KV_BYTES], bytes / all);
	series_add(&c->series[op][KV_CPU], cpu / all); /* ns of one = us of 1000 */
	series_add(&c->series[op][KV_SERVER], 1000 * server / all);
	if (c->server)
		series_add(&c->series[op][KV_SERVER_CPU], (double)server_ns / all);
}

/* CPU time of the metadata server, in ns; 0 if there is none to look at. */
static uint64_t server_cpu_ns(const struct kv_case *c)
{
	clockid_t clock;

	return c->server && clock_getcpuclockid(c->server, &clock) == 0 ? clock_read_ns(clock) : 0;
}

int kv_case_window(struct kv_case *c, int64_t ns)
{
	uint64_t start = time_wall_ns(), spent = 0, server_ns = server_cpu_ns(c);
	struct stats_hist *latency = mem_alloc(sizeof(*latency));
	int ret = latency ? workers_run(&c->workers) : -ENOMEM;

	while (ret == 0 && spent < (uint64_t)ns) {
		interrupt_sleep((int64_t)min_u64((uint64_t)ns - spent, LOOK_NS));
		ret = interrupt_pending() ? error_set(-EINTR, "interrupted")
					  : workers_look(&c->workers);
		spent = time_wall_ns() - start;
	}
	if (ret == 0)
		ret = workers_pause(&c->workers);
	server_ns = server_cpu_ns(c) - server_ns;
	for (int op = 0; ret == 0 && op < KV_OPS; op++)
		gather_op(c, (enum kv_op)op, server_ns, latency);
	mem_free(latency);
	return ret;
}

void kv_case_close(struct kv_case *c)
{
	workers_stop(&c->workers);
	if (c->shared)
		munmap(c->shared, c->shared_bytes);
	mem_free(c->clients);
	c->shared = NULL;
	c->clients = NULL;
}
