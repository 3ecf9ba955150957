#include "ds/heap/stripe/manifest.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* -------- hidden keys -------- */

static void name_set(const struct heap_desc *desc, const struct stripe_key *key,
		     struct stripe_name *out)
{
	out->bytes = *key;
	out->key = chain_key(&out->bytes, sizeof(out->bytes), desc->seed);
}

void stripe_name_data(const struct heap_desc *desc, uint32_t owner, uint64_t number,
		      struct stripe_name *out)
{
	name_set(desc,
		 &(struct stripe_key){ .magic = STRIPE_KEY_MAGIC,
				       .owner = owner,
				       .kind = STRIPE_DATA,
				       .number = number },
		 out);
}

void stripe_name_intent(const struct heap_desc *desc, uint32_t owner, struct stripe_name *out)
{
	name_set(desc,
		 &(struct stripe_key){
			 .magic = STRIPE_KEY_MAGIC, .owner = owner, .kind = STRIPE_INTENT },
		 out);
}

bool stripe_key_is_hidden(const void *key, size_t len)
{
	const uint64_t magic = STRIPE_KEY_MAGIC;

	return len >= sizeof(magic) && memcmp(key, &magic, sizeof(magic)) == 0;
}

/* -------- manifests -------- */

int stripes_plan(const struct heap_desc *desc, uint32_t owner, uint64_t bytes, struct stripes *out)
{
	uint64_t share = stripe_share(desc), n = div_up(bytes, share);
	/* The manifest is one entry, with any key. */
	uint64_t most = min_u64(STRIPES_MOST, (heap_entry_most(desc) - sizeof(struct heap_entry) -
					       HEAP_KEY_MAX - sizeof(struct stripe_manifest) - 8) /
						      sizeof(struct stripe_ref));
	struct stripe_ref *refs;

	if (n > most)
		return error_set(-ERANGE,
				 "a value of %" PRIu64 " bytes needs %" PRIu64
				 " stripes, and a manifest has %" PRIu64
				 ": create the heap with a larger stripe_bytes",
				 bytes, n, most);
	refs = mem_array(n, sizeof(refs[0]));
	if (!refs)
		return error_set(-ENOMEM, "put: cannot allocate memory for %" PRIu64 " stripes", n);
	*out = (struct stripes){
		.owner = owner, .n = (uint32_t)n, .bytes = bytes, .share = share, .refs = refs
	};
	return 0;
}

void stripes_write(const struct stripes *stripes, void *manifest)
{
	const struct stripe_manifest head = { .magic = STRIPE_MANIFEST_MAGIC,
					      .owner = stripes->owner,
					      .bytes = stripes->bytes,
					      .share = stripes->share,
					      .n = stripes->n };

	memcpy(manifest, &head, sizeof(head));
	memcpy((uint8_t *)manifest + sizeof(head), stripes->refs,
	       stripes->n * sizeof(stripes->refs[0]));
}

/* Copies n refs of memory that may have any alignment. */
static struct stripe_ref *refs_copy(const void *from, uint32_t n)
{
	struct stripe_ref *refs = mem_array((size_t)n + 1, sizeof(*refs)); /* n may be 0 */

	if (refs && n)
		memcpy(refs, from, n * sizeof(*refs));
	return refs;
}

static bool manifest_fits(const struct heap_desc *desc, const struct stripe_manifest *head,
			  uint64_t len)
{
	static const uint32_t zeros[sizeof(head->spare) / sizeof(head->spare[0])];

	return head->magic == STRIPE_MANIFEST_MAGIC && head->owner >= 1 &&
	       head->owner <= desc->max_clients && head->n >= 1 && head->n <= STRIPES_MOST &&
	       head->share == stripe_share(desc) && head->n == div_up(head->bytes, head->share) &&
	       len == stripe_manifest_bytes(head->n) &&
	       memcmp(head->spare, zeros, sizeof(zeros)) == 0;
}

int stripes_read(const struct heap_desc *desc, const void *manifest, uint64_t len,
		 struct stripes *out)
{
	struct stripe_manifest head = { 0 };
	struct stripe_ref *refs;

