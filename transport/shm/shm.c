/*
 * shm.c - the initiator: operations on mapped words and bytes.
 *
 * Each locked instruction waits for its line, so lines are fetched AHEAD operations early.
 */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/mem/alloc.h"

#include "transport/barrier.h"
#include "transport/fork.h"
#include "transport/attach/attach.h"
#include "transport/pool/durable.h"
#include "transport/pool/map.h"
#include "transport/shm/shm.h"
#include "transport/attach/target.h"

#define AHEAD 8
#define SMALL_BYTES 64 /* up to here words are copied one by one, each atomically */

struct shm_region {
	struct attached at; /* begins with the region; its mapping is ours, unless it is embedded */
	struct shm_region *next;
	struct mempool_region *embedded;
	uint64_t off; /* embedded: of the range in the region */
};

struct shm {
	struct transport tr;
	struct target *target; /* embed:, else NULL */
	struct attach *attach; /* shm:, else NULL */
	uint64_t client_id;
	struct shm_region *regions;
	struct shm_region *coming; /* of shm_attach_begin, NULL = none */
};

static struct shm *shm_of(struct transport *tr)
{
	return (struct shm *)tr;
}

static inline _Atomic uint64_t *word_at(const struct region *region, uint64_t off)
{
	return (_Atomic uint64_t *)(void *)(region->base + off);
}

/* -------- data -------- */

static inline void read_one(const struct transport_io *io)
{
	if (io->len > SMALL_BYTES) {
		transport_copy_racy(io->dst, io->region->base + io->off, io->len);
		transport_read_done();
		return;
	}
	for (uint32_t i = 0; i < io->len; i += 8)
		((uint64_t *)io->dst)[i / 8] = atomic_load_explicit(
			word_at(io->region, io->off + i), memory_order_acquire);
}

static inline void write_one(const struct transport_io *io)
{
	if (io->len > SMALL_BYTES) {
		transport_copy_racy(io->region->base + io->off, io->src, io->len);
		return;
	}
	for (uint32_t i = 0; i < io->len; i += 8)
		atomic_store_explicit(word_at(io->region, io->off + i),
				      ((const uint64_t *)io->src)[i / 8], memory_order_release);
}

/*
 * Prefetches what request i accesses, if i < n. Region and offset lie at the same place in a read,
 * a write and an atomic.
 */
static inline void fetch_ahead(const struct transport_wr *wrs, size_t i, size_t n)
{
	if (i >= n)
		return;
	if (wrs[i].verb == VERB_READ)
		__builtin_prefetch(wrs[i].io.region->base + wrs[i].io.off, 0, 3);
	else
		__builtin_prefetch(wrs[i].io.region->base + wrs[i].io.off, 1, 3);
}

static_assert(offsetof(struct transport_io, region) == offsetof(struct transport_atomic, region) &&
		      offsetof(struct transport_io, off) == offsetof(struct transport_atomic, off),
	      "fetch_ahead reads region and offset of any request as those of a read");

/* Does all requests in their order before it returns; *ticket_out is 0. */
static int shm_submit(struct transport *tr, struct transport_wr *wrs, size_t n,
		      enum submit_order order, uint64_t *ticket_out)
{
	uint64_t failed = 0, expected;

	(void)order;
	for (size_t i = 0; i < AHEAD; i++)
		fetch_ahead(wrs, i, n);
	for (size_t i = 0; i < n; i++) {
		struct transport_atomic *op = &wrs[i].atomic;

		fetch_ahead(wrs, i + AHEAD, n);
		switch (wrs[i].verb) {
		case VERB_READ:
			read_one(&wrs[i].io);
			break;
		case VERB_WRITE:
			write_one(&wrs[i].io);
			break;
		case VERB_CAS:
			expected = op->expected;
			failed += !atomic_compare_exchange_strong_explicit(
				word_at(op->region, op->off), &expected, op->value,
				memory_order_acq_rel, memory_order_acquire);
			op->old = expected;
			op->status = ATOMIC_DONE;
			break;
		case VERB_FAA:
			op->old = atomic_fetch_add_explicit(word_at(op->region, op->off), op->value,
							    memory_order_acq_rel);
			op->status = ATOMIC_DONE;
			break;
		}
	}
	transport_account_cas(tr, failed, 0);
	*ticket_out = 0;
	return 0;
}

