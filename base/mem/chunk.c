#include "base/mem/chunk.h"

#include "base/bits.h"
#include "base/os/lock.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(ptr, bytes) ((void)(ptr), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(ptr, bytes) ((void)(ptr), (void)(bytes))
#endif

#define GRAIN CACHE_LINE
#define WORD_BITS 64

struct chunk {
	struct pages pages; /* ptr NULL = this index is free */
	uint64_t *used;     /* a bit for each grain; NULL = lent memory of a device: no grains */
	size_t grains;
	size_t used_grains;
};

/*
 * Index from address to chunk: 48 bits = 14 of the root, 13 of a leaf, 21 inside of a unit. An
 * entry is the index + 1 of the chunk that covers the unit. Leaves are made as needed and stay.
 */
#define UNIT_BITS 21
#define LEAF_BITS 13
#define ROOT_BITS 14

struct leaf {
	_Atomic uint16_t entries[1 << LEAF_BITS];
};

static_assert(CHUNK_UNIT == (size_t)1 << UNIT_BITS, "an entry stands for one unit");
static_assert(CHUNK_MAX < UINT16_MAX, "index + 1 must fit an entry");

static _Atomic(struct leaf *) root[1 << ROOT_BITS];

static LOCK_ROLE(chunk_role, "chunk", LOCK_RANK_MEMORY);
static struct lock chunk_lock = LOCK_INIT(&chunk_role);
static struct chunk chunks[CHUNK_MAX] LOCK_GUARDED_BY(chunk_role);
static uint32_t n_chunks LOCK_GUARDED_BY(chunk_role); /* indices in use are below */
static const struct chunk_listener *listeners[CHUNK_LISTENERS_MAX] LOCK_GUARDED_BY(chunk_role);
static uint32_t n_listeners LOCK_GUARDED_BY(chunk_role);

/* -------- fork -------- */

static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
static int watch_ret;

/*
 * Runs in a forked child: forgets all chunks and listeners, as another thread may have held the
 * lock at the fork. The child's copies of chunks stay mapped until it ends.
 */
LOCK_UNCHECKED static void forget_in_child(void)
{
	lock_init(&chunk_lock, &chunk_role);
	memset(chunks, 0, n_chunks * sizeof(chunks[0]));
	memset(root, 0, sizeof(root));
	n_chunks = 0;
	n_listeners = 0;
}

static void watch_forks(void)
{
	watch_ret = pthread_atfork(NULL, NULL, forget_in_child);
}

static bool forks_are_watched(void)
{
	return pthread_once(&watch_once, watch_forks) == 0 && watch_ret == 0;
}

/* -------- addresses -------- */

static struct leaf *leaf_of(uintptr_t address)
{
	if (address >> (UNIT_BITS + LEAF_BITS + ROOT_BITS))
		return NULL;
	/* K4 pairs with K3: the pointer before the zeros of the leaf */
	return atomic_load_explicit(&root[address >> (UNIT_BITS + LEAF_BITS)],
				    memory_order_acquire);
}

static _Atomic uint16_t *entry_of(struct leaf *leaf, uintptr_t address)
{
	return &leaf->entries[(address >> UNIT_BITS) & bits_mask(LEAF_BITS)];
}

static uint16_t look_up(uintptr_t address)
{
	struct leaf *leaf = leaf_of(address);

	/* K2 pairs with K1: the index before the keys that listeners keep under it */
	return leaf ? atomic_load_explicit(entry_of(leaf, address), memory_order_acquire) : 0;
}

bool chunk_find(const void *ptr, size_t len, uint32_t *index_out)
{
	uintptr_t first = (uintptr_t)ptr;
	uint16_t entry = look_up(first);

	/* A chunk has no hole: the same at both ends is the same between them. */
	if (entry == 0 || len > UINTPTR_MAX - first || look_up(first + len - 1) != entry)
		return false;
	*index_out = (uint32_t)entry - 1;
	return true;
}

