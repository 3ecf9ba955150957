/*
 * fake_verbs_work.c - queue pairs, and the work on them.
 */
#include "tests/support/fake/fake_verbs_state.h"

#include "tests/support/test.h"

#include "base/bits.h"

#include <errno.h>
#include <string.h>

static struct fake_qp *qps[FAKE_QPS_MAX];
static uint32_t n_qps;

/* -------- queue pairs -------- */

static void post_flushed_recvs(struct fake_qp *qp)
{
	for (; qp->recv_done != qp->recv_posted; qp->recv_done++) {
		struct fake_recv *recv = &qp->recvs[qp->recv_done % qp->cap.max_recv_wr];
		struct ibv_wc wc = { .wr_id = recv->wr_id,
				     .status = IBV_WC_WR_FLUSH_ERR,
				     .qp_num = qp->qp.qp_num };

		fake_complete(qp->qp.recv_cq, &wc, 0);
	}
}

void fake_fail_qp(struct fake_qp *qp)
{
	qp->failed = true;
	post_flushed_recvs(qp);
}

int fake_make_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct fake_qp *qp;

	if (attr->cap.max_send_wr > fake_verbs.wrs ||
	    attr->cap.max_inline_data > fake_verbs.inline_bytes || n_qps == FAKE_QPS_MAX) {
		errno = EINVAL;
		return -1;
	}
	qp = fake_new(sizeof(*qp));
	qp->qp.context = pd->context;
	qp->qp.pd = pd;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.qp_type = attr->qp_type;
	qp->qp.qp_num = fake_number();
	qp->cap = attr->cap;
	qp->signal_all = attr->sq_sig_all;
	qp->work = calloc(attr->cap.max_send_wr, sizeof(*qp->work));
	qp->recvs = calloc(attr->cap.max_recv_wr, sizeof(*qp->recvs));
	((struct fake_pd *)pd)->users++;
	((struct fake_cq *)attr->send_cq)->users++;
	((struct fake_cq *)attr->recv_cq)->users++;
	fake_rule(attr->qp_type == IBV_QPT_RC, "create_qp: not RC");
	qps[n_qps++] = qp;
	id->qp = &qp->qp;
	return 0;
}

static void forget_completions(struct ibv_cq *ibv, uint32_t qp_num)
{
	struct fake_cq *cq = (struct fake_cq *)ibv;
	uint32_t n = 0;

	for (uint32_t i = 0; i < cq->n; i++) {
		if (cq->wcs[i].qp_num == qp_num)
			continue;
		cq->wcs[n] = cq->wcs[i];
		cq->frees[n++] = cq->frees[i];
	}
	cq->n = n;
}

void fake_end_qp(struct fake_qp *qp)
{
	uint32_t at = 0;

	while (qps[at] != qp)
		at++;
	qps[at] = qps[--n_qps];
	fake_verbs.destroyed += qp->active;
	fake_verbs.room -= qp->active ? qp->cap.max_send_wr : 0;
	if (qp->peer)
		qp->peer->peer = NULL;
	fake_unbind_all(qp);
	forget_completions(qp->qp.send_cq, qp->qp.qp_num);
	forget_completions(qp->qp.recv_cq, qp->qp.qp_num);
	((struct fake_pd *)qp->qp.pd)->users--;
	((struct fake_cq *)qp->qp.send_cq)->users--;
	((struct fake_cq *)qp->qp.recv_cq)->users--;
	free(qp->work);
	free(qp->recvs);
	fake_drop(qp);
}

/* -------- posting -------- */

static void note(const struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	struct fake_sent sent = { .qp = qp->number,
				  .opcode = wr->opcode,
				  .flags = wr->send_flags,
				  .bytes = wr->num_sge ? wr->sg_list->length : 0,
				  .doorbell = fake_verbs.doorbells,
				  .remote = wr->wr.rdma.remote_addr,
				  .local = wr->num_sge ? wr->sg_list->addr : 0 };
	uint32_t outstanding = (uint32_t)(qp->posted - qp->freed);

	if (!qp->active)
		return;
	if (fake_verbs.n_sent < FAKE_SENT)
		fake_verbs.sent[fake_verbs.n_sent] = sent;
	fake_verbs.n_sent++;
	if (outstanding > fake_verbs.most_outstanding)
		fake_verbs.most_outstanding = outstanding;
}

