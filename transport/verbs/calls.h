/*
 * calls.h - rdma-core as a table, so that librelive loads where rdma-core is not installed.
 *
 *   files of this folder -- struct verbs_calls ----> librelive-verbs.so ----> libibverbs, librdmacm
 *                                    ^
 *                                    +---- a fake, in unit tests
 *
 * The table holds what those libraries export. What their headers inline (ibv_post_send,
 * ibv_post_recv, ibv_poll_cq, ibv_req_notify_cq, ibv_alloc_mw, ibv_dealloc_mw, ibv_bind_mw,
 * ibv_alloc_td, ibv_alloc_parent_domain ..) is called as it is: it goes through the functions of
 * an ibv_context, the provider's or the fake's own, without a detour on the data path.
 *
 * A member's name is its call's name without the prefix: alloc_pd is ibv_alloc_pd, cm_connect is
 * rdma_connect. Arguments, results and errno are those of its manual page.
 */
#ifndef RLV_TRANSPORT_VERBS_CALLS_H
#define RLV_TRANSPORT_VERBS_CALLS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "base/error.h"

#define VERBS_CALLS_VERSION 1 /* of the table; a module of another version is refused */

struct verbs_calls {
	uint32_t version;
	uint32_t reserved;

	int (*fork_init)(void);
	const char *(*get_device_name)(struct ibv_device *device);
	int (*query_device)(struct ibv_context *context, struct ibv_device_attr *attr);
	int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length, int access);
	/* ibv_reg_dmabuf_mr; NULL: this rdma-core is too old to have it */
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t length,
					uint64_t iova, int fd, int access);
	int (*dereg_mr)(struct ibv_mr *mr);
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *context);
	int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
	struct ibv_cq *(*create_cq)(struct ibv_context *context, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int comp_vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq,
			    void **cq_context);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned int n);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	const char *(*wc_status_str)(enum ibv_wc_status status);

	struct rdma_event_channel *(*cm_create_event_channel)(void);
	void (*cm_destroy_event_channel)(struct rdma_event_channel *channel);
	int (*cm_create_id)(struct rdma_event_channel *channel, struct rdma_cm_id **id,
			    void *context, enum rdma_port_space ps);
	int (*cm_destroy_id)(struct rdma_cm_id *id);
	int (*cm_bind_addr)(struct rdma_cm_id *id, struct sockaddr *addr);
	int (*cm_listen)(struct rdma_cm_id *id, int backlog);
	int (*cm_resolve_addr)(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
			       int timeout_ms);
	int (*cm_resolve_route)(struct rdma_cm_id *id, int timeout_ms);
	int (*cm_create_qp)(struct rdma_cm_id *id, struct ibv_pd *pd,
			    struct ibv_qp_init_attr *attr);
	void (*cm_destroy_qp)(struct rdma_cm_id *id);
	int (*cm_connect)(struct rdma_cm_id *id, struct rdma_conn_param *param);
	int (*cm_accept)(struct rdma_cm_id *id, struct rdma_conn_param *param);
	int (*cm_reject)(struct rdma_cm_id *id, const void *data, uint8_t bytes);
	int (*cm_disconnect)(struct rdma_cm_id *id);
	int (*cm_get_event)(struct rdma_event_channel *channel, struct rdma_cm_event **event);
	int (*cm_ack_event)(struct rdma_cm_event *event);
	const char *(*cm_event_str)(enum rdma_cm_event_type event);
	int (*cm_set_option)(struct rdma_cm_id *id, int level, int name, void *value, size_t bytes);
	int (*cm_getaddrinfo)(const char *node, const char *service,
			      const struct rdma_addrinfo *hints, struct rdma_addrinfo **res);
	void (*cm_freeaddrinfo)(struct rdma_addrinfo *res);
	__be16 (*cm_get_src_port)(struct rdma_cm_id *id);
};

/* The function that the module exports: returns the module's table. */
#define VERBS_CALLS_SYMBOL "rlv_verbs_calls"

/*
 * The table: the one set by verbs_calls_use, else the module's, opened as module_load does
 * (transport/module.h): RLV_VERBS_MODULE, or librelive-verbs.so beside this library. The call that
 * opens it makes rdma-core ready for forks, too. Errors of module_load. Thread: any.
 */
RLV_MUST_CHECK int verbs_calls_load(const struct verbs_calls **calls_out);

/*
 * For tests: verbs_calls_load gives this table, borrowed; NULL restores the module's. Thread:
 * setup.
 */
void verbs_calls_use(const struct verbs_calls *calls);

#endif
