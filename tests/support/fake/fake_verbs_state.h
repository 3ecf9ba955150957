/* fake_verbs_state.h - state shared by the files of the fake. */
#ifndef RLV_TESTS_SUPPORT_FAKE_FAKE_VERBS_STATE_H
#define RLV_TESTS_SUPPORT_FAKE_FAKE_VERBS_STATE_H

#include "tests/support/fake/fake_verbs.h"

#include <pthread.h>

#define FAKE_INLINE_MAX 512
#define FAKE_QPS_MAX 256

struct fake_td {
	struct ibv_td td;
	uint32_t users;
};

struct fake_pd {
	struct ibv_pd pd;
	struct fake_pd *root; /* the protection domain of a parent domain; else itself */
	struct fake_td *td;   /* of a parent domain */
	uint32_t users;
};

struct fake_mr {
	struct ibv_mr mr;
	struct fake_mr *next;
	int access;
	uint32_t windows; /* bound */
};

struct fake_mw {
	struct ibv_mw mw;
	struct fake_mw *next;
	struct fake_mr *mr; /* NULL = not bound */
	struct fake_qp *qp;
	uint64_t addr, length;
	unsigned access;
};

struct fake_channel {
	struct ibv_comp_channel channel;
	uint32_t users;
	struct fake_cq *events[FAKE_QPS_MAX];
	uint32_t n_events;
};

struct fake_cq {
	struct ibv_cq cq;
	struct fake_channel *channel;
	uint32_t users;
	struct ibv_wc *wcs; /* of cqe, the oldest first */
	uint64_t *frees;    /* work of the send queue that each stands for */
	uint32_t n;
	bool armed;
};

struct fake_work {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint8_t inlined[FAKE_INLINE_MAX];
};

struct fake_recv {
	uint64_t wr_id;
	struct ibv_sge sge;
};

struct fake_qp {
	struct ibv_qp qp;
	struct ibv_qp_cap cap;
	bool signal_all;
	struct fake_qp *peer;
	bool failed;     /* error state */
	bool active;     /* it connected */
	uint32_t number; /* among those that did */
	struct fake_work *work;
	uint64_t posted, done, freed; /* counters of work requests */
	struct fake_recv *recvs;
	uint64_t recv_posted, recv_done;
};

struct fake_id {
	struct rdma_cm_id id; /* first */
	struct fake_id *next;
	struct fake_id *other; /* the other end, once a request has reached it */
	bool listening, connected, active;
};

/* -------- fake_verbs_cm.c: connections -------- */

void fake_cm_calls(struct verbs_calls *calls);
void fake_cm_event_all(enum rdma_cm_event_type type);

/* -------- fake_verbs_work.c: queue pairs -------- */

void fake_work_calls(struct verbs_calls *calls, struct ibv_context_ops *ops);
int fake_make_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
void fake_end_qp(struct fake_qp *qp);
/* Moves a queue pair into the error state and flushes its outstanding work. */
void fake_fail_qp(struct fake_qp *qp);
void fake_fail_active(void);
/* Executes the work of the queue pairs that accepted a connection. */
void fake_run_passive(void);

/* -------- fake_verbs.c: the device -------- */

/* Lock that every call holds. */
void fake_enter(void);
void fake_leave(void *unused);
#define FAKE_CALL __attribute__((cleanup(fake_leave), unused)) char fake_call = (fake_enter(), 0)

/* True if this call is to fail. Sets errno. */
bool fake_fails(void);
/* Releases the lock for a moment so that other threads can make calls. */
void fake_idle(void);
void *fake_new(size_t bytes);
void fake_drop(void *object);
void fake_rule(bool kept, const char *text);

struct ibv_context *fake_context(void);
uint32_t fake_number(void); /* never the same */
struct fake_pd *fake_root_of(const struct ibv_pd *pd);
/* A work request's own memory. */
bool fake_is_local(const struct fake_qp *qp, const struct ibv_sge *sge);
/* Memory that a key gives the peer of qp access to; NULL = none. */
void *fake_remote(const struct fake_qp *qp, uint32_t key, uint64_t addr, uint64_t bytes,
		  unsigned access);
void *fake_within(uint64_t base, uint64_t length, uint64_t addr, uint64_t bytes);
void fake_unbind(struct fake_mw *mw);
void fake_unbind_all(const struct fake_qp *qp);
/* frees: the work request of a send queue that it stands for. */
void fake_complete(struct ibv_cq *cq, const struct ibv_wc *wc, uint64_t frees);

static inline struct fake_qp *fake_qp_of(const struct rdma_cm_id *id)
{
	return (struct fake_qp *)id->qp;
}

#endif
