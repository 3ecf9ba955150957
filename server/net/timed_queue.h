/*
 * Timed queue: entries with the same time limit, oldest first, i.e. in order of their deadlines.
 */
#ifndef RLV_SERVER_NET_TIMED_QUEUE_H
#define RLV_SERVER_NET_TIMED_QUEUE_H

#include <stddef.h>
#include <stdint.h>

struct event;

struct timed_queue;

/* Embedded in an entry; it is in at most one queue. */
struct timed_link {
	struct timed_link *next, *prev;
	struct timed_queue *queue; /* NULL = in no queue */
	uint64_t until;            /* deadline of clock_monotonic() */
};

struct timed_queue {
	int64_t limit_ns; /* 0 = unlimited */
	struct timed_link *first, *last;
	uint32_t n;
};

/* Moves link to the end of queue, out of its former one. Its time, queue->limit_ns, starts now. */
void timed_queue_add(struct timed_queue *queue, struct timed_link *link);
void timed_queue_remove(struct timed_link *link);

/* The oldest entry if its deadline has passed, else NULL; it stays in the queue. */
struct timed_link *timed_queue_ended(const struct timed_queue *queue);
/* Earliest deadline of the entries; UINT64_MAX: no entry, or a queue without a limit. */
uint64_t timed_queue_end(const struct timed_queue *queue);
/* Sets the timer to the earliest deadline of the n queues; without one, leaves it as it is. */
void timed_queue_schedule(const struct timed_queue *queues, size_t n, struct event *timer);

#endif