static int shm_order(struct transport *tr)
{
	(void)tr;
#if BARRIER_TSAN
	/* gcc's TSan knows no fences */
	_Atomic uint64_t word = 0;

	atomic_fetch_add_explicit(&word, 1, memory_order_seq_cst);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
	return 0;
}

static int shm_persist(struct transport *tr, struct region *region, uint64_t off, uint64_t len)
{
	const struct shm_region *mine = (const struct shm_region *)region;
	const struct durable map = { .base = region->base,
				     .size = region->size,
				     .by_library = mine->at.on_device,
				     .is_pmem = mine->at.on_device };

	if (mine->embedded)
		return mempool_persist(shm_of(tr)->target->pool, mine->embedded, mine->off + off,
				       len);
	if (mine->at.on_device && !durable_has_library())
		return error_set(-ENOTSUP, "region %u: lies on a device, which needs libpmem",
				 region->id);
	return durable_persist(&map, off, len);
}

/* -------- regions -------- */

/*
 * Gives a page new memory (attach_renew). embed: no-op, because threads of one process share all
 * memory.
 */
static int shm_renew(struct transport *tr, struct region *region, uint64_t off)
{
	struct shm_region *mine = (struct shm_region *)region;

	return mine->embedded ? 0 : attach_renew(shm_of(tr)->attach, &mine->at, off);
}

static int shm_prepare(struct transport *tr, struct region *region, uint64_t off)
{
	struct shm_region *mine = (struct shm_region *)region;

	return mine->embedded ? 0 : attach_prepare(shm_of(tr)->attach, &mine->at, off);
}

static int shm_renewing(struct transport *tr)
{
	struct shm *shm = shm_of(tr);

	return shm->attach ? attach_renewing(shm->attach) : 0;
}

static struct shm_region *new_region(void)
{
	struct shm_region *mine = mem_zalloc(sizeof(*mine));

	if (mine)
		mine->at.fd = -1;
	else
		(void)error_set(-ENOMEM, "cannot allocate memory for a region");
	return mine;
}

/* Adds mine to the transport's regions, or frees it if ret is an error. Returns ret. */
static int add_region(struct shm *shm, struct shm_region *mine, int ret, struct region **region_out)
{
	if (ret) {
		mem_free(mine);
		return ret;
	}
	mine->next = shm->regions;
	shm->regions = mine;
	*region_out = &mine->at.region;
	return 0;
}

static int shm_attach(struct transport *tr, const struct region_grant *grant,
		      struct region **region_out)
{
	struct shm *shm = shm_of(tr);
	struct shm_region *mine = new_region();
	struct target_map map = { 0 };
	int ret;

	if (!mine)
		return -ENOMEM;
	ret = shm->target ? target_attach(shm->target, shm->client_id, grant, &map)
			  : attach_region(shm->attach, grant, &mine->at);
	if (ret == 0 && shm->target) {
		mine->embedded = map.region;
		mine->off = map.off;
		mine->at.region = (struct region){
			.id = map.region->info.id,
			.rights = map.rights,
			.size = map.size,
			.incarnation = shm->target->tg.incarnation,
			.base = map.base,
		};
	}
	return add_region(shm, mine, ret, region_out);
}

/* Sets shm->coming (NULL: none), and frees the region of an earlier shm_attach_begin there. */
static void set_coming(struct shm *shm, struct shm_region *coming)
{
	if (shm->coming) {
		attach_release(&shm->coming->at);
		mem_free(shm->coming);
	}
	shm->coming = coming;
}

static int shm_attach_begin(struct transport *tr, const struct region_grant *grant)
{
	struct shm *shm = shm_of(tr);
	struct shm_region *coming;

	if (shm->target)
		return 0;
	coming = new_region();
	if (!coming)
		return -ENOMEM;
	set_coming(shm, coming);
	return attach_region_begin(shm->attach, grant, &coming->at);
}

