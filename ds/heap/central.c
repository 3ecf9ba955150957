#include "ds/heap/central.h"

#include "ds/heap/pair.h"

#include "base/bits.h"
#include "base/mem/alloc.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* What the coordinator knows of a bucket. */
struct central_place {
	uint64_t hash; /* pair_hash; 0 = free */
	uint64_t version;
	uint32_t bytes; /* of its entry */
	bool deleted;
};

struct central {
	uint8_t *buf; /* an entry */
	struct central_place map[];
};

/* -------- the map -------- */

static uint32_t map_size(const struct heap *heap)
{
	return heap->desc.buckets + HEAP_PROBES;
}

static void place_set(struct central_place *place, const struct heap_entry *entry)
{
	*place = (struct central_place){ .hash = pair_hash(entry->hash),
					 .version = entry->version,
					 .bytes = (uint32_t)chain_entry_bytes(entry->key_len,
									      entry->len),
					 .deleted = (entry->flags & ENTRY_DELETED) != 0 };
}

/* The memory node does not answer: the same call may succeed later. */
static int node_error(int code)
{
	if (code == -ENOMEM || code == -EBADMSG || code == -ECHILD)
		return code;
	return error_prefix(-EHOSTDOWN, "the coordinator: ");
}

static int map_rebuild(struct heap *heap, struct central *central)
{
	struct heap_entry entry;
	int ret;

	for (uint32_t bucket = 0; bucket < map_size(heap); bucket++)
		for (uint32_t which = 0; which < 2; which++) {
			ret = pair_read(heap, (struct pair_at){ bucket, which }, 0, central->buf,
					&entry);
			if (ret < 0)
				return node_error(ret);
			if (ret == PAIR_OK && entry.version > central->map[bucket].version)
				place_set(&central->map[bucket], &entry);
		}
	return 0;
}

static int central_open(struct heap *heap)
{
	struct central *central;
	int ret;

	if (heap->central)
		return 0;
	central = mem_zalloc(sizeof(*central) + map_size(heap) * sizeof(central->map[0]));
	if (central)
		central->buf = mem_aligned(WIRE_LINE, heap->desc.extent_bytes);
	if (!central || !central->buf) {
		mem_free(central);
		return error_set(-ENOMEM, "heap %s: cannot allocate memory for its map",
				 heap->desc.name);
	}
	ret = map_rebuild(heap, central);
	if (ret)
		central_free(central);
	else
		heap->central = central;
	return ret;
}

void central_free(struct central *central)
{
	if (central)
		mem_free(central->buf);
	mem_free(central);
}

/* The key's bucket, or the first free one; NULL: there is none. */
static struct central_place *map_find(const struct heap *heap, uint64_t hash)
{
	struct central_place *place = &heap->central->map[chain_place(hash, heap->desc.buckets)];

	for (uint32_t i = 0; i < HEAP_PROBES; i++, place++)
		if (!place->hash || place->hash == pair_hash(hash))
			return place;
	return NULL;
}

static struct pair_at place_at(const struct heap *heap, const struct central_place *place,
			       uint64_t version)
{
	return (struct pair_at){ (uint32_t)(place - heap->central->map), (uint32_t)(version & 1) };
}

/* -------- calls -------- */

/* Reads the entry of the place into the coordinator's buffer. */
static int place_read(struct heap *heap, const struct central_place *place,
		      struct heap_entry *entry)
{
	struct pair_at at = place_at(heap, place, place->version);
	int ret = pair_read(heap, at, place->bytes, heap->central->buf, entry);

	if (ret < 0)
		return node_error(ret);
	if (ret == PAIR_OK && entry->version == place->version)
		return 0;
	return error_set(-EBADMSG, "heap %s: the entry of bucket %u is damaged", heap->desc.name,
			 at.bucket);
}

static int serve_get(struct heap *heap, struct central_call *call)
{
	const struct central_place *place = map_find(heap, call->key.hash);
	const uint8_t *key = pair_key(heap->central->buf);
	struct heap_entry entry;
	int ret;

	if (!place || !place->hash)
		return error_set(-ENOENT, "no such key");
	call->value = (struct heap_value){ .version = place->version, .deleted = place->deleted };
	if (call->op == CENTRAL_VERSION)
		return 0;
	if (place->deleted)
		return error_set(-ENOENT, "the key was deleted");
	ret = place_read(heap, place, &entry);
	if (ret)
		return ret;
	if (entry.key_len != call->key.len || memcmp(key, call->key.ptr, entry.key_len) != 0)
		return error_set(-EBADMSG, "heap %s: the key's bucket has an entry of another key",
				 heap->desc.name);
	call->value.ptr = key + entry.key_len;
	call->value.len = entry.len;
	return 0;
}

