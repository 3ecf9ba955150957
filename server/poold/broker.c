#include "server/poold/broker_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem/alloc.h"

#include "device/backend.h"

void broker_waits(struct broker *broker, struct broker_job *job)
{
	if (!job->asked_ns)
		job->asked_ns = broker_now(broker);
}

void broker_waited(struct broker *broker, struct broker_job *job)
{
	if (!job->asked_ns || job->wants || job->want || job->returns)
		return;
	job->waited_ns += broker_now(broker) - job->asked_ns;
	job->asked_ns = 0;
}

/* -------- open and close -------- */

/* Enters a job whose roster entry is complete. */
static int broker_enter(struct broker *broker, uint32_t at)
{
	struct broker_job *job = &broker->jobs[at];
	struct roster_job *kept = &broker->roster.file->jobs[at];
	uint64_t quota = kept->quota ? kept->quota / broker->opts.extent_bytes : UINT64_MAX;
	int ret;

	*job = (struct broker_job){ .state = BROKER_MEMBER, .kept = kept };
	ret = ledger_attach_at(&broker->ledger, kept->name, kept->uid, quota, at);
	if (ret == 0) {
		broker->ledger.jobs[at].clock = &job->clock;
		ret = broker_gate_arrive(broker, at);
		if (ret && ledger_detach(&broker->ledger, at))
			log_error("enter: %s", error_last());
	}
	if (ret)
		job->state = BROKER_NOBODY;
	return ret;
}

/* Jobs and extents of an earlier broker, as far as their processes are there. */
static int broker_restore(struct broker *broker)
{
	struct roster_file *file = broker->roster.file;

	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		struct roster_job *kept = &file->jobs[i];
		struct process_id id = roster_process(kept);
		int ret;

		kept->name[LEDGER_NAME_BYTES - 1] = 0;
		if (kept->incarnation && process_is_gone(&id))
			kept->incarnation = 0;
		ret = kept->incarnation ? broker_enter(broker, i) : 0;
		if (ret)
			return error_prefix(ret, "job %s of the roster: ", kept->name);
	}
	for (uint32_t i = 0; i < broker->ledger.n; i++) {
		struct roster_extent *kept = &file->extents[i];
		uint32_t at = kept->owner - 1;
		int ret;

		broker->ledger.extents[i].generation = kept->generation;
		if (kept->owner == 0 || at >= LEDGER_JOBS || !file->jobs[at].incarnation) {
			kept->owner = 0;
			continue;
		}
		ret = ledger_adopt(&broker->ledger, at, (struct extent_ref){ i, kept->generation });
		if (ret)
			return error_prefix(ret, "extent %" PRIu32 " of the roster: ", i);
	}
	return ledger_check(&broker->ledger);
}

static int broker_prepare(struct broker *broker)
{
	const struct broker_opts *opts = &broker->opts;
	uint64_t n = opts->extent_bytes ? opts->bytes / opts->extent_bytes : 0;
	struct gate_opts gate = {
		.order = opts->order,
		.sharing = opts->sharing,
		.budget = opts->budget,
		.aging = opts->aging,
		.patience = GATE_PATIENCE,
	};
	int ret;

	if (n == 0 || n > UINT32_MAX / 2 || opts->budget < opts->extent_bytes ||
	    opts->budget > n * opts->extent_bytes)
		return error_set(-EINVAL,
				 "a device of %" PRIu64 " bytes, a budget of %" PRIu64
				 ", extents of %" PRIu64,
				 opts->bytes, opts->budget, opts->extent_bytes);
	ret = ledger_init(&broker->ledger, (uint32_t)n, opts->budget / opts->extent_bytes);
	if (ret == 0)
		ret = gate_init(&broker->gate, &gate, LEDGER_JOBS);
	if (ret)
		return ret;
	broker->extents = mem_array(n, sizeof(*broker->extents));
	if (!broker->extents)
		return error_set(-ENOMEM, "cannot allocate %" PRIu64 " extents", n);
	ret = opts->strict && opts->scrubs
		      ? scrub_open(opts->backend, opts->extent_bytes, LEASE_REFS, &broker->scrub)
		      : 0;
	if (ret == 0)
		ret = roster_open(&broker->roster, opts->roster, (uint32_t)n, opts->extent_bytes);
	return ret ? ret : broker_restore(broker);
}