struct mem chunk_mem(void *ptr, size_t len)
{
	struct mem mem = { .kind = MEM_REGISTERED, .ptr = ptr, .len = len };

	if (!chunk_find(ptr, len, &mem.handle))
		mem.kind = MEM_HOST;
	return mem;
}

static bool make_leaves(const struct pages *pages)
{
	uintptr_t base = (uintptr_t)pages->ptr;
	struct leaf *leaf;

	if ((base + pages->bytes - 1) >> (UNIT_BITS + LEAF_BITS + ROOT_BITS))
		return false;
	for (size_t off = 0; off < pages->bytes; off += CHUNK_UNIT) {
		if (leaf_of(base + off))
			continue;
		leaf = mem_zalloc(sizeof(*leaf));
		if (!leaf)
			return false;
		/* K3 pairs with K4: zeros of the leaf before its pointer */
		atomic_store_explicit(&root[(base + off) >> (UNIT_BITS + LEAF_BITS)], leaf,
				      memory_order_release);
	}
	return true;
}

static void set_entries(const struct pages *pages, uint16_t entry)
{
	uintptr_t base = (uintptr_t)pages->ptr;

	for (size_t off = 0; off < pages->bytes; off += CHUNK_UNIT)
		/* K1 pairs with K2: the listeners' keys of a chunk before its index */
		atomic_store_explicit(entry_of(leaf_of(base + off), base + off), entry,
				      memory_order_release);
}

/* -------- grains -------- */

/*
 * The first grain in [from, end) that is used (used = true) or free (false); end if there is none.
 */
static size_t next_grain(const struct chunk *chunk, size_t from, size_t end, bool used)
{
	while (from < end) {
		uint64_t word = chunk->used[from / WORD_BITS];
		uint64_t hits = (used ? word : ~word) & ~bits_mask(from % WORD_BITS);

		from = from / WORD_BITS * WORD_BITS;
		if (hits)
			return min_u64(from + bits_ctz(hits), end);
		from += WORD_BITS;
	}
	return end;
}

static void mark_grains(struct chunk *chunk, size_t first, size_t n, bool used)
{
	for (size_t i = first; i < first + n;) {
		size_t bit = i % WORD_BITS;
		size_t now = min_u64(WORD_BITS - bit, first + n - i);
		uint64_t mask = bits_mask((unsigned)now) << bit;
		uint64_t *word = &chunk->used[i / WORD_BITS];

		assert((*word & mask) == (used ? 0 : mask));
		*word = used ? *word | mask : *word & ~mask;
		i += now;
	}
	chunk->used_grains = used ? chunk->used_grains + n : chunk->used_grains - n;
}

/* First fit. */
static void *cut_grains(struct chunk *chunk, size_t align, size_t n)
{
	size_t step = align / GRAIN;
	size_t at = 0;

	while (chunk->grains - chunk->used_grains >= n) {
		size_t end;

		at = align_up(next_grain(chunk, at, chunk->grains, false), step);
		if (at >= chunk->grains || chunk->grains - at < n)
			break;
		end = next_grain(chunk, at, at + n, true);
		if (end == at + n) {
			mark_grains(chunk, at, n, true);
			return (char *)chunk->pages.ptr + at * GRAIN;
		}
		at = end;
	}
	return NULL;
}

/* -------- chunks -------- */

/*
 * Keeps the pages out of forked children: a device would keep the old page after a copy on write.
 * False: madvise failed.
 */
static bool keep_from_children(const struct pages *pages)
{
	return madvise(pages->ptr, pages->bytes, MADV_DONTFORK) == 0;
}

static uint32_t free_index(void) LOCK_REQUIRES(chunk_role)
{
	uint32_t index = 0;

	while (index < n_chunks && chunks[index].pages.ptr)
		index++;
	return index;
}

