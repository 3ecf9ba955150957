/*
 * Names of tables at every door: the library in a process of its own and at a server, the server asked
 * without the library, and the command. All of them say the same of each name.
 */
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must_internal.h"

#include "relive/relive.h"

#include "client/table/signature.h"

#include "ds/replay/shard.h"

#include "wire/control.pb-c.h"
#include "wire/control/dial.h"

#include "base/os/clock.h"
#include "base/os/runtime_dir.h"

#include <errno.h>
#include <string.h>

#define LONGEST "a23456789012345678901234567890123456789012345678901234567890123"

static const struct {
	const char *name;
	bool good;
} names[] = {
	{ "t", true },        { "Table", true },  { "0", true },         { "_", true },
	{ "a.b-c_D9", true }, { "a..", true },    { LONGEST, true },     { LONGEST "4", false },
	{ "", false },        { ".", false },     { "..", false },       { ".hidden", false },
	{ "-x", false },      { "a b", false },   { "a/b", false },      { "a:b", false },
	{ "a\"b", false },    { "a'b", false },   { "a\\b", false },     { "a\nb", false },
	{ "a\tb", false },    { "a%sb", false },  { "a$b", false },      { "a*", false },
	{ "a@b", false },     { "a\x7f", false }, { "\xc3\xa4", false }, /* UTF-8 */
	{ "\xe4", false },                                               /* Latin-1 */
};

#define N_NAMES (sizeof(names) / sizeof(names[0]))

struct fixture {
	struct processes ps;
	struct rlv_store *store;
	struct channel ch;
	bool connected;
};

static const struct rlv_column columns[] = {
	{ .name = "obs", .dtype = RLV_F32, .role = RLV_OBS },
	{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
};

static struct rlv_table_opts usual(void)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;

	opts.columns = columns;
	opts.n_columns = 2;
	opts.capacity = 1024;
	return opts;
}

static int setup(void **state)
{
	const char *const node[] = { "--size", "32M", NULL };
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	(void)processes_metad(&fx.ps, "s", NULL);
	(void)processes_memnode(&fx.ps, "s", "a", node);
	must(rlv_store_open("shm:s", NULL, &fx.store));
	store_fixture_await_node(fx.store);
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	if (fx->connected)
		channel_fini(&fx->ch);
	must(rlv_store_close(&fx->store));
	processes_fini(&fx->ps);
	return 0;
}

static void judge(const char *door, size_t i, int ret)
{
	if ((ret == 0) != names[i].good)
		fail_msg("%s: name %zu, \"%s\", is %s: %s", door, i, names[i].name,
			 ret ? "refused" : "taken", error_last());
	if (ret && ret != -EINVAL)
		fail_msg("%s: name %zu, \"%s\": %s: %s", door, i, names[i].name, error_name(ret),
			 error_last());
}

/* -------- the library -------- */

static int create(struct rlv_store *store, const char *name)
{
	struct rlv_table_opts opts = usual();
	struct rlv_table *table = NULL;
	int ret = rlv_table_create(store, name, &opts, &table);

	if (ret == 0)
		must(rlv_table_close(&table));
	return ret;
}

static void try_all(struct rlv_store *store, const char *door)
{
	for (size_t i = 0; i < N_NAMES; i++) {
		const char *name = names[i].name;
		struct rlv_table *table = NULL;
		int ret;

		judge(door, i, create(store, name));
		ret = rlv_table_open(store, name, &table);
		judge(door, i, ret);
		if (ret == 0)
			must(rlv_table_close(&table));
		judge(door, i, rlv_table_drop(store, name));
	}
}

#define CASE(f) TEST_WITH(f, setup, teardown)

CASE(library__in_its_own_process)
{
	struct rlv_store *store = NULL;

	must(rlv_store_open("embed:", NULL, &store));
	try_all(store, "embed:");
	must(rlv_store_close(&store));
}

CASE(library__at_a_server)
{
	struct fixture *fx = *state;

	try_all(fx->store, "shm:");
}

/* -------- the server, asked by hand -------- */

static void dial(struct fixture *fx)
{
	char socket[RUNTIME_PATH_BYTES], token[RUNTIME_TOKEN_BYTES];
	struct dial_opts opts = { .socket = socket, .token = token, .role = "client" };
	struct runtime_dir dir;
	struct dial_peer peer;

	opts.software = "test";
	opts.deadline_ns = deadline_after(clock_monotonic(), 10 * CLOCK_NS_PER_S);
	must(runtime_dir_open("s", false, &dir));
	must(runtime_dir_token(&dir, token));
	must(runtime_dir_file(&dir, "metad.sock", socket));
	must(dial_open(&opts, &fx->ch, &peer));
	fx->connected = true;
}

static int ask(struct fixture *fx, uint16_t type, const ProtobufCMessage *request)
{
	uint64_t limit = deadline_after(clock_monotonic(), 10 * CLOCK_NS_PER_S);
	struct channel_frame frame;
	Relive__StatusReply *reply;
	int ret;

	must(channel_call(&fx->ch, type, request, limit, &frame));
	reply = (Relive__StatusReply *)channel_unpack(&relive__status_reply__descriptor, &frame);
	assert_non_null(reply);
	ret = dial_status(reply->status);
	relive__status_reply__free_unpacked(reply, NULL);
	return ret;
}

static int create_by_hand(struct fixture *fx, const char *name)
{
	Relive__TableCreateRequest request = RELIVE__TABLE_CREATE_REQUEST__INIT;
	const struct table_plan_opts plan = { 0 };
	struct rlv_table_opts opts = usual();
	struct table_desc desc;

	must(signature_encode("t", &opts, false, &desc));
	must(table_plan(&desc, &plan));
	memset(desc.name, 0, sizeof(desc.name));
	memcpy(desc.name, name, strnlen(name, sizeof(desc.name)));
	table_desc_seal(&desc, 0);
	request.desc = (ProtobufCBinaryData){ sizeof(desc), (uint8_t *)&desc };
	return ask(fx, RELIVE__TYPE__TYPE_TABLE_CREATE, &request.base);
}

CASE(server__asked_without_the_library)
{
	struct fixture *fx = *state;

	dial(fx);
	for (size_t i = 0; i < N_NAMES; i++) {
		Relive__TableOpenRequest open = RELIVE__TABLE_OPEN_REQUEST__INIT;
		Relive__TableDropRequest drop = RELIVE__TABLE_DROP_REQUEST__INIT;

		open.name = drop.name = (char *)names[i].name;
		judge("create by hand", i, create_by_hand(fx, names[i].name));
		judge("open by hand", i, ask(fx, RELIVE__TYPE__TYPE_TABLE_OPEN, &open.base));
		judge("drop by hand", i, ask(fx, RELIVE__TYPE__TYPE_TABLE_DROP, &drop.base));
	}
}

/* -------- the command -------- */

CASE(command__says_the_same)
{
	struct fixture *fx = *state;

	for (size_t i = 0; i < N_NAMES; i++) {
		const char *const args[] = { "table", "create", "--capacity",  "1024",
					     "--",    "shm:s",  names[i].name, NULL };
		int ret = processes_wait(&fx->ps, processes_start(&fx->ps, "relive", args),
					 PROCESSES_WAIT_MS);

		if ((ret == 0) != names[i].good)
			fail_msg("relive table create \"%s\": exit %d", names[i].name, ret);
		if (ret == 0)
			must(rlv_table_drop(fx->store, names[i].name));
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}
