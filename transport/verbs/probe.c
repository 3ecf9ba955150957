#include "transport/verbs/probe.h"

#include <errno.h>

/* False: the queue pair is full; the probe is skipped. */
static bool post(struct ibv_qp *qp)
{
	struct ibv_send_wr wr = { .wr_id = PEER_ID_PROBE,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad = NULL;

	return ibv_post_send(qp, &wr, &bad) == 0;
}

int probe_link(struct peer *peer, uint64_t now_ns)
{
	uint64_t past_ns = now_ns - peer->probed_ns;

	if (peer->probes)
		return past_ns < PROBE_LIMIT_NS
			       ? 0
			       : error_set(-ECONNRESET, "its device does not answer");
	if (past_ns < PROBE_NS)
		return 0;
	peer->probed_ns = now_ns;
	for (uint32_t i = 0; i < peer->n_qps; i++)
		peer->probes += post(peer->ids[i]->qp);
	return 0;
}

void probe_answered(struct peer *peer)
{
	peer->probes--;
}
