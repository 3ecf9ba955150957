#include "server/metad/lags.h"

#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"

#include "server/metad/metad.h"

struct said {
	uint32_t object, readers;
	uint8_t uuid[16];
	uint64_t read_milli, best_milli, oldest;
	uint32_t landings[LAGS_PATHS];
};

struct lags_said {
	uint32_t n;
	struct said at[LAGS_CLIENT];
};

/* -------- reports of clients -------- */

void lags_say(const struct metad *md, struct client *client,
	      const Relive__LeaseRenewRequest *request, bool writes)
{
	size_t n = min_u64(request->n_progress, LAGS_CLIENT);

	if (n == 0 || (!client->lags && !(client->lags = mem_alloc(sizeof(*client->lags))))) {
		mem_free(client->lags);
		client->lags = NULL;
		return;
	}
	client->lags->n = 0;
	for (size_t i = 0; i < n; i++) {
		const Relive__Progress *in = request->progress[i];
		struct catalog_object *object =
			catalog_find_same(&md->catalog, in->object, in->uuid.data, in->uuid.len);
		struct said *one = &client->lags->at[client->lags->n];

		if (!object)
			continue;
		*one = (struct said){ .object = in->object,
				      .readers = in->readers,
				      .read_milli = in->read_milli,
				      .best_milli = in->best_milli,
				      .oldest = in->oldest };
		memcpy(one->uuid, object->uuid, sizeof(one->uuid));
		for (size_t p = 0; p < in->n_landings && p < LAGS_PATHS; p++)
			one->landings[p] = in->landings[p];
		client->lags->n++;
		if (!writes)
			continue;
		object->newest = max_u64(object->newest, in->newest);
		object->version = max_u64(object->version, in->version);
	}
}

/* -------- the answer -------- */

/* The readers of one object. */
struct readers {
	uint64_t n, read_milli, best_milli, oldest;
	uint32_t landings[LAGS_PATHS];
};

static void lags_add(const struct metad *md, const struct client *client, struct readers *all)
{
	for (uint32_t i = 0; client->lags && i < client->lags->n; i++) {
		const struct said *one = &client->lags->at[i];
		struct readers *of = &all[one->object];

		/* It may have been dropped since. */
		if (!one->readers ||
		    !catalog_find_same(&md->catalog, one->object, one->uuid, sizeof(one->uuid)))
			continue;
		of->oldest = of->n ? min_u64(of->oldest, one->oldest) : one->oldest;
		of->n += one->readers;
		of->read_milli += one->read_milli;
		of->best_milli = max_u64(of->best_milli, one->best_milli);
		for (size_t p = 0; p < LAGS_PATHS; p++)
			of->landings[p] += one->landings[p];
	}
}

static uint64_t lag_behind(uint64_t newest, uint64_t read)
{
	return newest > read ? newest - read : 0;
}

void lags_fill(const struct metad *md, struct lags *out)
{
	struct readers all[OBJECT_MAX_ID + 1] = { 0 };

	out->n = 0;
	for (const struct client *client = md->live.first; client; client = client->next)
		if (!client->fenced && !client->suspect_since)
			lags_add(md, client, all);
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		const struct catalog_object *object = md->catalog.objects[id];
		const struct readers *of = &all[id];
		Relive__Lag *lag = &out->all[out->n];
		uint64_t milli;

		if (!object || (!object->newest && !of->n))
			continue;
		milli = object->newest * 1000;
		relive__lag__init(lag);
		lag->kind = object->kind->id;
		lag->name = (char *)object->name;
		lag->newest = object->version ? object->version : object->newest;
		lag->landings = out->landings[out->n];
		out->list[out->n++] = lag;
		if (!of->n)
			continue;
		lag->readers = (uint32_t)min_u64(of->n, UINT32_MAX);
		lag->least_milli = lag_behind(milli, of->best_milli);
		lag->mean_milli = lag_behind(milli, of->read_milli / of->n);
		lag->most = lag_behind(object->newest, of->oldest);
		memcpy(lag->landings, of->landings, sizeof(of->landings));
		lag->n_landings = LAGS_PATHS;
	}
}
