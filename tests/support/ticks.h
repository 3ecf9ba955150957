/*
 * ticks.h - signals that interrupt this thread's waits, each millisecond.
 */
#ifndef RLV_TESTS_SUPPORT_TICKS_H
#define RLV_TESTS_SUPPORT_TICKS_H

/* From now on signals come. The fifth writes a byte to fd, so that who reads there knows that waits were interrupted. */
void ticks_begin(int fd);

void ticks_end(void);

#endif
