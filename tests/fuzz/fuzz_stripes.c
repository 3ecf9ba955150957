/*
 * Fuzzes the readers of stripe manifests and of intents (ds/heap/stripe/manifest.h). The first byte of an input says
 * which. What they let pass must be what its writer writes, byte for byte, and lie within the heap.
 */
#include "ds/heap/stripe/manifest.h"

#include "base/mem/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void read_manifest(const struct heap_desc *desc, const uint8_t *data, size_t size)
{
	struct stripes stripes;
	uint8_t *again;

	if (stripes_read(desc, data, size, &stripes))
		return;
	must(stripe_manifest_bytes(stripes.n) == size);
	must(stripes.owner >= 1 && stripes.owner <= desc->max_clients);
	must((stripes.n - 1) * stripes.share < stripes.bytes);
	must(stripes.n * stripes.share >= stripes.bytes);
	again = malloc(size);
	must(again);
	stripes_write(&stripes, again);
	must(memcmp(again, data, size) == 0);
	free(again);
	stripes_free(&stripes);
}

static void read_intent(const struct heap_desc *desc, const uint8_t *data, size_t size)
{
	struct stripes_intent intent;
	uint64_t len;
	void *again;

	if (stripes_intent_read(desc, 2, data, size, &intent))
		return;
	must(intent.part < desc->n_parts && intent.key.len >= 1 && intent.key.len <= HEAP_KEY_MAX);
	must(intent.old.n == 0 || (intent.old.owner >= 1 && intent.old.owner <= desc->max_clients));
	again = stripes_intent_write(&intent, &len);
	must(again);
	must(len == size && memcmp(again, data, size) == 0);
	mem_free(again);
	stripes_intent_free(&intent);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct heap_wish wish = { .name = "h",
					.keys = 100,
					.bytes = 1 << 20,
					.extent_bytes = 1 << 16,
					.n_parts = 3,
					.max_clients = 4,
					.stripe_bytes = 1 << 16 };
	struct heap_desc desc;

	must(heap_plan(&wish, &desc) == 0);
	if (size == 0)
		return 0;
	if (data[0] & 1)
		read_manifest(&desc, data + 1, size - 1);
	else
		read_intent(&desc, data + 1, size - 1);
	return 0;
}
