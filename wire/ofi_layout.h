/*
 * Messages between an initiator and its target over libfabric, before one-sided operations can begin.
 *
 *   initiator                                        target
 *     TCP connection, HELLO: client, link         ->
 *                                                 <- WELCOME: incarnation, boot id, provider
 *                                                    or REFUSAL: status, text
 *     ATTACH  grant                               ->
 *                                                 <- ATTACHED  key, address, size, endpoint
 *     DETACH  region, number of its ATTACH        ->
 *     end of the connection = goodbye
 *
 * The connection is the link. The target opens an endpoint of libfabric for it at its first good
 * grant: only there do its keys work. A link that replaces another one names it, and is welcomed
 * after the old link's endpoint is closed: no operation sent to it takes effect afterwards.
 *
 * A grant is checked as over shm (wire/attach_layout.h). Every message has its exact size and a
 * crc32c; the receiver of anything else ends the connection.
 *
 * Every message begins with a struct message_head: magic "RLVO", version 1, type: enum ofi_message.
 */
#ifndef RLV_WIRE_OFI_LAYOUT_H
#define RLV_WIRE_OFI_LAYOUT_H

#include "wire/le.h"
#include "wire/message_head.h"

#define OFI_MAGIC 0x4f564c52u /* "RLVO" */
#define OFI_VERSION 1
#define OFI_MESSAGE_MAX 288 /* bytes of the longest message */
#define OFI_TEXT_BYTES 96
#define OFI_PROVIDER_BYTES 32
#define OFI_ENDPOINT_BYTES 128 /* of an endpoint's name (fi_getname), at most */
#define OFI_GRANT_BYTES 256

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
 *       40   32  provider of libfabric, NUL-terminated
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
 *       56    4  bytes of the endpoint's name
 *       60    4  reserved, zero
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
	uint32_t reserved;
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
WIRE_AT(ofi_attached, reserved, 60);
WIRE_AT(ofi_attached, endpoint, 64);
WIRE_AT(ofi_attached, text, 192);

/*
 * Ends the key of one ATTACH: a link may have a region more than once, with different rights. The
 * initiator has no operation on that key outstanding.
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

#endif
