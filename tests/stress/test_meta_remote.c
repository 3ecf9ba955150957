/*
 * One store in many threads: a thread's question may find that the client has another lease, while
 * others connect to memory nodes as the client that they take it for.
 *
 * The connection to the server is this test: it answers at once, each time with another lease.
 */
#include "tests/support/test.h"

#include "client/meta/meta.h"
#include "client/meta/rpc.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define THREADS 4
#define ROUNDS 2000

/* -------- the connection -------- */

struct rpc {
	_Atomic uint64_t lease;
	struct table_desc desc;
};

static struct rpc the_rpc;

int rpc_open(const struct uri *uri, const struct rlv_store_opts *opts, struct rpc **rpc_out)
{
	(void)uri;
	(void)opts;
	*rpc_out = &the_rpc;
	return 0;
}

void rpc_close(struct rpc **rpc)
{
	*rpc = NULL;
}

bool rpc_is_forked(const struct rpc *rpc)
{
	(void)rpc;
	return false;
}

struct rpc_lease rpc_lease(struct rpc *rpc)
{
	return (struct rpc_lease){
		.client_id = 1 + atomic_fetch_add(&rpc->lease, 1),
		.lease_ns = 3600 * (uint64_t)CLOCK_NS_PER_S, /* the keeper sleeps */
	};
}

/* A table whose only shard is away. */
int rpc_ask(struct rpc *rpc, const struct rpc_call *call, void *reply_out)
{
	Relive__TableReply reply = RELIVE__TABLE_REPLY__INIT;
	Relive__ShardPlace place = RELIVE__SHARD_PLACE__INIT, *places = &place;
	Relive__Status status = RELIVE__STATUS__INIT;
	uint8_t bytes[sizeof(struct table_desc) + 256];
	ProtobufCMessage *unpacked;
	size_t n;

	place.state = RELIVE__SHARD_STATE__SHARD_DOWN;
	reply.status = &status;
	reply.desc = (ProtobufCBinaryData){ sizeof(rpc->desc), (uint8_t *)&rpc->desc };
	reply.uuid = (ProtobufCBinaryData){ sizeof(rpc->desc.uuid), rpc->desc.uuid };
	reply.n_shards = 1;
	reply.shards = &places;
	assert_true(relive__table_reply__get_packed_size(&reply) <= sizeof(bytes));
	n = relive__table_reply__pack(&reply, bytes);
	unpacked = protobuf_c_message_unpack(call->reply, NULL, n, bytes);
	memcpy(reply_out, &unpacked, sizeof(void *));
	return unpacked ? 0 : -ENOMEM;
}

/* -------- the store -------- */

static void make_desc(struct table_desc *desc)
{
	const struct table_plan_opts opts = { 0 };

	*desc = (struct table_desc){
		.capacity = 4096,
		.n_shards = 1,
		.n_columns = 1,
		.n_views = 1,
		.max_writers = 2,
		.max_clients = 4,
		.name = "t",
		.columns = { { .name = "x", .dtype = DTYPE_F32, .bytes = 4 } },
		.views = { { .stack = 1, .n_step = 1, .period = 1, .alpha = 1 } },
	};
	desc->views[0].limit = (struct limit_desc){
		.min_size = 1,
		.spi = 1 << LIMIT_SPI_BITS,
		.min_diff = INT64_MIN,
		.max_diff = INT64_MAX,
	};
	assert_int_equal(table_plan(desc, &opts), 0);
	table_desc_seal(desc, 0);
}

static void *work(void *arg)
{
	const struct meta_object table = { .kind = OBJECT_TABLE, .name = "t" };
	struct meta *meta = arg;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct transport *tr = NULL;
		struct meta_opened opened;

		if (meta->ops->open(meta, &table, META_LOOKS, 0, &opened))
			return (void *)1;
		meta_opened_fini(&opened);
		/* Its options have been read when it finds that there is no such node. */
		if (meta->ops->connect(meta, "nowhere:", 1, 0, &tr) != -EINVAL)
			return (void *)1;
	}
	return NULL;
}

TEST(meta_remote__a_new_lease_while_others_connect)
{
	const struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	pthread_t threads[THREADS];
	struct meta *meta = NULL;
	struct uri uri;

	make_desc(&the_rpc.desc);
	assert_int_equal(uri_parse("shm:s", &uri), 0);
	assert_int_equal(meta_remote_open(&uri, &opts, &meta), 0);
	for (uint32_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, meta), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		void *failed;

		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	assert_in_range(meta->client_id, 1, atomic_load(&the_rpc.lease));
	meta->ops->close(meta);
}

int main(void)
{
	return test_run(NULL, NULL);
}
