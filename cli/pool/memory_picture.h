/*
 * memory_picture.h - the memory of simulated jobs over time: a panel for each device, in it an area for each job
 * and a line for the budget.
 */
#ifndef RLV_CLI_POOL_MEMORY_PICTURE_H
#define RLV_CLI_POOL_MEMORY_PICTURE_H

#include <stdint.h>

#include "base/error.h"

/* Of each column of pixels the moment is drawn at which a device held the most. */
struct memory_picture {
	uint32_t n_jobs, n_devices; /* job i is on device i % n_devices */
	double end;                 /* ns */
	double at;                  /* how far the columns are filled, ns */
	uint64_t *held, *totals;    /* of each job and of each device, now */
	double *most;               /* total of each device by column; -1: none yet */
	double *columns;            /* bytes of each job by column */
};

/* For a run that takes so many ns, on 1 to SIM_DEVICES devices. -ENOMEM; memory_picture_close in any case. */
RLV_MUST_CHECK int memory_picture_open(uint32_t n_jobs, uint32_t n_devices, double end,
				       struct memory_picture *picture_out);
void memory_picture_close(struct memory_picture *picture);

/* From the time `at` on the job holds so many bytes. ctx: the picture. Times rise. */
void memory_picture_watch(void *ctx, double at, uint32_t job, uint64_t bytes);

/* Writes a PNG file with the errors of picture_write. budget: bytes of a device. */
RLV_MUST_CHECK int memory_picture_write(struct memory_picture *picture, double budget,
					const char *path);

#endif
