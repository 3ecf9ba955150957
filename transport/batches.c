/* batches.c - waits for batches, and the end of their link. */
#include "transport/batches.h"

#include <errno.h>
#include <stdio.h>

void batches_init(struct batches *batches, struct transport *tr, const struct batches_ops *ops)
{
	*batches = (struct batches){ .tr = tr, .ops = ops, .next = 1, .oldest = 1 };
}

uint64_t batches_open(struct batches *batches)
{
	batches->deadlines[batches->next % BATCHES] = DEADLINE_NEVER;
	return batches->next++;
}

bool batches_are_full(const struct batches *batches)
{
	return batches->next - batches->oldest >= BATCHES;
}

static bool batch_is_done(const struct batches *batches, uint64_t ticket)
{
	return ticket < batches->oldest || batches->ops->is_done(batches->tr, ticket);
}

void batches_retire(struct batches *batches)
{
	while (batches->oldest != batches->next && batch_is_done(batches, batches->oldest))
		batches->oldest++;
}

/* -------- the end -------- */

static int batches_lost(const struct batches *batches, int code)
{
	return error_set(code, "the connection to the memory node was lost: %s", batches->text);
}

int batches_check(const struct batches *batches)
{
	return batches->cut ? batches_lost(batches, -ECONNRESET) : 0;
}

int batches_fail(struct batches *batches, int code, const char *text)
{
	if (!batches->cut) {
		(void)snprintf(batches->text, sizeof(batches->text), "%s", text);
		batches->cut = true;
		batches->ops->cut(batches->tr);
		batches->tr->broken = -ECONNRESET;
	}
	return batches_lost(batches, code);
}

/* -------- waiting -------- */

void batches_limit(struct batches *batches, uint64_t ticket)
{
	uint64_t *deadline = &batches->deadlines[ticket % BATCHES];

	*deadline = deadline_min(*deadline, transport_give_up_ns(batches->tr));
}

int batches_late(struct batches *batches, uint64_t ticket, uint64_t until)
{
	uint64_t now = clock_now_ns(batches->tr->clock);

	if (now >= batches->deadlines[ticket % BATCHES])
		return batches_fail(batches, -ETIMEDOUT, "an operation's deadline has passed");
	return now < until ? 0 : error_set(-ETIMEDOUT, "the operations did not complete in time");
}

int batches_wait(struct batches *batches, uint64_t ticket, uint64_t until)
{
	uint32_t looks = 0;
	int ret = 0;

	if (until == 0 && !batch_is_done(batches, ticket)) {
		ret = batches->ops->reap(batches->tr);
		if (ret < 0)
			return ret;
		return batch_is_done(batches, ticket) ? 0 : -EAGAIN;
	}
	while (ret == 0 && !batch_is_done(batches, ticket))
		ret = batches->ops->look(batches->tr, ticket, until, &looks);
	return ret;
}

int batches_order(struct batches *batches)
{
	int ret = batches_check(batches);

	while (ret == 0 && batches->oldest != batches->next)
		ret = batches_wait(batches, batches->oldest, DEADLINE_NEVER);
	return ret;
}

int batches_room(struct batches *batches, enum submit_order order)
{
	int ret = batches_check(batches);

	if (ret == 0 && batches_are_full(batches))
		ret = batches->ops->reap(batches->tr);
	while (ret >= 0 && batches_are_full(batches))
		ret = order == SUBMIT_ORDERED
			      ? error_set(-EAGAIN,
					  "too many chains are outstanding: poll one first")
			      : batches_wait(batches, batches->oldest, DEADLINE_NEVER);
	return ret < 0 ? ret : 0;
}
