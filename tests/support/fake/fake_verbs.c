/*
 * fake_verbs.c - the device: protection domains, memory, completion queues.
 */
#include "tests/support/fake/fake_verbs_state.h"

#include "tests/support/test.h"

#include "base/bits.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fake_verbs fake_verbs;

static struct {
	struct verbs_context device;
	struct ibv_device info;
	struct fake_mr *mrs;
	struct fake_mw *mws;
	uint32_t live, keys;
	const char *rule;
	bool idling;
} state;

/* -------- every call -------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_t first_thread; /* that called since the beginning */
static bool several_threads;

void fake_enter(void)
{
	(void)pthread_mutex_lock(&mutex);
	several_threads |= !pthread_equal(first_thread, pthread_self());
}

/* A caller that polls in a loop would take the lock again before the other end wakes up. */
void fake_leave(void *unused)
{
	bool yield = several_threads;

	(void)unused;
	(void)pthread_mutex_unlock(&mutex);
	if (yield)
		(void)sched_yield();
}

bool fake_fails(void)
{
	if (fake_verbs.fail_call == 0 || --fake_verbs.fail_call)
		return false;
	fake_verbs.fail_fired = true;
	errno = ENOMEM;
	return true;
}

void fake_idle(void)
{
	void (*idle)(void *ctx) = fake_verbs.idle;

	if (!idle || state.idling)
		return;
	state.idling = true;
	fake_leave(NULL);
	idle(fake_verbs.idle_ctx);
	fake_enter();
	state.idling = false;
}

void *fake_new(size_t bytes)
{
	void *object = calloc(1, bytes);

	assert_non_null(object);
	state.live++;
	return object;
}

void fake_drop(void *object)
{
	state.live--;
	free(object);
}

void fake_rule(bool kept, const char *text)
{
	if (kept)
		return;
	fake_verbs.broken_rules++;
	if (!state.rule)
		state.rule = text;
}

uint32_t fake_number(void)
{
	return ++state.keys;
}

struct ibv_context *fake_context(void)
{
	return &state.device.context;
}

/* -------- the device -------- */

static int fork_init(void)
{
	FAKE_CALL;

	fake_verbs.forks++;
	return 0;
}

static const char *get_device_name(struct ibv_device *device)
{
	return device->name;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	FAKE_CALL;

	(void)context;
	if (fake_fails())
		return ENOMEM;
	*attr = (struct ibv_device_attr){
		.max_qp_wr = (int)fake_verbs.wrs,
		.max_sge = 16,
		.max_cqe = (int)fake_verbs.completions,
		.max_qp_rd_atom = (int)fake_verbs.reads,
		.max_qp_init_rd_atom = (int)fake_verbs.reads,
		.atomic_cap = fake_verbs.no_atomics ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA,
		.max_mw = fake_verbs.no_windows ? 0 : 65536,
		.device_cap_flags = fake_verbs.no_windows ? 0 : IBV_DEVICE_MEM_WINDOW_TYPE_2B,
	};
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	(void)context;
	(void)port;
	memset(attr, 0, sizeof(*attr));
	attr->state = IBV_PORT_ACTIVE;
	attr->active_mtu = IBV_MTU_4096;
	return 0;
}

/* -------- protection domains -------- */

static struct ibv_pd *new_pd(struct fake_pd *root)
{
	struct fake_pd *pd = fake_new(sizeof(*pd));

	pd->pd.context = fake_context();
	pd->root = root ? root : pd;
	if (root)
		root->users++;
	return &pd->pd;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
	FAKE_CALL;

	(void)context;
	return fake_fails() ? NULL : new_pd(NULL);
}

static int dealloc_pd(struct ibv_pd *ibv)
{
	struct fake_pd *pd = (struct fake_pd *)ibv;
	FAKE_CALL;

	fake_rule(pd->users == 0, "dealloc_pd: something still uses it");
	if (pd->users)
		return EBUSY;
	if (pd->root != pd)
		pd->root->users--;
	if (pd->td)
		pd->td->users--;
	fake_drop(pd);
	return 0;
}

