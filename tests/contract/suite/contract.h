/*
 * contract.h - the suite that every transport must pass.
 *
 * A transport adds one file test_<name>.c: a struct contract_kind and one call of contract_run.
 */
#ifndef RLV_TESTS_CONTRACT_SUITE_CONTRACT_H
#define RLV_TESTS_CONTRACT_SUITE_CONTRACT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include "transport/transport.h"

#define RIG_CLIENT 7
#define RIG_POOL ((uint64_t)32 << 20)
#define RIG_ROLE 4 /* of pages, which may have memory of their own */
#define RIG_REGION ((uint64_t)4 << 20)

struct rig;

struct contract_kind {
	const char *name;
	const char *target; /* kind of target; NULL = "shm" */
	bool listens;       /* clients connect through a socket */
	bool in_file;       /* the pool outlives the target: a file ... */
	bool in_dir;        /* ... or a directory */
	bool private_memory;
	bool no_windows; /* verbs: rights by protection domains */
	bool far;        /* over a wire: clients map nothing, as on another host */
	bool twice; /* each client of it is two clients of its target, so each attachment counts as two */
	bool apart; /* the target is in another process (tests/support/fixture/remote_target.h) */
	/* NULL = transport_open of the rig's address */
	int (*open)(struct rig *rig, uint64_t client_id, struct transport **tr_out);
};

/* A target, an initiator, and a region attached with all rights. */
struct rig {
	const struct contract_kind *kind;
	char dir[TEMP_DIR_BYTES];
	char uri[TRANSPORT_URI_BYTES];
	struct transport_target *tg;
	struct target_region spec;
	struct transport *tr;
	struct region *region;
	pthread_t server;
	_Atomic bool stop;
	bool serving;
};

/* Kind of transport that rig_setup builds from now on. */
void contract_use(const struct contract_kind *kind);

/*
 * True, after a line that says why, if no target of that kind can listen on this host; the test
 * program then returns TEST_EXIT_SKIP.
 */
bool contract_lacks_device(const char *target);

/* Runs all tests of the suite; returns the exit status. */
int contract_run(const struct contract_kind *kind);

/* Tests of clients that cheat over RDMA and of malformed messages to nodes; device: a real one. */
int contract_run_rights(void);
int contract_run_input(bool device);

/*
 * Tests of a target of that kind that is killed, stopped or gone; called first in main, because the
 * program is also its own target. is_passive: operations do not need its process.
 */
int contract_run_lost(const char *kind, bool is_passive, int argc, char **argv);

/* -------- for the tests -------- */

struct rig *rig_of(void **state);
struct transport *rig_open(struct rig *rig, uint64_t client_id);
struct region *rig_attach(struct rig *rig, struct transport *tr, uint64_t client_id,
			  uint32_t rights);
uint64_t rig_load(struct region *region, uint64_t off);
void rig_store(struct region *region, uint64_t off, uint64_t word);

/* Ends the server's thread and closes the target. */
void rig_close_target(struct rig *rig);

/* Runs fn in a forked child and returns its result. */
int rig_in_child(int (*fn)(struct rig *rig), struct rig *rig);

#define assert_error(call, code) \
	do { \
		error_clear(); \
		assert_int_equal((call), (code)); \
		assert_int_equal(error_last_code(), (code)); \
		assert_true(error_last()[0] != 0); \
	} while (0)

int rig_setup(void **state);
int rig_teardown(void **state);

#define CONTRACT_TEST(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)

extern const struct CMUnitTest contract_data_tests[];
extern const size_t contract_data_count;
extern const struct CMUnitTest contract_checks_tests[];
extern const size_t contract_checks_count;
extern const struct CMUnitTest contract_target_tests[];
extern const size_t contract_target_count;

#endif
