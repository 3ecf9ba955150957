/*
 * Messages between an shm initiator and its target over a unix socket (SOCK_SEQPACKET); the grant.
 *
 *   initiator                                  target
 *     HELLO   client, pid, start + own pidfd ->
 *                                           <- HELLO_REPLY  status, incarnation, flags
 *     ATTACH  grant                         ->
 *                                           <- ATTACH_REPLY status, size, offset + region's fd
 *     ATTACH  grant, page                   ->
 *                                           <- ATTACH_REPLY status, its offset   + the page's fd
 *                                           <- ... of each page behind it, at most ATTACH_PAGES_MAX
 *     RENEW   grant, page + the page's fd   ->    (no answer; wrong, the target hangs up)
 *     RENEW   grant, page                   ->    (of a pool that makes its pages itself)
 *                                           <- RENEW_REPLY  status, its offset   + the page's fd
 *     BYE     "everything is unmapped"      ->
 *
 * Every message is one packet of its exact size, with a crc32c; one descriptor where a "+" stands,
 * else none. A receiver of anything else hangs up. A connection without BYE leaves the client
 * "attached": only its death, seen through the pidfd, proves that it can write no more.
 *
 * Every message begins with a struct message_head: magic "RLVA", version 1, type: enum attach_type.
 */
#ifndef RLV_WIRE_ATTACH_LAYOUT_H
#define RLV_WIRE_ATTACH_LAYOUT_H

#include "wire/le.h"
#include "wire/message_head.h"

#define ATTACH_MAGIC 0x41564c52u /* "RLVA" */
#define ATTACH_VERSION 1
#define ATTACH_TEXT_BYTES 160

enum attach_type {
	ATTACH_HELLO = 1,
	ATTACH_HELLO_REPLY = 2,
	ATTACH_REGION = 3,
	ATTACH_REGION_REPLY = 4,
	ATTACH_BYE = 5,
	ATTACH_RENEW = 6,       /* a struct attach_region */
	ATTACH_RENEW_REPLY = 7, /* a struct attach_region_reply */
};

enum attach_flags {
	ATTACH_PERSISTENT = 1,   /* the pool is a file: msync makes it durable */
	ATTACH_HUGE = 2,         /* ask for huge pages when mapping it */
	ATTACH_PAGES = 4,        /* some pages of it have memory of their own: ask for them */
	ATTACH_CAN_RENEW = 8,    /* pages of its pool may have memory of their own ... */
	ATTACH_MAY_RENEW = 16,   /* ... and who attached it may give it to them */
	ATTACH_MORE = 32,        /* the next page comes, too, without being asked for */
	ATTACH_MAKES_PAGES = 64, /* instead of CAN_RENEW: the target makes the memory of a page */
};

/*
 * A 4 KiB page may have its own memory, so that a grant of the page gives no descriptor of its
 * neighbours. A client with a grant of the whole region and all rights makes that memory, a memfd
 * sealed against shrinking, and sends it with the page number. In a directory pool the target makes
 * the memory, a file of the pool, and answers with its descriptor. A client with a grant of the
 * whole region requests such pages by number and maps them in place.
 */
#define ATTACH_PAGE_BYTES 4096u
#define ATTACH_PAGE_MAX (UINT32_MAX >> 2)
#define ATTACH_PAGE_NEXT \
	0x40000000u         /* | page: the first one from there on; size 0 = there is none */
#define ATTACH_PAGES_MAX 64 /* answers to one request */

/*
 *   offset size
 *        0   16  head
 *       16    8  client id: lease at the metadata server
 *       24    4  pid
 *       28    4  reserved, zero
 *       32    8  start time of the process (clock ticks since boot)
 */
struct attach_hello {
	struct message_head head;
	uint64_t client_id;
	uint32_t pid;
	uint32_t reserved;
	uint64_t start_time;
};

WIRE_SIZE(attach_hello, 40);
WIRE_AT(attach_hello, client_id, 16);
WIRE_AT(attach_hello, pid, 24);
WIRE_AT(attach_hello, reserved, 28);
WIRE_AT(attach_hello, start_time, 32);

