#include "client/meta/waits.h"

#include "relive/admin.h"

#include "client/meta/rpc.h"

#include "base/os/clock.h"

#include <stdio.h>

#define FRESH_NS (2 * (uint64_t)CLOCK_NS_PER_S) /* said longer ago, it has ended */

/* -------- to the server -------- */

bool meta_waits_note(struct meta_watch *watch, const struct meta_wait *wait)
{
	bool first = wait->said_ns >= watch->said_ns + FRESH_NS;

	snprintf(watch->table, sizeof(watch->table), "%s", wait->table);
	snprintf(watch->words, sizeof(watch->words), "%s", wait->words);
	watch->view = wait->view;
	watch->slot = wait->slot;
	watch->began_ns = wait->began_ns;
	watch->said_ns = wait->said_ns;
	return first;
}

static void fill(struct meta_waits *out, uint32_t i, uint64_t now_ns)
{
	Relive__Waiting *wait = &out->waits[i];
	struct meta_watch *at = &out->at[i];

	relive__waiting__init(wait);
	wait->kind = RELIVE__WAIT_KIND__WAIT_LIMITER;
	wait->table = at->table;
	wait->words = at->words;
	wait->view = at->view;
	wait->slot = at->slot;
	wait->since_ns = now_ns > at->began_ns ? now_ns - at->began_ns : 0;
	out->list[i] = wait;
}

void meta_waits_collect(const struct meta_watch *first, struct meta_waits *out)
{
	uint64_t now_ns = clock_now_ns(clock_monotonic());

	out->n = 0;
	for (const struct meta_watch *watch = first; watch && out->n < META_WAITS_SENT;
	     watch = watch->next) {
		if (!watch->said_ns || now_ns >= watch->said_ns + FRESH_NS)
			continue;
		out->at[out->n] = *watch;
		fill(out, out->n++, now_ns);
	}
}

/* -------- from the server -------- */

static void take_wait(const Relive__Waiting *in, struct rlv_wait *out)
{
	*out = (struct rlv_wait){
		.kind = in->kind,
		.pid = in->pid,
		.client_id = in->client_id,
		.slot = in->slot,
		.view = in->view,
		.shard = in->shard,
		.since_ns = in->since_ns,
		.left = in->left,
		.stopped = in->stopped != 0,
	};
	snprintf(out->table, sizeof(out->table), "%s", in->table);
	snprintf(out->node, sizeof(out->node), "%s", in->node);
	snprintf(out->words, sizeof(out->words), "%s", in->words);
}

int meta_waits_ask(struct rpc *rpc, struct rlv_wait *waits, size_t *n_inout)
{
	Relive__StoreInfoRequest request = RELIVE__STORE_INFO_REQUEST__INIT;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_STORE_INFO,
		.request = &request.base,
		.reply = &relive__store_info_reply__descriptor,
	};
	const Relive__StoreInfoReply *info;
	ProtobufCMessage *reply;
	int ret;

	request.why = true;
	ret = rpc_ask(rpc, &call, &reply);
	if (ret)
		return ret;
	info = (const Relive__StoreInfoReply *)reply;
	for (size_t i = 0; i < info->n_waits && i < *n_inout; i++)
		take_wait(info->waits[i], &waits[i]);
	*n_inout = info->n_waits + info->waits_left_out;
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}
