/* Opening by name, and cases of the thin calls that need only one process. */
#include "tests/support/fake/fake_clock.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#include "transport/transport.h"

TEST(give_up__half_of_the_call_but_a_second_and_the_timeout_at_most)
{
	const uint64_t second = CLOCK_NS_PER_S;
	struct fake_clock fake;
	struct transport tr = { .clock = &fake.clock, .timeout_ns = 5 * second };

	fake_clock_init(&fake, 100);
	assert_int_equal(transport_give_up_ns(&tr), 100 + 5 * second);
	tr.deadline_ns = 100 + 8 * second;
	assert_int_equal(transport_give_up_ns(&tr), 100 + 4 * second);
	tr.deadline_ns = 100 + 20 * second;
	assert_int_equal(transport_give_up_ns(&tr), 100 + 5 * second);
	tr.deadline_ns = 50; /* it is over */
	assert_int_equal(transport_give_up_ns(&tr), 100 + second);
	tr.timeout_ns = second / 2;
	assert_int_equal(transport_give_up_ns(&tr), 100 + second / 2);
	tr.deadline_ns = DEADLINE_NEVER;
	tr.timeout_ns = UINT64_MAX;
	assert_true(transport_give_up_ns(&tr) < DEADLINE_NEVER);
}

TEST(transport_open__of_an_unknown_scheme)
{
	struct transport *tr = NULL;

	assert_int_equal(transport_open("tcp://host", NULL, &tr), -EINVAL);
	assert_non_null(strstr(error_last(), "embed:"));
	assert_non_null(strstr(error_last(), "shm:"));
	assert_int_equal(transport_open("", NULL, &tr), -EINVAL);
	assert_int_equal(transport_open("embed", NULL, &tr), -EINVAL);
	assert_int_equal(transport_open(NULL, NULL, &tr), -EINVAL);
	assert_null(tr);
}

TEST(transport_open__of_a_uri_that_is_too_long)
{
	char uri[TRANSPORT_URI_BYTES + 1];
	struct transport *tr = NULL;

	memset(uri, 'x', sizeof(uri));
	memcpy(uri, "shm:", 4);
	uri[TRANSPORT_URI_BYTES] = 0;
	assert_int_equal(transport_open(uri, NULL, &tr), -EINVAL);
	uri[TRANSPORT_URI_BYTES - 1] = 0; /* the socket's own limit comes next */
	assert_int_equal(transport_open(uri, NULL, &tr), -ENAMETOOLONG);
}

TEST(transport_open__embed_without_a_target)
{
	struct transport_opts opts = { .client_id = 1 };
	struct transport *tr = NULL;

	assert_int_equal(transport_open("embed:", NULL, &tr), -EINVAL);
	assert_int_equal(transport_open("embed:", &opts, &tr), -EINVAL);
	assert_non_null(strstr(error_last(), "target"));
}

TEST(transport_open__embed_with_something_behind)
{
	struct target_opts target_opts = { .pool_bytes = 2 << 20, .private_memory = true };
	struct transport_opts opts = { 0 };
	struct transport *tr = NULL;

	assert_int_equal(transport_target_open("shm", &target_opts, &opts.target), 0);
	assert_int_equal(transport_open("embed:file", &opts, &tr), -EINVAL);
	transport_target_close(&opts.target);
}

TEST(transport_open__embed_with_a_foreign_target)
{
	const struct transport_target_ops ops = { .name = "verbs" };
	struct transport_target target = { .ops = &ops };
	struct transport_opts opts = { .target = &target };
	struct transport *tr = NULL;

	assert_int_equal(transport_open("embed:", &opts, &tr), -EINVAL);
	assert_non_null(strstr(error_last(), "verbs"));
}

TEST(transport_open__shm_without_a_path)
{
	struct transport *tr = NULL;

	assert_int_equal(transport_open("shm:", NULL, &tr), -EINVAL);
	assert_non_null(strstr(error_last(), "path"));
}

TEST(target_open__of_an_unknown_kind)
{
	struct target_opts opts = { .pool_bytes = 2 << 20 };
	struct transport_target *tg = NULL;

	assert_int_equal(transport_target_open("tcp", &opts, &tg), -EINVAL);
	assert_int_equal(transport_target_open(NULL, &opts, &tg), -EINVAL);
	assert_int_equal(transport_target_open("shm", NULL, &tg), -EINVAL);
	assert_null(tg);
}

TEST(target_open__chooses_an_incarnation)
{
	struct target_opts opts = { .pool_bytes = 2 << 20, .private_memory = true };
	struct transport_target *a, *b, *c;

	assert_int_equal(transport_target_open("shm", &opts, &a), 0);
	assert_int_equal(transport_target_open("shm", &opts, &b), 0);
	opts.incarnation = 5;
	assert_int_equal(transport_target_open("shm", &opts, &c), 0);
	assert_true(a->incarnation && b->incarnation && a->incarnation != b->incarnation);
	assert_int_equal(c->incarnation, 5);
	transport_target_close(&a);
	transport_target_close(&b);
	transport_target_close(&c);
}

TEST(transport__defaults)
{
	struct target_opts target_opts = { .pool_bytes = 2 << 20, .private_memory = true };
	struct transport_opts opts = { 0 };
	struct transport *tr = NULL;

	assert_int_equal(transport_target_open("shm", &target_opts, &opts.target), 0);
	assert_int_equal(transport_open("embed:", &opts, &tr), 0);
	assert_ptr_equal(tr->clock, clock_monotonic());
	assert_int_equal(tr->timeout_ns, 5 * CLOCK_NS_PER_S);
	assert_true(transport_is_addressable(tr));
	transport_close(&tr);
	assert_null(tr);
	transport_target_close(&opts.target);
}

int main(void)
{
	return test_run(NULL, NULL);
}
