/* requests.c - requests of clients by SEND: ATTACH and DETACH. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "transport/verbs/peers.h"

enum {
	OPENINGS_MAX = 4096, /* of one link */
	BATCH = 16,          /* completions taken at a time */
	ROUNDS = 8192,       /* of completions served at once: more than an honest client needs */
};

/* -------- answers -------- */

/* Answers an ATTACH: with its opening, or a status and the last error's words. */
static int request_answer(struct peer *peer, uint32_t request, int status,
			  const struct opening *opening)
{
	union verbs_any *out = &peer->buffers->out;
	struct verbs_attached *attached = &out->attached;
	struct ibv_sge sge = { .addr = (uintptr_t)out->bytes, .lkey = peer->key };
	struct ibv_send_wr wr = { .wr_id = PEER_ID_SEND,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad = NULL;
	int ret;

	memset(out, 0, sizeof(*out));
	attached->request = request;
	attached->status = status;
	if (opening) {
		attached->region = opening->map.region->info.id;
		attached->rights = opening->map.rights;
		attached->address = (uintptr_t)opening->map.base;
		attached->size = opening->map.size;
		memcpy(attached->key, opening->keys, sizeof(opening->keys));
	} else {
		(void)snprintf(attached->text, VERBS_TEXT_BYTES, "%.*s", VERBS_TEXT_BYTES - 1,
			       error_last());
	}
	message_seal(out, VERBS_ATTACHED);
	sge.length = out->head.bytes;
	ret = ibv_post_send(peer->ids[0]->qp, &wr, &bad);
	peer->sending = ret == 0;
	return ret ? error_set(-ret, "ibv_post_send: %s", strerror(ret)) : 0;
}

/* -------- ATTACH and DETACH -------- */

static struct opening **request_find(struct peer *peer, uint32_t request)
{
	struct opening **at = &peer->openings;

	while (*at && (*at)->request != request)
		at = &(*at)->next;
	return at;
}

/*
 * Handles an ATTACH: opens the grant's range and answers, or, with windows, starts to bind its
 * keys. An invalid grant is refused by an answer; the link stays.
 */
static int on_attach(struct peer *peer, const struct verbs_attach *ask)
{
	struct rights *rights = &peer->all->rights;
	struct region_grant grant = { .bytes = ask->grant_bytes };
	struct target_map map = { 0 };
	struct opening *opening = NULL;
	int ret;

	if (peer->joined != peer->n_qps || *request_find(peer, ask->request))
		return error_set(-EPROTO,
				 "request %u: its link is not complete, or its number is in use",
				 ask->request);
	memcpy(grant.data, ask->grant, ask->grant_bytes);
	ret = target_attach(rights->target, peer->client_id, &grant, &map);
	if (ret)
		return request_answer(peer, ask->request, ret, NULL);
	peer->all->n_unproved -= !peer->proved;
	peer->proved = true;
	if (peer->n_openings >= OPENINGS_MAX)
		ret = error_set(-ENOSPC, "client %llu has %u regions open on one link",
				(unsigned long long)peer->client_id, peer->n_openings);
	else
		ret = rights_open(rights, peer->domain, peer->n_qps, &map, &opening);
	if (ret) {
		target_detach(rights->target, map.region);
		return request_answer(peer, ask->request, ret, NULL);
	}
	opening->request = ask->request;
	opening->next = peer->openings;
	peer->openings = opening;
	peer->n_openings++;
	peer->all->attaches++;
	if (!rights->windows)
		return request_answer(peer, ask->request, 0, opening);
	for (uint32_t i = 0; i < opening->n; i++) {
		ret = rights_bind(rights, opening, i, peer->ids[i]->qp, PEER_ID_BIND);
		if (ret)
			return ret;
		peer->binds++;
	}
	peer->binding = opening;
	return 0;
}

static int serve_queue(struct peer *peer)
{
	int ret = 0;

	while (ret == 0 && peer->waiting && !peer->sending && !peer->binds) {
		struct peer_message next = peer->queue[peer->head];
		struct opening **at;
		union verbs_any message;

		peer->head = (peer->head + 1) % PEER_RECEIVES;
		peer->waiting--;
		ret = message_receive(&message, peer->buffers->in[next.buffer], next.bytes);
		if (ret == 0)
			ret = verbs_device_receive(peer->ids[0]->qp, next.buffer, peer->buffers->in,
						   peer->key);
		if (ret)
			return ret;
		switch (message.head.type) {
		case VERBS_ATTACH:
			ret = on_attach(peer, &message.attach);
			break;
		case VERBS_DETACH:
			at = request_find(peer, message.detach.request);
			if (*at && (*at)->map.region->info.id == message.detach.region)
				peer_close_opening(peer, at); /* else it has been revoked */
			break;
		default:
			ret = error_set(-EPROTO, "a message of type %u is not expected now",
					message.head.type);
		}
	}
	return ret;
}

/* -------- completions -------- */

static int on_completion(struct peer *peer, const struct ibv_wc *wc)
{
	struct opening *bound = peer->binding;
	uint32_t at = (peer->head + peer->waiting) % PEER_RECEIVES;

	if (wc->status != IBV_WC_SUCCESS)
		return error_set(-ECONNRESET, "completion %s",
				 peer->all->device->calls->wc_status_str(wc->status));
	switch (wc->wr_id) {
	case PEER_ID_BIND:
		if (--peer->binds)
			return 0;
		peer->binding = NULL;
		return request_answer(peer, bound->request, 0, bound);
	case PEER_ID_SEND:
		peer->sending = false;
		return 0;
	case PEER_ID_PROBE:
		peer->probes--;
		return 0;
	}
	if (wc->opcode != IBV_WC_RECV || (wc->wc_flags & IBV_WC_WITH_IMM))
		return error_set(-EPROTO, "unexpected completion: it is not that of a message");
	peer->queue[at] = (struct peer_message){ (uint32_t)wc->wr_id, wc->byte_len };
	peer->waiting++;
	return 0;
}

int requests_serve(struct peer *peer)
{
	struct ibv_wc wcs[BATCH];
	int n = 1, ret = 0;

	if (ibv_req_notify_cq(peer->completions, 0))
		return error_set(-EIO, "ibv_req_notify_cq failed");
	for (int round = 0; ret == 0 && n > 0; round++) {
		n = ibv_poll_cq(peer->completions, BATCH, wcs);
		if (n < 0)
			return error_set(-EIO, "ibv_poll_cq failed");
		for (int i = 0; ret == 0 && i < n; i++)
			ret = on_completion(peer, &wcs[i]);
		if (ret == 0)
			ret = serve_queue(peer);
		if (ret == 0 && round == ROUNDS)
			ret = error_set(-EPROTO, "messages arrive faster than they are read");
	}
	return ret;
}