/*
 *   offset size
 *        0   16  head
 *       16    4  status: 0 or a negative errno
 *       20    4  flags: enum attach_flags
 *       24    8  incarnation of the memory node
 *       32  160  message of a failure, NUL-terminated
 */
struct attach_hello_reply {
	struct message_head head;
	int32_t status;
	uint32_t flags;
	uint64_t incarnation;
	char text[ATTACH_TEXT_BYTES];
};

WIRE_SIZE(attach_hello_reply, 192);
WIRE_AT(attach_hello_reply, status, 16);
WIRE_AT(attach_hello_reply, flags, 20);
WIRE_AT(attach_hello_reply, incarnation, 24);
WIRE_AT(attach_hello_reply, text, 32);

/*
 * A grant, as carried in struct region_grant. Only the target reads it.
 *   offset size
 *        0    4  magic "RLVG"
 *        4    2  version: 1
 *        6    2  reserved, zero
 *        8    4  region number
 *       12    4  rights: enum transport_rights
 *       16    8  client id
 *       24    8  incarnation of the memory node
 *       32   16  secret: random, kept in the target's table
 *       48    4  slot in the target's table
 *       52    4  crc32c of bytes 0..51
 */
#define GRANT_MAGIC 0x47564c52u /* "RLVG" */
#define GRANT_VERSION 1
#define GRANT_SECRET_BYTES 16

struct shm_grant {
	uint32_t magic;
	uint16_t version;
	uint16_t reserved;
	uint32_t region;
	uint32_t rights;
	uint64_t client_id;
	uint64_t incarnation;
	uint8_t secret[GRANT_SECRET_BYTES];
	uint32_t slot;
	uint32_t crc;
};

WIRE_SIZE(shm_grant, 56);
WIRE_AT(shm_grant, magic, 0);
WIRE_AT(shm_grant, version, 4);
WIRE_AT(shm_grant, reserved, 6);
WIRE_AT(shm_grant, region, 8);
WIRE_AT(shm_grant, rights, 12);
WIRE_AT(shm_grant, client_id, 16);
WIRE_AT(shm_grant, incarnation, 24);
WIRE_AT(shm_grant, secret, 32);
WIRE_AT(shm_grant, slot, 48);
WIRE_AT(shm_grant, crc, 52);

/*
 *   offset size
 *        0   16  head
 *       16    4  bytes of the grant
 *       20    4  page: 0 = all that was granted, else as above
 *       24  256  grant, zeros behind it
 */
#define ATTACH_GRANT_BYTES 256

struct attach_region {
	struct message_head head;
	uint32_t grant_bytes;
	uint32_t page;
	uint8_t grant[ATTACH_GRANT_BYTES];
};

WIRE_SIZE(attach_region, 280);
WIRE_AT(attach_region, grant_bytes, 16);
WIRE_AT(attach_region, page, 20);
WIRE_AT(attach_region, grant, 24);

/*
 *   offset size
 *        0   16  head
 *       16    4  status: 0 or a negative errno
 *       20    4  flags: enum attach_flags
 *       24    4  region number
 *       28    4  rights
 *       32    8  offset of the granted range in the descriptor; of a page: in the region
 *       40    8  size of the range
 *       48    8  incarnation
 *       56  160  message of a failure, NUL-terminated
 */
struct attach_region_reply {
	struct message_head head;
	int32_t status;
	uint32_t flags;
	uint32_t region;
	uint32_t rights;
	uint64_t offset;
	uint64_t size;
	uint64_t incarnation;
	char text[ATTACH_TEXT_BYTES];
};

WIRE_SIZE(attach_region_reply, 216);
WIRE_AT(attach_region_reply, status, 16);
WIRE_AT(attach_region_reply, flags, 20);
WIRE_AT(attach_region_reply, region, 24);
WIRE_AT(attach_region_reply, rights, 28);
WIRE_AT(attach_region_reply, offset, 32);
WIRE_AT(attach_region_reply, size, 40);
WIRE_AT(attach_region_reply, incarnation, 48);
WIRE_AT(attach_region_reply, text, 56);

/* head alone */
struct attach_bye {
	struct message_head head;
};

WIRE_SIZE(attach_bye, 16);

#endif
