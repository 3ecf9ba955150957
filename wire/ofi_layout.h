/*
 * What an initiator and its target of kind ofi say over their TCP connection.
 *
 *   initiator                                        target
 *     HELLO: client, link                         ->
 *                                                 <- WELCOME: incarnation, boot id, provider
 *                                                    or REFUSAL: status, text
 *     ATTACH  grant                               ->
 *                                                 <- ATTACHED  opening, size; key, address, endpoint
 *     list    READs, WRITEs, CASes, FAAs          ->
 *                                                 <- answer: bytes that were read, old words
 *     DETACH  region, number of its ATTACH        ->
 *     end of the connection = goodbye
 *
 * The connection is the link: an opening is good there only, and with its end nothing of it lands any
 * more. A link that replaces another one names it, and is welcomed after the old one is closed.
 *
 * With a provider of libfabric the target opens an endpoint for the link, too, at its first good
 * grant: there, and only there, the keys of ATTACHED open the same memory to long READs.
 *
 * A grant is checked as over shm (wire/attach_layout.h). Every message has its exact size and a
 * crc32c; the receiver of anything else ends the connection. It begins with a struct message_head:
 * magic "RLVO", version 3, type: enum ofi_message. Lists and answers have heads of their own.
 */
#ifndef RLV_WIRE_OFI_LAYOUT_H
#define RLV_WIRE_OFI_LAYOUT_H

#include "wire/le.h"
#include "wire/message_head.h"

#define OFI_MAGIC 0x4f564c52u /* "RLVO" */
#define OFI_VERSION 3
#define OFI_MESSAGE_MAX 288 /* bytes of the longest message */
#define OFI_TEXT_BYTES 96
#define OFI_PROVIDER_BYTES 32
#define OFI_ENDPOINT_BYTES 128 /* of an endpoint's name (fi_getname), at most */
#define OFI_GRANT_BYTES 256
#define OFI_LIST_MAGIC 0x4c564c52u   /* "RLVL" */
#define OFI_ANSWER_MAGIC 0x41564c52u /* "RLVA" */
#define OFI_LIST_MAX 1088            /* requests of a list: a claim of 1024 rows */
#define OFI_LIST_LATE (1u << 31)     /* flag of that number */
#define OFI_OPENINGS_MAX 4096        /* of one link */

enum ofi_message {
	OFI_HELLO = 1,
	OFI_WELCOME = 2,
	OFI_REFUSAL = 3,
	OFI_ATTACH = 4,
	OFI_ATTACHED = 5,
	OFI_DETACH = 6,
};

/*
 *   offset size
 *        0   16  head
 *       16    8  client id: lease at the metadata server
 *       24    8  link: random, not 0
 *       32    8  link that this one takes the place of, of the same client; 0 = none
 */
struct ofi_hello {
	struct message_head head;
	uint64_t client_id;
	uint64_t link;
	uint64_t replaces;
};

WIRE_SIZE(ofi_hello, 40);
WIRE_AT(ofi_hello, client_id, 16);
WIRE_AT(ofi_hello, link, 24);
WIRE_AT(ofi_hello, replaces, 32);

/*
 *   offset size
 *        0   16  head
 *       16    8  incarnation of the memory node
 *       24   16  boot id of its host: the same as ours = its socket may be reached
 *       40   32  provider of libfabric, NUL-terminated; empty: none
 */
struct ofi_welcome {
	struct message_head head;
	uint64_t incarnation;
	uint8_t boot_id[16];
	char provider[OFI_PROVIDER_BYTES];
};

WIRE_SIZE(ofi_welcome, 72);
WIRE_AT(ofi_welcome, incarnation, 16);
WIRE_AT(ofi_welcome, boot_id, 24);
WIRE_AT(ofi_welcome, provider, 40);

/*
 *   offset size
 *        0   16  head
 *       16    4  status: a negative errno
 *       20   96  message, NUL-terminated
 */
struct ofi_refusal {
	struct message_head head;
	int32_t status;
	char text[OFI_TEXT_BYTES];
};

WIRE_SIZE(ofi_refusal, 116);
WIRE_AT(ofi_refusal, status, 16);
WIRE_AT(ofi_refusal, text, 20);

/*
 *   offset size
 *        0   16  head
 *       16    4  request number, another one in each ATTACH of the link, repeated in the answer
 *       20    4  bytes of the grant
 *       24  256  grant, zeros behind it
 */
