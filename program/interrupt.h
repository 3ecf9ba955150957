/*
 * interrupt.h - clean shutdown of a command on SIGINT, SIGTERM and SIGHUP.
 */
#ifndef RLV_PROGRAM_INTERRUPT_H
#define RLV_PROGRAM_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

/* Makes the three signals set a flag and interrupt waits. Thread: setup. */
void interrupt_install(void);

/* For a child that its parent stops: Ctrl-C of the terminal does not end it. */
void interrupt_ignore(void);

/* The first signal received, 0 if none. Thread: any. */
int interrupt_pending(void);

/* Sleeps for ns, or until a signal arrives. */
void interrupt_sleep(int64_t ns);

#endif
