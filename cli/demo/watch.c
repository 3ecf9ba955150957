#include "cli/demo/watch.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/os/clock.h"
#include "bench/harness/picture.h"
#include "program/units.h"

static uint64_t gauge_get(const _Atomic uint64_t *gauge)
{
	return atomic_load_explicit(gauge, memory_order_relaxed); /* relaxed: for display */
}

int watch_open(struct watch *watch, const struct loop_role *roles, int64_t ns)
{
	*watch = (struct watch){ .shared = roles[0].shared, .roles = roles };
	/* A node that is waited for may take its time. */
	watch->most = (uint32_t)(ns / WATCH_TICK_NS) + 300;
	watch->in = mem_array(watch->most, sizeof(*watch->in));
	watch->out = mem_array(watch->most, sizeof(*watch->out));
	for (int c = 0; c < WATCH_CURVES; c++) {
		watch->curves[c] = mem_array(watch->most, sizeof(double));
		if (!watch->curves[c] || !watch->in || !watch->out)
			return error_set(-ENOMEM, "curves of %u points", watch->most);
	}
	return 0;
}

void watch_close(struct watch *watch)
{
	for (int c = 0; c < WATCH_CURVES; c++)
		mem_free(watch->curves[c]);
	mem_free(watch->in);
	mem_free(watch->out);
	*watch = (struct watch){ 0 };
}

/* Mean return of a policy's living actors; NAN before an episode has ended. */
static double return_of(const struct watch *watch, uint32_t policy)
{
	double sum = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < LOOP_ACTORS; i++) {
		const struct loop_role *role = &watch->roles[i];

		if (role->policy != policy || !role->worker.alive ||
		    !gauge_get(&role->gauge->episodes))
			continue;
		sum += (double)gauge_get(&role->gauge->mean_return) / 1000;
		n++;
	}
	return n ? sum / n : NAN;
}

static uint64_t sum_of(const struct watch *watch, uint32_t from, uint32_t to)
{
	uint64_t sum = 0;

	for (uint32_t i = from; i < to; i++)
		sum += gauge_get(&watch->shared->gauges[i].steps);
	return sum;
}

/* Bytes that the learners hold, as the broker says; what it does not say is 0. */
static void look_at_pool(struct watch *watch, uint32_t at)
{
	struct rlv_pool_job jobs[LOOP_LEARNERS + 1];
	size_t n = LOOP_LEARNERS + 1;

	watch->curves[WATCH_HELD_ALL][at] = 0;
	for (uint32_t l = 0; l < LOOP_LEARNERS; l++)
		watch->curves[WATCH_HELD + l][at] = 0;
	if (rlv_pool_jobs(LOOP_POOL, jobs, sizeof(jobs[0]), &n))
		n = 0;
	for (size_t i = 0; i < n && i < LOOP_LEARNERS + 1; i++) {
		char *end = jobs[i].name;
		unsigned long learner;

		watch->curves[WATCH_HELD_ALL][at] += (double)jobs[i].held_bytes;
		if (strncmp(end, LOOP_JOB, strlen(LOOP_JOB)) != 0)
			continue;
		learner = strtoul(end + strlen(LOOP_JOB), &end, 10);
		if (*end || learner >= LOOP_LEARNERS)
			continue;
		watch->curves[WATCH_HELD + learner][at] = (double)jobs[i].held_bytes;
	}
	watch->curves[WATCH_BUDGET][at] = LOOP_BUDGET;
}

void watch_tick(struct watch *watch, double spent)
{
	uint32_t at = watch->n, from = at > WATCH_WINDOW ? at - WATCH_WINDOW : 0;
	double seconds;

	if (at == watch->most)
		return;
	watch->curves[WATCH_TIME][at] = spent;
	watch->in[at] = sum_of(watch, 0, LOOP_ACTORS);
	watch->out[at] = sum_of(watch, LOOP_ACTORS, LOOP_ROLES);
	seconds = spent - watch->curves[WATCH_TIME][from];
	for (uint32_t p = 0; p < LOOP_LEARNERS; p++)
		watch->curves[WATCH_RETURN + p][at] = return_of(watch, p);
	watch->curves[WATCH_IN][at] =
		seconds > 0 ? (double)(watch->in[at] - watch->in[from]) / seconds : 0;
	watch->curves[WATCH_OUT][at] =
		seconds > 0 ? (double)(watch->out[at] - watch->out[from]) / seconds : 0;
	look_at_pool(watch, at);
	watch->n++;
}

const char *watch_text(const struct watch *watch, char text[WATCH_TEXT_BYTES])
{
	char in[UNITS_TEXT_BYTES], out[UNITS_TEXT_BYTES];
	uint32_t at = watch->n - 1;
	size_t end = 0;

	text[0] = 0;
	if (!watch->n)
		return text;
	end = (size_t)snprintf(text, WATCH_TEXT_BYTES, "%s steps/s in, %s items/s out, return",
			       units_format_si(watch->curves[WATCH_IN][at], in),
			       units_format_si(watch->curves[WATCH_OUT][at], out));
	for (uint32_t p = 0; p < LOOP_LEARNERS && end < WATCH_TEXT_BYTES; p++) {
		double value = watch->curves[WATCH_RETURN + p][at];

		end += (size_t)snprintf(text + end, WATCH_TEXT_BYTES - end, " %.0f",
					isnan(value) ? 0 : value);
	}
	return text;
}