	if (desc->stripe && len >= sizeof(head))
		memcpy(&head, manifest, sizeof(head));
	if (!desc->stripe || !manifest_fits(desc, &head, len))
		return error_set(-EBADMSG, "heap %s: the manifest of a value in stripes is damaged",
				 desc->name);
	refs = refs_copy((const uint8_t *)manifest + sizeof(head), head.n);
	if (!refs)
		return error_set(-ENOMEM, "heap: cannot allocate memory for %u stripes", head.n);
	*out = (struct stripes){ .owner = head.owner,
				 .n = head.n,
				 .bytes = head.bytes,
				 .share = head.share,
				 .refs = refs };
	return 0;
}

void stripes_free(struct stripes *stripes)
{
	mem_free(stripes->refs);
	*stripes = (struct stripes){ 0 };
}

/* -------- intents -------- */

static uint64_t intent_bytes(uint64_t n_new, uint64_t n_old, uint64_t key_len)
{
	return sizeof(struct stripe_intent) + (n_new + n_old) * sizeof(struct stripe_ref) + key_len;
}

static uint8_t *refs_put(uint8_t *to, const struct stripes *stripes)
{
	size_t bytes = stripes->n * sizeof(stripes->refs[0]);

	if (bytes)
		memcpy(to, stripes->refs, bytes);
	return to + bytes;
}

void *stripes_intent_write(const struct stripes_intent *intent, uint64_t *len_out)
{
	const struct stripe_intent head = { .magic = STRIPE_INTENT_MAGIC,
					    .key_len = intent->key.len,
					    .part = intent->part,
					    .n_new = intent->fresh.n,
					    .n_old = intent->old.n,
					    .old_owner = intent->old.owner,
					    .replaces = intent->replaces };
	uint64_t len = intent_bytes(head.n_new, head.n_old, head.key_len);
	uint8_t *bytes = mem_alloc(len), *at = bytes;

	if (!bytes)
		return NULL;
	memcpy(at, &head, sizeof(head));
	at = refs_put(at + sizeof(head), &intent->fresh);
	at = refs_put(at, &intent->old);
	memcpy(at, intent->key.ptr, head.key_len);
	*len_out = len;
	return bytes;
}

static bool intent_fits(const struct heap_desc *desc, const struct stripe_intent *head,
			uint64_t len)
{
	return head->magic == STRIPE_INTENT_MAGIC && head->key_len >= 1 &&
	       head->key_len <= HEAP_KEY_MAX && head->part < desc->n_parts &&
	       head->n_new <= STRIPES_MOST && head->n_old <= STRIPES_MOST &&
	       (head->n_old == 0 ||
		(head->old_owner >= 1 && head->old_owner <= desc->max_clients)) &&
	       len == intent_bytes(head->n_new, head->n_old, head->key_len);
}

int stripes_intent_read(const struct heap_desc *desc, uint32_t owner, const void *bytes,
			uint64_t len, struct stripes_intent *out)
{
	const uint8_t *at = bytes;
	struct stripe_intent head = { 0 };

	if (len >= sizeof(head))
		memcpy(&head, bytes, sizeof(head));
	if (!intent_fits(desc, &head, len))
		return error_set(-EBADMSG, "heap %s: an intent of client slot %u is damaged",
				 desc->name, owner);
	at += sizeof(head);
	*out = (struct stripes_intent){ .part = head.part,
					.fresh = { .owner = owner, .n = head.n_new },
					.old = { .owner = head.old_owner, .n = head.n_old },
					.replaces = head.replaces,
					.memory = mem_alloc(head.key_len) };
	out->fresh.refs = refs_copy(at, head.n_new);
	at += head.n_new * sizeof(struct stripe_ref);
	out->old.refs = refs_copy(at, head.n_old);
	at += head.n_old * sizeof(struct stripe_ref);
	if (!out->memory || !out->fresh.refs || !out->old.refs) {
		stripes_intent_free(out);
		return error_set(-ENOMEM, "heap: cannot allocate memory for an intent");
	}
	memcpy(out->memory, at, head.key_len);
	out->key = chain_key(out->memory, head.key_len, desc->seed);
	return 0;
}

void stripes_intent_free(struct stripes_intent *intent)
{
	mem_free(intent->memory);
	intent->memory = NULL;
	stripes_free(&intent->fresh);
	stripes_free(&intent->old);
}
