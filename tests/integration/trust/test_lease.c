/*
 * Leases of other clients: attacks with the numbers in shared memory, client id, pid, start time
 * and boot id, on a connection of its own.
 */
#include "tests/support/processes.h"
#include "tests/support/test.h"

#include "wire/control.pb-c.h"
#include "wire/control/dial.h"

#include "base/os/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define STORE "s"

struct fixture {
	struct processes ps;
	char socket[PROCESSES_PATH + 64];
	char token[80];
};

static int setup(void **state)
{
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	(void)processes_metad(&fx.ps, STORE, NULL);
	processes_path(&fx.ps, STORE "/metad.sock", fx.socket);
	processes_token(&fx.ps, STORE, fx.token);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	processes_fini(&fx->ps);
	return 0;
}

static uint64_t soon(void)
{
	return deadline_after(clock_monotonic(), PROCESSES_WAIT_MS * CLOCK_NS_PER_MS);
}

/* Connects as the client of that id, 0 = a new one. */
static void come(const struct fixture *fx, uint64_t wanted_id, struct channel *ch,
		 struct dial_peer *peer)
{
	const struct dial_opts opts = {
		.socket = fx->socket,
		.token = fx->token,
		.role = "client",
		.software = "test",
		.client_id = wanted_id,
		.deadline_ns = soon(),
	};

	if (dial_open(&opts, ch, peer))
		fail_msg("%s", error_last());
}

static int renew(struct channel *ch)
{
	Relive__LeaseRenewRequest request = RELIVE__LEASE_RENEW_REQUEST__INIT;
	Relive__LeaseRenewReply *reply;
	struct channel_frame frame;
	int ret = channel_call(ch, RELIVE__TYPE__TYPE_LEASE_RENEW, &request.base, soon(), &frame);

	if (ret)
		return ret;
	reply = (Relive__LeaseRenewReply *)channel_unpack(&relive__lease_renew_reply__descriptor,
							  &frame);
	assert_non_null(reply);
	ret = dial_status(reply->status);
	relive__lease_renew_reply__free_unpacked(reply, NULL);
	return ret;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/* It is the same process, even: all that the server could ask about it fits. */
CASE(lease__is_not_resumed_by_its_numbers)
{
	struct fixture *fx = *state;
	struct dial_peer owner, thief;
	struct channel mine, other;

	come(fx, 0, &mine, &owner);
	assert_int_equal(renew(&mine), 0);
	come(fx, owner.client_id, &other, &thief);
	assert_true(thief.client_id != owner.client_id);
	assert_int_equal(renew(&mine), 0);
	assert_int_equal(renew(&other), 0);
	channel_fini(&mine);
	channel_fini(&other);
}

int main(void)
{
	return test_run(NULL, NULL);
}
