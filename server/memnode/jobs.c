#include "server/memnode/jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/mem/alloc.h"

#define JOB_BYTES ((ssize_t)sizeof(struct memnode_job *)) /* a pipe carries pointers to jobs */

struct memnode_jobs {
	int todo[2]; /* pipes of pointers: read end, write end */
	int done[2];
	pthread_t worker;
	bool works;
};

static void *jobs_work(void *arg)
{
	struct memnode_jobs *jobs = arg;
	struct memnode_job *job;

	while (read(jobs->todo[0], &job, (size_t)JOB_BYTES) == JOB_BYTES) {
		const struct channel_frame frame = { .head = job->head, .body = job->body };

		memnode_serve(&job->svc, &frame, &job->answer);
		if (write(jobs->done[1], &job, (size_t)JOB_BYTES) != JOB_BYTES)
			mem_free(job);
	}
	return NULL;
}

int memnode_jobs_open(struct memnode_jobs **jobs_out)
{
	struct memnode_jobs *jobs = mem_zalloc(sizeof(*jobs));
	int ret = 0;

	if (!jobs)
		return error_set(-ENOMEM, "memory node: cannot allocate memory");
	jobs->todo[0] = jobs->todo[1] = jobs->done[0] = jobs->done[1] = -1;
	/* The control loop must not block on its pipe ends. */
	if (pipe2(jobs->todo, O_CLOEXEC) || pipe2(jobs->done, O_CLOEXEC) ||
	    fcntl(jobs->todo[1], F_SETFL, O_NONBLOCK) || fcntl(jobs->done[0], F_SETFL, O_NONBLOCK))
		ret = error_set(-errno, "pipe: %s", strerror(errno));
	if (ret == 0) {
		ret = -pthread_create(&jobs->worker, NULL, jobs_work, jobs);
		jobs->works = ret == 0;
	}
	if (ret) {
		memnode_jobs_close(&jobs);
		return ret;
	}
	*jobs_out = jobs;
	return 0;
}

void memnode_jobs_close(struct memnode_jobs **jobs_ptr)
{
	struct memnode_jobs *jobs = *jobs_ptr;
	struct memnode_job *job;

	if (!jobs)
		return;
	close(jobs->todo[1]);
	jobs->todo[1] = -1;
	if (jobs->works)
		pthread_join(jobs->worker, NULL);
	while (jobs->done[0] >= 0 && (job = memnode_jobs_get(jobs)) != NULL)
		mem_free(job);
	for (int i = 0; i < 2; i++) {
		if (jobs->todo[i] >= 0)
			close(jobs->todo[i]);
		if (jobs->done[i] >= 0)
			close(jobs->done[i]);
	}
	mem_free(jobs);
	*jobs_ptr = NULL;
}

int memnode_jobs_put(struct memnode_jobs *jobs, const struct memnode_service *svc,
		     const struct channel_frame *frame, uint64_t connection)
{
	struct memnode_job *job = mem_zalloc(sizeof(*job) + frame->head.length);

	if (!job)
		return error_set(-ENOMEM, "cannot allocate a request of %u bytes",
				 frame->head.length);
	job->svc = *svc;
	job->head = frame->head;
	job->connection = connection;
	if (frame->head.length)
		memcpy(job->body, frame->body, frame->head.length);
	if (write(jobs->todo[1], &job, (size_t)JOB_BYTES) != JOB_BYTES) {
		mem_free(job);
		return error_set(-EBUSY, "too many requests are queued");
	}
	return 0;
}

int memnode_jobs_fd(const struct memnode_jobs *jobs)
{
	return jobs->done[0];
}

struct memnode_job *memnode_jobs_get(struct memnode_jobs *jobs)
{
	struct memnode_job *job;

	return read(jobs->done[0], &job, (size_t)JOB_BYTES) == JOB_BYTES ? job : NULL;
}