/* Writes the version into the copy that does not hold the newest one. */
static int put_write(struct heap *heap, const struct central_call *call,
		     struct central_place *place)
{
	const struct heap_put *put = &call->put;
	struct pair_at at = place_at(heap, place, place->version + 1);
	const struct heap_entry entry = {
		.version = place->version + 1,
		.len = put->deletes ? 0 : put->len,
		.hash = call->key.hash,
		.key_len = (uint16_t)call->key.len,
		.bucket = at.bucket,
		.flags = put->deletes ? ENTRY_DELETED : 0,
	};
	const uint64_t bytes = chain_entry_bytes(call->key.len, entry.len),
		       keys_off = HEAP_WORDS_OFF + offsetof(struct heap_words, keys);
	uint64_t keys;
	int ret;

	chain_entry_write(heap->central->buf, &entry, &call->key, put->value);
	ret = transport_store(heap->rows, pair_off(heap, at), heap->central->buf, (uint32_t)bytes);
	if (ret)
		return ret;
	if (!place->hash)
		ret = transport_faa_word(heap->tree, keys_off, 1, &keys);
	place_set(place, &entry);
	return ret;
}

static int serve_put(struct heap *heap, struct central_call *call)
{
	struct central_place *place = map_find(heap, call->key.hash);
	const struct heap_put *put = &call->put;
	bool exists;
	int ret;

	if (!place)
		return error_set(-ENOSPC,
				 "heap %s: no bucket is free near that of the key: it has too many "
				 "keys, deleted ones included; create it with a larger keys",
				 heap->desc.name);
	if (!put->deletes && put->len > heap->desc.extent_bytes) /* of a request: the sum is too */
		return error_set(-ERANGE, "a value of %" PRIu64 " bytes is too long", put->len);
	if (chain_entry_bytes(call->key.len, put->deletes ? 0 : put->len) > heap->desc.extent_bytes)
		return error_set(-ERANGE, "a value of %" PRIu64 " bytes is too long", put->len);
	exists = place->hash && !place->deleted;
	if (put->deletes && !exists)
		return error_set(-ENOENT, "no such key");
	if (put->expected != HEAP_ANY_VERSION && put->expected != (exists ? place->version : 0))
		return error_set(-ESTALE, "the key has version %" PRIu64 ", not %" PRIu64,
				 exists ? place->version : 0, put->expected);
	ret = put_write(heap, call, place);
	if (ret) { /* whether it was put is not known: the next call looks */
		central_free(heap->central);
		heap->central = NULL;
		return error_prefix(ret == -ECHILD ? ret : -EIO,
				    "the coordinator: whether it was put is not known: ");
	}
	call->value.version = place->version;
	return 0;
}

static int serve_next(struct heap *heap, struct central_call *call)
{
	struct heap_entry entry;
	int ret;

	for (; call->bucket < map_size(heap); call->bucket++) {
		const struct central_place *place = &heap->central->map[call->bucket];

		if (!place->hash || place->deleted)
			continue;
		ret = place_read(heap, place, &entry);
		if (ret)
			return ret;
		call->bucket++;
		call->found = (struct heap_key){ .ptr = pair_key(heap->central->buf),
						 .len = entry.key_len,
						 .value_len = entry.len,
						 .version = entry.version };
		return 0;
	}
	return error_set(-ENODATA, "no more keys");
}

int central_serve(struct heap *heap, struct central_call *call)
{
	struct chain_key *key = &call->key;
	int ret = heap->desc.mode == HEAP_CENTRAL && call->op >= CENTRAL_GET &&
				  call->op <= CENTRAL_NEXT
			  ? 0
			  : error_set(-EINVAL, "heap %s: not a call of its coordinator",
				      heap->desc.name);

	if (ret == 0 && call->op != CENTRAL_NEXT && (key->len == 0 || key->len > HEAP_KEY_MAX))
		ret = error_set(-EINVAL, "a key of %u bytes: 1 to %u", key->len, HEAP_KEY_MAX);
	if (ret == 0)
		ret = central_open(heap);
	if (ret)
		return ret;
	if (call->op == CENTRAL_NEXT)
		return serve_next(heap, call);
	*key = chain_key(key->ptr, key->len, heap->desc.seed);
	return call->op == CENTRAL_PUT ? serve_put(heap, call) : serve_get(heap, call);
}

