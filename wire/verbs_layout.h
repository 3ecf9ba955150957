/*
 * Messages between an RDMA initiator and its target before one-sided operations can begin.
 *
 *   initiator                                        target
 *     connect, private data HELLO: client, link,
 *       which of the link's queue pairs           ->
 *                                                 <- accept, WELCOME: incarnation, boot id
 *                                                    or reject, REFUSAL: status, text
 *     on queue pair 0, by SEND:
 *     ATTACH  grant                               ->
 *                                                 <- ATTACHED  address, size, one key for each QP
 *     DETACH  region, number of its ATTACH        ->
 *     disconnect of any of them = goodbye of all
 *
 * A link that replaces another one names it, and is accepted after the old link has been taken
 * down: no operation sent through the old link takes effect afterwards, however late it arrives.
 *
 * A link is all queue pairs of one transport (one thread of a client). A queue pair alone can touch
 * nothing: only a grant, checked as over shm (wire/attach_layout.h), opens a region to the link's
 * queue pairs. A grant is the same as over shm, so that a client on the target's host can map the
 * region, too. Every message has its exact size and a crc32c; the receiver of anything else ends
 * the connection.
 *
 * Every message begins with a struct message_head: magic "RLVV", version 2, type: enum verbs_message.
 */
#ifndef RLV_WIRE_VERBS_LAYOUT_H
#define RLV_WIRE_VERBS_LAYOUT_H

#include "wire/le.h"
#include "wire/message_head.h"

#define VERBS_MAGIC 0x56564c52u /* "RLVV" */
#define VERBS_VERSION 2
#define VERBS_LINK_QPS 8      /* queue pairs of one link, at most */
#define VERBS_MESSAGE_MAX 320 /* bytes of the longest message */
#define VERBS_TEXT_BYTES 96

enum verbs_message {
	VERBS_HELLO = 1,
	VERBS_WELCOME = 2,
	VERBS_REFUSAL = 3,
	VERBS_ATTACH = 4,
	VERBS_ATTACHED = 5,
	VERBS_DETACH = 6,
};

/*
 * Private data of connect: at most 56 bytes reach the other side.
 *   offset size
 *        0   16  head
 *       16    8  client id: lease at the metadata server
 *       24    8  link: random, the same in all connections of one transport
 *       32    4  index of this queue pair
 *       36    4  queue pairs of the link
 *       40    8  link that this one takes the place of, of the same client; 0 = none
 */
struct verbs_hello {
	struct message_head head;
	uint64_t client_id;
	uint64_t link;
	uint32_t index;
	uint32_t n_qps;
	uint64_t replaces;
};

WIRE_SIZE(verbs_hello, 48);
WIRE_AT(verbs_hello, client_id, 16);
WIRE_AT(verbs_hello, link, 24);
WIRE_AT(verbs_hello, index, 32);
WIRE_AT(verbs_hello, n_qps, 36);
WIRE_AT(verbs_hello, replaces, 40);

/*
 * Private data of accept.
 *   offset size
 *        0   16  head
 *       16    8  incarnation of the memory node
 *       24   16  boot id of its host: the same as ours = its socket may be reached
 *       40    4  flags: enum verbs_flags
 *       44    4  reserved, zero
 */
enum verbs_flags {
	VERBS_PERSISTENT = 1, /* the pool is a file or device */
};

struct verbs_welcome {
	struct message_head head;
	uint64_t incarnation;
	uint8_t boot_id[16];
	uint32_t flags;
	uint32_t reserved;
};

WIRE_SIZE(verbs_welcome, 48);
WIRE_AT(verbs_welcome, incarnation, 16);
WIRE_AT(verbs_welcome, boot_id, 24);
WIRE_AT(verbs_welcome, flags, 40);
WIRE_AT(verbs_welcome, reserved, 44);

/*
 * Private data of reject.
 *   offset size
 *        0   16  head
 *       16    4  status: a negative errno
 *       20   96  message, NUL-terminated
 */
struct verbs_refusal {
	struct message_head head;
	int32_t status;
	char text[VERBS_TEXT_BYTES];
};

WIRE_SIZE(verbs_refusal, 116);
WIRE_AT(verbs_refusal, status, 16);
WIRE_AT(verbs_refusal, text, 20);

/*
 *   offset size
 *        0   16  head
 *       16    4  request number, another one in each ATTACH of the link, repeated in the answer
 *       20    4  bytes of the grant
 *       24  256  grant, zeros behind it
 */
#define VERBS_GRANT_BYTES 256

struct verbs_attach {
	struct message_head head;
	uint32_t request;
	uint32_t grant_bytes;
	uint8_t grant[VERBS_GRANT_BYTES];
};

WIRE_SIZE(verbs_attach, 280);
WIRE_AT(verbs_attach, request, 16);
WIRE_AT(verbs_attach, grant_bytes, 20);
WIRE_AT(verbs_attach, grant, 24);

/*
 *   offset size
 *        0   16  head
 *       16    4  request number
 *       20    4  status: 0 or a negative errno
 *       24    4  region number
 *       28    4  rights: enum transport_rights
 *       32    8  address of the granted range's first byte in the target
 *       40    8  size of the range
 *       48   32  remote key for each of the link's queue pairs
 *       80   96  message of a failure, NUL-terminated
 */
struct verbs_attached {
	struct message_head head;
	uint32_t request;
	int32_t status;
	uint32_t region;
	uint32_t rights;
	uint64_t address;
	uint64_t size;
	uint32_t key[VERBS_LINK_QPS];
	char text[VERBS_TEXT_BYTES];
};

WIRE_SIZE(verbs_attached, 176);
WIRE_AT(verbs_attached, request, 16);
WIRE_AT(verbs_attached, status, 20);
WIRE_AT(verbs_attached, region, 24);
WIRE_AT(verbs_attached, rights, 28);
WIRE_AT(verbs_attached, address, 32);
WIRE_AT(verbs_attached, size, 40);
WIRE_AT(verbs_attached, key, 48);
WIRE_AT(verbs_attached, text, 80);

/*
 * Ends the keys of one ATTACH: a link may have a region more than once, with different rights. The
 * initiator has no operation on those keys outstanding.
 *   offset size
 *        0   16  head
 *       16    4  region number
 *       20    4  request number of the ATTACH
 */
struct verbs_detach {
	struct message_head head;
	uint32_t region;
	uint32_t request;
};

WIRE_SIZE(verbs_detach, 24);
WIRE_AT(verbs_detach, region, 16);
WIRE_AT(verbs_detach, request, 20);

#endif