static int take_work(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	struct fake_work *work = &qp->work[qp->posted % qp->cap.max_send_wr];

	if (fake_verbs.post_room && qp->active && --fake_verbs.post_room == 0)
		return ENOMEM;
	fake_rule(qp->posted - qp->freed < qp->cap.max_send_wr, "post_send: the queue is full");
	fake_rule(wr->num_sge <= 1, "post_send: one range of memory is all that the fake knows");
	if (qp->posted - qp->freed >= qp->cap.max_send_wr)
		return ENOMEM;
	work->wr = *wr;
	work->sge = wr->num_sge ? *wr->sg_list : (struct ibv_sge){ 0 };
	if (wr->send_flags & IBV_SEND_INLINE) {
		fake_rule(work->sge.length <= qp->cap.max_inline_data,
			  "post_send: inline too long");
		if (work->sge.length > qp->cap.max_inline_data)
			return EINVAL;
		memcpy(work->inlined, (const void *)(uintptr_t)work->sge.addr, work->sge.length);
	}
	qp->posted++;
	note(qp, wr);
	return 0;
}

static int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)ibv;
	int ret = 0;
	FAKE_CALL;

	fake_verbs.doorbells += qp->active;
	*bad = wr;
	if (fake_fails())
		return ENOMEM;
	for (; ret == 0 && wr; wr = wr->next) {
		*bad = wr;
		ret = take_work(qp, wr);
	}
	return ret;
}

static int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)ibv;
	struct fake_recv *recv;
	FAKE_CALL;

	*bad = wr;
	fake_rule(fake_is_local(qp, wr->sg_list), "post_recv: memory that is not registered");
	if (fake_fails() || qp->recv_posted - qp->recv_done == qp->cap.max_recv_wr)
		return ENOMEM;
	recv = &qp->recvs[qp->recv_posted++ % qp->cap.max_recv_wr];
	recv->wr_id = wr->wr_id;
	recv->sge = *wr->sg_list;
	if (qp->failed)
		post_flushed_recvs(qp);
	return 0;
}

/* -------- the work -------- */

/* Copies 8 aligned bytes at a time, as a device does; threads may use the same words. */
static void copy(void *dst, const void *src, size_t bytes)
{
	uint64_t *to = dst;
	const uint64_t *from = src;

	if (((uintptr_t)dst | (uintptr_t)src | bytes) % 8) {
		memcpy(dst, src, bytes);
		return;
	}
	for (size_t i = 0; i < bytes / 8; i++)
		__atomic_store_n(&to[i], __atomic_load_n(&from[i], __ATOMIC_ACQUIRE),
				 __ATOMIC_RELEASE);
}

static const void *payload(const struct fake_work *work)
{
	return work->wr.send_flags & IBV_SEND_INLINE ? work->inlined
						     : (const void *)(uintptr_t)work->sge.addr;
}

static enum ibv_wc_status move(const struct fake_qp *qp, const struct fake_work *work)
{
	bool read = work->wr.opcode == IBV_WR_RDMA_READ;
	void *there;

	if (work->sge.length == 0) /* needs no key */
		return IBV_WC_SUCCESS;
	there = fake_remote(qp->peer, work->wr.wr.rdma.rkey, work->wr.wr.rdma.remote_addr,
			    work->sge.length,
			    read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);

