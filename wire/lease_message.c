#include "wire/lease_message.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/os/fd_packet.h"

static size_t lease_size(uint16_t type)
{
	static const size_t sizes[] = {
		[LEASE_HELLO] = sizeof(struct lease_hello),
		[LEASE_HOLD] = sizeof(struct lease_refs),
		[LEASE_TAKE] = sizeof(struct lease_take),
		[LEASE_GIVE] = sizeof(struct lease_refs),
		[LEASE_BEGIN] = sizeof(struct lease_bare),
		[LEASE_END] = sizeof(struct lease_end),
		[LEASE_PROFILE] = sizeof(struct lease_profile),
		[LEASE_ROOM] = sizeof(struct lease_bare),
		[LEASE_CANCEL] = sizeof(struct lease_bare),
		[LEASE_BYE] = sizeof(struct lease_refs),
		[LEASE_ASK] = sizeof(struct lease_ask),
		[LEASE_LIMIT] = sizeof(struct lease_limit),
		[LEASE_DRAIN] = sizeof(struct lease_drain),
		[LEASE_ANSWER] = sizeof(struct lease_answer),
		[LEASE_POOL_ANSWER] = sizeof(struct lease_pool_answer),
		[LEASE_JOBS_ANSWER] = sizeof(struct lease_jobs_answer),
		[LEASE_WAKE] = sizeof(struct lease_bare),
		[LEASE_PARK] = sizeof(struct lease_bare),
		[LEASE_RESUME] = sizeof(struct lease_bare),
		[LEASE_EXPOSE] = sizeof(struct lease_refs),
	};

	return type < ARRAY_LEN(sizes) ? sizes[type] : 0;
}

static const struct message_family family = {
	.name = "device pool",
	.magic = LEASE_MAGIC,
	.version = LEASE_VERSION,
	.size = lease_size,
};

void lease_seal(struct lease_message *message, enum lease_type type)
{
	message_head_seal(&message->head, &family, (uint16_t)type);
}

int lease_send(int sock, struct lease_message *message, enum lease_type type)
{
	lease_seal(message, type);
	return fd_packet_send(sock, &(struct fd_packet){ .bytes = message->bytes,
							 .n = message->head.bytes,
							 .fds = message->fds,
							 .n_fds = message->n_fds });
}

void lease_close_fds(struct lease_message *message)
{
	fd_packet_close(message->fds, message->n_fds);
	message->n_fds = 0;
}

static bool ends(const char *text, size_t room)
{
	return memchr(text, 0, room) != NULL;
}

static bool jobs_are_sound(const struct lease_jobs_answer *answer)
{
	bool sound = answer->n <= LEASE_JOBS && answer->total <= LEASE_JOBS_MOST &&
		     answer->first <= answer->total && answer->n <= answer->total - answer->first &&
		     (answer->n > 0 || answer->first == answer->total) && answer->reserved == 0;

	for (uint32_t i = 0; sound && i < answer->n; i++)
		sound = ends(answer->jobs[i].name, LEASE_NAME_BYTES);
	return sound;
}

static bool refs_are_sound(const struct lease_refs *refs, uint32_t least, uint32_t flags)
{
	bool sound = refs->n >= least && refs->n <= LEASE_REFS;

	for (uint32_t i = 0; sound && i < refs->n; i++)
		sound = refs->refs[i].flags <= flags;
	return sound;
}

/* True if the fields of a message, of its right size, are within their bounds. */
static bool lease_is_sound(const struct lease_message *message)
{
	size_t fds = message->n_fds;

	switch (message->head.type) {
	case LEASE_HELLO:
		return ends(message->hello.name, LEASE_NAME_BYTES) &&
		       message->hello.flags <= (LEASE_PARKED | LEASE_PARKS) && fds == 3;
	case LEASE_TAKE:
		return message->take.n > 0 && message->take.n <= LEASE_REFS &&
		       message->take.reserved == 0 && fds == 0;
	case LEASE_HOLD:
		return refs_are_sound(&message->refs, 0, LEASE_EXPOSED) &&
		       message->refs.flags <= LEASE_LAST && fds == message->refs.n;
	case LEASE_GIVE:
	case LEASE_EXPOSE:
		return refs_are_sound(&message->refs, 1, 0) && message->refs.flags == 0 && fds == 0;
	case LEASE_BYE:
		return message->refs.n == 0 && message->refs.flags == 0 && fds == 0;
	case LEASE_PROFILE:
		return message->profile.period_ns >= LEASE_BINS && fds == 0;
	case LEASE_LIMIT:
		return message->limit.kind <= LEASE_LIMIT_JOB && message->limit.reserved == 0 &&
		       ends(message->limit.name, LEASE_NAME_BYTES) && fds == 0;
	case LEASE_DRAIN:
		return message->drain.on <= 1 && message->drain.reserved == 0 && fds == 0;
	case LEASE_ANSWER:
		return message->answer.status <= 0 &&
		       message->answer.flags <= (LEASE_ANSWER_STRICT | LEASE_ANSWER_PARK) &&
		       message->answer.status >= -4095 && message->answer.n <= LEASE_REFS &&
		       fds == message->answer.n && ends(message->answer.text, LEASE_TEXT_BYTES);
	case LEASE_POOL_ANSWER:
		return ends(message->pool.name, LEASE_NAME_BYTES) && fds == 0;
	case LEASE_JOBS_ANSWER:
		return jobs_are_sound(&message->jobs) && fds == 0;
	default: /* no fields that have bounds */
		return fds == 0;
	}
}

int lease_check(const struct lease_message *message, size_t n)
{
	int ret = message_head_check(&message->head, n, &family);

	if (ret == 0 && !lease_is_sound(message))
		ret = error_set(-EPROTO, "message of type %u: a field is out of bounds",
				message->head.type);
	return ret;
}

int lease_receive(int sock, struct lease_message *message_out)
{
	struct fd_packet came = { .bytes = message_out->bytes,
				  .n = LEASE_BYTES_MAX,
				  .fds = message_out->fds,
				  .n_fds = LEASE_REFS };
	int ret = fd_packet_receive(sock, &came);

	message_out->n_fds = came.n_fds;
	if (ret == 0)
		ret = lease_check(message_out, came.n);
	if (ret)
		lease_close_fds(message_out);
	return ret;
}
