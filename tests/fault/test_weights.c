/*
 * The n-th transport operation of a publish or fetch fails, or it and all behind it: the result is a typed
 * error, readers keep the last whole generation, what comes next succeeds, and no space is lost. The linker hands
 * the library's transport_open to us (cmake/tests.cmake).
 */
#include "tests/support/fake/fault.h"
#include "tests/support/fake/wire_transport.h"
#include "tests/support/must.h"
#include "tests/support/wrap_open.h"

#include "relive/weights.h"

#include <errno.h>
#include <string.h>

#define ELEMENTS 70000u /* of 4 bytes: an anchor has chunks, a delta has none */
#define BEFORE 6u       /* generations of an undisturbed learner */
#define MOST 400u

/* The transport that was opened last, and how many were. */
static struct transport *last;
static uint64_t opened;

static int put_on_a_faulty_wire(struct transport **tr)
{
	int ret = fault_wrap(wire_wrap(*tr), NULL, tr);

	last = *tr;
	opened++;
	return ret;
}

WRAP_TRANSPORT_OPEN(put_on_a_faulty_wire)

/* -------- generations -------- */

static uint32_t values[ELEMENTS], copy[ELEMENTS];
/* Generations have a second tensor, which is tied to the first, or lies apart. */
static bool two, apart;

static void fill(uint64_t version)
{
	for (uint32_t i = 0; i < ELEMENTS; i++)
		values[i] = copy[i] = i * 7 + (i % 1000 < version ? (uint32_t)version : 0);
}

static int publish(struct rlv_generations *weights, uint64_t version, uint32_t flags)
{
	struct rlv_tensor tensors[2] = { { .size = sizeof(tensors[0]),
					   .dtype = RLV_U32,
					   .ndim = 1,
					   .name = "x",
					   .shape = { ELEMENTS },
					   .data = values } };

	tensors[1] = tensors[0];
	tensors[1].name = "y";
	tensors[1].data = apart ? copy : values;
	fill(version);
	return rlv_weights_publish(weights, tensors, two ? 2 : 1, version, flags);
}

static void expect_whole(const struct rlv_generation *got)
{
	fill(got->version);
	for (uint32_t i = 0; i < got->n_tensors; i++)
		assert_memory_equal(got->tensors[i].data, values, sizeof(values));
}

static void expect_typed(int code)
{
	static const int typed[] = { -ETIMEDOUT, -ECONNRESET, -EHOSTDOWN, -EIO, -EAGAIN };
	bool known = code == 0;

	for (size_t i = 0; i < sizeof(typed) / sizeof(typed[0]); i++)
		known |= code == typed[i];
	if (!known)
		fail_msg("%s: %s", rlv_error_name(code), rlv_last_error());
	assert_true(code == 0 || rlv_last_error()[0] != '\0');
}

/* -------- a store -------- */

struct scene {
	struct rlv_store *store;
	struct rlv_generations *learner, *actor;
	struct transport *of_learner, *of_actor;
};

static void scene_open(struct scene *s)
{
	const struct rlv_weights_opts opts = { .size = sizeof(opts),
					       .bytes = 2 * sizeof(values),
					       .max_clients = 8,
					       .anchor_every = 4 };
	struct rlv_store_opts store = RLV_STORE_OPTS_INIT;

	*s = (struct scene){ .store = NULL };
	store.timeout_ns = 10 * (int64_t)1000000000;
	must(rlv_store_open("embed:", &store, &s->store), "rlv_store_open");
	must(rlv_weights_create(s->store, "policy", &opts, &s->learner), "rlv_weights_create");
	s->of_learner = last;
	must(rlv_weights_open(s->store, "policy", &s->actor), "rlv_weights_open");
	s->of_actor = last;
	assert_ptr_not_equal(s->of_learner, s->of_actor);
	for (uint64_t v = 1; v <= BEFORE; v++)
		must(publish(s->learner, v, 0), "publish");
}

static uint64_t live_bytes(struct rlv_store *store)
{
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;
	struct rlv_kv *kv = NULL;

	must(rlv_kv_open(store, "policy", &kv), "rlv_kv_open");
	must(rlv_kv_verify(kv, &report), "rlv_kv_verify");
	if (report.problems)
		fail_msg("%s", report.first_problem);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	return report.live_bytes;
}

/* Another learner takes over and publishes `version` as an anchor; all is as if nothing had happened. Returns what lives then. */
static uint64_t scene_end(struct scene *s, uint64_t version)
{
	struct rlv_generation got = RLV_GENERATION_INIT;
	struct rlv_generations *next = NULL;
	struct rlv_kv_info info = RLV_KV_INFO_INIT;
	struct rlv_kv *kv = NULL;
	uint64_t live, newest;

	/* A handle that has lost a connection connects again, or its slot would stay taken. */
	must(rlv_weights_poll(s->learner, &newest), "poll");
	must(rlv_weights_close(&s->learner), "rlv_weights_close");
	must(rlv_weights_open(s->store, "policy", &next), "rlv_weights_open");
	for (uint32_t i = 0; i < 3; i++) /* those before are dropped */
		must(publish(next, version + i, RLV_PUBLISH_ANCHOR), "publish");
	must(rlv_weights_fetch(s->actor, 0, 0, &got), "fetch");
	assert_int_equal(got.version, version + 2);
	expect_whole(&got);
	rlv_generation_release(&got);
	live = live_bytes(s->store);
	must(rlv_weights_close(&s->actor), "rlv_weights_close");
	must(rlv_weights_close(&next), "rlv_weights_close");
	must(rlv_kv_open(s->store, "policy", &kv), "rlv_kv_open");
	must(rlv_kv_info(kv, &info), "rlv_kv_info");
	assert_int_equal(info.extents_owned, 0);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	must(rlv_store_close(&s->store), "rlv_store_close");
	return live;
}

