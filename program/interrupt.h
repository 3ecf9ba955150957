/*
 * interrupt.h - SIGINT, SIGTERM and SIGHUP ask the command to clean up and end.
 */
#ifndef RLV_PROGRAM_INTERRUPT_H
#define RLV_PROGRAM_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

/* From now on the three signals only set a flag; waits are interrupted. Thread: setup. */
void interrupt_install(void);

/* For a child whose parent tells it when to stop: Ctrl-C of the terminal does not end it. */
void interrupt_ignore(void);

/* The signal that came first, 0 if none. Thread: any. */
int interrupt_pending(void);

/* Sleeps at most ns, less when a signal comes. */
void interrupt_sleep(int64_t ns);

#endif