static struct ibv_td *alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct fake_td *td;
	FAKE_CALL;

	(void)attr;
	if (fake_verbs.no_parent_domains) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (fake_fails())
		return NULL;
	td = fake_new(sizeof(*td));
	td->td.context = context;
	return &td->td;
}

static int dealloc_td(struct ibv_td *td)
{
	FAKE_CALL;

	fake_rule(((struct fake_td *)td)->users == 0, "dealloc_td: a parent domain uses it");
	fake_drop(td);
	return 0;
}

static struct ibv_pd *alloc_parent_domain(struct ibv_context *context,
					  struct ibv_parent_domain_init_attr *attr)
{
	struct fake_td *td = (struct fake_td *)attr->td;
	struct ibv_pd *parent;
	FAKE_CALL;

	(void)context;
	if (fake_fails())
		return NULL;
	parent = new_pd((struct fake_pd *)attr->pd);
	((struct fake_pd *)parent)->td = td;
	if (td)
		td->users++;
	return parent;
}

/* -------- memory -------- */

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct fake_mr *mr;
	FAKE_CALL;

	if (fake_fails())
		return NULL;
	if (fake_verbs.slow_pins)
		fake_idle();
	mr = fake_new(sizeof(*mr));
	mr->mr =
		(struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = length };
	mr->mr.lkey = mr->mr.rkey = fake_number() << 8;
	mr->access = access;
	mr->next = state.mrs;
	state.mrs = mr;
	((struct fake_pd *)pd)->users++;
	return &mr->mr;
}

static int dereg_mr(struct ibv_mr *ibv)
{
	struct fake_mr **at = &state.mrs;
	FAKE_CALL;

	if (fake_verbs.slow_pins)
		fake_idle();
	while (&(*at)->mr != ibv)
		at = &(*at)->next;
	fake_rule((*at)->windows == 0, "dereg_mr: windows are bound to it");
	*at = (*at)->next;
	((struct fake_pd *)ibv->pd)->users--;
	fake_drop(ibv);
	return 0;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct fake_mw *mw;
	FAKE_CALL;

	if (fake_verbs.no_windows) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (fake_fails())
		return NULL;
	mw = fake_new(sizeof(*mw));
	mw->mw = (struct ibv_mw){
		.context = pd->context, .pd = pd, .rkey = fake_number() << 8, .type = type
	};
	mw->next = state.mws;
	state.mws = mw;
	((struct fake_pd *)pd)->users++;
	return &mw->mw;
}

void fake_unbind(struct fake_mw *mw)
{
	if (mw->mr)
		mw->mr->windows--;
	mw->mr = NULL;
}

void fake_unbind_all(const struct fake_qp *qp)
{
	for (struct fake_mw *mw = state.mws; mw; mw = mw->next)
		if (mw->qp == qp)
			fake_unbind(mw);
}

static int dealloc_mw(struct ibv_mw *ibv)
{
	struct fake_mw **at = &state.mws;
	FAKE_CALL;

	while (&(*at)->mw != ibv)
		at = &(*at)->next;
	fake_unbind(*at);
	*at = (*at)->next;
	((struct fake_pd *)ibv->pd)->users--;
	fake_drop(ibv);
	return 0;
}

struct fake_pd *fake_root_of(const struct ibv_pd *pd)
{
	return ((const struct fake_pd *)pd)->root;
}

/* A work request's own memory. */
bool fake_is_local(const struct fake_qp *qp, const struct ibv_sge *sge)
{
	for (const struct fake_mr *mr = state.mrs; mr; mr = mr->next)
		if (mr->mr.lkey == sge->lkey)
			return fake_root_of(mr->mr.pd) == fake_root_of(qp->qp.pd) &&
			       sge->addr >= (uintptr_t)mr->mr.addr &&
			       sge->addr - (uintptr_t)mr->mr.addr + sge->length <= mr->mr.length;
	return false;
}

void *fake_within(uint64_t base, uint64_t length, uint64_t addr, uint64_t bytes)
{
	bool inside = addr >= base && bytes <= length && addr - base <= length - bytes;

	return inside ? (void *)(uintptr_t)addr : NULL;
}

