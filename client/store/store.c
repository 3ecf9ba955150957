#include "client/store/store.h"

#include "relive/admin.h"

#include "base/mem/alloc.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_TIMEOUT_NS (5 * CLOCK_NS_PER_S)
#define DEFAULT_STALL_NS (60 * CLOCK_NS_PER_S)
#define WAIT_FIRST_NS (10 * CLOCK_NS_PER_MS) /* for unreachable nodes ... */
#define WAIT_DOUBLINGS 4                     /* ... to 160 ms */

static LOCK_ROLE(store_lock, "store", LOCK_RANK_STORE);

const char *rlv_last_error(void)
{
	return error_last();
}

const char *rlv_error_name(int code)
{
	return error_name(code);
}

#define VERSION_TEXT(a, b, c) #a "." #b "." #c
#define VERSION_EXPAND(a, b, c) VERSION_TEXT(a, b, c)

const char *rlv_version(void)
{
	return VERSION_EXPAND(RLV_VERSION_MAJOR, RLV_VERSION_MINOR, RLV_VERSION_PATCH);
}

/* -------- log: the public callback takes whole lines -------- */

static struct {
	void (*fn)(void *ctx, enum rlv_log_level level, const char *line);
	void *ctx;
} log_user;

static void log_forward(void *ctx, enum log_level level, const char *where, const char *text)
{
	char line[ERROR_TEXT_BYTES + 64];

	(void)ctx;
	snprintf(line, sizeof(line), "%s %s", where, text);
	log_user.fn(log_user.ctx, (enum rlv_log_level)(level - LOG_LEVEL_ERROR), line);
}

void rlv_log_set(void (*fn)(void *ctx, enum rlv_log_level level, const char *line), void *ctx,
		 enum rlv_log_level most)
{
	log_user.fn = fn;
	log_user.ctx = ctx;
	log_set(fn ? log_forward : NULL, NULL, (enum log_level)most + LOG_LEVEL_ERROR);
}

/* -------- store -------- */

static int check_opts(const struct rlv_store_opts *opts)
{
	if (opts->stall_ns < 0)
		return error_set(-EINVAL, "opts.stall_ns %" PRId64 ": want 0 or more",
				 opts->stall_ns);
	if (opts->pages > RLV_PAGES_HUGE)
		return error_set(-EINVAL, "opts.pages %u: not an rlv_pages", opts->pages);
	return 0;
}

static int open_meta(struct rlv_store *store, const struct rlv_store_opts *opts)
{
	if (store->uri.kind == URI_EMBED)
		return meta_embed_open(store->uri.text[0] ? store->uri.text : NULL, opts,
				       &store->meta);
#if RLV_HAVE_REMOTE
	return meta_remote_open(store->uri_text, opts, &store->meta);
#else
	return error_set(-ENOTSUP, "%s: this build has embed: only (no protobuf-c or OpenSSL)",
			 store->uri_text);
#endif
}

int rlv_store_open(const char *uri, const struct rlv_store_opts *opts, struct rlv_store **store_out)
{
	static const struct rlv_store_opts defaults = RLV_STORE_OPTS_INIT;
	struct rlv_store_opts full = defaults;
	struct rlv_store *store;
	int ret;

	if (!store_out)
		return error_set(-EINVAL, "store_out is NULL");
	ret = opts ? abi_read(&full, sizeof(full), opts, "opts.") : 0;
	if (ret == 0)
		ret = check_opts(&full);
	if (ret)
		return ret;
	if (full.timeout_ns == 0)
		full.timeout_ns = DEFAULT_TIMEOUT_NS;
	store = mem_zalloc(sizeof(*store));
	if (!store)
		return error_set(-ENOMEM, "store: no memory");
	ret = uri_parse(uri, &store->uri);
	if (ret)
		goto err_free;
	memcpy(store->uri_text, uri, strlen(uri) + 1);
	store->timeout_ns = full.timeout_ns;
	store->stall_ns = full.stall_ns ? full.stall_ns : DEFAULT_STALL_NS;
	store->read_only = full.read_only;
	ret = open_meta(store, &full);
	if (ret)
		goto err_free;
	lock_init(&store->lock, &store_lock);
	*store_out = store;
	return 0;

err_free:
	mem_free(store);
	return ret;
}

