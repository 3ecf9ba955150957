/*
 * pace.h - how far apart iterations that repeat should begin, so that most run together.
 *
 * Beginning whatever fits now may leave no room for a third job, where waiting a little would. Of jobs
 * that run iteration after iteration, all beginning that far apart, one after the other, is as good as
 * any shifts that a search by coordinates has found; so one number is looked for, not one for each job.
 */
#ifndef RLV_DEVICE_PACE_H
#define RLV_DEVICE_PACE_H

#include "device/curve.h"

#define PACE_JOBS 8u

/*
 * The least time from one begin to the next with which 1 <= n <= PACE_JOBS jobs get most done within room;
 * 0 if waiting gains less than 1 %. All gaps of whole 64ths of the longest period are tried over eight
 * periods, which takes a few ms for eight jobs. gain[k]: progress of k together beside one; 0 if not known.
 */
uint64_t pace_find(const struct curve *const curves[], size_t n, uint64_t room,
		   const double gain[PACE_JOBS + 1]);

#endif
