/*
 * relive.h of before the last field of each struct with a size was added, without its comments. Frozen: a
 * program compiled against it runs with every later library (program.c).
 */
#ifndef RELIVE_RELIVE_H
#define RELIVE_RELIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
template <class T> inline T rlv_sized()
{
	T all = T();
	all.size = sizeof(T);
	return all;
}
#define RLV_SIZED(type) rlv_sized<type>()
extern "C" {
#else
#define RLV_SIZED(type) \
	{ \
		.size = sizeof(type) \
	}
#endif

#if defined(__GNUC__)
#define RLV_API __attribute__((visibility("default")))
#define RLV_CHECKED __attribute__((visibility("default"), warn_unused_result))
#else
#define RLV_API
#define RLV_CHECKED
#endif

#define RLV_VERSION_MAJOR 0
#define RLV_VERSION_MINOR 1
#define RLV_VERSION_PATCH 0

#define RLV_MAX_COLUMNS 256
#define RLV_MAX_DIMS 6
#define RLV_MAX_VIEWS 8
#define RLV_NAME_BYTES 64

#define RLV_TIMEOUT_STALL INT64_MIN

RLV_API const char *rlv_last_error(void);

RLV_API const char *rlv_error_name(int code);

RLV_API const char *rlv_version(void);

enum rlv_log_level { RLV_LOG_ERROR = 0, RLV_LOG_WARN = 1, RLV_LOG_INFO = 2, RLV_LOG_DEBUG = 3 };

RLV_API void rlv_log_set(void (*fn)(void *ctx, enum rlv_log_level level, const char *line),
			 void *ctx, enum rlv_log_level most);

struct rlv_store;

enum rlv_pages { RLV_PAGES_AUTO = 0, RLV_PAGES_SMALL = 1, RLV_PAGES_HUGE = 2 };

struct rlv_store_opts {
	uint32_t size;
	uint32_t pages;
	uint64_t pool_bytes;
	int64_t timeout_ns;
	const char *token;
	bool read_only;
	int64_t stall_ns;
	bool trust;
};
#define RLV_STORE_OPTS_INIT RLV_SIZED(struct rlv_store_opts)

RLV_CHECKED int rlv_store_open(const char *uri, const struct rlv_store_opts *opts,
			       struct rlv_store **store_out);

RLV_CHECKED int rlv_store_close(struct rlv_store **store);

RLV_CHECKED int rlv_store_persist(struct rlv_store *store);

enum rlv_dtype {
	RLV_BOOL = 1,
	RLV_U8,
	RLV_I8,
	RLV_U16,
	RLV_I16,
	RLV_U32,
	RLV_I32,
	RLV_U64,
	RLV_I64,
	RLV_F16,
	RLV_F32,
	RLV_F64,
	RLV_BF16,
};

enum rlv_role {
	RLV_PLAIN = 0,
	RLV_OBS = 1,
	RLV_REWARD = 2,
	RLV_NEXT = 3,
};

struct rlv_column {
	const char *name;
	uint32_t dtype;
	uint32_t role;
	uint32_t ndim;
	uint32_t shape[RLV_MAX_DIMS];
};

enum rlv_selector { RLV_PRIORITIZED = 0, RLV_UNIFORM = 1, RLV_FIFO = 2, RLV_LIFO = 3 };

struct rlv_limiter {
	uint64_t min_size;
	double samples_per_insert;
	double min_diff;
	double max_diff;
};

RLV_API struct rlv_limiter rlv_limiter_min_size(uint64_t min_size);

RLV_API struct rlv_limiter rlv_limiter_sample_to_insert(double spi, uint64_t min_size,
							double error_buffer);

RLV_API struct rlv_limiter rlv_limiter_queue(uint64_t queue_size);
RLV_API struct rlv_limiter rlv_limiter_stack(uint64_t stack_size);

struct rlv_view {
	uint32_t stack;
	uint32_t n_step;
	uint32_t selector;
	uint32_t period;
	uint32_t max_times_sampled;
	uint32_t max_staleness;
	double alpha;
	double eps;
	struct rlv_limiter limiter;
	uint64_t reserved[4];
};

#define RLV_SHARDS_AUTO UINT32_MAX

struct rlv_table_opts {
	uint32_t size;
	uint32_t n_columns;
	const struct rlv_column *columns;
	uint64_t capacity;
	uint32_t n_views;
	uint32_t shards;
	const struct rlv_view *views;
	uint32_t max_writers;
	uint32_t max_clients;
	uint32_t block;
	uint32_t row_crc;
};
#define RLV_TABLE_OPTS_INIT RLV_SIZED(struct rlv_table_opts)

struct rlv_table;

RLV_CHECKED int rlv_table_create(struct rlv_store *store, const char *name,
				 const struct rlv_table_opts *opts, struct rlv_table **table_out);

RLV_CHECKED int rlv_table_open(struct rlv_store *store, const char *name,
			       struct rlv_table **table_out);

RLV_CHECKED int rlv_table_close(struct rlv_table **table);

RLV_CHECKED int rlv_table_drop(struct rlv_store *store, const char *name);

RLV_CHECKED int rlv_store_tables(struct rlv_store *store, char (*names)[RLV_NAME_BYTES],
				 size_t *n_inout);

struct rlv_view_info {
	struct rlv_view view;
	int64_t items;
	uint64_t inserted;
	uint64_t sampled;
	double priority_sum;
	double max_priority;
	uint64_t overhead_bytes;
	int64_t items_lost;
	uint64_t reserved[4];
};

struct rlv_table_info {
	uint32_t size;
	uint32_t n_columns, n_views, shards;
	char name[RLV_NAME_BYTES];
	struct rlv_column columns[RLV_MAX_COLUMNS];
	struct rlv_view_info views[RLV_MAX_VIEWS];
	uint64_t capacity;
	uint64_t slots;
	uint32_t block;
	uint32_t window;
	uint32_t row_bytes;
	uint32_t row_header_bytes;
	uint32_t max_writers, max_clients;
	uint64_t rows_bytes;
	uint64_t tree_bytes;
	uint32_t shards_up;
	uint32_t control;
};

RLV_CHECKED int rlv_table_info(struct rlv_table *table, struct rlv_table_info *info_out);

enum rlv_shard_state {
	RLV_SHARD_ACTIVE = 1,
	RLV_SHARD_DRAINING = 2,
	RLV_SHARD_DOWN = 3,
	RLV_SHARD_LOST = 4,
	RLV_SHARD_GONE = 5,
};

struct rlv_shard_info {
	uint32_t shard;
	uint32_t state;
	uint32_t weight;
	char node[RLV_NAME_BYTES];
};

RLV_CHECKED int rlv_table_shards(struct rlv_table *table, struct rlv_shard_info *shards,
				 size_t size, size_t *n_inout);

struct rlv_verify_report {
	uint32_t size;
	uint32_t problems;
	uint64_t items;
	uint64_t wrong_sums, wrong_leaves, wrong_blocks, wrong_rows, wrong_words;
	uint64_t open_blocks;
};

RLV_CHECKED int rlv_table_verify(struct rlv_table *table, struct rlv_verify_report *report_out);

struct rlv_watch {
	uint32_t size;
	bool warned;
	uint64_t looked_ns;
	uint64_t began_ns, moved_ns, seen;
};
#define RLV_WATCH_INIT RLV_SIZED(struct rlv_watch)

struct rlv_writer;

struct rlv_writer_opts {
	uint32_t size;
	uint32_t streams;
	int64_t timeout_ns;
};
#define RLV_WRITER_OPTS_INIT RLV_SIZED(struct rlv_writer_opts)

enum rlv_step_flags {
	RLV_TERMINATED = 2,
	RLV_TRUNCATED = 4,
	RLV_FINAL = 16,
};

struct rlv_steps {
	uint32_t size;
	uint32_t n;
	const void *const *columns;
	const uint16_t *flags;
	const double *td_error;
};
#define RLV_STEPS_INIT RLV_SIZED(struct rlv_steps)

RLV_CHECKED int rlv_writer_open(struct rlv_table *table, const struct rlv_writer_opts *opts,
				struct rlv_writer **writer_out);

RLV_CHECKED int rlv_writer_append(struct rlv_writer *writer, uint32_t stream,
				  const struct rlv_steps *steps, uint32_t *appended_out);

RLV_CHECKED int rlv_writer_append_vector(struct rlv_writer *writer, const struct rlv_steps *steps);

RLV_CHECKED int rlv_writer_end_episode(struct rlv_writer *writer, uint32_t stream,
				       const struct rlv_steps *final);

RLV_CHECKED int rlv_writer_watch(struct rlv_writer *writer, struct rlv_watch *watch);

RLV_CHECKED int rlv_writer_close(struct rlv_writer **writer);

struct rlv_sampler;

enum rlv_layout {
	RLV_DENSE = 0,

	RLV_WINDOW = 1,
};

enum rlv_weights {
	RLV_WEIGHTS_BATCH = 0,
	RLV_WEIGHTS_RAW = 1,
};

enum rlv_verify {
	RLV_VERIFY_LEAF = 0,
	RLV_VERIFY_CRC = 1,
};

struct rlv_memory {
	void *(*alloc)(void *ctx, size_t align, size_t bytes);
	void (*free)(void *ctx, void *ptr, size_t bytes);
	void *ctx;
};

#define RLV_BATCHES_ANY UINT32_MAX

struct rlv_sampler_opts {
	uint32_t size;
	uint32_t view;
	uint32_t batch_size;
	uint32_t n_step;
	double gamma;
	double beta;
	uint32_t layout;
	uint32_t weights;
	uint32_t batches;
	uint32_t defer_updates;
	uint64_t seed;
	uint32_t rank;
	uint32_t world_size;
	bool independent;
	bool short_batch;

	const struct rlv_memory *memory;
	uint32_t verify;

	uint32_t prefetch;

	const char *const *columns;
};
#define RLV_SAMPLER_OPTS_INIT RLV_SIZED(struct rlv_sampler_opts)

struct rlv_array {
	const char *name;
	void *data;
	uint32_t dtype;
	uint32_t ndim;
	int64_t shape[RLV_MAX_DIMS + 2];
	int64_t strides[RLV_MAX_DIMS + 2];
	uint64_t reserved[2];
};

#define RLV_MAX_ARRAYS (2 * RLV_MAX_COLUMNS + 4)

struct rlv_batch {
	uint32_t n;
	uint32_t n_arrays;
	const struct rlv_array *arrays;
	const uint64_t *key;
	const float *weight;
	const double *probability;
	const float *priority;
	const uint32_t *policy_version;
	int64_t table_size;
};

RLV_CHECKED int rlv_sampler_open(struct rlv_table *table, const struct rlv_sampler_opts *opts,
				 struct rlv_sampler **sampler_out);

RLV_CHECKED int rlv_sampler_sample(struct rlv_sampler *sampler, uint32_t n, int64_t timeout_ns,
				   const struct rlv_batch **batch_out);

RLV_CHECKED int rlv_sampler_watch(struct rlv_sampler *sampler, uint32_t n, struct rlv_watch *watch);

RLV_CHECKED int rlv_sampler_poll(struct rlv_sampler *sampler, uint32_t *ready_out);

struct rlv_sample_opts {
	uint32_t size;
	uint32_t n_step;
	double gamma;
};
#define RLV_SAMPLE_OPTS_INIT RLV_SIZED(struct rlv_sample_opts)

RLV_CHECKED int rlv_sampler_set_opts(struct rlv_sampler *sampler,
				     const struct rlv_sample_opts *opts);

RLV_API void rlv_batch_release(struct rlv_sampler *sampler, const struct rlv_batch *batch);

struct rlv_update_result {
	uint32_t updated;
	uint32_t stale;
	uint32_t clamped;
	uint32_t reserved[5];
};

RLV_CHECKED int rlv_sampler_update(struct rlv_sampler *sampler, const uint64_t *keys,
				   const float *td_error, uint32_t n,
				   struct rlv_update_result *result_out);

RLV_CHECKED int rlv_sampler_set_priorities(struct rlv_sampler *sampler, const uint64_t *keys,
					   const float *priorities, uint32_t n,
					   struct rlv_update_result *result_out);

RLV_CHECKED int rlv_sampler_flush(struct rlv_sampler *sampler);

RLV_CHECKED int rlv_sampler_close(struct rlv_sampler **sampler);

RLV_CHECKED int rlv_buffer_alloc(size_t align, size_t bytes, void **buffer_out);

RLV_API void rlv_buffer_free(void *buffer, size_t bytes);

RLV_CHECKED int rlv_buffer_find(const void *ptr, size_t bytes);

struct rlv_stats {
	uint32_t size;
	uint64_t calls;
	uint64_t steps;
	uint64_t items;
	uint64_t updates;
	uint64_t stale_updates;
	uint64_t clamped;
	uint64_t redraws;
	uint64_t blocks_claimed, blocks_skipped;
	uint64_t repeated_rows;
	uint64_t limiter_waits, limiter_wait_ns;
	uint64_t phases;
	uint64_t reads, writes, cas, faa, cas_failed;
	uint64_t read_bytes, write_bytes;
	uint64_t shards_lost;
	uint64_t updates_lost;
	int64_t items_lost;
};

RLV_CHECKED int rlv_writer_stats(struct rlv_writer *writer, struct rlv_stats *stats_out);
RLV_CHECKED int rlv_sampler_stats(struct rlv_sampler *sampler, struct rlv_stats *stats_out);

enum rlv_node_state {
	RLV_NODE_DOWN = 0,
	RLV_NODE_UP = 1,
	RLV_NODE_DRAINING = 2,
	RLV_NODE_LOST = 3,
};

struct rlv_node_info {
	char name[RLV_NAME_BYTES];
	char address[256];
	uint64_t pool_bytes, used_bytes;
	uint64_t incarnation;
	uint32_t regions;
	uint32_t state;
	char pages[16];
	char transport[16];
	uint32_t shards;
	uint32_t clients;
	uint32_t qps, mrs, windows;
	uint64_t agent_cpu_ns;
	uint64_t process_cpu_ns;
	uint64_t silent_ns;
};

struct rlv_store_info {
	uint32_t size;
	char uri[256];
	char server_version[32];
	uint64_t term;
	uint32_t n_nodes, n_tables, n_clients;
	uint32_t rebuilds;
};

RLV_CHECKED int rlv_store_info(struct rlv_store *store, struct rlv_store_info *info_out);

RLV_CHECKED int rlv_store_nodes(struct rlv_store *store, struct rlv_node_info *nodes, size_t size,
				size_t *n_inout);

RLV_CHECKED int rlv_store_backup(struct rlv_store *store, const char *path);

#define RLV_TOKEN_BYTES 128

RLV_CHECKED int rlv_store_token(struct rlv_store *store, const char *role,
				char token_out[RLV_TOKEN_BYTES]);

RLV_CHECKED int rlv_store_rotate_tokens(struct rlv_store *store, uint32_t *epoch_out);

struct rlv_drain_info {
	uint32_t size;
	uint32_t shards;
	uint64_t items_left;
};

RLV_CHECKED int rlv_store_drain_node(struct rlv_store *store, const char *node,
				     struct rlv_drain_info *info_out);

RLV_CHECKED int rlv_store_drop_node(struct rlv_store *store, const char *node);

RLV_CHECKED int rlv_table_rebalance(struct rlv_store *store, const char *name, uint32_t *added_out,
				    uint32_t *draining_out);

#ifdef __cplusplus
}
#endif

#endif
