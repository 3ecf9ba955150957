/*
 * broker_safe.c - whether all running iterations can still end, one after the other (the banker's algorithm).
 *
 * Curves let an iteration begin that meets others' peaks if times are not as measured. Then one waits for memory:
 * never two for each other.
 */
#include "base/bits.h"
#include "server/poold/broker_parts.h"

/* Extents of a job: what it may still take, and what it gives back when its iteration ends. */
struct claim {
	uint64_t needs, frees;
};

static uint64_t above(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static struct claim broker_claim(const struct broker *broker, uint32_t at, uint64_t held)
{
	const struct broker_job *job = &broker->jobs[at];
	uint64_t stays = broker_extents_of(broker, job->kept->persistent);
	uint64_t most = stays + (job->runs ? broker_extents_of(broker, job->kept->peak) : 0);

	return (struct claim){ above(most, held), job->runs ? above(held, stays) : 0 };
}

/* Lets iterations end whose claims fit, until none is left, or none fits. */
static bool claims_end(struct claim *claims, uint32_t n, uint64_t free)
{
	for (uint32_t i = 0; i < n;) {
		if (claims[i].needs > free) {
			i++;
			continue;
		}
		free += claims[i].frees;
		claims[i] = claims[--n];
		i = 0;
	}
	return n == 0;
}

/* All can end after a job got n extents more. */
static bool broker_all_end(const struct broker *broker, uint32_t at, uint32_t n)
{
	uint64_t free = above(broker->ledger.budget, broker->ledger.held + n);
	struct claim claims[LEDGER_JOBS];
	uint32_t running = 0;

	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		const struct broker_job *job = &broker->jobs[i];
		struct claim claim;

		if (job->state != BROKER_MEMBER || job->parked || !broker_gate_admitted(broker, i))
			continue;
		claim = broker_claim(broker, i, broker->ledger.jobs[i].held + (i == at ? n : 0));
		if (job->runs)
			claims[running++] = claim;
		else if (claim.needs > free)
			return false;
		else
			free -= claim.needs;
	}
	return claims_end(claims, running, free);
}

/* True if job a began before job b; of two that began in the same tick of the clock, one did. */
static bool broker_is_older(const struct broker *broker, uint32_t a, uint32_t b)
{
	uint64_t a_ns = broker->jobs[a].began_ns, b_ns = broker->jobs[b].began_ns;

	return a_ns < b_ns || (a_ns == b_ns && a < b);
}

bool broker_is_safe(const struct broker *broker, uint32_t at, uint32_t n)
{
	const struct broker_job *asks = &broker->jobs[at];
	bool oldest = true, alone = true;

	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		const struct broker_job *job = &broker->jobs[i];

		if (i == at || job->state != BROKER_MEMBER || !job->runs)
			continue;
		alone = false;
		oldest = oldest && asks->runs && broker_is_older(broker, at, i);
	}
	return alone || broker_all_end(broker, at, n) || (oldest && !broker_all_end(broker, at, 0));
}
