#include "server/node/persist.h"

#include <errno.h>
#include <stdio.h>

#include "base/mem/alloc.h"

struct persist_round {
	struct persist_round *next;
	struct persist *persist;
	uint64_t id;
	struct conn *conn; /* NULL = disconnected */
	struct frame_header head;
	uint32_t waiting; /* number of nodes that owe an answer, plus one while they are asked */
	int code;         /* first error */
	char words[ERROR_TEXT_BYTES];
};

static void persist_fail(struct persist_round *round, int code, const char *words)
{
	if (round->code)
		return;
	round->code = code;
	snprintf(round->words, sizeof(round->words), "%s", words);
}

static void end_if_done(struct persist_round *round)
{
	struct persist_round **link = &round->persist->first;

	if (--round->waiting)
		return;
	while (*link != round)
		link = &(*link)->next;
	*link = round->next;
	if (round->code)
		(void)error_set(round->code, "%s", round->words);
	if (round->conn)
		conn_answer_status(round->conn, &round->head, round->code);
	mem_free(round);
}

static void on_done(void *ctx, uint64_t tag, struct node *node, int code,
		    const ProtobufCMessage *reply)
{
	const struct persist *persist = ctx;
	struct persist_round *round = persist->first;
	const Relive__Status *status = reply ? ((const Relive__StatusReply *)reply)->status : NULL;
	char words[ERROR_TEXT_BYTES];

	while (round && round->id != tag)
		round = round->next;
	if (!round)
		return;
	snprintf(words, sizeof(words), "memory node %s: %s", node->name,
		 status ? status->message : error_name(code));
	if (code)
		persist_fail(round, code, words);
	end_if_done(round);
}

void persist_begin(struct persist *persist, struct conn *conn, const struct frame_header *head)
{
	struct persist_round *round = mem_zalloc(sizeof(*round));

	if (!round) {
		conn_answer_status(conn, head,
				   error_set(-ENOMEM, "persist: cannot allocate memory"));
		return;
	}
	round->persist = persist;
	round->id = ++persist->last_id;
	round->conn = conn;
	round->head = *head;
	round->waiting = 1;
	round->next = persist->first;
	persist->first = round;
	for (struct node *node = persist->nodes->first; node; node = node->next) {
		int ret = node->lost ? 0 : node_post_persist(node, round->id, on_done, persist);

		round->waiting += !node->lost && ret == 0;
		if (ret)
			persist_fail(round, ret, error_last());
	}
	end_if_done(round);
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
