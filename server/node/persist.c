#include "server/node/persist.h"

#include <errno.h>

#include "base/mem/alloc.h"

struct persist_round {
	struct persist_round *next;
	struct persist *persist;
	struct conn *conn; /* NULL = disconnected */
	struct frame_header head;
	uint32_t waiting; /* number of nodes that owe an answer, plus one while they are asked */
	struct error_kept failure; /* first error */
};

/* A node of the round has answered or failed: keeps the first error. After the last one, answers
   the client, if still connected, and frees the round. */
static void on_done(void *ctx, uint64_t tag, struct node *node, int code,
		    const ProtobufCMessage *reply)
{
	struct persist_round *round = ctx, **link = &round->persist->first;

	(void)tag;
	(void)node;
	(void)reply;
	if (code && round->failure.code == 0)
		error_keep(&round->failure);
	if (--round->waiting)
		return;
	while (*link != round)
		link = &(*link)->next;
	*link = round->next;
	error_restore(&round->failure);
	if (round->conn)
		conn_answer_status(round->conn, &round->head, round->failure.code);
	mem_free(round);
}

void persist_begin(struct persist *persist, struct conn *conn, const struct frame_header *head)
{
	const Relive__Empty request = RELIVE__EMPTY__INIT;
	struct persist_round *round = mem_zalloc(sizeof(*round));
	const struct node_post post = {
		.type = RELIVE__TYPE__TYPE_NODE_PERSIST,
		.request = &request.base,
		.reply = &relive__status_reply__descriptor,
		.timeout_ns = NODE_PERSIST_NS,
		.done = on_done,
		.ctx = round,
	};

	if (!round) {
		conn_answer_status(conn, head,
				   error_set(-ENOMEM, "persist: cannot allocate memory"));
		return;
	}
	round->persist = persist;
	round->conn = conn;
	round->head = *head;
	round->waiting = 1;
	round->next = persist->first;
	persist->first = round;
	for (struct node *node = persist->nodes->first; node; node = node->next) {
		int ret;

		if (node->lost)
			continue;
		round->waiting++;
		ret = node_post(node, &post);
		if (ret)
			on_done(round, 0, node, ret, NULL);
	}
	on_done(round, 0, NULL, 0, NULL);
}

void persist_forget(struct persist *persist, const struct conn *conn)
{
	for (struct persist_round *round = persist->first; round; round = round->next)
		if (round->conn == conn)
			round->conn = NULL;
}

void persist_fini(struct persist *persist)
{
	while (persist->first) {
		struct persist_round *round = persist->first;

		persist->first = round->next;
		mem_free(round);
	}
}
