#include "catalog/store.h"

#include <stdio.h>

int store_number(struct catalog_store *store, const char *key, uint64_t *value_out)
{
	struct store_number number = { .value = 0 };
	bool found;
	int ret;

	snprintf(number.key, sizeof(number.key), "%s", key);
	ret = store_find(store, STORE_NUMBERS, &number, &found);
	if (ret == 0)
		*value_out = number.value;
	return ret;
}

int store_number_put(struct catalog_store *store, const char *key, uint64_t value)
{
	struct store_number number = { .value = value };

	snprintf(number.key, sizeof(number.key), "%s", key);
	return store_put(store, STORE_NUMBERS, &number);
}

/* Its key. */
static struct store_number loader_of(uint32_t object)
{
	struct store_number number = { .value = 0 };

	(void)snprintf(number.key, sizeof(number.key), "loader %u", object);
	return number;
}

int store_loader(struct catalog_store *store, uint32_t object, uint64_t *client_out)
{
	return store_number(store, loader_of(object).key, client_out);
}

int store_loader_put(struct catalog_store *store, uint32_t object, uint64_t client)
{
	const struct store_number number = loader_of(object);

	return client ? store_number_put(store, number.key, client)
		      : store_delete(store, STORE_NUMBERS, &number, 1);
}

int store_object_delete(struct catalog_store *store, uint32_t object)
{
	const struct store_part parts = { .object = object };
	const struct store_object row = { .object = object };
	int ret = store_delete(store, STORE_PARTS, &parts, 1);

	if (ret == 0)
		ret = store_loader_put(store, object, 0);
	return ret ? ret : store_delete(store, STORE_OBJECTS, &row, 1);
}

int store_lap(struct catalog_store *store, uint32_t table_id, uint32_t shard, uint64_t *first_out)
{
	struct store_lap lap = { .table_id = table_id, .shard = shard };
	bool found;
	int ret = store_find(store, STORE_LAPS, &lap, &found);

	if (ret == 0)
		*first_out = lap.first;
	return ret;
}

int store_lap_raise(struct catalog_store *store, uint32_t table_id, uint32_t shard, uint64_t first)
{
	const struct store_lap lap = { .table_id = table_id, .shard = shard, .first = first };
	uint64_t old = 0;
	int ret = store_lap(store, table_id, shard, &old);

	return ret || old >= first ? ret : store_put(store, STORE_LAPS, &lap);
}