struct ofi_attach {
	struct message_head head;
	uint32_t request;
	uint32_t grant_bytes;
	uint8_t grant[OFI_GRANT_BYTES];
};

WIRE_SIZE(ofi_attach, 280);
WIRE_AT(ofi_attach, request, 16);
WIRE_AT(ofi_attach, grant_bytes, 20);
WIRE_AT(ofi_attach, grant, 24);

/*
 *   offset size
 *        0   16  head
 *       16    4  request number
 *       20    4  status: 0 or a negative errno
 *       24    4  region number
 *       28    4  rights: enum transport_rights
 *       32    8  size of the granted range
 *       40    8  remote address of its first byte, as the provider counts: 0, or that of the target
 *       48    8  remote key
 *       56    4  bytes of the endpoint's name; 0: without a provider
 *       60    4  opening: what requests of a list name, below OFI_OPENINGS_MAX
 *       64  128  name of the link's endpoint, zeros behind it: the same in all answers of the link
 *      192   96  message of a failure, NUL-terminated
 */
struct ofi_attached {
	struct message_head head;
	uint32_t request;
	int32_t status;
	uint32_t region;
	uint32_t rights;
	uint64_t size;
	uint64_t address;
	uint64_t key;
	uint32_t endpoint_bytes;
	uint32_t opening;
	uint8_t endpoint[OFI_ENDPOINT_BYTES];
	char text[OFI_TEXT_BYTES];
};

WIRE_SIZE(ofi_attached, 288);
WIRE_AT(ofi_attached, request, 16);
WIRE_AT(ofi_attached, status, 20);
WIRE_AT(ofi_attached, region, 24);
WIRE_AT(ofi_attached, rights, 28);
WIRE_AT(ofi_attached, size, 32);
WIRE_AT(ofi_attached, address, 40);
WIRE_AT(ofi_attached, key, 48);
WIRE_AT(ofi_attached, endpoint_bytes, 56);
WIRE_AT(ofi_attached, opening, 60);
WIRE_AT(ofi_attached, endpoint, 64);
WIRE_AT(ofi_attached, text, 192);

/*
 * Ends the opening of one ATTACH: a link may have a region more than once, with different rights. The
 * initiator has no request to it outstanding.
 *   offset size
 *        0   16  head
 *       16    4  region number
 *       20    4  request number of the ATTACH
 */
struct ofi_detach {
	struct message_head head;
	uint32_t region;
	uint32_t request;
};

WIRE_SIZE(ofi_detach, 24);
WIRE_AT(ofi_detach, region, 16);
WIRE_AT(ofi_detach, request, 20);

/*
 * Head of a list, and end of its answer. Requests follow the head, with what they carry; they are
 * carried out in their order, and lists in theirs. The answer has, in the order of the requests, the bytes
 * of each READ and the old word of each CAS and FAA, nothing of a WRITE. Its end has the same number, and
 * says that all requests are done. A guarded request is skipped if a CAS before it in the list found another
 * word than the expected one; the old word of a skipped FAA is 0.
 *   offset size
 *        0    4  magic
 *        4    4  requests: 1 .. OFI_LIST_MAX; with OFI_LIST_LATE the answer may wait for the next one
 *                 without that flag, but no longer than a moment; it has the same flag
 */
struct ofi_list {
	uint32_t magic;
	uint32_t n;
};

WIRE_SIZE(ofi_list, 8);
WIRE_AT(ofi_list, magic, 0);
WIRE_AT(ofi_list, n, 4);

enum ofi_verb {
	OFI_READ = 1,
	OFI_WRITE = 2, /* behind it: the bytes */
	OFI_CAS = 3,   /* behind it: the expected word, the new one */
	OFI_FAA = 4,   /* behind it: what is added */
};

/*
 *   offset size
 *        0    8  offset in the opening, a multiple of 8
 *        8    4  bytes: a multiple of 8, not 0; CAS and FAA: 8
 *       12    2  opening
 *       14    1  verb: enum ofi_verb
 *       15    1  guard: 1 = guarded, of FAAs, and of WRITEs of one word; else 0
 */
struct ofi_request {
	uint64_t off;
	uint32_t bytes;
	uint16_t opening;
	uint8_t verb;
	uint8_t guard;
};

WIRE_SIZE(ofi_request, 16);
WIRE_AT(ofi_request, off, 0);
WIRE_AT(ofi_request, bytes, 8);
WIRE_AT(ofi_request, opening, 12);
WIRE_AT(ofi_request, verb, 14);
WIRE_AT(ofi_request, guard, 15);

#endif
