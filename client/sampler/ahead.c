/*
 * Batches drawn ahead: flights that move on whenever the sampler is called.
 *
 *   ahead[]   under way or done, oldest first | idle
 *             <---------- n_ahead ---------->
 *
 * Drawn, gathered and verified ahead; admitted, taken and weighed when handed over, as a batch that
 * the call itself drew. All are of one size, that of the last call. Whenever one of them meets an
 * error, or shards come or go, they are forgotten: the call that follows draws itself, and meets the
 * error itself if it is still there.
 */
#include "client/sampler/sampler.h"

#include "base/mem/alloc.h"
#include "base/log.h"

#include <errno.h>

/* -------- memory -------- */

static int make(struct rlv_sampler *sp, struct flight **flight_out)
{
	struct flight *flight = mem_zalloc(sizeof(*flight));
	int ret;

	if (!flight)
		return error_set(-ENOMEM, "sampler: no memory");
	*flight_out = flight;
	flight->s = &flight->own;
	flight->draws = &flight->rng;
	ret = scratch_init(&flight->own, sp->opts.batch_size);
	return ret ? ret : flight_init(flight);
}

int ahead_init(struct rlv_sampler *sp)
{
	int ret = 0;

	if (sp->opts.prefetch == 0)
		return 0;
	sp->ahead = mem_array(sp->opts.prefetch, sizeof(struct flight *));
	if (!sp->ahead)
		return error_set(-ENOMEM, "sampler: no memory");
	for (uint32_t i = 0; ret == 0 && i < sp->opts.prefetch; i++)
		ret = make(sp, &sp->ahead[i]);
	return ret;
}

void ahead_fini(struct rlv_sampler *sp)
{
	for (uint32_t i = 0; sp->ahead && i < sp->opts.prefetch; i++) {
		if (!sp->ahead[i])
			continue;
		flight_fini(sp->ahead[i], sp->opts.batch_size);
		mem_free(sp->ahead[i]);
	}
	mem_free(sp->ahead);
	sp->ahead = NULL;
}

/* -------- forgetting -------- */

void ahead_cancel(struct rlv_sampler *sp)
{
	for (uint32_t i = 0; i < sp->n_ahead; i++) {
		flight_cancel(sp->ahead[i]);
		sp->ahead[i]->batch->ahead = false;
	}
	sp->n_ahead = 0;
}

/* The oldest goes to the end. */
static struct flight *pop(struct rlv_sampler *sp)
{
	struct flight *flight = sp->ahead[0];

	sp->n_ahead--;
	for (uint32_t i = 0; i < sp->n_ahead; i++)
		sp->ahead[i] = sp->ahead[i + 1];
	sp->ahead[sp->n_ahead] = flight;
	flight->batch->ahead = false;
	return flight;
}

/* -------- moving on -------- */

static bool failed(struct rlv_sampler *sp, int ret)
{
	if (ret == 0 || ret == -EAGAIN)
		return false;
	log_debug("sample ahead: %s", error_last());
	ahead_cancel(sp);
	return true;
}

uint32_t ahead_advance(struct rlv_sampler *sp)
{
	uint32_t done = 0;

	for (uint32_t i = 0; i < sp->n_ahead; i++) {
		int ret = flight_look(sp, sp->ahead[i]);

		if (failed(sp, ret))
			return 0;
		done += ret == 0;
	}
	return done;
}

/* Waits for the oldest; the others move on meanwhile. false: it failed. */
static bool wait_oldest(struct rlv_sampler *sp)
{
	ahead_advance(sp);
	while (sp->n_ahead && sp->ahead[0]->stage != FLIGHT_DONE) {
		if (failed(sp, flight_wait(sp, sp->ahead[0])))
			return false;
		ahead_advance(sp);
	}
	return sp->n_ahead > 0;
}

struct batch *ahead_buffer(struct rlv_sampler *sp, uint32_t n)
{
	if (sp->n_ahead && sp->ahead[0]->n != n)
		ahead_cancel(sp);
	return sp->n_ahead ? sp->ahead[0]->batch : NULL;
}

bool ahead_take(struct rlv_sampler *sp, struct round *round)
{
	struct draw_scratch mine = sp->scratch;
	struct flight *flight;

	if (!sp->n_ahead || sp->ahead[0]->batch != round->batch || sp->ahead[0]->n != round->n)
		return false;
	if (!wait_oldest(sp))
		return false;
	flight = pop(sp);
	flight->stage = FLIGHT_IDLE;
	round->found = flight->found;
	round->began_ns = flight->began_ns;
	sp->scratch = flight->own;
	flight->own = mine;
	return true;
}

/* -------- beginning -------- */

void ahead_refill(struct rlv_sampler *sp, uint32_t n)
{
	struct round round = { .n = n, .stratified = !sp->opts.independent };

	while (sp->n_ahead < sp->opts.prefetch && !sp->grove.addressable && !sp->ordered) {
		struct flight *flight = sp->ahead[sp->n_ahead];

		round.batch = batch_find(sp);
		if (!round.batch)
			return;
		rng_seed(&flight->rng, rng_next_u64(&sp->rng), sp->opts.rank);
		for (uint32_t i = 0; i < n; i++)
			flight->own.at[i] = i;
		if (flight_start(sp, flight, &round)) {
			log_debug("sample ahead: %s", error_last());
			return;
		}
		round.batch->ahead = true;
		sp->n_ahead++;
	}
}