/* Memory that a key gives the peer of qp access to; NULL = none. */
void *fake_remote(const struct fake_qp *qp, uint32_t key, uint64_t addr, uint64_t bytes,
		  unsigned access)
{
	for (const struct fake_mr *mr = state.mrs; mr; mr = mr->next)
		if (mr->mr.rkey == key)
			return fake_root_of(mr->mr.pd) == fake_root_of(qp->qp.pd) &&
					       ((unsigned)mr->access & access)
				       ? fake_within((uintptr_t)mr->mr.addr, mr->mr.length, addr,
						     bytes)
				       : NULL;
	for (const struct fake_mw *mw = state.mws; mw; mw = mw->next)
		if (mw->mw.rkey == key)
			return mw->mr && mw->qp == qp && (mw->access & access)
				       ? fake_within(mw->addr, mw->length, addr, bytes)
				       : NULL;
	return NULL;
}

/* -------- completion queues -------- */

static void signal_fd(int fd)
{
	uint64_t one = 1;

	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
}

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *context)
{
	struct fake_channel *channel;
	FAKE_CALL;

	if (fake_fails())
		return NULL;
	channel = fake_new(sizeof(*channel));
	channel->channel.context = context;
	channel->channel.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return &channel->channel;
}

static int destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	FAKE_CALL;

	fake_rule(((struct fake_channel *)ibv)->users == 0, "destroy_comp_channel: in use");
	close(ibv->fd);
	fake_drop(ibv);
	return 0;
}

static struct ibv_cq *create_cq(struct ibv_context *context, int cqe, void *cq_context,
				struct ibv_comp_channel *channel, int comp_vector)
{
	struct fake_cq *cq;
	FAKE_CALL;

	(void)comp_vector;
	if ((uint32_t)cqe > fake_verbs.completions) {
		errno = EINVAL;
		return NULL;
	}
	if (fake_fails())
		return NULL;
	cq = fake_new(sizeof(*cq));
	cq->cq.context = context;
	cq->cq.cq_context = cq_context;
	cq->cq.cqe = cqe;
	cq->channel = (struct fake_channel *)channel;
	if (channel)
		cq->channel->users++;
	cq->wcs = calloc((size_t)cqe, sizeof(*cq->wcs));
	cq->frees = calloc((size_t)cqe, sizeof(*cq->frees));
	return &cq->cq;
}

static void forget_events(struct fake_cq *cq)
{
	struct fake_channel *channel = cq->channel;
	uint32_t n = 0;

	for (uint32_t i = 0; i < channel->n_events; i++)
		if (channel->events[i] != cq)
			channel->events[n++] = channel->events[i];
	channel->n_events = n;
}

static int destroy_cq(struct ibv_cq *ibv)
{
	struct fake_cq *cq = (struct fake_cq *)ibv;
	FAKE_CALL;

	fake_rule(cq->users == 0, "destroy_cq: a queue pair uses it");
	if (cq->channel) {
		forget_events(cq);
		cq->channel->users--;
	}
	free(cq->wcs);
	free(cq->frees);
	fake_drop(cq);
	return 0;
}

static int get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **cq, void **context)
{
	struct fake_channel *channel = (struct fake_channel *)ibv;
	uint64_t seen;
	FAKE_CALL;

	fake_run_passive();
	if (channel->n_events == 0) {
		(void)!read(ibv->fd, &seen, sizeof(seen));
		errno = EAGAIN;
		return -1;
	}
	*cq = &channel->events[0]->cq;
	*context = (*cq)->cq_context;
	memmove(channel->events, channel->events + 1,
		--channel->n_events * sizeof(channel->events[0]));
	return 0;
}

static void ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	(void)cq;
	(void)n;
}

static void ring(struct fake_cq *cq)
{
	struct fake_channel *channel = cq->channel;

	if (!cq->armed || !channel)
		return;
	cq->armed = false;
	assert_true(channel->n_events < FAKE_QPS_MAX);
	channel->events[channel->n_events++] = cq;
	signal_fd(channel->channel.fd);
}

