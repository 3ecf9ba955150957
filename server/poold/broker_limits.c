/*
 * broker_limits.c - what users and root allow: the budget, quotas of users and of jobs, and whether there are new jobs.
 */
#include "server/poold/broker_parts.h"

#include <errno.h>
#include <inttypes.h>

#include "device/ledger.h"

static int broker_limit_user(struct broker *broker, uint32_t uid, uint64_t quota)
{
	struct broker_user *place = NULL;

	for (uint32_t i = 0; i < BROKER_USERS; i++) {
		struct broker_user *user = &broker->users[i];

		if (user->quota && user->uid == uid) {
			user->quota = quota;
			return 0;
		}
		if (!user->quota && !place)
			place = user;
	}
	if (!place)
		return error_set(-ENOSPC, "%u users have quotas, the most that can have one",
				 BROKER_USERS);
	*place = (struct broker_user){ uid, quota };
	return 0;
}

int broker_check_limit(const struct broker *broker, const struct lease_limit *limit)
{
	uint64_t n = limit->bytes / broker->opts.extent_bytes;

	if (limit->bytes && (n == 0 || n > broker->ledger.n))
		return error_set(-EINVAL,
				 "a limit of %" PRIu64 " bytes: an extent has %" PRIu64
				 ", the device %" PRIu64,
				 limit->bytes, broker->opts.extent_bytes,
				 broker->ledger.n * broker->opts.extent_bytes);
	if (limit->kind == LEASE_LIMIT_BUDGET && n == 0)
		return error_set(-EINVAL, "a budget of 0 bytes");
	return 0;
}

int broker_limit(struct broker *broker, const struct lease_limit *limit)
{
	uint64_t n = limit->bytes / broker->opts.extent_bytes;
	int ret = broker_check_limit(broker, limit);
	uint32_t at;

	if (ret)
		return ret;
	if (limit->kind == LEASE_LIMIT_USER)
		return broker_limit_user(broker, limit->uid, n);
	if (limit->kind == LEASE_LIMIT_BUDGET) {
		broker->opts.budget = limit->bytes;
		ledger_limit(&broker->ledger, n);
		gate_limit(&broker->gate, limit->bytes);
		broker_shrink(broker);
		return 0;
	}
	at = broker_find(broker, limit->name);
	if (at == LEDGER_JOBS || broker->jobs[at].state != BROKER_MEMBER)
		return error_set(-ENOENT, "no job %s", limit->name);
	broker->jobs[at].kept->quota = limit->bytes;
	return ledger_quota(&broker->ledger, at, n ? n : UINT64_MAX);
}

void broker_drain(struct broker *broker, bool on)
{
	broker->drains = on;
}