	if (!there)
		return IBV_WC_REM_ACCESS_ERR;
	if (read)
		copy((void *)(uintptr_t)work->sge.addr, there, work->sge.length);
	else
		copy(there, payload(work), work->sge.length);
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status change(const struct fake_qp *qp, const struct fake_work *work)
{
	uint64_t addr = work->wr.wr.atomic.remote_addr;
	uint64_t *word =
		fake_remote(qp->peer, work->wr.wr.atomic.rkey, addr, 8, IBV_ACCESS_REMOTE_ATOMIC);
	uint64_t old = work->wr.wr.atomic.compare_add;

	if (!word)
		return IBV_WC_REM_ACCESS_ERR;
	if (addr % 8)
		return IBV_WC_REM_INV_REQ_ERR;
	if (work->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		(void)__atomic_compare_exchange_n(word, &old, work->wr.wr.atomic.swap, false,
						  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	else
		old = __atomic_fetch_add(word, old, __ATOMIC_ACQ_REL);
	copy((void *)(uintptr_t)work->sge.addr, &old, 8);
	return IBV_WC_SUCCESS;
}

/* The caller knows that the other side has a receive. */
static enum ibv_wc_status deliver(const struct fake_qp *qp, const struct fake_work *work)
{
	struct fake_qp *peer = qp->peer;
	struct fake_recv *recv = &peer->recvs[peer->recv_done++ % peer->cap.max_recv_wr];
	struct ibv_wc wc = { .wr_id = recv->wr_id,
			     .opcode = IBV_WC_RECV,
			     .byte_len = work->sge.length,
			     .qp_num = peer->qp.qp_num };

	if (work->sge.length > recv->sge.length)
		wc.status = IBV_WC_LOC_LEN_ERR;
	else
		memcpy((void *)(uintptr_t)recv->sge.addr, payload(work), work->sge.length);
	fake_complete(peer->qp.recv_cq, &wc, 0);
	return wc.status ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS;
}

static enum ibv_wc_status bind_window(struct fake_qp *qp, const struct fake_work *work)
{
	struct fake_mw *mw = (struct fake_mw *)work->wr.bind_mw.mw;
	const struct ibv_mw_bind_info *info = &work->wr.bind_mw.bind_info;
	struct fake_mr *mr = (struct fake_mr *)info->mr;
	bool inside = fake_within((uintptr_t)mr->mr.addr, mr->mr.length, info->addr, info->length);

	fake_rule(inside && (mr->access & IBV_ACCESS_MW_BIND), "bind_mw: not in its memory");
	fake_rule(mw->mw.type == IBV_MW_TYPE_2 && !mw->mr, "bind_mw: of type 2, not bound");
	fake_rule(fake_root_of(mw->mw.pd) == fake_root_of(qp->qp.pd), "bind_mw: another domain");
	if (!inside || !(mr->access & IBV_ACCESS_MW_BIND))
		return IBV_WC_MW_BIND_ERR;
	mw->mr = mr;
	mr->windows++;
	mw->qp = qp;
	mw->addr = info->addr;
	mw->length = info->length;
	mw->access = info->mw_access_flags;
	mw->mw.rkey = work->wr.bind_mw.rkey;
	return IBV_WC_SUCCESS;
}

static bool needs_memory(const struct fake_work *work)
{
	return work->sge.length && work->wr.opcode != IBV_WR_BIND_MW &&
	       !(work->wr.send_flags & IBV_SEND_INLINE);
}

static enum ibv_wc_status do_work(struct fake_qp *qp, const struct fake_work *work)
{
	bool local = !needs_memory(work) || fake_is_local(qp, &work->sge);

	fake_rule(local, "post_send: memory that is not registered");
	if (!local)
		return IBV_WC_LOC_PROT_ERR;
	if (work->wr.opcode == IBV_WR_BIND_MW)
		return bind_window(qp, work);
	if (!qp->peer || qp->peer->failed)
		return IBV_WC_RETRY_EXC_ERR;
	switch (work->wr.opcode) {
	case IBV_WR_RDMA_READ:
	case IBV_WR_RDMA_WRITE:
		return move(qp, work);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return change(qp, work);
	case IBV_WR_SEND:
		return deliver(qp, work);
	default:
		return IBV_WC_GENERAL_ERR;
	}
}

/* True if the fault is for this request. */
static bool strikes(const struct fake_qp *qp, const struct fake_work *work)
{
	struct fake_fault *fault = &fake_verbs.fault;

	if (!fault->armed || !qp->active || work->wr.opcode != fault->opcode)
		return false;
	if (fault->skip) {
		fault->skip--;
		return false;
	}
	fault->armed = false;
	return true;
}

static enum ibv_wc_status outcome(struct fake_qp *qp, const struct fake_work *work)
{
	if (qp->failed)
		return IBV_WC_WR_FLUSH_ERR;
	if (!strikes(qp, work))
		return do_work(qp, work);
	if (fake_verbs.fault.done)
		(void)do_work(qp, work);
	return fake_verbs.fault.status;
}

static bool waits(const struct fake_qp *qp, const struct fake_work *work)
{
	if (qp->active && !qp->failed && fake_verbs.hold &&
	    (!fake_verbs.hold_first || qp->number < fake_verbs.hold_first))
		return true;
	if (!qp->active && !qp->failed && fake_verbs.hold_passive)
		return true;
	return !qp->failed && work->wr.opcode == IBV_WR_SEND && qp->peer && !qp->peer->failed &&
	       qp->peer->recv_done == qp->peer->recv_posted;
}

static void run_qp(struct fake_qp *qp)
{
	while (qp->done != qp->posted) {
		const struct fake_work *work = &qp->work[qp->done % qp->cap.max_send_wr];
		struct ibv_wc wc = { .wr_id = work->wr.wr_id, .qp_num = qp->qp.qp_num };

		if (waits(qp, work))
			return;
		wc.status = outcome(qp, work);
		qp->done++;
		if (wc.status != IBV_WC_SUCCESS && !qp->failed) {
			fake_fail_qp(qp);
			if (qp->peer && wc.status != IBV_WC_RETRY_EXC_ERR)
				fake_fail_qp(qp->peer);
		}
		if (wc.status != IBV_WC_SUCCESS || qp->signal_all ||
		    (work->wr.send_flags & IBV_SEND_SIGNALED))
			fake_complete(qp->qp.send_cq, &wc, qp->done);
	}
}

static void run(void)
{
	for (uint32_t i = 0; i < n_qps; i++)
		run_qp(qps[fake_verbs.backwards ? n_qps - 1 - i : i]);
}

void fake_run_passive(void)
{
	for (uint32_t i = 0; i < n_qps; i++)
		if (!qps[i]->active)
			run_qp(qps[i]);
}

/* -------- polling -------- */

static void free_work(uint32_t qp_num, uint64_t upto)
{
	for (uint32_t i = 0; i < n_qps; i++)
		if (qps[i]->qp.qp_num == qp_num && upto > qps[i]->freed)
			qps[i]->freed = upto;
}

static int hand_out(struct fake_cq *cq, int most, struct ibv_wc *wcs)
{
	uint32_t n = (uint32_t)min_u64(cq->n, (uint64_t)most);

	memcpy(wcs, cq->wcs, n * sizeof(*wcs));
	for (uint32_t i = 0; i < n; i++)
		free_work(wcs[i].qp_num, cq->frees[i]);
	cq->n -= n;
	memmove(cq->wcs, cq->wcs + n, cq->n * sizeof(*wcs));
	memmove(cq->frees, cq->frees + n, cq->n * sizeof(*cq->frees));
	return (int)n;
}

static int poll_cq(struct ibv_cq *ibv, int most, struct ibv_wc *wcs)
{
	struct fake_cq *cq = (struct fake_cq *)ibv;
	FAKE_CALL;

	if (fake_verbs.overrun && !cq->channel)
		return -1;
	run();
	if (cq->n == 0 && !cq->channel) {
		fake_idle();
		run();
	}
	return hand_out(cq, most, wcs);
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	FAKE_CALL;

	if (fake_fails())
		return ENOMEM;
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR)
		fake_fail_qp((struct fake_qp *)qp);
	return 0;
}

void fake_fail_active(void)
{
	for (uint32_t i = 0; i < n_qps; i++)
		if (qps[i]->active)
			fake_fail_qp(qps[i]);
}

void fake_work_calls(struct verbs_calls *calls, struct ibv_context_ops *ops)
{
	n_qps = 0;
	calls->modify_qp = modify_qp;
	ops->post_send = post_send;
	ops->post_recv = post_recv;
	ops->poll_cq = poll_cq;
}
