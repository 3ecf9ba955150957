/*
 * carry.h - the target's end of a link: takes lists from its connection, carries their requests out on
 * the openings' memory, one after another, and sends the answers.
 *
 *   connection -> in -> requests -> region          a long WRITE lands from the connection directly
 *                           |
 *                           +-----> out, pieces -> connection    a long READ is sent from the region
 *
 * Nothing that comes is trusted: each request is checked against its opening when it is carried out.
 * While an answer waits for the connection nothing further is carried out, so a client that does not
 * read its answers costs what is here, and no more.
 *
 * READs and WRITEs of up to OFI_WHOLE bytes are carried out whole. A word of a longer one may be torn
 * where the connection ends a piece.
 *
 * Not locked: the target does that.
 */
#ifndef RLV_TRANSPORT_OFI_CARRY_H
#define RLV_TRANSPORT_OFI_CARRY_H

#include <stdbool.h>
#include <sys/uio.h>

#include "transport/attach/target.h"
#include "transport/ofi/message.h"

#define OFI_WHOLE 1024u
#define OFI_IN_BYTES (32u << 10)
#define OFI_OUT_BYTES (96u << 10) /* a level of a draw of 256 is answered by one send */
#define OFI_PIECES 512            /* of answers, in memory here or of regions */

struct fid_mr;

/* A region that one ATTACH opened to a link. */
struct ofi_opening {
	uint32_t request; /* number of that ATTACH */
	bool revoked;
	struct target_map map;
	struct fid_mr *mr; /* with a provider, until it is revoked */
};

struct ofi_openings {
	struct ofi_opening **at; /* by the number that requests name; NULL: closed */
	uint32_t room;
	uint32_t n;
};

struct ofi_carry {
	uint32_t begin, end; /* of what has come and is not carried out, in `in` */
	uint64_t lists;      /* carried out */
	uint64_t sends;      /* of answers */
	uint32_t n, left;    /* requests of the list, and of them those to come; n 0: no list */
	bool late;           /* the list's answer may wait */
	bool failed;         /* a CAS of the list found another word */
	bool urgent;         /* an answer that was not sent yet may not */
	bool lends;          /* a READ of a region that was not sent yet */
	/* a long WRITE, whose other bytes are still to come */
	const struct ofi_opening *landing;
	uint8_t *land_at;
	uint64_t land_left;
	/* answers that were not sent yet */
	uint32_t out_end, piece, n_pieces;
	struct iovec pieces[OFI_PIECES];
	uint64_t in[OFI_IN_BYTES / 8], out[OFI_OUT_BYTES / 8];
};

/*
 * Takes what has come over the connection; *drained_out: there is no more now. -EAGAIN: nothing has;
 * -ECONNRESET: the other side has hung up; -EACCES: it is a WRITE to an opening that was revoked.
 */
RLV_MUST_CHECK int ofi_carry_receive(struct ofi_carry *carry, int sock, bool *drained_out);

/*
 * Carries out requests of what was taken, up to the next message, which it copies to *message_out (0).
 * -EAGAIN: more must come first; -ENOBUFS: answers must be sent first. -EPROTO, -EACCES, -EINVAL: no
 * message or request of this protocol, or one that the openings do not permit: the link must end.
 */
RLV_MUST_CHECK int ofi_carry_out(struct ofi_carry *carry, const struct ofi_openings *openings,
				 union ofi_any *message_out);

/* True if there are answers to send, which may wait. */
static inline bool ofi_carry_holds(const struct ofi_carry *carry)
{
	return carry->n_pieces && !carry->urgent;
}

/* Sends answers. -EAGAIN: the connection takes no more now; -ECONNRESET. */
RLV_MUST_CHECK int ofi_carry_send(struct ofi_carry *carry, int sock);

#endif