int broker_open(const struct broker_opts *opts, struct broker **broker_out)
{
	struct broker *broker = mem_zalloc(sizeof(*broker));
	int ret;

	if (!broker)
		return error_set(-ENOMEM, "broker: cannot allocate %zu bytes", sizeof(*broker));
	broker->opts = *opts;
	if (!opts->budget && opts->extent_bytes)
		broker->opts.budget = opts->bytes - opts->bytes % opts->extent_bytes;
	ret = broker_prepare(broker);
	if (ret) {
		broker_close(&broker);
		return error_prefix(ret, "broker: ");
	}
	*broker_out = broker;
	return 0;
}

static void broker_drop_pages(struct broker_job *job)
{
	if (job->page)
		munmap((void *)(uintptr_t)job->page, LEASE_PROGRESS_BYTES);
	if (job->permit)
		munmap(job->permit, sizeof(*job->permit));
	job->page = NULL;
	job->permit = NULL;
}

void broker_close(struct broker **broker_inout)
{
	struct broker *broker = *broker_inout;

	if (!broker)
		return;
	for (uint32_t i = 0; i < LEDGER_JOBS; i++)
		broker_drop_pages(&broker->jobs[i]);
	scrub_close(&broker->scrub);
	for (uint32_t i = 0; broker->extents && i < broker->ledger.n; i++) {
		if (broker->extents[i].handle &&
		    broker->opts.backend->ops->extent_release(broker->opts.backend,
							      broker->extents[i].handle))
			log_warn("close: %s", error_last());
	}
	roster_close(&broker->roster);
	mem_free(broker->extents);
	gate_destroy(&broker->gate);
	ledger_destroy(&broker->ledger);
	mem_free(broker);
	*broker_inout = NULL;
}

/* -------- jobs -------- */

_Static_assert(sizeof(struct backend_progress) == LEASE_PROGRESS_BYTES, "pages of progress");

/* Maps a page that its owner cannot shrink, so that reading it is no SIGBUS. */
static int broker_map(int fd, const char *name, size_t bytes, int access, void **page_out)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;
	void *page;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) || st.st_size != (off_t)bytes)
		return error_set(
			-EINVAL,
			"the page of %s is no memfd of %zu bytes, sealed against shrinking", name,
			bytes);
	page = mmap(NULL, bytes, access, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return error_set(-ENOMEM, "mmap of the page of %s: %s", name, strerror(errno));
	*page_out = page;
	return 0;
}

static int broker_map_pages(const int fds[2], struct broker_job *pages_out)
{
	void *progress, *permit;
	int ret = broker_map(fds[0], "progress", LEASE_PROGRESS_BYTES, PROT_READ, &progress);

	if (ret)
		return ret;
	pages_out->page = progress;
	ret = broker_map(fds[1], "its permit", sizeof(struct lease_permit), PROT_READ | PROT_WRITE,
			 &permit);
	if (ret) {
		broker_drop_pages(pages_out);
		return ret;
	}
	pages_out->permit = permit;
	(void)lease_permit_recall(permit); /* of an earlier broker */
	return 0;
}

static bool same_process(const struct roster_job *kept, const struct broker_peer *peer)
{
	return kept->pid == peer->process.pid && kept->start_time == peer->process.start_time &&
	       kept->uid == peer->uid;
}

/* The place of a job that comes back; LEDGER_JOBS: it is not known here. */
static int broker_find_again(const struct broker *broker, const struct broker_peer *peer,
			     const struct lease_hello *hello, uint32_t *at_out)
{
	uint32_t at = 0;

	while (at < LEDGER_JOBS && (broker->jobs[at].state == BROKER_NOBODY ||
				    broker->jobs[at].kept->incarnation != hello->incarnation))
		at++;
	*at_out = at;
	if (at == LEDGER_JOBS ||
	    (broker->jobs[at].state == BROKER_MEMBER && same_process(broker->jobs[at].kept, peer)))
		return 0;
	return error_set(-EACCES, "job %s is of process %" PRIu32, broker->jobs[at].kept->name,
			 broker->jobs[at].kept->pid);
}

