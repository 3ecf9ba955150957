/*
 * interrupt.h - clean shutdown of a command on SIGINT, SIGTERM and SIGHUP.
 */
#ifndef RLV_PROGRAM_INTERRUPT_H
#define RLV_PROGRAM_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Makes SIGINT, SIGTERM and SIGHUP set a flag and interrupt waits, and ignores SIGPIPE. Thread:
 * setup.
 */
void interrupt_install(void);

/*
 * Ignores SIGINT, SIGTERM and SIGHUP: for a child that its parent stops, so that Ctrl-C does not
 * end it.
 */
void interrupt_ignore(void);

/* The number of the first signal received since interrupt_install, 0 if none. Thread: any. */
int interrupt_pending(void);

/* Sleeps for ns, or until a signal arrives; not at all if interrupt_pending(). */
void interrupt_sleep(int64_t ns);

#endif
