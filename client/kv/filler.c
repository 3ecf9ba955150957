#include "client/kv/filler.h"

#include "client/kv/copies.h"

#include "base/bits.h"
#include "base/log.h"
#include "base/mem/alloc.h"
#include "base/os/futex.h"
#include "base/os/thread.h"

#include <errno.h>
#include <unistd.h>

#define LOOK_NS (CLOCK_NS_PER_S / 2) /* for copies that lack something */
#define REST_NS (CLOCK_NS_PER_MS / 10)

static LOCK_ROLE(turn_role, "turn of a heap's handle", LOCK_RANK_HANDLE);

/* -------- turns -------- */

void kv_turns_init(struct rlv_kv *kv)
{
	lock_init(&kv->filler.turn, &turn_role);
	kv->filler.pid = getpid();
}

static void drop_kept(struct rlv_kv *kv)
{
	mem_free(kv->kept[0]);
	mem_free(kv->kept[1]);
	kv->kept[0] = kv->kept[1] = NULL;
}

LOCK_UNCHECKED int kv_turn_begin(struct rlv_kv *kv)
{
	if (!kv->owned)
		return 0;
	if (!lock_try_acquire(&kv->filler.turn, &turn_role)) {
		if (kv->filler.pid != getpid()) /* nobody will ever end that turn */
			return error_set(-ECHILD,
					 "this handle was opened before fork(): open one in the "
					 "child");
		lock_acquire(&kv->filler.turn, &turn_role);
	}
	drop_kept(kv);
	return 0;
}

LOCK_UNCHECKED void kv_turn_end(struct rlv_kv *kv)
{
	if (kv->owned)
		lock_release(&kv->filler.turn, &turn_role);
}

/* -------- the thread -------- */

/* Waits that long, or until the thread has to end. */
static bool filler_stops(struct kv_filler *filler, uint64_t pause_ns)
{
	uint64_t deadline_ns = deadline_after(clock_monotonic(), (int64_t)pause_ns);
	bool stops = false;

	while (!stops && !deadline_expired(clock_monotonic(), deadline_ns)) {
		(void)!futex_wait(&filler->stop, 0, deadline_ns);
		stops = atomic_load_explicit(&filler->stop, memory_order_relaxed); /* a wish */
	}
	return stops;
}

static void *filler_run(void *arg)
{
	struct rlv_kv *kv = arg;
	struct kv_filler *filler = &kv->filler;
	uint64_t pause_ns = LOOK_NS;

	while (!filler_stops(filler, pause_ns)) {
		uint64_t began_ns;
		bool more;

		lock_acquire(&filler->turn, &turn_role);
		began_ns = clock_now_ns(clock_monotonic());
		filler->fills = true;
		more = kv_copies_fill(kv);
		filler->fills = false;
		lock_release(&filler->turn, &turn_role);
		/* As long as the piece took: so a call that waits gets its turn. */
		pause_ns = more ? max_u64(clock_now_ns(clock_monotonic()) - began_ns, REST_NS)
				: LOOK_NS;
	}
	return NULL;
}

void kv_filler_start(struct rlv_kv *kv)
{
	struct kv_filler *filler = &kv->filler;

	if (filler->runs)
		return;
	filler->runs = thread_start(&filler->thread, filler_run, kv) == 0;
	if (!filler->runs)
		log_warn("heap %s: new copies are filled by calls alone: %s", kv->desc.name,
			 error_last());
}

void kv_turns_fini(struct rlv_kv *kv, bool forked)
{
	struct kv_filler *filler = &kv->filler;

	if (filler->runs && !forked) {
		atomic_store_explicit(&filler->stop, 1, memory_order_relaxed); /* a wish */
		futex_wake(&filler->stop, 1);
		pthread_join(filler->thread, NULL);
	}
	drop_kept(kv);
}