/* -------- move -------- */

/* Copies the newest entry of the bucket. A damaged one is left out: it counts as damaged there, too. */
static int place_move(struct heap *from, struct heap *to, uint32_t bucket)
{
	const struct central_place *place = &from->central->map[bucket];
	const uint64_t off = pair_off(to, place_at(from, place, place->version));
	struct heap_entry entry;
	int ret = place_read(from, place, &entry);

	if (ret == -EBADMSG)
		error_clear();
	else if (ret == 0)
		ret = transport_store(to->rows, off, from->central->buf, place->bytes);
	if (ret == 0 || ret == -EBADMSG)
		to->central->map[bucket] = *place;
	return ret == -EBADMSG ? 0 : ret;
}

int central_move(struct heap *from, struct heap *to, uint64_t bytes, bool *done_out)
{
	uint32_t bucket = 0;
	int ret = central_open(from);

	*done_out = false;
	if (ret == 0)
		ret = central_open(to);
	for (; ret == 0 && bytes && bucket < map_size(from); bucket++) {
		const struct central_place *place = &from->central->map[bucket];

		if (place->version == to->central->map[bucket].version)
			continue;
		bytes -= min_u64(bytes, place->bytes);
		ret = place_move(from, to, bucket);
	}
	if (ret == 0 && bucket == map_size(from)) {
		ret = heap_move_end(from, to);
		*done_out = ret == 0;
	}
	return ret;
}

/* -------- clients -------- */

static int central_ask(struct heap_access *acc, struct central_call *call)
{
	int ret;

	acc->stats.calls++;
	acc->in_doubt = call->op == CENTRAL_PUT;
	ret = acc->link.ask(acc, call);
	if (call->cpu_ns)
		acc->stats.cpu_ns = call->cpu_ns;
	if (ret != -ETIMEDOUT && ret != -ECONNRESET && ret != -EIO)
		acc->in_doubt = false;
	return ret;
}

void central_take(const struct heap_access *acc, struct central_call *call)
{
	if (call->op == CENTRAL_NEXT) {
		call->found.len = (uint32_t)min_u64(call->found.len, HEAP_KEY_MAX);
		memcpy(acc->stage, call->found.ptr, call->found.len);
		call->found.ptr = acc->stage;
	} else if (call->op == CENTRAL_GET) {
		call->value.len = min_u64(call->value.len, acc->stage_bytes);
		if (call->value.len)
			memcpy(acc->stage, call->value.ptr, call->value.len);
		call->value.ptr = acc->stage;
	}
}

static int central_get(struct heap_access *acc, const struct chain_key *key, struct heap_value *out)
{
	struct central_call call = { .op = CENTRAL_GET, .key = *key };
	int ret = central_ask(acc, &call);

	if (ret == 0 || ret == -ENOENT)
		*out = call.value;
	return ret;
}

static int central_version(struct heap_access *acc, const struct chain_key *key,
			   uint64_t *version_out)
{
	struct central_call call = { .op = CENTRAL_VERSION, .key = *key };
	int ret = central_ask(acc, &call);

	if (ret == 0 || ret == -ENOENT)
		*version_out = call.value.version;
	return ret == -ENOENT ? 0 : ret;
}

static int central_put(struct heap_access *acc, const struct chain_key *key,
		       const struct heap_put *put, uint64_t *version_out)
{
	struct central_call call = { .op = CENTRAL_PUT, .key = *key, .put = *put };
	int ret = central_ask(acc, &call);

	if (ret == 0)
		*version_out = call.value.version;
	return ret;
}

static int central_next(struct heap_access *acc, uint32_t *bucket_inout, struct heap_key *out)
{
	struct central_call call = { .op = CENTRAL_NEXT, .bucket = *bucket_inout };
	int ret = central_ask(acc, &call);

	if (ret == 0)
		*out = call.found;
	if (ret == 0 || ret == -ENODATA)
		*bucket_inout = call.bucket;
	return ret;
}

const struct heap_plane central_plane = {
	.get = central_get,
	.version = central_version,
	.put = central_put,
	.next = central_next,
};
