/*
 * calls.c - appends of one environment and of 64, sample and update, and puts and gets, in one thread;
 * bench/calls/run counts their instructions.
 *
 * CartPole-like steps in `embed:`, batches of 256 with weights, 1-step returns. All randomness is
 * seeded, so that two runs execute the same instructions except for addresses. Values of 1 KiB, the keys in turn;
 * where they lie is random.
 */
#include <relive/kv.h>

#include <stdio.h>

#define STEPS 64u
#define ENVS 64u
#define BATCH 256u
#define KEYS 4096u
#define KEYS_AT_ONCE 64u
#define VALUE_BYTES 1024u

static int check(int ret, const char *what)
{
	if (ret)
		fprintf(stderr, "%s: %s\n", what, rlv_last_error());
	return ret;
}

/* Appends n steps in one call; every eighth round ends an episode. */
static int calls_append(struct rlv_writer *writer, uint32_t n, uint32_t round)
{
	static float obs[STEPS][4], reward[STEPS];
	static int64_t action[STEPS];
	static uint16_t flags[STEPS];
	const void *columns[] = { obs, action, reward };
	struct rlv_steps steps = RLV_STEPS_INIT;

	for (uint32_t i = 0; i < n; i++) {
		obs[i][0] = (float)(round + i);
		reward[i] = 1;
		flags[i] = 0;
	}
	flags[n - 1] = round % 8 == 7 ? RLV_TERMINATED : 0;
	steps.n = n;
	steps.columns = columns;
	steps.flags = flags;
	return check(rlv_writer_append(writer, 0, &steps, NULL), "append");
}

/* Appends one step of each of many environments; none ends an episode. */
static int calls_vector(struct rlv_store *store)
{
	static const struct rlv_column columns[] = {
		{ "obs", RLV_F32, RLV_OBS, 1, { 17 } },
		{ "action", RLV_F32, RLV_PLAIN, 1, { 6 } },
		{ "reward", RLV_F32, RLV_REWARD, 0, { 0 } },
	};
	static const float obs[ENVS][17], action[ENVS][6], reward[ENVS];
	const void *values[] = { obs, action, reward };
	struct rlv_table_opts table_opts = RLV_TABLE_OPTS_INIT;
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_table *table;
	struct rlv_writer *writer;
	int ret = 0;

	table_opts.n_columns = 3;
	table_opts.columns = columns;
	table_opts.capacity = 65536;
	table_opts.max_writers = opts.streams = steps.n = ENVS;
	steps.columns = values;
	if (check(rlv_table_create(store, "vector", &table_opts, &table), "create") ||
	    check(rlv_writer_open(table, &opts, &writer), "writer"))
		return -1;
	for (uint32_t i = 0; ret == 0 && i < 512; i++)
		ret = check(rlv_writer_append_vector(writer, &steps), "append");
	return ret || check(rlv_writer_close(&writer), "close") ||
			       check(rlv_table_close(&table), "close")
		       ? -1
		       : 0;
}

static int calls_learn(struct rlv_sampler *sampler, uint32_t round)
{
	const struct rlv_batch *batch;
	float td_error[BATCH];
	int ret = check(rlv_sampler_sample(sampler, BATCH, 1000000000, &batch), "sample");

	if (ret)
		return ret;
	for (uint32_t i = 0; i < batch->n; i++)
		td_error[i] = (float)((round * 31 + i) % 97) / 10;
	ret = check(rlv_sampler_update(sampler, batch->key, td_error, batch->n, NULL), "update");
	rlv_batch_release(sampler, batch);
	return ret;
}

/* Puts and gets keys [first, first + KEYS_AT_ONCE), one by one and all at once. */
static int calls_kv(struct rlv_kv *kv, uint32_t first)
{
	static char names[KEYS_AT_ONCE][16], memory[KEYS_AT_ONCE][VALUE_BYTES];
	struct rlv_kv_item puts[KEYS_AT_ONCE], gets[KEYS_AT_ONCE];
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < KEYS_AT_ONCE; i++) {
		struct rlv_kv_value value = RLV_KV_VALUE_INIT;

		puts[i] = (struct rlv_kv_item)RLV_KV_ITEM_INIT;
		puts[i].key.ptr = names[i];
		puts[i].key.len = (size_t)snprintf(names[i], 16, "user%08x", first + i);
		puts[i].ptr = memory[i];
		gets[i] = puts[i];
		puts[i].len = gets[i].room = VALUE_BYTES;
		value.ptr = memory[i];
		value.room = VALUE_BYTES;
		ret = rlv_kv_put(kv, puts[i].key, (struct rlv_bytes){ memory[i], VALUE_BYTES },
				 NULL);
		if (ret == 0)
			ret = rlv_kv_get(kv, puts[i].key, &value);
	}
	if (ret == 0)
		ret = rlv_kv_put_many(kv, puts, KEYS_AT_ONCE);
	if (ret == 0)
		ret = rlv_kv_get_many(kv, gets, KEYS_AT_ONCE);
	return check(ret, "put and get");
}

static int calls_heap(struct rlv_store *store)
{
	struct rlv_kv_opts opts = RLV_KV_OPTS_INIT;
	struct rlv_kv *kv;
	int ret;

	opts.keys = KEYS;
	opts.bytes = (uint64_t)24 << 20;
	if (check(rlv_kv_create(store, "values", &opts, &kv), "create"))
		return -1;
	for (uint32_t i = 0; i < 4 * KEYS; i += KEYS_AT_ONCE) {
		ret = calls_kv(kv, i % KEYS);
		if (ret)
			return ret;
	}
	return check(rlv_kv_close(&kv), "close");
}

int main(void)
{
	const struct rlv_column columns[] = {
		{ "obs", RLV_F32, RLV_OBS, 1, { 4 } },
		{ "action", RLV_I64, RLV_PLAIN, 0, { 0 } },
		{ "reward", RLV_F32, RLV_REWARD, 0, { 0 } },
	};
	struct rlv_table_opts table_opts = RLV_TABLE_OPTS_INIT;
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	int ret = 0;

	table_opts.n_columns = 3;
	table_opts.columns = columns;
	table_opts.capacity = 65536;
	opts.batch_size = BATCH;
	opts.seed = 1;
	if (check(rlv_store_open("embed:", NULL, &store), "open") ||
	    check(rlv_table_create(store, "calls", &table_opts, &table), "create") ||
	    check(rlv_writer_open(table, NULL, &writer), "writer") ||
	    check(rlv_sampler_open(table, &opts, &sampler), "sampler"))
		return 1;
	for (uint32_t i = 0; ret == 0 && i < 1024; i++)
		ret = calls_append(writer, STEPS, i);
	for (uint32_t i = 0; ret == 0 && i < 512; i++)
		ret = calls_append(writer, 1, i);
	for (uint32_t i = 0; ret == 0 && i < 64; i++)
		ret = calls_learn(sampler, i);
	if (ret || calls_vector(store) || calls_heap(store))
		return 1;
	if (check(rlv_sampler_close(&sampler), "close") ||
	    check(rlv_writer_close(&writer), "close") || check(rlv_table_close(&table), "close"))
		return 1;
	return check(rlv_store_close(&store), "close") ? 1 : 0;
}
