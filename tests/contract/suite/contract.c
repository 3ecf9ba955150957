/*
 * contract.c - builds the rig around each test and runs the suite.
 */
#include "tests/contract/suite/contract.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/fixture/remote_target.h"

#include "base/mem/alloc.h"

#if RLV_HAVE_VERBS
#include "transport/verbs/calls.h"
#endif

static const struct contract_kind *current;

struct rig *rig_of(void **state)
{
	return *state;
}

static void *serve(void *arg)
{
	struct rig *rig = arg;

	while (!atomic_load(&rig->stop)) {
		if (rig->tg->ops->progress(rig->tg, 10 * (uint64_t)CLOCK_NS_PER_MS))
			print_message("progress: %s\n", error_last());
	}
	return NULL;
}

struct transport *rig_open(struct rig *rig, uint64_t client_id)
{
	struct transport_opts opts = { .target = rig->tg, .client_id = client_id };
	struct transport *tr = NULL;

	if (rig->kind->open)
		assert_int_equal(rig->kind->open(rig, client_id, &tr), 0);
	else if (transport_open(rig->uri, &opts, &tr))
		fail_msg("open %s: %s", rig->uri, error_last());
	return tr;
}

struct region *rig_attach(struct rig *rig, struct transport *tr, uint64_t client_id,
			  uint32_t rights)
{
	struct region_grant grant;
	struct region *region = NULL;

	assert_int_equal(transport_grant(rig->tg, client_id, rig->spec.id, rights, &grant), 0);
	if (transport_attach(tr, &grant, &region))
		fail_msg("attach: %s", error_last());
	return region;
}

uint64_t rig_load(struct region *region, uint64_t off)
{
	uint64_t word = 0;

	assert_int_equal(transport_load(region, off, &word), 0);
	return word;
}

void rig_store(struct region *region, uint64_t off, uint64_t word)
{
	assert_int_equal(transport_store(region, off, &word, sizeof(word)), 0);
}

static void listen_at(struct rig *rig)
{
	bool wire = rig->kind->target && strcmp(rig->kind->target, "shm") != 0;
	char address[128];

	(void)snprintf(address, sizeof(address), "%s%s/node", wire ? ":0;" : "", rig->dir);
	if (rig->kind->far)
		address[strcspn(address, ";")] = 0;
	if (rig->tg->ops->listen(rig->tg, address))
		fail_msg("listen: %s", error_last());
	(void)snprintf(rig->uri, sizeof(rig->uri), "%s", rig->tg->ops->uri(rig->tg));
	assert_int_equal(pthread_create(&rig->server, NULL, serve, rig), 0);
	rig->serving = true;
}

/* -------- a device without memory windows -------- */

#if RLV_HAVE_VERBS
static const struct verbs_calls *with_windows; /* NULL while no rig hides them */
static struct verbs_calls without_windows;

static int query_without_windows(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int ret = with_windows->query_device(context, attr);

	attr->max_mw = 0;
	return ret;
}

static void hide_windows(void)
{
	assert_int_equal(verbs_calls_load(&with_windows), 0);
	without_windows = *with_windows;
	without_windows.query_device = query_without_windows;
	verbs_calls_use(&without_windows);
}

static void show_windows(void)
{
	if (with_windows)
		verbs_calls_use(with_windows);
	with_windows = NULL;
}
#else
static void hide_windows(void)
{
	fail_msg("this build has no verbs");
}

static void show_windows(void)
{
}
#endif

/* -------- the rig -------- */

static void open_target(struct rig *rig)
{
	struct target_opts opts = { .pool_bytes = RIG_POOL,
				    .private_memory = rig->kind->private_memory,
				    .exclusive = !rig->kind->listens };
	const char *kind = rig->kind->target ? rig->kind->target : "shm";
	char path[128];

	if (rig->kind->in_file) {
		(void)snprintf(path, sizeof(path), "%s/pool", rig->dir);
		opts.path = path;
		opts.dir = rig->kind->in_dir;
		opts.create = true;
	}
	if (rig->kind->apart ? remote_target_open(kind, &opts, &rig->tg)
			     : transport_target_open(kind, &opts, &rig->tg))
		fail_msg("target: %s", error_last());
	(void)snprintf(rig->uri, sizeof(rig->uri), "embed:");
	if (rig->kind->listens)
		listen_at(rig);
}

int rig_setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	*state = rig;
	rig->kind = current;
	if (rig->kind->no_windows)
		hide_windows();
	temp_dir_make(rig->dir);
	open_target(rig);
	rig->spec = (struct target_region){
		.kind = 1, .object = 2, .part = 3, .role = RIG_ROLE, .size = RIG_REGION
	};
	assert_int_equal(rig->tg->ops->register_region(rig->tg, &rig->spec), 0);
	rig->tr = rig_open(rig, RIG_CLIENT);
	rig->region = rig_attach(rig, rig->tr, RIG_CLIENT, RIGHT_ALL);
	rig->tr->stats = (struct transport_stats){ 0 };
	return 0;
}

void rig_close_target(struct rig *rig)
{
	if (rig->serving) {
		atomic_store(&rig->stop, true);
		assert_int_equal(pthread_join(rig->server, NULL), 0);
		rig->serving = false;
	}
	transport_target_close(&rig->tg);
}

int rig_teardown(void **state)
{
	struct rig *rig = *state;
	char path[128];

	transport_close(&rig->tr);
	rig_close_target(rig);
	show_windows();
	(void)snprintf(path, sizeof(path), "%s/pool", rig->dir);
	temp_dir_remove(path);
	/* fails if the target left its socket or lock behind */
	assert_int_equal(rmdir(rig->dir), 0);
	free(rig);
	return 0;
}

int rig_in_child(int (*fn)(struct rig *rig), struct rig *rig)
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(fn(rig));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

void contract_use(const struct contract_kind *kind)
{
	current = kind;
}

bool contract_lacks_device(const char *target)
{
	struct target_opts opts = { .pool_bytes = RIG_REGION };
	struct transport_target *tg = NULL;
	int ret = transport_target_open(target, &opts, &tg);

	if (ret == 0)
		ret = tg->ops->listen(tg, ":0");
	transport_target_close(&tg);
	if (ret)
		print_message("skipped: %s\n", error_last());
	return ret != 0;
}

int contract_run(const struct contract_kind *kind)
{
	struct CMUnitTest tests[96];
	size_t n = 0;

	contract_use(kind);
	assert_true(contract_data_count + contract_checks_count + contract_target_count <= 96);
	for (size_t i = 0; i < contract_data_count; i++)
		tests[n++] = contract_data_tests[i];
	for (size_t i = 0; i < contract_checks_count; i++)
		tests[n++] = contract_checks_tests[i];
	for (size_t i = 0; i < contract_target_count; i++)
		tests[n++] = contract_target_tests[i];
	return _cmocka_run_group_tests(kind->name, tests, n, NULL, NULL);
}
