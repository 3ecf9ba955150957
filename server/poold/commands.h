/*
 * commands.h - requests of anybody who may connect: what a pool has, limits, drain.
 */
#ifndef RLV_SERVER_POOLD_COMMANDS_H
#define RLV_SERVER_POOLD_COMMANDS_H

#include "server/poold/poold.h"

/* Answers ASK for a device: zeros where there is none of that number. */
void poold_ask(const struct poold *poold, uint32_t device, struct lease_pool_answer *out);

/* All jobs of one moment. All zero: none. */
struct job_list {
	struct lease_job *jobs;
	uint32_t n;
};
void job_list_free(struct job_list *list);

/*
 * Answers ASK for jobs from the first-th on. A list is made for 0, and freed with its last jobs. -EPROTO: there is
 * no such job in the list; -ENOMEM.
 */
RLV_MUST_CHECK int poold_list_ask(const struct poold *poold, struct job_list *list, uint32_t first,
				  struct lease_jobs_answer *out);

/* LIMIT and DRAIN of a user. -EACCES; errors of broker_limit: nothing has changed. */
RLV_MUST_CHECK int poold_command(struct poold *poold, uint32_t uid, const struct lease_message *in);

#endif
