#include "server/net/timed_queue.h"

#include <event2/event.h>

#include "base/bits.h"
#include "base/os/clock.h"

void timed_queue_remove(struct timed_link *link)
{
	struct timed_queue *queue = link->queue;

	if (!queue)
		return;
	if (link->prev)
		link->prev->next = link->next;
	else
		queue->first = link->next;
	if (link->next)
		link->next->prev = link->prev;
	else
		queue->last = link->prev;
	queue->n--;
	link->queue = NULL;
}

void timed_queue_add(struct timed_queue *queue, struct timed_link *link)
{
	timed_queue_remove(link);
	link->queue = queue;
	link->until = deadline_after(clock_monotonic(), queue->limit_ns);
	link->next = NULL;
	link->prev = queue->last;
	if (queue->last)
		queue->last->next = link;
	else
		queue->first = link;
	queue->last = link;
	queue->n++;
}

struct timed_link *timed_queue_ended(const struct timed_queue *queue)
{
	struct timed_link *link = queue->limit_ns ? queue->first : NULL;

	return link && deadline_expired(clock_monotonic(), link->until) ? link : NULL;
}

uint64_t timed_queue_end(const struct timed_queue *queue)
{
	return queue->limit_ns && queue->first ? queue->first->until : UINT64_MAX;
}

void timed_queue_schedule(const struct timed_queue *queues, size_t n, struct event *timer)
{
	uint64_t now = clock_now_ns(clock_monotonic()), end = UINT64_MAX;
	struct timeval tv;

	for (size_t i = 0; i < n; i++)
		end = min_u64(end, timed_queue_end(&queues[i]));
	if (end == UINT64_MAX)
		return;
	end = end > now ? end - now : 0;
	tv.tv_sec = (time_t)(end / CLOCK_NS_PER_S);
	tv.tv_usec = (suseconds_t)(end % CLOCK_NS_PER_S / CLOCK_NS_PER_US) + 1;
	(void)evtimer_add(timer, &tv);
}
