/*
 * backend_fault.h - any other backend, one of whose calls fails: for sweeps over n = 1, 2, 3, ..
 */
#ifndef RLV_DEVICE_BACKEND_FAULT_H
#define RLV_DEVICE_BACKEND_FAULT_H

#include <stdbool.h>

#include "device/backend.h"

struct backend_fault {
	struct backend base;
	struct backend *inner;
	uint64_t calls;   /* that could fail, since backend_fault_init */
	uint64_t fail_at; /* number of the call that fails, from 1; 0 = none */
	int code;         /* of the failing call; -ENODEV: all later ones fail as well */
};

/* Borrows inner; close does not close it. Thread: owner, for all calls of the backend. */
void backend_fault_init(struct backend_fault *fault, struct backend *inner, uint64_t fail_at,
			int code);

#endif