static void take_index(uint32_t index, const struct chunk *chunk) LOCK_REQUIRES(chunk_role)
{
	chunks[index] = *chunk;
	if (index == n_chunks)
		n_chunks++;
}

static void drop_index(uint32_t index) LOCK_REQUIRES(chunk_role)
{
	chunks[index] = (struct chunk){ 0 };
	while (n_chunks && !chunks[n_chunks - 1].pages.ptr)
		n_chunks--;
}

static void tell_removed(uint32_t index) LOCK_REQUIRES(chunk_role)
{
	for (uint32_t i = 0; i < n_listeners; i++)
		listeners[i]->removed(listeners[i]->ctx, index);
}

static struct chunk *make_chunk(size_t bytes) LOCK_REQUIRES(chunk_role)
{
	struct chunk chunk = { 0 };
	uint32_t index = free_index();

	if (index == CHUNK_MAX || pages_alloc(align_up(bytes, CHUNK_UNIT), PAGE_THP, &chunk.pages))
		return NULL;
	chunk.grains = chunk.pages.bytes / GRAIN;
	chunk.used = mem_array(chunk.grains / WORD_BITS, sizeof(*chunk.used));
	if (!chunk.used || !make_leaves(&chunk.pages) ||
	    (n_listeners && !keep_from_children(&chunk.pages)))
		goto err_free;
	ASAN_POISON_MEMORY_REGION(chunk.pages.ptr, chunk.pages.bytes);
	take_index(index, &chunk);
	for (uint32_t i = 0; i < n_listeners; i++)
		listeners[i]->added(listeners[i]->ctx, chunk.pages.ptr, chunk.pages.bytes, index);
	set_entries(&chunk.pages, (uint16_t)(index + 1));
	return &chunks[index];

err_free:
	mem_free(chunk.used);
	pages_free(&chunk.pages);
	return NULL;
}

/* -------- buffers -------- */

static size_t grains_of(size_t bytes)
{
	return bytes ? div_up(bytes, GRAIN) : 1;
}

void *chunk_alloc(size_t align, size_t bytes)
{
	size_t n = grains_of(bytes), step = max_u64(align, GRAIN);
	struct chunk *fresh;
	void *ptr = NULL;

	assert(bits_is_pow2(align));
	if (align > CHUNK_UNIT || bytes > (size_t)PTRDIFF_MAX / 2 || mem_fail_now() ||
	    !forks_are_watched())
		return NULL;
	lock_acquire(&chunk_lock, &chunk_role);
	for (uint32_t i = 0; i < n_chunks && !ptr; i++)
		if (chunks[i].pages.ptr)
			ptr = cut_grains(&chunks[i], step, n);
	fresh = ptr ? NULL : make_chunk(n * GRAIN);
	if (fresh)
		ptr = cut_grains(fresh, step, n);
	lock_release(&chunk_lock, &chunk_role);
	if (ptr)
		ASAN_UNPOISON_MEMORY_REGION(ptr, bytes);
	return ptr;
}

bool chunk_make_room(struct mem *mem, size_t bytes)
{
	void *ptr;

	if (bytes <= mem->len)
		return true;
	chunk_drop(mem);
	ptr = chunk_alloc(GRAIN, bytes);
	if (ptr)
		*mem = chunk_mem(memset(ptr, 0, bytes), bytes);
	return ptr;
}

void chunk_drop(struct mem *mem)
{
	chunk_free(mem->ptr, mem->len);
	*mem = (struct mem){ 0 };
}

void chunk_free(void *ptr, size_t bytes)
{
	size_t n = grains_of(bytes);
	struct chunk *chunk;
	uint32_t index;

	if (!ptr || !chunk_find(ptr, n * GRAIN, &index))
		return;
	ASAN_POISON_MEMORY_REGION(ptr, n * GRAIN);
	lock_acquire(&chunk_lock, &chunk_role);
	chunk = &chunks[index];
	mark_grains(chunk, (size_t)((char *)ptr - (char *)chunk->pages.ptr) / GRAIN, n, false);
	if (chunk->used_grains == 0) {
		set_entries(&chunk->pages, 0);
		tell_removed(index);
		ASAN_UNPOISON_MEMORY_REGION(chunk->pages.ptr, chunk->pages.bytes);
		pages_free(&chunk->pages);
		mem_free(chunk->used);
		drop_index(index);
	}
	lock_release(&chunk_lock, &chunk_role);
}

