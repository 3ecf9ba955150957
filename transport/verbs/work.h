/*
 * work.h - outstanding work of a link: slots, batches, the arena, completion and failure.
 *
 *   lane     a queue pair's sending side: a ring of slots, one for each posted work request
 *   batch    what one call or chain has outstanding; tickets are consecutive and start at 1
 *   arena    a ring of registered bytes for copies; its oldest part is the oldest batch's
 *
 * Counters of lanes, arena and batches only rise; their low bits are the place. A batch holds one
 * count more while its call still adds to it. A completion stands for all slots before its own in
 * its lane. Thread: owner.
 */
#ifndef RLV_TRANSPORT_VERBS_WORK_H
#define RLV_TRANSPORT_VERBS_WORK_H

#include "transport/verbs/link.h"

#include "transport/transport.h"

#define WORK_BATCHES 128                   /* outstanding */
#define WORK_ARENA ((uint64_t)1 << 20)     /* bytes for copies */
#define WORK_ARENA_MAX ((uint32_t)1 << 18) /* of one work request */
#define WORK_TEXT_BYTES 160
#define WORK_ID(lane_idx, seq) ((uint64_t)(lane_idx) << 56 | ((seq)&WORK_SEQ_MASK))
#define WORK_SEQ_MASK (((uint64_t)1 << 56) - 1)

enum slot_kind { SLOT_PLAIN, SLOT_COPY, SLOT_CAS, SLOT_FAA };

/* A posted work request, with the copy to make at its completion. */
struct slot {
	union {
		struct transport_atomic *atomic; /* CAS, FAA: gets the result */
		void *dst;                       /* COPY: gets len bytes from src */
	};
	const void *src;
	uint32_t len;
	uint16_t batch; /* place in batches */
	uint16_t kind;  /* enum slot_kind */
};

struct lane {
	struct slot *slots;   /* depth of them */
	uint64_t *results;    /* registered: one old word for each slot */
	uint64_t head;        /* next slot */
	uint64_t tail;        /* oldest not retired */
	uint32_t unsignalled; /* since the last that asks for a completion */
};

struct batch {
	uint64_t deadline;  /* from when somebody first waits for it */
	uint64_t arena_end; /* end of its part of the arena */
	uint32_t left;      /* work requests not retired, and 1 while it grows */
};

struct work {
	struct link *link;
	struct transport *tr;
	struct lane lanes[VERBS_LINK_QPS];
	uint64_t mask; /* of a lane's counters */
	struct batch batches[WORK_BATCHES];
	uint64_t next;     /* ticket of the next batch */
	uint64_t oldest;   /* ticket of the oldest that is not done; next = all are */
	struct mem memory; /* registered: the arena, with the results and the message behind it */
	union verbs_any *message;
	uint64_t arena_head, arena_tail;
	uint32_t key; /* of memory */
	int error;    /* 0, or the error that all later calls return */
	char text[WORK_TEXT_BYTES];
};

/* State of a wait: the batch ends the link at its own deadline, the caller returns at `until`. */
struct work_wait {
	struct batch *batch;
	uint64_t until;
	uint32_t looks;
};

/* Zeroed before. link and tr are borrowed until work_fini. -ENOMEM: nothing is left behind. */
RLV_MUST_CHECK int work_init(struct work *work, struct link *link, struct transport *tr);
/* The link must be cut, or nothing outstanding. */
void work_fini(struct work *work);

/* Ends the link, if it has not ended; later calls return code with text. Returns code. */
int work_fail(struct work *work, int code, const char *text);
/* The error of a link that has ended, with its message. */
int work_lost(const struct work *work);

/* Retires completed work. Returns the number of completions, or the error that ended the link. */
RLV_MUST_CHECK int work_reap(struct work *work);

/* One step of a waiting loop: 0, -ETIMEDOUT after wait->until, or the error that ended the link. */
RLV_MUST_CHECK int work_look(struct work *work, struct work_wait *wait);

/* Opens a batch that may grow until work_close_batch; there is room for it. Returns its ticket. */
uint64_t work_open_batch(struct work *work);
void work_close_batch(struct work *work, uint64_t ticket);

/* Waits for a batch; until 0 only tests: -EAGAIN: not done. */
RLV_MUST_CHECK int work_wait(struct work *work, uint64_t ticket, uint64_t until);

static inline struct batch *work_batch(struct work *work, uint64_t ticket)
{
	return &work->batches[ticket % WORK_BATCHES];
}

static inline bool work_is_done(const struct work *work, uint64_t ticket)
{
	return ticket < work->oldest || work->batches[ticket % WORK_BATCHES].left == 0;
}

static inline bool work_is_full(const struct work *work)
{
	return work->next - work->oldest >= WORK_BATCHES;
}

static inline struct slot *work_slot(struct work *work, struct lane *lane, uint64_t seq)
{
	return &lane->slots[seq & work->mask];
}

/*
 * bytes <= WORK_ARENA_MAX of the arena for an open batch, the newest; NULL: no room before older
 * batches are done, or this one.
 */
uint8_t *work_arena_take(struct work *work, uint64_t ticket, uint64_t bytes);

#endif
