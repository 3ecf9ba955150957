/*
 * raw_verbs.h - one queue pair to a memory node for tests of misbehaving clients: arbitrary HELLOs,
 * messages and keys.
 */
#ifndef RLV_TESTS_SUPPORT_FAKE_RAW_VERBS_H
#define RLV_TESTS_SUPPORT_FAKE_RAW_VERBS_H

#if defined(RLV_HAVE_VERBS) && RLV_HAVE_VERBS

#include "transport/verbs/calls.h"
#include "transport/verbs/message.h"

#define RAW_MEMORY ((size_t)64 << 10)
#define RAW_DEPTH 256

struct raw {
	const struct verbs_calls *calls;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *sends, *receives;
	struct ibv_mr *mr;
	uint8_t *memory; /* RAW_MEMORY bytes; the end is for received messages */
};

/* A valid HELLO. */
union verbs_any raw_hello(uint64_t client_id, uint64_t link, uint32_t index, uint32_t n_qps);

/*
 * Connects with n bytes of private data. NULL: it was refused, *refusal_out says how (-ECONNREFUSED
 * without the node's words); everything else fails the test.
 */
struct raw *raw_connect(const char *uri, const void *data, size_t n, int *refusal_out);
void raw_close(struct raw *raw);

/* Starts an operation on len bytes at raw->memory. CAS and FAA: 0 -> 1, and 1. */
void raw_post(struct raw *raw, enum ibv_wr_opcode opcode, uint64_t address, uint32_t key,
	      uint32_t len);
/* Waits for the oldest outstanding request and returns its status. */
enum ibv_wc_status raw_wait(struct raw *raw);
enum ibv_wc_status raw_do(struct raw *raw, enum ibv_wr_opcode opcode, uint64_t address,
			  uint32_t key, uint32_t len);

/* Sends a message of arbitrary bytes, and waits for the node's answer. */
enum ibv_wc_status raw_send(struct raw *raw, const void *bytes, size_t n);
void raw_receive(struct raw *raw, union verbs_any *message_out);

/* Waits until the node has hung up; fails the test if it does not. */
void raw_wait_hang_up(struct raw *raw);

#endif
#endif