bool chunk_lend(struct mem *mem)
{
	const struct chunk lent = { .pages = { .ptr = mem->ptr } };
	uint32_t index;

	assert(mem->kind == MEM_DEVICE && mem->ptr);
	if (!forks_are_watched())
		return false;
	lock_acquire(&chunk_lock, &chunk_role);
	index = free_index();
	if (index < CHUNK_MAX)
		take_index(index, &lent);
	lock_release(&chunk_lock, &chunk_role);
	mem->handle = index;
	return index < CHUNK_MAX;
}

void chunk_unlend(const struct mem *mem)
{
	lock_acquire(&chunk_lock, &chunk_role);
	if (mem->handle < n_chunks && chunks[mem->handle].pages.ptr == mem->ptr) {
		tell_removed(mem->handle);
		drop_index(mem->handle);
	}
	lock_release(&chunk_lock, &chunk_role);
}

static void *hook_alloc(void *ctx, size_t align, size_t bytes)
{
	(void)ctx;
	return chunk_alloc(align, bytes);
}

static void hook_free(void *ctx, void *ptr, size_t bytes)
{
	(void)ctx;
	chunk_free(ptr, bytes);
}

const struct alloc_hooks chunk_hooks = { .alloc = hook_alloc, .free = hook_free };

/* -------- listeners -------- */

int chunk_listen(const struct chunk_listener *listener)
{
	int ret = 0;

	if (!forks_are_watched())
		return error_set(-ENOMEM, "memory chunks: cannot register a fork handler");
	lock_acquire(&chunk_lock, &chunk_role);
	if (n_listeners == CHUNK_LISTENERS_MAX)
		ret = error_set(-ENOSPC, "memory chunks: all %d places for listeners are taken",
				CHUNK_LISTENERS_MAX);
	for (uint32_t i = 0; ret == 0 && i < n_chunks; i++)
		if (chunks[i].used && !keep_from_children(&chunks[i].pages))
			ret = error_set(-ENOMEM, "memory chunks: madvise(MADV_DONTFORK) failed");
	if (ret == 0)
		listeners[n_listeners++] = listener;
	for (uint32_t i = 0; ret == 0 && i < n_chunks; i++)
		if (chunks[i].used)
			listener->added(listener->ctx, chunks[i].pages.ptr, chunks[i].pages.bytes,
					i);
	lock_release(&chunk_lock, &chunk_role);
	return ret;
}

void chunk_unlisten(const struct chunk_listener *listener)
{
	uint32_t at = 0;

	lock_acquire(&chunk_lock, &chunk_role);
	while (at < n_listeners && listeners[at] != listener)
		at++;
	if (at < n_listeners) {
		listeners[at] = listeners[--n_listeners];
		for (uint32_t i = 0; i < n_chunks; i++)
			if (chunks[i].pages.ptr)
				listener->removed(listener->ctx, i);
	}
	lock_release(&chunk_lock, &chunk_role);
}

void chunk_usage(struct chunk_usage *usage_out)
{
	struct chunk_usage usage = { 0 };

	lock_acquire(&chunk_lock, &chunk_role);
	for (uint32_t i = 0; i < n_chunks; i++) {
		usage.chunks += chunks[i].used != NULL;
		usage.bytes += chunks[i].pages.bytes;
		usage.used_bytes += chunks[i].used_grains * GRAIN;
	}
	lock_release(&chunk_lock, &chunk_role);
	*usage_out = usage;
}