static uint32_t broker_free_place(const struct broker *broker)
{
	uint32_t at = 0;

	while (at < LEDGER_JOBS && broker->jobs[at].state != BROKER_NOBODY)
		at++;
	return at;
}

bool broker_is_full(const struct broker *broker)
{
	return broker_free_place(broker) == LEDGER_JOBS;
}

uint32_t broker_find(const struct broker *broker, const char *name)
{
	uint32_t at = 0;

	while (at < LEDGER_JOBS && (broker->jobs[at].state == BROKER_NOBODY ||
				    strcmp(broker->jobs[at].kept->name, name) != 0))
		at++;
	return at;
}

/* A place and a roster entry, which is valid when it has its incarnation. */
static int broker_admits(const struct broker *broker, const struct broker_peer *peer,
			 const struct lease_hello *hello, uint32_t *at_out)
{
	uint32_t at;

	if (broker->drains)
		return error_set(-EBUSY, "the pool is being drained: it takes no new jobs");
	if (!hello->name[0] || !hello->weight)
		return error_set(-EINVAL, "a job needs a name, and a weight above 0");
	for (uint32_t i = 0; i < LEDGER_JOBS && !broker->opts.strict; i++) {
		const struct ledger_job *other = &broker->ledger.jobs[i];

		if (other->attached && other->uid != peer->uid)
			return error_set(
				-EACCES,
				"job %s is of another user than job %s: start relive-poold "
				"with --strict",
				hello->name, other->name);
	}
	at = broker_free_place(broker);
	*at_out = at;
	return at < LEDGER_JOBS ? 0
				: error_set(-ENOSPC,
					    "the pool has %u jobs, the most that it "
					    "can have",
					    LEDGER_JOBS);
}

static int broker_new(struct broker *broker, const struct broker_peer *peer,
		      const struct lease_hello *hello, uint32_t *at_out)
{
	struct roster_file *file = broker->roster.file;
	struct roster_job *kept;
	int ret = broker_admits(broker, peer, hello, at_out);

	if (ret)
		return ret;
	kept = &file->jobs[*at_out];
	*kept = (struct roster_job){
		.persistent = hello->persistent,
		.peak = hello->peak,
		.quota = hello->quota,
		.duration_ns = hello->duration_ns,
		.start_time = peer->process.start_time,
		.pid = peer->process.pid,
		.uid = peer->uid,
		.weight = hello->weight,
		.priority = hello->priority,
	};
	memcpy(kept->boot_id, peer->process.boot_id, sizeof(kept->boot_id));
	memcpy(kept->name, hello->name, sizeof(kept->name));
	_Static_assert(LEASE_NAME_BYTES == LEDGER_NAME_BYTES, "names");
	ret = broker_enter(broker, *at_out);
	if (ret)
		return ret;
	file->incarnation = max_u64(file->incarnation + 1, hello->incarnation);
	kept->incarnation = hello->incarnation ? hello->incarnation : file->incarnation;
	return 0;
}

int broker_hello(struct broker *broker, const struct broker_peer *peer,
		 const struct lease_hello *hello, const int pages[2], uint32_t *at_out)
{
	struct broker_job mapped = { .page = NULL }, *job;
	uint32_t at = LEDGER_JOBS;
	int ret;

	broker_recall(broker);
	ret = broker_map_pages(pages, &mapped);
	if (ret == 0 && hello->incarnation)
		ret = broker_find_again(broker, peer, hello, &at);
	if (ret == 0 && at < LEDGER_JOBS) {
		for (uint32_t i = 0; i < broker->ledger.n; i++)
			broker->extents[i].presented = false;
		broker_withdraw(broker, at);
		broker_drop_pages(&broker->jobs[at]);
	} else if (ret == 0) {
		ret = broker_new(broker, peer, hello, &at);
	}
	if (ret) {
		broker_drop_pages(&mapped);
		return ret;
	}
	broker->stats.adopted += hello->incarnation != 0;
	job = &broker->jobs[at];
	job->page = mapped.page;
	job->permit = mapped.permit;
	job->connected = true;
	job->parks = hello->flags & LEASE_PARKS;
	*at_out = at;
	return hello->flags & LEASE_PARKED ? broker_park(broker, at) : 0;
}

