/*
 * Words that a client may write in a table's memory, and their effect on others: only the server
 * decides the owner of a slot and whether the table exists; the descriptor is the catalog's.
 */
#include "tests/support/attack/crash_rows.h"
#include "tests/support/processes.h"
#include "tests/support/fixture/store_fixture.h"
#include "tests/support/must.h"

#include "client/writer/append.h"
#include "client/sampler/sampler.h"
#include "client/store/store.h"

#include "wire/region.h"
#include "wire/table_layout.h"

#include "base/crc32c.h"
#include "base/os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct fixture {
	struct processes ps;
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
};

static int setup(void **state)
{
	static const char *const memory[] = { "--size", "64M", NULL };
	static struct crash_rows rows;
	static struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	processes_init(&fx.ps);
	(void)processes_metad(&fx.ps, "s", NULL);
	(void)processes_memnode(&fx.ps, "s", "a", memory);
	must(rlv_store_open("shm:s", NULL, &fx.store), "open");
	store_fixture_await_node(fx.store);
	fx.table = store_fixture_crash_table(fx.store, 2048, 64);
	must(rlv_writer_open(fx.table, NULL, &fx.writer), "writer");
	must(rlv_sampler_open(fx.table, NULL, &fx.sampler), "sampler");
	crash_rows_fill(&rows, 1, 0, 200);
	must(rlv_writer_append(fx.writer, 0, &rows.steps, NULL), "append");
	*state = &fx;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	(void)!rlv_sampler_close(&fx->sampler);
	(void)!rlv_writer_close(&fx->writer);
	(void)!rlv_table_close(&fx->table);
	(void)!rlv_store_close(&fx->store);
	processes_fini(&fx->ps);
	return 0;
}

/* The tree as a client has it that changes priorities. */
static uint8_t *tree_of(struct fixture *fx)
{
	return handle_shard(&fx->writer->h, 0)->tree->base;
}

/* -------- identities -------- */

/* Owner of a client slot, from its pid to its boot id. */
struct identity {
	uint32_t pid;
	uint32_t reserved;
	uint64_t start_time;
	uint8_t boot_id[16];
};

static struct identity own_identity(void)
{
	struct process_id self = { 0 };
	struct identity identity = { .reserved = 0 };

	assert_int_equal(process_self(&self), 0);
	identity.pid = self.pid;
	identity.start_time = self.start_time;
	memcpy(identity.boot_id, self.boot_id, sizeof(identity.boot_id));
	return identity;
}

struct seen {
	uint32_t readable, writable; /* slots that name this process, in what it has mapped */
	uint8_t *at;                 /* one of them */
};

static void look_at_map(const char *line, const struct identity *mine, struct seen *seen)
{
	unsigned long from, to;
	char rights[8];

	if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3 || rights[0] != 'r' ||
	    rights[3] != 's')
		return;
	for (uint8_t *at = (uint8_t *)from; at + sizeof(*mine) <= (uint8_t *)to; at += 8) {
		if (memcmp(at, mine, sizeof(*mine)) != 0)
			continue;
		seen->readable++;
		seen->writable += rights[1] == 'w';
		seen->at = at;
	}
}

static struct seen find_identities(void)
{
	const struct identity mine = own_identity();
	struct seen seen = { 0 };
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "re");

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "memfd:"))
			look_at_map(line, &mine, &seen);
	fclose(maps);
	return seen;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

/* Otherwise it could make the server settle, or kill, another client. */
CASE(client__cannot_write_who_has_a_slot)
{
	struct seen seen = find_identities();
	uintptr_t page;

	assert_true(seen.readable > 0);
	assert_int_equal(seen.writable, 0);
	page = (uintptr_t)seen.at & ~(uintptr_t)4095;
	/* the descriptor that it has was opened to be read */
	assert_int_equal(mprotect((void *)page, 4096, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(errno, EACCES);
}

CASE(rows__of_who_learns_are_read_only)
{
	struct fixture *fx = *state;
	uint8_t *rows = handle_shard(&fx->sampler->h, 0)->rows->base;

	assert_int_equal(mprotect(rows, 4096, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(errno, EACCES);
}

CASE(tree__of_who_looks_is_read_only)
{
	struct fixture *fx = *state;
	uint8_t *tree = shard_of(fx->table->set.parts[0])->tree->base;

	assert_int_equal(mprotect(tree, 4096, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(errno, EACCES);
}

/* -------- writes of a client -------- */

/* "It was dropped", in all that a client can write to. */
CASE(state__that_a_client_writes_drops_no_table)
{
	struct fixture *fx = *state;
	const uint64_t dropped = REGION_DROPPED;
	const struct rlv_batch *batch;
	struct rlv_table *again;

	memcpy(tree_of(fx) + offsetof(struct region_superblock, state), &dropped, sizeof(dropped));
	must(rlv_sampler_sample(fx->sampler, 8, 0, &batch), "sample");
	rlv_batch_release(fx->sampler, batch);
	must(rlv_table_open(fx->store, "t", &again), "open again");
	must(rlv_table_close(&again), "close");
}

/* Sealed as it ought to be, and sound in itself: it is not what the catalog says. */
CASE(descriptor__that_a_client_changed_is_not_used)
{
	struct fixture *fx = *state;
	struct rlv_table *again = NULL;
	struct table_desc desc;

	memcpy(&desc, tree_of(fx) + DESC_OFF, sizeof(desc));
	desc.views[0].eps = 0.5;
	table_desc_seal(&desc, desc.shard);
	memcpy(tree_of(fx) + DESC_OFF, &desc, sizeof(desc));
	assert_int_equal(rlv_table_open(fx->store, "t", &again), -EBADMSG);
	assert_non_null(strstr(rlv_last_error(), "descriptor"));
}

int main(void)
{
	if (test_skips_valgrind("no pidfds"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
