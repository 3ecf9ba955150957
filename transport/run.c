/*
 * run.c - chains of several transports, posted together and waited for together.
 *
 * A piece is what one post takes. Pieces of one chain follow each other, as chains of one
 * transport do; a chain that has failed posts no more.
 */
#include "transport/transport.h"

#include <errno.h>

#define PIECES 64

int transport_post_wait(struct transport *tr, struct transport_wr *wrs, size_t n,
			uint64_t *ticket_out)
{
	int ret = transport_post(tr, wrs, n, ticket_out);

	if (ret != -EAGAIN)
		return ret;
	ret = transport_order(tr);
	return ret ? ret : transport_post(tr, wrs, n, ticket_out);
}

struct piece {
	struct transport_chain *chain;
	uint64_t ticket;
};

struct run {
	struct piece pieces[PIECES];
	size_t n;
	bool counted; /* the phase */
};

static void note(struct transport_chain *chain, int ret)
{
	if (chain->ret == 0)
		chain->ret = ret;
}

static void wait_pieces(struct run *run)
{
	for (size_t i = 0; i < run->n; i++) {
		struct transport *tr = run->pieces[i].chain->tr;
		uint64_t before = tr->stats.phases;

		note(run->pieces[i].chain,
		     transport_poll(tr, run->pieces[i].ticket, DEADLINE_NEVER));
		if (run->counted) /* it shares the first one's phase */
			tr->stats.phases = before;
		run->counted = true;
	}
	run->n = 0;
	run->counted = false;
}

static int post_piece(struct run *run, struct transport_chain *chain, size_t done, size_t n)
{
	uint64_t ticket;
	int ret;

	if (run->n == PIECES)
		wait_pieces(run);
	ret = transport_post_wait(chain->tr, chain->wrs + done, n, &ticket);
	if (ret)
		return ret;
	run->pieces[run->n++] = (struct piece){ chain, ticket };
	return 0;
}

int transport_run(struct transport_chain *chains, size_t n)
{
	struct run run;
	int first = 0;

	run.n = 0; /* its pieces are filled as they come */
	run.counted = false;

	for (size_t c = 0; c < n; c++) {
		struct transport_chain *chain = &chains[c];
		size_t now;

		chain->ret = 0;
		for (size_t done = 0; chain->ret == 0 && done < chain->n; done += now) {
			now = chain->n - done;
			if (now > TRANSPORT_VECTOR)
				now = TRANSPORT_VECTOR;
			note(chain, post_piece(&run, chain, done, now));
		}
	}
	wait_pieces(&run);
	for (size_t c = 0; c < n && first == 0; c++)
		first = chains[c].ret;
	return first;
}