static int shm_attach_end(struct transport *tr, const struct region_grant *grant,
			  struct region **region_out)
{
	struct shm *shm = shm_of(tr);
	struct shm_region *mine = shm->coming;
	int ret;

	if (shm->target)
		return shm_attach(tr, grant, region_out);
	if (!mine)
		return error_set(-EINVAL, "attach: its end was called without its beginning");
	ret = attach_region_end(shm->attach, &mine->at);
	if (ret == -EAGAIN)
		return ret;
	shm->coming = NULL;
	return add_region(shm, mine, ret, region_out);
}

static void shm_detach(struct transport *tr, struct region *region)
{
	struct shm *shm = shm_of(tr);
	struct shm_region **link = &shm->regions, *mine;

	while (&(*link)->at.region != region)
		link = &(*link)->next;
	mine = *link;
	*link = mine->next;
	if (mine->embedded) {
		target_detach(shm->target, mine->embedded);
	} else if (!fork_happened(tr->forks)) {
		attach_forget_renewals(shm->attach, region->id);
		attach_release(&mine->at);
	}
	map_close(mine->at.fd); /* of a forked child */
	mem_free(mine);
}

static void shm_close(struct transport *tr)
{
	struct shm *shm = shm_of(tr);

	while (shm->regions)
		shm_detach(tr, &shm->regions->at.region);
	if (shm->target)
		target_leave(shm->target, shm->client_id);
	if (!fork_happened(tr->forks))
		set_coming(shm, NULL);
	attach_close(shm->attach, fork_happened(tr->forks));
	mem_free(shm);
}

/* -------- opening -------- */

static const struct transport_ops shm_ops = {
	.name = "shm",
	.attach = shm_attach,
	.attach_begin = shm_attach_begin,
	.attach_end = shm_attach_end,
	.detach = shm_detach,
	.submit = shm_submit,
	.persist = shm_persist,
	.prepare = shm_prepare,
	.renewing = shm_renewing,
	.renew = shm_renew,
	.order = shm_order,
	.close = shm_close,
};

/* Both kinds. */
#define SHM_CAPS (TRANSPORT_ADDRESSABLE | TRANSPORT_CPU_ATOMIC)

int shm_open_embed(const char *rest, const struct transport_opts *opts, struct transport **tr_out)
{
	struct target *target;
	struct transport *tr;
	int ret;

	if (*rest)
		return error_set(-EINVAL,
				 "transport uri \"embed:%s\": nothing follows embed:", rest);
	if (!opts->target)
		return error_set(-EINVAL, "transport uri \"embed:\": opts->target is NULL");
	target = target_of(opts->target);
	if (!target)
		return -EINVAL;
	ret = transport_new(sizeof(struct shm), &shm_ops,
			    SHM_CAPS | (target->pool->persistent ? TRANSPORT_PERSISTENT : 0), opts,
			    &tr);
	if (ret)
		return ret;
	ret = target_join(target, opts->client_id);
	if (ret) {
		mem_free(tr);
		return ret;
	}
	shm_of(tr)->target = target;
	shm_of(tr)->client_id = opts->client_id;
	*tr_out = tr;
	return 0;
}

int shm_open_socket(const char *path, const struct transport_opts *opts, struct transport **tr_out)
{
	bool persistent = false;
	struct transport *tr;
	int ret;

	if (!*path)
		return error_set(-EINVAL, "transport uri \"shm:\": the socket's path is missing");
	ret = transport_new(sizeof(struct shm), &shm_ops, SHM_CAPS, opts, &tr);
	if (ret)
		return ret;
	ret = attach_open(path, opts, &shm_of(tr)->attach, &persistent);
	if (ret) {
		mem_free(tr);
		return ret;
	}
	if (persistent)
		tr->caps |= TRANSPORT_PERSISTENT;
	*tr_out = tr;
	return 0;
}
