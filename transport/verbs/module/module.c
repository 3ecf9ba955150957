/*
 * module.c - librelive-verbs.so: the table of transport/verbs/calls.h over rdma-core itself. The
 * only code of ours that is linked to libibverbs and librdmacm.
 */
#include "transport/verbs/calls.h"

/* For the table: ibv_query_port is a macro over an exported function of another type. */
static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	return ibv_query_port(context, port, attr);
}

static const struct verbs_calls calls = {
	.version = VERBS_CALLS_VERSION,
	.fork_init = ibv_fork_init,
	.get_device_name = ibv_get_device_name,
	.query_device = ibv_query_device,
	.query_port = query_port,
	.alloc_pd = ibv_alloc_pd,
	.dealloc_pd = ibv_dealloc_pd,
	.reg_mr = ibv_reg_mr,
#if RLV_HAVE_DMABUF_MR
	.reg_dmabuf_mr = ibv_reg_dmabuf_mr,
#endif
	.dereg_mr = ibv_dereg_mr,
	.create_comp_channel = ibv_create_comp_channel,
	.destroy_comp_channel = ibv_destroy_comp_channel,
	.create_cq = ibv_create_cq,
	.destroy_cq = ibv_destroy_cq,
	.get_cq_event = ibv_get_cq_event,
	.ack_cq_events = ibv_ack_cq_events,
	.modify_qp = ibv_modify_qp,
	.wc_status_str = ibv_wc_status_str,

	.cm_create_event_channel = rdma_create_event_channel,
	.cm_destroy_event_channel = rdma_destroy_event_channel,
	.cm_create_id = rdma_create_id,
	.cm_destroy_id = rdma_destroy_id,
	.cm_bind_addr = rdma_bind_addr,
	.cm_listen = rdma_listen,
	.cm_resolve_addr = rdma_resolve_addr,
	.cm_resolve_route = rdma_resolve_route,
	.cm_create_qp = rdma_create_qp,
	.cm_destroy_qp = rdma_destroy_qp,
	.cm_connect = rdma_connect,
	.cm_accept = rdma_accept,
	.cm_reject = rdma_reject,
	.cm_disconnect = rdma_disconnect,
	.cm_get_event = rdma_get_cm_event,
	.cm_ack_event = rdma_ack_cm_event,
	.cm_event_str = rdma_event_str,
	.cm_set_option = rdma_set_option,
	.cm_getaddrinfo = rdma_getaddrinfo,
	.cm_freeaddrinfo = rdma_freeaddrinfo,
	.cm_get_src_port = rdma_get_src_port,
};

__attribute__((visibility("default"))) const void *rlv_verbs_calls(void);

const void *rlv_verbs_calls(void)
{
	return &calls;
}
