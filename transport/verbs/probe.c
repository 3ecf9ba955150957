#include "transport/verbs/probe.h"

#include <errno.h>

int probe_link(struct peer *peer, uint64_t now_ns)
{
	uint64_t past_ns = now_ns - peer->probed_ns;
	struct ibv_send_wr probe = { .wr_id = PEER_ID_PROBE,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad = NULL;

	if (peer->probes)
		return past_ns < PROBE_LIMIT_NS
			       ? 0
			       : error_set(-ECONNRESET, "the client's device does not answer");
	if (past_ns < PROBE_NS)
		return 0;
	peer->probed_ns = now_ns;
	for (uint32_t i = 0; i < peer->n_qps; i++)
		peer->probes += ibv_post_send(peer->ids[i]->qp, &probe, &bad) == 0; /* not full */
	return 0;
}