int rlv_store_close(struct rlv_store **store)
{
	uint32_t open;

	if (!store || !*store)
		return 0;
	lock_acquire(&(*store)->lock, &store_lock);
	open = (*store)->open_tables;
	lock_release(&(*store)->lock, &store_lock);
	if (open)
		return error_set(-EBUSY, "store: %u tables of it are open, close them first", open);
	(*store)->meta->ops->close((*store)->meta);
	lock_fini(&(*store)->lock);
	mem_free(*store);
	*store = NULL;
	return 0;
}

void store_table_count(struct rlv_store *store, int delta)
{
	lock_acquire(&store->lock, &store_lock);
	store->open_tables = (uint32_t)((int)store->open_tables + delta);
	lock_release(&store->lock, &store_lock);
}

struct store_wait store_wait_begin(const struct rlv_store *store)
{
	int64_t timeout_ns = store->meta->target ? 0 : store->timeout_ns;

	return (struct store_wait){
		.deadline_ns = deadline_after(clock_monotonic(), timeout_ns),
		.backoff = { .first_ns = WAIT_FIRST_NS, .doublings = WAIT_DOUBLINGS },
	};
}

int store_wait_nodes(struct store_wait *wait, int error)
{
	if (error != -EHOSTDOWN)
		return error;
	if (deadline_expired(clock_monotonic(), wait->deadline_ns))
		return error_set(-EHOSTDOWN, "%s (`relive status` says which nodes are down)",
				 error_last());
	backoff_sleep(&wait->backoff, clock_monotonic(), wait->deadline_ns);
	return 0;
}

bool store_is_file(const struct rlv_store *store)
{
	return store->uri.kind == URI_EMBED && store->uri.text[0];
}

int rlv_store_persist(struct rlv_store *store)
{
	if (!store)
		return error_set(-EINVAL, "store is NULL");
	return store->meta->ops->persist(store->meta);
}

int rlv_store_tables(struct rlv_store *store, char (*names)[RLV_NAME_BYTES], size_t *n_inout)
{
	if (!store || !n_inout || (*n_inout && !names))
		return error_set(-EINVAL, "store, names or n_inout is NULL");
	return store->meta->ops->list(store->meta, names, n_inout);
}

int rlv_store_info(struct rlv_store *store, struct rlv_store_info *info_out)
{
	struct rlv_store_info info = { 0 };
	int ret;

	if (!store || !info_out)
		return error_set(-EINVAL, "store or info_out is NULL");
	ret = abi_check(info_out, "info_out->");
	if (ret == 0)
		ret = store->meta->ops->info(store->meta, &info);
	if (ret)
		return ret;
	snprintf(info.uri, sizeof(info.uri), "%s", store->uri_text);
	abi_write(info_out, &info, sizeof(info));
	return 0;
}

int rlv_store_nodes(struct rlv_store *store, struct rlv_node_info *nodes, size_t size,
		    size_t *n_inout)
{
	struct abi_array array = { .theirs = nodes, .size = size };
	size_t n;
	int ret;

	if (!store || !n_inout || (*n_inout && !nodes))
		return error_set(-EINVAL, "store, nodes or n_inout is NULL");
	n = array.room = *n_inout;
	ret = abi_array_begin(&array, sizeof(*nodes), "nodes");
	if (ret == 0)
		ret = store->meta->ops->nodes(store->meta, array.ours, &n);
	ret = abi_array_end(&array, ret, n);
	if (ret == 0)
		*n_inout = n;
	return ret;
}

int rlv_store_waits(struct rlv_store *store, struct rlv_wait *waits, size_t size, size_t *n_inout)
{
	struct abi_array array = { .theirs = waits, .size = size };
	size_t n;
	int ret;

	if (!store || !n_inout || (*n_inout && !waits))
		return error_set(-EINVAL, "store, waits or n_inout is NULL");
	if (!store->meta->ops->waits)
		return error_set(-ENOTSUP, "%s: nobody but this process uses it", store->uri_text);
	n = array.room = *n_inout;
	ret = abi_array_begin(&array, sizeof(*waits), "waits");
	if (ret == 0)
		ret = store->meta->ops->waits(store->meta, array.ours, &n);
	ret = abi_array_end(&array, ret, n);
	if (ret == 0)
		*n_inout = n;
	return ret;
}
