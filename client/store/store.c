#include "client/store/store.h"
#include "client/store/users.h"

#include "relive/admin.h"

#include "ds/replay/table_desc.h"

#include "base/mem/alloc.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int rlv_store_open(const char *uri, const struct rlv_store_opts *opts, struct rlv_store **store_out)
{
	struct rlv_store_opts full = RLV_STORE_OPTS_INIT;
	struct rlv_store *store;
	int ret;

	if (!store_out)
		return error_set(-EINVAL, "store_out is NULL");
	ret = opts ? abi_read(&full, sizeof(full), opts, "opts.") : 0;
	if (ret)
		return ret;
	if (full.stall_ns < 0)
		return error_set(-EINVAL, "opts.stall_ns %" PRId64 ": want 0 or more",
				 full.stall_ns);
	if (full.pages > RLV_PAGES_HUGE)
		return error_set(-EINVAL, "opts.pages %u: not an rlv_pages", full.pages);
	if (full.timeout_ns == 0)
		full.timeout_ns = 5 * CLOCK_NS_PER_S;
	store = mem_zalloc(sizeof(*store));
	if (!store)
		return error_set(-ENOMEM, "store: cannot allocate memory");
	store->timeout_ns = full.timeout_ns;
	store->stall_ns = full.stall_ns ? full.stall_ns : 60 * CLOCK_NS_PER_S;
	store->read_only = full.read_only;
	ret = uri_parse(uri, &store->uri);
	if (ret == 0 && store->uri.kind == URI_EMBED)
		ret = meta_embed_open(store->uri.text[0] ? store->uri.text : NULL, &full,
				      &store->meta);
	else if (ret == 0)
#if RLV_HAVE_REMOTE
		ret = meta_remote_open(&store->uri, &full, &store->meta);
#else
		ret = error_set(-ENOTSUP,
				"%s: this build has embed: only (no protobuf-c or OpenSSL)", uri);
#endif
	if (ret)
		mem_free(store);
	else
		*store_out = store;
	return ret;
}

void store_use(struct rlv_store *store)
{
	atomic_fetch_add_explicit(&store->open_tables, 1, memory_order_relaxed); /* a count */
}

void store_unuse(struct rlv_store *store)
{
	atomic_fetch_sub_explicit(&store->open_tables, 1, memory_order_relaxed); /* a count */
}

int rlv_store_close(struct rlv_store **store)
{
	uint32_t open;

	if (!store || !*store)
		return 0;
	open = atomic_load_explicit(&(*store)->open_tables, memory_order_relaxed); /* a count */
	if (open)
		return error_set(-EBUSY,
				 "store: %u tables, heaps or jobs of it are open, close them first",
				 open);
	(*store)->meta->ops->close((*store)->meta);
	mem_free(*store);
	*store = NULL;
	return 0;
}

struct store_wait store_wait_begin(const struct rlv_store *store)
{
	int64_t timeout_ns = store->meta->target ? 0 : store->timeout_ns;

	return (struct store_wait){
		.deadline_ns = deadline_after(clock_monotonic(), timeout_ns),
		.backoff = { .first_ns = 10 * CLOCK_NS_PER_MS, .doublings = 4 }, /* to 160 ms */
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

int store_get_object(struct rlv_store *store, const struct meta_wish *wish, store_wrap_fn wrap,
		     void **handle_out)
{
	struct store_wait wait = store_wait_begin(store);
	struct meta_object object = { .kind = wish->kind };
	struct meta *meta = store->meta;
	struct meta_opened opened;
	int ret;

	(void)snprintf(object.name, sizeof(object.name), "%s", wish->name);
	do {
		ret = wish->desc ? meta->ops->create(meta, wish, &opened)
				 : meta->ops->open(meta, &object, META_LOOKS, 0, &opened);
		if (ret == 0)
			ret = wrap(store, &opened, wait.deadline_ns, handle_out);
	} while (ret && (ret = store_wait_nodes(&wait, ret)) == 0);
	return ret;
}

int store_drop_object(struct rlv_store *store, uint32_t kind, const char *name)
{
	struct meta_object object = { .kind = kind };
	int ret;

	if (!store || !name)
		return error_set(-EINVAL, "store or name is NULL");
	if (store->read_only)
		return error_set(-EACCES, "store was opened read-only");
	ret = table_name_check(name);
	if (ret)
		return ret;
	(void)snprintf(object.name, sizeof(object.name), "%s", name);
	return store->meta->ops->drop(store->meta, &object);
}

int store_list_objects(struct rlv_store *store, uint32_t kind, char (*names)[RLV_NAME_BYTES],
		       size_t *n_inout)
{
	if (!store || !n_inout || (*n_inout && !names))
		return error_set(-EINVAL, "store, names or n_inout is NULL");
	return store->meta->ops->list(store->meta, kind, names, n_inout);
}

int rlv_store_persist(struct rlv_store *store)
{
	if (!store)
		return error_set(-EINVAL, "store is NULL");
	return store->meta->ops->persist(store->meta);
}

int rlv_store_tables(struct rlv_store *store, char (*names)[RLV_NAME_BYTES], size_t *n_inout)
{
	return store_list_objects(store, OBJECT_TABLE, names, n_inout);
}
