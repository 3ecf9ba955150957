/*
 * carry.c - requests, in the order in which they come.
 */
#include "transport/ofi/carry.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

#include "base/bits.h"

#include "transport/barrier.h"

enum { AHEAD = 16, AHEAD_BYTES = 256 }; /* requests, and bytes of one: the CPU then loads on */

/* -------- receiving -------- */

/* Moves what has not been carried out to the front. It stays aligned: all has multiples of 8. */
static void carry_compact(struct ofi_carry *carry)
{
	uint32_t n = carry->end - carry->begin;

	if (n && carry->begin)
		memmove(carry->in, (uint8_t *)carry->in + carry->begin, n);
	carry->begin = 0;
	carry->end = n;
}

int ofi_carry_receive(struct ofi_carry *carry, int sock, bool *drained_out)
{
	struct iovec to[2];
	struct msghdr msg = { .msg_iov = to };
	size_t room;
	ssize_t n;

	carry_compact(carry);
	if (carry->land_left && carry->landing->revoked)
		return error_set(-EACCES, "the region of a WRITE was revoked");
	if (carry->land_left)
		to[msg.msg_iovlen++] = (struct iovec){ carry->land_at, carry->land_left };
	room = OFI_IN_BYTES - carry->end;
	to[msg.msg_iovlen++] = (struct iovec){ (uint8_t *)carry->in + carry->end, room };
	n = recvmsg(sock, &msg, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	if (n <= 0)
		return error_set(-ECONNRESET, "the other side has hung up%s%s", n ? ": " : "",
				 n ? strerror(errno) : "");
	*drained_out = (uint64_t)n < carry->land_left + room;
	if (carry->land_left) {
		uint64_t landed = min_u64((uint64_t)n, carry->land_left);

		carry->land_at += landed;
		carry->land_left -= landed;
		n -= (ssize_t)landed;
	}
	carry->end += (uint32_t)n;
	return 0;
}

static uint32_t carry_has(const struct ofi_carry *carry)
{
	return carry->end - carry->begin;
}

static const void *carry_take(struct ofi_carry *carry, size_t bytes)
{
	const uint8_t *at = (const uint8_t *)carry->in + carry->begin;

	carry->begin += (uint32_t)bytes;
	return at;
}

/* -------- answering -------- */

/* Room for `bytes` of answers, which are sent with what is before them. The caller has looked for it. */
static void *answer_add(struct ofi_carry *carry, size_t bytes)
{
	uint8_t *at = (uint8_t *)carry->out + carry->out_end;
	struct iovec *last = carry->n_pieces ? &carry->pieces[carry->n_pieces - 1] : NULL;

	if (last && (uint8_t *)last->iov_base + last->iov_len == at)
		last->iov_len += bytes;
	else
		carry->pieces[carry->n_pieces++] = (struct iovec){ at, bytes };
	carry->out_end += (uint32_t)bytes;
	return at;
}

static bool answer_fits(const struct ofi_carry *carry, size_t bytes)
{
	return carry->n_pieces < OFI_PIECES && OFI_OUT_BYTES - carry->out_end >= bytes;
}

int ofi_carry_send(struct ofi_carry *carry, int sock)
{
	while (carry->piece < carry->n_pieces) {
		struct msghdr msg = { .msg_iov = carry->pieces + carry->piece,
				      .msg_iovlen = carry->n_pieces - carry->piece };
		ssize_t n = sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return -EAGAIN;
		if (n < 0)
			return error_set(-ECONNRESET, "send: %s", strerror(errno));
		carry->sends++;
		while (n) {
			struct iovec *piece = &carry->pieces[carry->piece];
			size_t sent = min_u64((uint64_t)n, piece->iov_len);

			piece->iov_base = (uint8_t *)piece->iov_base + sent;
			piece->iov_len -= sent;
			carry->piece += piece->iov_len == 0;
			n -= (ssize_t)sent;
		}
	}
	carry->piece = carry->n_pieces = carry->out_end = 0;
	carry->urgent = carry->lends = false;
	return 0;
}

/* -------- requests -------- */

static bool is_atomic(const struct ofi_request *request)
{
	return request->verb == OFI_CAS || request->verb == OFI_FAA;
}

/* What must have come before the request is carried out: all but the bytes of a long WRITE. */
static uint32_t needed(const struct ofi_request *request)
{
	switch (request->verb) {
	case OFI_WRITE:
		return sizeof(*request) + (request->bytes > OFI_WHOLE ? 0 : request->bytes);
	case OFI_CAS:
		return sizeof(*request) + 16;
	case OFI_FAA:
		return sizeof(*request) + 8;
	}
	return sizeof(*request);
}

static bool guard_is_sound(const struct ofi_request *request)
{
	return !request->guard || (request->guard == 1 && request->bytes == 8 &&
				   (request->verb == OFI_WRITE || request->verb == OFI_FAA));
}

/* Finds the memory that a request names, if its opening permits the request. */
static int find_memory(const struct ofi_openings *openings, const struct ofi_request *request,
		       const struct ofi_opening **opening_out, uint8_t **at_out)
{
	static const uint32_t rights[] = { [OFI_READ] = RIGHT_READ,
					   [OFI_WRITE] = RIGHT_WRITE,
					   [OFI_CAS] = RIGHT_ATOMIC,
					   [OFI_FAA] = RIGHT_ATOMIC };
	const struct ofi_opening *opening =
		request->opening < openings->room ? openings->at[request->opening] : NULL;

	if (!opening || opening->revoked)
		return error_set(-EACCES, "request to opening %u, which is closed",
				 request->opening);
	if (request->verb < OFI_READ || request->verb > OFI_FAA || !guard_is_sound(request) ||
	    request->off % 8 || request->bytes % 8 || !request->bytes ||
	    (is_atomic(request) && request->bytes != 8))
		return error_set(-EPROTO, "a request of verb %u: a field is out of its range",
				 request->verb);
	if (request->off > opening->map.size || request->bytes > opening->map.size - request->off)
		return error_set(-EINVAL, "request at %llu of %u bytes: the range has %llu",
				 (unsigned long long)request->off, request->bytes,
				 (unsigned long long)opening->map.size);
	if (!(opening->map.rights & rights[request->verb]))
		return error_set(-EACCES, "request of verb %u without the right to it",
				 request->verb);
	*opening_out = opening;
	*at_out = opening->map.base + request->off;
	return 0;
}

/* Changes a word. False: it was not the expected one. */
static bool change(const struct ofi_request *request, const uint64_t *operands, void *at,
		   uint64_t *old_out)
{
	const struct rword64 *word = at;

	if (request->verb == OFI_CAS) {
		*old_out = operands[0];
		return rword64_cas(word, old_out, operands[1]);
	}
	*old_out = rword64_add(word, operands[0]);
	return true;
}

/*
 * Begins to load the memory of the request that is n of them further on, if all between are READs: a list of
 * them names memory all over a region. Only a hint, so nothing of it is trusted, or needs to be right. False:
 * it has not come, or is no READ.
 */
static bool load_ahead(const struct ofi_carry *carry, const struct ofi_openings *openings,
		       uint32_t n)
{
	const struct ofi_request *request =
		(const struct ofi_request *)(carry->in + carry->begin / 8) + n;
	const struct ofi_opening *opening;

	if (carry_has(carry) < (n + 1) * sizeof(*request) || request->verb != OFI_READ ||
	    request->opening >= openings->room)
		return false;
	opening = openings->at[request->opening];
	for (uint32_t at = 0; opening && at < AHEAD_BYTES && at < request->bytes; at += WIRE_LINE)
		__builtin_prefetch(
			(const void *)((uintptr_t)opening->map.base + request->off + at));
	return true;
}

/* Copies words. Without the barrier gcc knows that they are few, and copies them by rep movs: slowly. */
static void copy_words(void *to, const void *from, size_t bytes)
{
	__asm__("" : "+r"(bytes));
	transport_copy_racy(to, from, bytes);
}

/* Carries out the next request. Errors as those of ofi_carry_out. */
static int carry_request(struct ofi_carry *carry, const struct ofi_openings *openings)
{
	const struct ofi_opening *opening;
	struct ofi_request request;
	uint32_t answer, now;
	bool lends;
	uint8_t *at;
	int ret;

	if (carry_has(carry) < sizeof(request))
		return -EAGAIN;
	memcpy(&request, (uint8_t *)carry->in + carry->begin, sizeof(request));
	ret = find_memory(openings, &request, &opening, &at);
	if (ret)
		return ret;
	if (carry_has(carry) < needed(&request))
		return -EAGAIN;
	answer = request.verb == OFI_WRITE || request.bytes > OFI_WHOLE ? 0 : request.bytes;
	lends = request.verb == OFI_READ && !answer;
	/* What a READ sends from its region is read when it is sent: before what comes after it. */
	if (!answer_fits(carry, answer) || (carry->lends && !lends))
		return -ENOBUFS;
	(void)load_ahead(carry, openings, AHEAD);
	(void)carry_take(carry, sizeof(request));
	if (request.guard && carry->failed) {
		(void)carry_take(carry, needed(&request) - sizeof(request));
		if (answer)
			memset(answer_add(carry, answer), 0, answer);
	} else if (is_atomic(&request)) {
		const uint64_t *operands = carry_take(carry, needed(&request) - sizeof(request));

		carry->failed |= !change(&request, operands, at, answer_add(carry, answer));
	} else if (request.verb == OFI_WRITE && request.bytes <= OFI_WHOLE) {
		copy_words(at, carry_take(carry, request.bytes), request.bytes);
	} else if (request.verb == OFI_WRITE) {
		now = (uint32_t)min_u64(request.bytes, carry_has(carry));
		memcpy(at, carry_take(carry, now), now);
		carry->landing = opening;
		carry->land_at = at + now;
		carry->land_left = request.bytes - now;
	} else if (answer) {
		copy_words(answer_add(carry, answer), at, answer);
	} else {
		carry->pieces[carry->n_pieces++] = (struct iovec){ at, request.bytes };
		carry->urgent = carry->lends = true; /* what was read leaves before it changes */
	}
	carry->left--;
	return 0;
}

/* Begins the list, or copies the message, that is next. */
static int carry_next(struct ofi_carry *carry, const struct ofi_openings *openings,
		      union ofi_any *message_out)
{
	struct ofi_list list;
	uint32_t bytes, has = carry_has(carry);
	const uint8_t *at = (const uint8_t *)carry->in + carry->begin;

	if (has < sizeof(list))
		return -EAGAIN;
	memcpy(&list, at, sizeof(list));
	if (list.magic != OFI_LIST_MAGIC) {
		if (has < sizeof(struct message_head))
			return -EAGAIN;
		memcpy(&bytes, at + offsetof(struct message_head, bytes), sizeof(bytes));
		if (bytes < sizeof(struct message_head) || bytes > OFI_MESSAGE_MAX)
			return error_set(-EPROTO, "message of %u bytes: no message is that long",
					 bytes);
		return has < bytes
			       ? -EAGAIN
			       : ofi_message_check(message_out, carry_take(carry, bytes), bytes);
	}
	carry->late = list.n & OFI_LIST_LATE;
	list.n &= ~OFI_LIST_LATE;
	if (list.n == 0 || list.n > OFI_LIST_MAX)
		return error_set(-EPROTO, "a list of %u requests", list.n);
	(void)carry_take(carry, sizeof(list));
	carry->n = carry->left = list.n;
	carry->failed = false;
	for (uint32_t i = 0; i < AHEAD && i < list.n && load_ahead(carry, openings, i); i++)
		continue;
	return 0;
}

/* Ends the answer to a list that is carried out. */
static int carry_end(struct ofi_carry *carry)
{
	const struct ofi_list end = { OFI_ANSWER_MAGIC,
				      carry->n | (carry->late ? OFI_LIST_LATE : 0) };

	if (!answer_fits(carry, sizeof(end)))
		return -ENOBUFS;
	memcpy(answer_add(carry, sizeof(end)), &end, sizeof(end));
	carry->n = 0;
	carry->urgent |= !carry->late;
	carry->lists++;
	return 0;
}

int ofi_carry_out(struct ofi_carry *carry, const struct ofi_openings *openings,
		  union ofi_any *message_out)
{
	int ret = 0;

	message_out->head.type = 0;
	while (ret == 0 && !message_out->head.type) {
		if (carry->land_left)
			return -EAGAIN;
		ret = carry->left ? carry_request(carry, openings)
		      : carry->n  ? carry_end(carry)
				  : carry_next(carry, openings, message_out);
	}
	return ret;
}