static uint64_t undisturbed(void)
{
	struct scene s;

	scene_open(&s);
	return scene_end(&s, BEFORE + 2);
}

/* Ends the plan. True if the fault came; a transport that it broke is closed, and another was opened. */
static bool heal(struct transport *tr, const struct fault_plan *plan, uint64_t opened_before)
{
	static const struct fault_plan none;
	struct fault_counts counts;

	if (opened > opened_before)
		return true;
	fault_get(tr, &counts);
	fault_set(tr, &none);
	return counts.calls >= plan->fail_at + plan->cut_at;
}

/* -------- sweeps -------- */

/* A call that a fault disturbs: of the learner, or of the actor after it. */
typedef int act_fn(struct scene *s, uint32_t flags, struct rlv_generation *got);

static int act_publish(struct scene *s, uint32_t flags, struct rlv_generation *got)
{
	(void)got;
	return publish(s->learner, BEFORE + 1, flags);
}

/* Of what was tied before. */
static int act_publish_apart(struct scene *s, uint32_t flags, struct rlv_generation *got)
{
	int ret;

	(void)got;
	apart = true;
	ret = publish(s->learner, BEFORE + 1, flags);
	apart = false;
	return ret;
}

static int act_fetch(struct scene *s, uint32_t flags, struct rlv_generation *got)
{
	(void)flags;
	return rlv_weights_fetch(s->actor, BEFORE, 0, got);
}

/* Reads the newest generation as it arrives, in three parts. */
static int act_arrive(struct scene *s, uint32_t flags, struct rlv_generation *got)
{
	uint32_t ready = 0;
	int ret = rlv_weights_limit(s->actor, 2 * 65472);

	(void)flags;
	if (ret == 0)
		ret = rlv_weights_begin(s->actor, BEFORE, 0, got, &ready);
	while (ret == 0 && ready < got->n_tensors)
		ret = rlv_weights_more(s->actor, got, &ready);
	return ret;
}

/* True if the fault came. */
static bool disturbed(const struct fault_plan *plan, act_fn *act, uint32_t flags, uint64_t live)
{
	struct rlv_generation held = RLV_GENERATION_INIT, got = RLV_GENERATION_INIT;
	const bool reads = act != act_publish && act != act_publish_apart;
	struct transport *tr;
	struct scene s;
	uint64_t before;
	bool came;
	int ret;

	scene_open(&s);
	tr = reads ? s.of_actor : s.of_learner;
	must(rlv_weights_fetch(s.actor, 0, 0, &held), "fetch");
	if (reads)
		must(publish(s.learner, BEFORE + 1, flags), "publish");
	before = opened;
	fault_set(tr, plan);
	ret = act(&s, flags, &got);
	came = heal(tr, plan, before);
	expect_typed(ret);
	if (reads && ret == 0)
		expect_whole(&got);
	rlv_generation_release(&got);
	must(reads ? act(&s, flags, &got) : rlv_weights_fetch(s.actor, 0, 0, &got), "again");
	assert_in_range(got.version, ret && !reads ? BEFORE : BEFORE + 1, BEFORE + 1);
	expect_whole(&got);
	rlv_generation_release(&got);
	assert_int_equal(held.version, BEFORE);
	expect_whole(&held);
	rlv_generation_release(&held);
	assert_int_equal(scene_end(&s, BEFORE + 2), live);
	return came;
}

static void sweep(act_fn *act, uint32_t flags)
{
	const uint64_t live = undisturbed();
	uint64_t n = 1;

	while (n < MOST && disturbed(&(struct fault_plan){ .fail_at = n }, act, flags, live) &&
	       disturbed(&(struct fault_plan){ .cut_at = n }, act, flags, live))
		n++;
	print_message("%llu operations\n", (unsigned long long)n - 1);
	assert_in_range(n, 3, MOST - 1);
}

TEST(publish__of_a_delta_with_a_failing_operation)
{
	sweep(act_publish, 0);
}

TEST(publish__of_an_anchor_with_a_failing_operation)
{
	sweep(act_publish, RLV_PUBLISH_ANCHOR);
}

TEST(publish__of_what_was_tied_before_with_a_failing_operation)
{
	two = true;
	sweep(act_publish_apart, 0);
	two = false;
}

TEST(fetch__of_a_delta_with_a_failing_operation)
{
	sweep(act_fetch, 0);
}

TEST(fetch__of_an_anchor_with_a_failing_operation)
{
	sweep(act_fetch, RLV_PUBLISH_ANCHOR);
}

TEST(arrive__with_a_failing_operation)
{
	sweep(act_arrive, RLV_PUBLISH_ANCHOR);
}

int main(void)
{
	return test_run(NULL, NULL);
}