void broker_connected(struct broker *broker, uint32_t at, bool connected)
{
	struct broker_job *job = &broker->jobs[at];

	job->connected = connected;
	if (!connected)
		broker_cancel(broker, at);
}

void broker_cancel(struct broker *broker, uint32_t at)
{
	struct broker_job *job = &broker->jobs[at];

	if (job->state != BROKER_MEMBER)
		return;
	broker_recall(broker);
	broker_withdraw(broker, at);
	job->left_ns = broker_now(broker);
	job->want = 0;
	if (job->wants)
		gate_idle(&broker->gate, job->gate);
	job->wants = false;
	if (job->returns && broker_park(broker, at))
		log_error("cancel: %s", error_last());
	broker_waited(broker, job);
}

/* Ends a job that holds nothing. */
static void broker_forget(struct broker *broker, uint32_t at)
{
	broker->jobs[at].kept->incarnation = 0;
	broker_drop_pages(&broker->jobs[at]);
	broker->jobs[at].state = BROKER_NOBODY;
	if (ledger_detach(&broker->ledger, at))
		log_error("forget: %s", error_last());
}

void broker_bye(struct broker *broker, uint32_t at, const struct lease_refs *refs)
{
	broker_cancel(broker, at);
	broker_gate_leave(broker, at);
	if (broker_marks(&broker->jobs[at], refs->marks))
		log_warn("bye: %s", error_last());
	broker_pend_all(broker, at, false);
	broker->jobs[at].state = BROKER_LEAVING;
	(void)broker_turn(broker); /* a broker that is started after the answer does not know it */
}

void broker_died(struct broker *broker, uint32_t at)
{
	if (broker->jobs[at].state == BROKER_NOBODY)
		return;
	if (broker->jobs[at].state == BROKER_MEMBER) {
		broker_cancel(broker, at);
		broker_gate_leave(broker, at);
	}
	for (uint32_t i = 0; i < broker->ledger.n; i++) {
		const struct extent *extent = &broker->ledger.extents[i];

		broker->pending -= extent->state == EXTENT_PENDING && extent->job == at;
	}
	broker_forget_extents(broker, at);
	ledger_reclaim(&broker->ledger, at);
	broker_forget(broker, at);
	broker->stats.deaths++;
}

/* -------- what is due -------- */

uint64_t broker_turn(struct broker *broker)
{
	uint64_t due = broker_gate_turn(broker); /* it admits who may wait for memory */

	due = deadline_min(due, broker_memory_turn(broker));
	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		if (broker->jobs[i].state == BROKER_LEAVING && !broker->ledger.jobs[i].held)
			broker_forget(broker, i);
	}
	return due;
}

int broker_check(const struct broker *broker)
{
	uint64_t pending = 0;

	for (uint32_t i = 0; i < broker->ledger.n; i++) {
		const struct roster_extent *kept = &broker->roster.file->extents[i];
		const struct extent *extent = &broker->ledger.extents[i];
		bool used = extent->state != EXTENT_FREE && extent->state != EXTENT_LEASED;

		pending += extent->state == EXTENT_PENDING;
		if (kept->owner != (used ? extent->job + 1 : 0) ||
		    (used && kept->generation != extent->generation))
			return error_set(-EPROTO,
					 "extent %" PRIu32 ": the roster says job %" PRIu32
					 ", the ledger %" PRIu32,
					 i, kept->owner - 1, extent->job);
	}
	if (pending != broker->pending)
		return error_set(-EPROTO, "%" PRIu64 " extents are pending, not %" PRIu64, pending,
				 broker->pending);
	return ledger_check(&broker->ledger);
}
