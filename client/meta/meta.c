#include "client/meta/meta.h"

#include "base/mem/alloc.h"
#include "base/os/futex.h"

#include <errno.h>
#include <string.h>

LOCK_ROLE(meta_role, "watches of a store", LOCK_RANK_LEAF);

void meta_init(struct meta *meta, const struct meta_ops *ops)
{
	meta->ops = ops;
	lock_init(&meta->lock, &meta_role);
}

void meta_fini(struct meta *meta)
{
	lock_fini(&meta->lock);
}

int meta_connect(struct meta *meta, const char *node_uri, int64_t timeout_ns, uint64_t replaces,
		 struct transport **tr_out)
{
	const struct transport_opts opts = {
		.target = meta->target,
		.client_id = atomic_load_explicit(&meta->client_id, memory_order_relaxed),
		.replaces = replaces,
		.timeout_ns = meta->timeout_ns,
		.open_ns = timeout_ns > 0 ? (uint64_t)timeout_ns : 0,
	};

	return transport_open(node_uri, &opts, tr_out);
}

/* -------- opened objects -------- */

int meta_opened_init(struct meta_opened *opened, const struct meta_object *object, const void *desc,
		     size_t bytes)
{
	*opened = (struct meta_opened){
		.object = *object,
		.desc = mem_alloc(bytes),
		.desc_bytes = bytes,
	};
	if (!opened->desc)
		return error_set(-ENOMEM, "%s: cannot allocate memory for its descriptor",
				 object->name);
	memcpy(opened->desc, desc, bytes);
	return 0;
}

void meta_opened_fini(struct meta_opened *opened)
{
	mem_free(opened->place.parts);
	mem_free(opened->desc);
	opened->place.parts = NULL;
	opened->desc = NULL;
}

/* -------- watches -------- */

void meta_watch(struct meta *meta, struct meta_watch *watch)
{
	lock_acquire(&meta->lock, &meta_role);
	watch->next = meta->watches;
	meta->watches = watch;
	lock_release(&meta->lock, &meta_role);
}

void meta_unwatch(struct meta *meta, struct meta_watch *watch)
{
	struct meta_watch **at;

	lock_acquire(&meta->lock, &meta_role);
	for (at = &meta->watches; *at && *at != watch; at = &(*at)->next)
		;
	if (*at)
		*at = watch->next;
	lock_release(&meta->lock, &meta_role);
}

void meta_wait(struct meta *meta, struct meta_watch *watch, const struct meta_wait *wait)
{
	bool fresh;

	lock_acquire(&meta->lock, &meta_role);
	fresh = wait->said_ns >= watch->wait.said_ns + META_WAIT_FRESH_NS;
	watch->wait = *wait;
	lock_release(&meta->lock, &meta_role);
	if (!fresh)
		return;
	atomic_fetch_add_explicit(&meta->bell, META_BELL_RING, memory_order_release);
	futex_wake(&meta->bell, 1);
}
