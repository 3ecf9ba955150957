/*
 * units.h - parses and prints sizes, counts, durations and rates.
 */
#ifndef RLV_PROGRAM_UNITS_H
#define RLV_PROGRAM_UNITS_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define UNITS_TEXT_BYTES 24

/*
 * Parses a size in bytes: 4096, 64K, 2MiB, 1.5G; K M G T P are powers of 1024, with or without iB
 * or B. -EINVAL, -ERANGE: over 64 bits.
 */
int units_parse_bytes(const char *text, uint64_t *out) RLV_MUST_CHECK;

/*
 * Parses a count: 1000000, 1e6, 500k, 2M (powers of 1000), 64Ki (of 1024), 2^20. -EINVAL, -ERANGE:
 * over 64 bits.
 */
int units_parse_count(const char *text, uint64_t *out) RLV_MUST_CHECK;

/*
 * Parses a duration into ns: 1.5 = 1.5s, 500ms, 50us, 3m. -EINVAL (also if negative), -ERANGE (over
 * 285 years).
 */
int units_parse_duration(const char *text, int64_t *ns_out) RLV_MUST_CHECK;

/* True for HOST, HOST:PORT, :PORT or [V6]:PORT, as accepted by --listen of the daemons. */
bool units_is_address(const char *text);

/* Parses a finite decimal number, also negative, without a suffix. -EINVAL. */
int units_parse_number(const char *text, double *out) RLV_MUST_CHECK;

/*
 * Writes value with three digits and a prefix, a power of 1000: "43.1 M", "512", "0.50". Returns
 * text.
 */
const char *units_format_si(double value, char text[UNITS_TEXT_BYTES]);

/* Writes bytes with three digits and a unit, a power of 1024: "1.50 GiB", "64 B". Returns text. */
const char *units_format_bytes(uint64_t bytes, char text[UNITS_TEXT_BYTES]);

/*
 * Writes value with three digits, or as an integer, without a prefix: "0.52", "11.9", "1204".
 * Returns text.
 */
const char *units_format_number(double value, char text[UNITS_TEXT_BYTES]);

#endif
