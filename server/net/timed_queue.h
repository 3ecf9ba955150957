/*
 * Timed queue: things that all may last equally long, oldest first, which is the order of their ends.
 */
#ifndef RLV_SERVER_NET_TIMED_QUEUE_H
#define RLV_SERVER_NET_TIMED_QUEUE_H

#include <stdint.h>

struct timed_queue;

/* Part of a thing that stands in at most one queue. */
struct timed_link {
	struct timed_link *next, *prev;
	struct timed_queue *queue; /* NULL = it is in none */
	uint64_t until;            /* of clock_monotonic() */
};

struct timed_queue {
	int64_t limit_ns; /* 0 = for ever */
	struct timed_link *first, *last;
	uint32_t n;
};

/* Takes it from the queue in which it is. Its time begins. */
void timed_queue_add(struct timed_queue *queue, struct timed_link *link);
void timed_queue_remove(struct timed_link *link);

/* One whose time is over, or NULL. */
struct timed_link *timed_queue_ended(const struct timed_queue *queue);
/* When the next one ends; UINT64_MAX = never. */
uint64_t timed_queue_end(const struct timed_queue *queue);

#endif