static int req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	FAKE_CALL;

	(void)solicited_only;
	((struct fake_cq *)ibv)->armed = true;
	return 0;
}

void fake_complete(struct ibv_cq *ibv, const struct ibv_wc *wc, uint64_t frees)
{
	struct fake_cq *cq = (struct fake_cq *)ibv;

	if (cq->n == (uint32_t)cq->cq.cqe) {
		fake_rule(false, "a completion queue overruns");
		fake_verbs.overrun = true;
		return;
	}
	cq->wcs[cq->n] = *wc;
	cq->frees[cq->n++] = frees;
	ring(cq);
}

/* -------- the rest -------- */

static const char *wc_status_str(enum ibv_wc_status status)
{
	static const struct {
		enum ibv_wc_status status;
		const char *text;
	} texts[] = {
		{ IBV_WC_WR_FLUSH_ERR, "work request flushed" },
		{ IBV_WC_RETRY_EXC_ERR, "retries exceeded" },
		{ IBV_WC_REM_ACCESS_ERR, "remote access error" },
	};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (texts[i].status == status)
			return texts[i].text;
	return "an error";
}

static struct verbs_calls calls = {
	.version = VERBS_CALLS_VERSION,
	.fork_init = fork_init,
	.get_device_name = get_device_name,
	.query_device = query_device,
	.query_port = query_port,
	.alloc_pd = alloc_pd,
	.dealloc_pd = dealloc_pd,
	.reg_mr = reg_mr,
	.dereg_mr = dereg_mr,
	.create_comp_channel = create_comp_channel,
	.destroy_comp_channel = destroy_comp_channel,
	.create_cq = create_cq,
	.destroy_cq = destroy_cq,
	.get_cq_event = get_cq_event,
	.ack_cq_events = ack_cq_events,
	.wc_status_str = wc_status_str,
};

/* -------- for tests -------- */

void fake_verbs_begin(void)
{
	first_thread = pthread_self();
	several_threads = false;
	memset(&state, 0, sizeof(state));
	fake_verbs = (struct fake_verbs){
		.reads = 16, .wrs = 16384, .completions = 65536, .inline_bytes = 256
	};
	(void)snprintf(state.info.name, sizeof(state.info.name), "fake0");
	state.device.sz = sizeof(state.device);
	state.device.alloc_td = alloc_td;
	state.device.dealloc_td = dealloc_td;
	state.device.alloc_parent_domain = alloc_parent_domain;
	state.device.context.device = &state.info;
	state.device.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	state.device.context.ops.alloc_mw = alloc_mw;
	state.device.context.ops.dealloc_mw = dealloc_mw;
	state.device.context.ops.req_notify_cq = req_notify_cq;
	fake_work_calls(&calls, &state.device.context.ops);
	fake_cm_calls(&calls);
	verbs_calls_use(&calls);
}

void fake_verbs_end(void)
{
	verbs_calls_use(NULL);
	if (state.rule)
		fail_msg("a rule of RDMA was broken: %s", state.rule);
	assert_int_equal(state.live, 0);
}

uint32_t fake_verbs_live(void)
{
	return state.live;
}

const char *fake_verbs_rule(void)
{
	return state.rule;
}

void fake_verbs_event(enum rdma_cm_event_type type)
{
	FAKE_CALL;

	if (type != RDMA_CM_EVENT_DEVICE_REMOVAL)
		fake_fail_active();
	fake_cm_event_all(type);
}

void fake_verbs_forget(void)
{
	fake_verbs.doorbells = fake_verbs.n_sent = fake_verbs.most_outstanding = 0;
}

uint32_t fake_verbs_count(enum ibv_wr_opcode opcode, unsigned flag)
{
	uint32_t n = 0;

	assert_true(fake_verbs.n_sent <= FAKE_SENT);
	for (uint32_t i = 0; i < fake_verbs.n_sent; i++)
		n += fake_verbs.sent[i].opcode == opcode &&
		     (fake_verbs.sent[i].flags & flag) == flag;
	return n;
}