void watch_event(struct watch *watch, const char *name, double at)
{
	if (watch->n_events == WATCH_EVENTS)
		return;
	watch->events[watch->n_events].name = name;
	watch->events[watch->n_events++].at = at;
}

/* -------- at the end -------- */

static void show_pool(void)
{
	static const char *const reasons[] = { "runs", "waits for admission", "waits for memory",
					       "waits for its turn", "is between iterations" };
	struct rlv_pool_info info = RLV_POOL_INFO_INIT;
	struct rlv_pool_job jobs[LOOP_LEARNERS + 1];
	size_t n = LOOP_LEARNERS + 1;
	char budget[UNITS_TEXT_BYTES], held[UNITS_TEXT_BYTES], most[UNITS_TEXT_BYTES];

	if (rlv_pool_status(LOOP_POOL, &info) ||
	    rlv_pool_jobs(LOOP_POOL, jobs, sizeof(jobs[0]), &n)) {
		printf("   ledger       %s\n", rlv_last_error());
		return;
	}
	printf("   ledger       budget %s, held %s; %llu iterations, %llu extents went to another job\n",
	       units_format_bytes(info.budget_bytes, budget),
	       units_format_bytes(info.held_bytes, held), (unsigned long long)info.iterations,
	       (unsigned long long)info.handovers);
	for (size_t i = 0; i < n && i < LOOP_LEARNERS + 1; i++)
		printf("   queue        %s %s; held %s at most, waited %.1f s of %.1f s\n",
		       jobs[i].name, jobs[i].reason < 5 ? reasons[jobs[i].reason] : "?",
		       units_format_bytes(jobs[i].most_bytes, most),
		       (double)jobs[i].waited_ns / 1e9,
		       (double)(jobs[i].waited_ns + jobs[i].served_ns) / 1e9);
}

void watch_summary(const struct watch *watch)
{
	const struct loop_shared *shared = watch->shared;
	double seconds = watch->n ? watch->curves[WATCH_TIME][watch->n - 1] : 0;
	double lag = 0, staleness = 0;
	uint32_t alive = 0;
	uint64_t updates = 0, repeats = 0;
	char in[UNITS_TEXT_BYTES], out[UNITS_TEXT_BYTES];

	for (uint32_t i = 0; i < LOOP_ROLES; i++) {
		alive += i < LOOP_ACTORS && watch->roles[i].worker.alive;
		if (watch->roles[i].worker.alive)
			lag += (double)gauge_get(&shared->gauges[i].publish_lag);
		staleness += (double)gauge_get(&shared->gauges[i].staleness) / 1000 / LOOP_LEARNERS;
		updates += gauge_get(&shared->gauges[i].updates);
		repeats += gauge_get(&shared->gauges[i].repeats);
	}
	if (seconds > 0)
		printf("   throughput   %s steps/s in, %s items/s out, %.0f updates/s; mean of %.0f s\n",
		       units_format_si((double)sum_of(watch, 0, LOOP_ACTORS) / seconds, in),
		       units_format_si((double)sum_of(watch, LOOP_ACTORS, LOOP_ROLES) / seconds,
				       out),
		       (double)updates / seconds, seconds);
	for (uint32_t p = 0; p < LOOP_LEARNERS; p++)
		printf("   return       policy %u: %.0f, of the last 20 episodes of each of its actors\n",
		       p, isnan(return_of(watch, p)) ? 0 : return_of(watch, p));
	printf("   staleness    %.0f versions: how old the policy of an item is when it is learned from\n"
	       "   publish_lag  %.1f generations: how far actors are behind\n"
	       "   repeated     %llu calls, which did not succeed in time or met a node that was gone\n",
	       staleness, alive ? lag / alive : 0, (unsigned long long)repeats);
	show_pool();
}

static struct picture_line line_of(const struct watch *watch, const char *name, uint32_t curve)
{
	return (struct picture_line){ name, watch->curves[WATCH_TIME], watch->curves[curve],
				      watch->n };
}

int watch_picture(const struct watch *watch, const char *path)
{
	const struct picture_panel panels[] = {
		{ .title = "mean return",
		  .n_lines = 2,
		  .lines = { line_of(watch, "policy 0", WATCH_RETURN),
			     line_of(watch, "policy 1", WATCH_RETURN + 1) } },
		{ .title = "a second",
		  .n_lines = 2,
		  .lines = { line_of(watch, "steps in", WATCH_IN),
			     line_of(watch, "items out", WATCH_OUT) } },
		{ .title = "device memory",
		  .bytes = true,
		  .n_lines = 4,
		  .lines = { line_of(watch, "learner 0", WATCH_HELD),
			     line_of(watch, "learner 1", WATCH_HELD + 1),
			     line_of(watch, "both", WATCH_HELD_ALL),
			     line_of(watch, "budget", WATCH_BUDGET) } },
	};
	struct picture_event events[WATCH_EVENTS];
	const struct picture picture = { panels, events, 3, watch->n_events, " s" };

	for (uint32_t i = 0; i < watch->n_events; i++)
		events[i] = (struct picture_event){ watch->events[i].name, watch->events[i].at };
	return picture_write(&picture, path);
}
