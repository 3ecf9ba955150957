#include "server/net/timed_queue.h"

#include <stddef.h>

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
