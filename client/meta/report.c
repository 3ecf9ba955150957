#include "client/meta/report.h"

#include "base/bits.h"

#include <string.h>

/* Adds the wait of a call, if it waits now and there is room. */
static void report_wait(struct report *out, const struct meta_wait *wait, uint64_t now_ns)
{
	size_t n = out->request.n_waits;
	Relive__Waiting *to = &out->waits[n];

	if (n == REPORT_WAITS || !wait->said_ns || now_ns >= wait->said_ns + META_WAIT_FRESH_NS)
		return;
	out->said[n] = *wait;
	relive__waiting__init(to);
	to->kind = RELIVE__WAIT_KIND__WAIT_LIMITER;
	to->table = out->said[n].table;
	to->words = out->said[n].words;
	to->view = wait->view;
	to->slot = wait->slot;
	to->since_ns = now_ns > wait->began_ns ? now_ns - wait->began_ns : 0;
	out->wait_list[out->request.n_waits++] = to;
}

/* The message about that object, a new one if there is none. NULL: there is no room. */
static Relive__Progress *report_find(struct report *out, const struct meta_object *object)
{
	size_t n = out->request.n_progress;
	Relive__Progress *one;

	for (size_t i = 0; i < n; i++)
		if (out->progress[i].object == object->number &&
		    memcmp(out->uuids[i], object->uuid, sizeof(out->uuids[i])) == 0)
			return &out->progress[i];
	if (n == REPORT_OBJECTS)
		return NULL;
	one = &out->progress[n];
	relive__progress__init(one);
	memcpy(out->uuids[n], object->uuid, sizeof(out->uuids[n]));
	one->object = object->number;
	one->uuid = (ProtobufCBinaryData){ sizeof(out->uuids[n]), out->uuids[n] };
	one->oldest = UINT64_MAX;
	memset(out->landings[n], 0, sizeof(out->landings[n]));
	one->landings = out->landings[n];
	out->progress_list[out->request.n_progress++] = one;
	return one;
}

static uint64_t report_word(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed); /* struct meta_progress */
}

/* Adds how far a handle is, if it has put or read. */
static void report_progress(struct report *out, const struct meta_watch *watch)
{
	const struct meta_progress *from = &watch->progress;
	uint64_t newest = report_word(&from->newest), read_milli = report_word(&from->read_milli);
	bool reads = atomic_load_explicit(&from->reads, memory_order_relaxed);
	uint32_t path = atomic_load_explicit(&from->path, memory_order_relaxed);
	Relive__Progress *to = newest || reads ? report_find(out, watch->object) : NULL;

	if (!to)
		return;
	to->newest = max_u64(to->newest, newest);
	to->version = max_u64(to->version, report_word(&from->version));
	if (!reads)
		return;
	to->readers++;
	to->read_milli += read_milli;
	to->best_milli = max_u64(to->best_milli, read_milli);
	to->oldest = min_u64(to->oldest, report_word(&from->oldest));
	if (path && path < REPORT_PATHS) {
		to->n_landings = REPORT_PATHS;
		to->landings[path]++;
	}
}

void report_make(struct meta *meta, struct report *out)
{
	uint64_t now_ns = clock_now_ns(clock_monotonic());
	Relive__LeaseRenewRequest *request = &out->request;

	relive__lease_renew_request__init(request);
	request->waits = out->wait_list;
	request->progress = out->progress_list;
	request->layout = atomic_load_explicit(&meta->layout, memory_order_relaxed);
	lock_acquire(&meta->lock, &meta_role);
	for (struct meta_watch *watch = meta->watches; watch; watch = watch->next) {
		request->layout =
			min_u64(request->layout,
				atomic_load_explicit(&watch->layout, memory_order_relaxed));
		report_wait(out, &watch->wait, now_ns);
		report_progress(out, watch);
	}
	lock_release(&meta->lock, &meta_role);
}
